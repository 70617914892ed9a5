package bind

import (
	"reflect"

	"github.com/filohttp/filo"
)

// Doc says about a handler of Handler what types don't tell. All of it may be left out.
type Doc struct {
	// ID names the operation in generated clients, such as "listTodos".
	ID string
	// Summary says in a line what the operation does, Description all that there is to say.
	Summary, Description string
	// Tags group operations.
	Tags []string
	// Deprecated says that clients shouldn't use it any more.
	Deprecated bool
	// Errors are the statuses of the function's errors, besides those of requests that can't be bound.
	Errors []int
}

func (d Doc) apply(op *operation) { op.description.Doc = d }

// Operation describes a handler of Handler. It is shared: nothing may change it.
type Operation struct {
	Doc Doc
	// Input is the struct that requests are read into.
	Input reflect.Type
	// Fields are what a request may have, in the order of body, form, header fields, cookies, query and path, and each in that
	// of the struct.
	Fields []Field
	// Strict says that requests may have nothing else: see Strict.
	Strict bool
	// Output is the type of the answer's body, nil for none.
	Output reflect.Type
	// MediaTypes are those of Output, JSON first.
	MediaTypes []string
	// Statuses are those of success, the usual one first.
	Statuses []int
	// Errors are those of errors that are known: those of Doc, and those of binding.
	Errors []int
}

// Field is what a request may have for a field of an Operation's Input.
type Field struct {
	// In is where it is: "body" for a member of a JSON object, "form" (of either media type), "header", "cookie", "query" or "path".
	In string
	// Name is what it is called there.
	Name string
	// Required says that it must be there. A field that several sources have isn't required of one of them.
	Required bool
	// Comma says that values may be in one, between commas.
	Comma bool
	// File says that it is a file, or several.
	File bool
	// Struct is the field of Input, or of a struct embedded there, with its type and tags.
	Struct reflect.StructField
}

// Describe returns what a handler of Handler knows of itself, and whether h is one. A handler around it, such as one with middleware,
// isn't; router.Router.Routes lists handlers without the middleware of their routes.
func Describe(h filo.Handler) (Operation, bool) {
	if h == nil || reflect.ValueOf(h).Pointer() != handlerCode {
		return Operation{}, false
	}
	// This code is known to be that of operation.handler, which has an answer to nil.
	described, ok := h(nil).(*description)
	if !ok {
		return Operation{}, false
	}
	return described.Operation, true
}

// handlerCode is the code that all handlers of Handler run first.
var handlerCode = reflect.ValueOf(new(operation).handler(nil)).Pointer()

// handler returns a handler that describes op if it is called without a request, as Describe does, and else is serve. A function's
// address doesn't tell one closure from another, but it does tell that a handler is of this code: that must be in one place.
//
//go:noinline
func (op *operation) handler(serve filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if c == nil {
			return &description{op.description}
		}
		return serve(c)
	}
}

// description is an Operation that is returned where handlers return errors.
type description struct{ Operation }

func (*description) Error() string { return "bind: a handler was called without a request" }

// fieldsOf returns what a request may have for a struct.
func fieldsOf(t reflect.Type) (fields []Field) {
	required, _ := requirementsOf(t)
	for _, in := range [...]source{inBody, inForm, inHeader, inCookie, inQuery, inPath} {
		if in == inBody && hasUnmarshaler(t) {
			continue
		}
		for _, m := range membersOf(t, in.tag(), in != inBody) {
			if in == inBody && isElsewhere(m.field) {
				continue
			}
			i := find(required, m.index)
			file := m.field.Type == fileType || m.field.Type == filesType
			fields = append(fields, Field{
				In: in.String(), Name: m.name, Struct: m.field, File: file,
				Required: i >= 0 && required[i].only(in),
				Comma:    in != inBody && hasOption(m.option, "comma"),
			})
		}
	}
	return fields
}

// only reports whether no source but in has the field. A request has one kind of body.
func (r *requirement) only(in source) bool {
	for other := inBody; other < sources; other++ {
		if r.names[other] != "" && other != in && (in > inMultipart || other > inMultipart) {
			return false
		}
	}
	return true
}
