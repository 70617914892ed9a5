package bind

import (
	"reflect"

	"github.com/filohttp/filo"
)

// Doc documents a handler made by Handler, beyond its types. Every field is optional.
type Doc struct {
	// ID names the operation in generated clients, such as "listTodos".
	ID string
	// Summary describes the operation in one line, Description in full.
	Summary, Description string
	// Tags group operations.
	Tags []string
	// Deprecated marks an operation that clients should no longer use.
	Deprecated bool
	// Errors are the statuses of errors that the function returns, in addition to the statuses of errors in binding.
	Errors []int
	// Security lists the ways for a client to authenticate, in OpenAPI's form: the client needs to satisfy only one of the maps, but all
	// schemes in that map, each with its scopes. The schemes are described in the document. nil means the document's own Security, and an
	// empty slice means that the operation needs no authentication. Security is only a description: middleware must enforce it.
	Security []map[string][]string
}

func (d Doc) apply(op *operation) { op.description.Doc = d }

// Operation describes a handler made by Handler. It is shared and must not be modified.
type Operation struct {
	Doc Doc
	// Input is the struct that requests are bound to.
	Input reflect.Type
	// Fields are the inputs of a request, ordered by source (body, form, header fields, cookies, query, path) and within a source
	// by struct field.
	Fields []Field
	// Strict reports that requests with any other input are refused: see the function Strict.
	Strict bool
	// Output is the type of the response body, or nil for none.
	Output reflect.Type
	// MediaTypes are the media types of Output, JSON first.
	MediaTypes []string
	// Statuses are the success statuses, the usual one first.
	Statuses []int
	// Errors are the known error statuses: those in Doc.Errors, and those of errors in binding.
	Errors []int
}

// Field is one input of a request, bound to a field of an Operation's Input.
type Field struct {
	// In is the input's source: "body" for a member of a JSON object, "form" (of either media type), "header", "cookie", "query"
	// or "path".
	In string
	// Name is the input's name in that source.
	Name string
	// Required reports that the request must have the input. For a path, the handler's routes must have the wildcard. If several
	// sources can set the field, Required is false for each of them.
	Required bool
	// Comma reports that one value of the input may hold several elements, separated by commas.
	Comma bool
	// File reports that the input is a file, or several files.
	File bool
	// Struct is the bound field of Input, or of a struct embedded there, with its type and tags.
	Struct reflect.StructField
}

// Describe returns the description of a handler made by Handler, and reports whether h is such a handler. A handler with
// middleware around it isn't; router.Router.Routes lists handlers without the middleware of their routes.
func Describe(h filo.Handler) (Operation, bool) {
	if h == nil || reflect.ValueOf(h).Pointer() != handlerCode {
		return Operation{}, false
	}
	// h is a closure of operation.handler, which returns the description if the Ctx is nil.
	described, ok := h(nil).(*description)
	if !ok {
		return Operation{}, false
	}
	return described.Operation, true
}

// handlerCode is the code pointer that all handlers made by Handler share.
var handlerCode = reflect.ValueOf(new(operation).handler(nil)).Pointer()

// handler returns a handler that calls serve, or describes op if it is called without a request, as Describe does. All these closures
// have the same code pointer, by which Describe recognizes them. The code must therefore exist only once, so this method must not be
// inlined.
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

// description is an Operation in the form of an error, since handlers return errors.
type description struct{ Operation }

func (*description) Error() string { return "bind: a handler was called without a request" }

// fieldsOf returns the struct's fields that a request can fill.
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
				Required: i >= 0 && required[i].only(in) || in == inPath && needsWildcard(m.field),
				Comma:    in != inBody && hasOption(m.option, "comma"),
			})
		}
	}
	return fields
}

// only reports whether the given source is the only one that can set the field. If it is a kind of body, the other kinds of bodies don't
// count, since a request has only one body.
func (r *requirement) only(in source) bool {
	for other := inBody; other < sources; other++ {
		if r.names[other] != "" && other != in && (in > inMultipart || other > inMultipart) {
			return false
		}
	}
	return true
}
