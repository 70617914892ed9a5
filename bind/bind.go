package bind

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// JSON decodes a JSON body into the value that v points to, with Server.JSON or encoding/json.
//
// A field with a tag of another source (path, query, header, cookie or form) but without a json tag is never read from a JSON body, even
// if the body has a member with the field's Go name. The same holds for a *multipart.FileHeader. If no field of a struct is left, JSON
// returns an error without a status.
//
// The Content-Type must be application/json or end in +json. Whatever Server.JSON is, JSON refuses a body that isn't UTF-8, or
// nests arrays and objects more than 1000 levels deep, before it decodes the body. A custom codec must itself refuse data after
// the value, and numbers that don't fit the field's type.
func JSON(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inBody) }

// Form reads an application/x-www-form-urlencoded body into the struct that v points to, according to the tag form.
func Form(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inForm) }

// Multipart reads a multipart/form-data body, within the server's MultipartLimits, into the struct that v points to, according to
// the tag form.
func Multipart(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inMultipart) }

// Query reads the query parameters into the struct that v points to, according to the tag query.
func Query(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inQuery) }

// Path reads the values of the route's wildcards into the struct that v points to, according to the tag path. If the route has no
// wildcard with the name in a tag, Path returns an error without a status, unless the field is a pointer or has a tag of another
// source.
func Path(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inPath) }

// Header reads header fields into the struct that v points to, according to the tag header. If a cacheable answer depends on one of them,
// add its name to the answer's Vary: Header and All don't, since most bound fields, such as Idempotency-Key, change no cached answer.
func Header(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inHeader) }

// Cookie reads cookies into the struct that v points to, according to the tag cookie.
func Cookie(c *filo.Ctx, v any, options ...Option) error { return one(c, v, options, inCookie) }

// All reads every part of the request into the struct that v points to: first the body, if there is one, as JSON, Form or Multipart do,
// depending on its Content-Type, then header fields, cookies, the query and the path. If several sources have a value for a field, the
// last source in this order wins. A JSON body doesn't fill fields that have only tags of other sources: see JSON. A form is refused with
// 415 if the struct has fields for JSON but none with the tag form. JSON is refused with 415 if the struct has fields with the tag form
// but none for JSON. At the first request of each route for GET, All logs a warning if a field has only the tag form.
func All(c *filo.Ctx, v any, options ...Option) error {
	target, err := structOf(v)
	if err != nil {
		return err
	}
	if p := &plansOf(target.Type())[inMultipart]; p.seen != nil && isGET(c.Route()) && p.seen.add(c.Route()) {
		p.warnOfGET(c, target.Type())
	}
	b := binding{c: c, option: merge(options), all: true}
	return b.everything(v, target, true)
}

// everything binds from all sources. It reads the body only if withBody is set.
func (b *binding) everything(v any, target reflect.Value, withBody bool) error {
	if withBody && b.c.Request.ContentLength() != 0 {
		if err := b.body(v, target); err != nil {
			return err
		}
	}
	plans := plansOf(target.Type())
	for in := inHeader; in < sources; in++ {
		if err := b.text(in, &plans[in], target); err != nil {
			return err
		}
	}
	return b.finish(v)
}

// one binds from one source.
func one(c *filo.Ctx, v any, options []Option, in source) error {
	b := binding{c: c, option: merge(options)}
	if in == inBody {
		if err := b.json(v); err != nil {
			return err
		}
		return b.finish(v)
	}
	target, err := structOf(v)
	if err != nil {
		return err
	}
	p := &plansOf(target.Type())[in]
	if p.none != nil {
		return p.none
	}
	if err := b.text(in, p, target); err != nil {
		return err
	}
	return b.finish(v)
}

// binding is the state of one call.
type binding struct {
	c        *filo.Ctx
	option   Option
	all      bool          // a field may come from any source
	bound    [sources]bool // the sources that were bound from
	required []requirement // the fields of the struct itself that must be in the input
	present  bits          // those fields of required that were in the input
	problems problems
	// partial says that decoding has stopped at an error, so that some valid values might not be bound.
	partial bool
}

// body binds from the body, which it decodes according to its Content-Type.
func (b *binding) body(v any, target reflect.Value) error {
	contentType := b.c.Request.Header.GetBytes("Content-Type")
	mediaType := syntax.MediaType(contentType)
	switch {
	case syntax.IsJSON(contentType):
		if detail := mustBeForm(target.Type()); detail != "" {
			return unexpectedType(detail)
		}
		return b.json(v)
	case syntax.EqualFold(mediaType, "application/x-www-form-urlencoded"):
		return b.form(inForm, target)
	case syntax.EqualFold(mediaType, "multipart/form-data"):
		return b.form(inMultipart, target)
	}
	if b.c.Request.ContentLength() < 0 {
		// A chunked body that turns out to be empty needs no type.
		if body, err := b.c.Body(); err != nil || len(body) == 0 {
			return err
		}
	}
	return unexpectedType("must be application/json, application/x-www-form-urlencoded or multipart/form-data")
}

// mustBeForm returns the detail of the error for a JSON body if all fields of the struct can be filled only by forms, ""
// otherwise.
func mustBeForm(t reflect.Type) string {
	form := &plansOf(t)[inMultipart]
	switch o := objectOf(t); {
	case len(form.fields) == 0 || o.hasOwn() || o.readsItself:
		return ""
	case slices.ContainsFunc(form.fields, func(f field) bool { return f.file() }):
		return "must be multipart/form-data"
	}
	return "must be application/x-www-form-urlencoded or multipart/form-data"
}

// form binds from a form. It refuses the form if the struct's fields can be filled only by JSON.
func (b *binding) form(in source, target reflect.Value) error {
	p := &plansOf(target.Type())[in]
	if len(p.fields) == 0 && p.err == nil && objectOf(target.Type()).hasOwn() {
		return unexpectedType(mustBeJSON)
	}
	if b.encoded() {
		// Any compressed multipart body is refused, because parsing it might not fail: gzip stores short forms uncompressed, and the parser
		// would take gzip's header for a preamble and miss the first part.
		if in == inMultipart {
			return unsupportedCoding(b.c)
		}
		if body, err := b.c.Body(); err == nil && !utf8.Valid(body) {
			return unsupportedCoding(b.c)
		}
	}
	return b.text(in, p, target)
}

// finish runs the validator, and returns its errors and those that binding has found.
func (b *binding) finish(v any) error {
	b.missing()
	if b.option.validator == nil || b.partial {
		return b.problems.err()
	}
	err := b.validate(v)
	var invalid *Error
	switch {
	case err == nil:
		return b.problems.err()
	case errors.As(err, &invalid):
		return b.located(invalid, reflect.TypeOf(v).Elem())
	case len(b.problems.Fields) > 0:
		return b.problems.err() // further errors may be consequences of the wrong values
	}
	return err
}

// validate asks the validator.
func (b *binding) validate(v any) error {
	if asks, ok := b.option.validator.(RequestValidator); ok {
		return asks.ValidateRequest(b.c, v)
	}
	return b.option.validator.Validate(v)
}

// located returns the errors that binding has found, and those of the validator. An error of the validator names a Go field, so located
// looks up that field's place in the request. It drops the validator's error for a field whose value was refused, since the validator has
// seen the field's previous value.
func (b *binding) located(invalid *Error, t reflect.Type) error {
	refused := b.problems.Fields[:len(b.problems.Fields):len(b.problems.Fields)]
	for _, field := range invalid.Fields {
		if field.Field != "" && field.In == "" {
			b.locate(&field, t)
		}
		if slices.ContainsFunc(refused, func(other FieldError) bool { return other.covers(field) }) {
			continue
		}
		if !b.problems.add(422, field) {
			break
		}
	}
	if len(refused) == 0 {
		b.problems.Status, b.problems.Err = cmp.Or(invalid.Status, 422), invalid.Err
	}
	b.problems.More = b.problems.More || invalid.More
	e := b.problems.Error
	return &e
}

// structOf returns the struct that v points to.
func structOf(v any) (reflect.Value, error) {
	pointer := reflect.ValueOf(v)
	if pointer.Kind() != reflect.Pointer || pointer.IsNil() || pointer.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("bind: the target must be a pointer to a struct, not a %T", v)
	}
	return pointer.Elem(), nil
}

func unexpectedType(detail string) error {
	return &Error{Status: 415, Fields: []FieldError{{In: "header", Name: "Content-Type", Detail: detail, Code: "type"}}}
}
