package bind

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/filohttp/filo"
)

// NoContent is the output type of functions whose response has no body: see Handler.
type NoContent = struct{}

// HandlerOption changes how a handler made by Handler reads requests and answers them. Option, Doc, and the results of Status and As are
// handler options.
type HandlerOption interface{ apply(op *operation) }

// Handler returns a handler that reads a request into a struct of type In, as All does, calls f, and answers with f's output.
//
// The handler reads a body only if In has fields for one. If In has a method SetDefaults with a pointer receiver, the handler calls
// it before binding. SetDefaults may set fields to slices, maps and pointers that all requests share: the handler copies what they refer
// to, except for fields with the tag json:"-". The handler returns errors of binding and of f, so the server's ErrorHandler sees them.
// Because the handler's normal response is JSON, errors become problem details unless the client's Accept prefers text.
//
// By default the response has the status 200 and contains f's output in JSON (see Ctx.JSON). The options Status and As change
// this, and f may set another status and header fields in c.Response. With NoContent as output, the default status is 204, and
// the body is empty unless f itself writes one to the response.
//
// Describe returns the handler's description, for documents such as those of OpenAPI. Handler panics if In isn't a struct that can be
// bound, or if it has tags of other frameworks that would have no effect. At the first request of each route it logs a warning if the
// route has a wildcard that no field of In reads, or if the route is for GET and a field has only the tag form.
func Handler[In, Out any](f func(c *filo.Ctx, in In) (Out, error), options ...HandlerOption) filo.Handler {
	op := newOperation(reflect.TypeFor[In](), reflect.TypeFor[Out](), options)
	_, hasDefaults := any(new(In)).(defaulter)
	return op.handler(func(c *filo.Ctx) error {
		answer, err := op.negotiated(c)
		if err != nil {
			return failed(c, err)
		}
		op.lookAt(c)
		in := new(In)
		if hasDefaults {
			any(in).(defaulter).SetDefaults()
			unshare(reflect.ValueOf(in).Elem())
		}
		if err := op.read(c, in); err != nil {
			return failed(c, err)
		}
		c.Response.SetStatus(op.description.Statuses[0])
		out, err := f(c, *in)
		if err != nil {
			return failed(c, err)
		}
		if answer == nil {
			return nil // f has written the whole response
		}
		if err := answer(c, c.Status(), out); err != nil {
			return failed(c, err)
		}
		return nil
	})
}

// operation is the state behind a handler made by Handler. All but seen is immutable.
type operation struct {
	seen        seenRoutes
	description Operation
	option      Option
	answers     []func(c *filo.Ctx, status int, v any) error // one for each of description.MediaTypes, in the same order
	withBody    bool
}

// newOperation panics for the programming mistakes that Handler documents.
func newOperation(in, out reflect.Type, options []HandlerOption) *operation {
	if in.Kind() != reflect.Struct {
		panic(fmt.Sprintf("bind: Handler's function has the input %v, which must be a struct", in))
	}
	op := &operation{description: Operation{Input: in}}
	d := &op.description
	if out != reflect.TypeFor[NoContent]() {
		d.Output = out
		As("application/json", (*filo.Ctx).JSON).apply(op)
	}
	for _, option := range options {
		option.apply(op)
	}
	if err := op.mistake(in); err != nil {
		panic(err.Error())
	}
	switch {
	case d.Statuses == nil && d.Output == nil:
		d.Statuses = []int{204}
	case d.Statuses == nil:
		d.Statuses = []int{200}
	}
	d.Strict = op.option.strict
	d.Fields = fieldsOf(in)
	op.withBody = slices.ContainsFunc(d.Fields, func(f Field) bool { return f.In == "body" || f.In == "form" })
	d.Errors = op.errors()
	return op
}

// mistake returns the programming mistake in a struct that is bound from all sources, nil if there is none.
func (op *operation) mistake(t reflect.Type) error {
	body := presenceOf(t)
	mistaken, unchecked := body.err, body.unchecked
	for _, p := range plansOf(t) {
		mistaken, unchecked = cmp.Or(p.err, mistaken), cmp.Or(p.unchecked, unchecked)
	}
	if mistaken == nil && op.option.validator == nil {
		return unchecked
	}
	return mistaken
}

// errors returns the sorted statuses of errors: those of binding, and those in the Doc.
func (op *operation) errors() []int {
	statuses := slices.Clone(op.description.Doc.Errors)
	if len(op.description.Fields) > 0 || op.option.strict {
		statuses = append(statuses, 400)
	}
	if len(op.answers) > 1 {
		statuses = append(statuses, 406)
	}
	if op.withBody {
		statuses = append(statuses, 413, 415, 422)
	}
	if op.option.validator != nil {
		statuses = append(statuses, 422)
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

// read binds a request to what v points to.
func (op *operation) read(c *filo.Ctx, v any) error {
	b := binding{c: c, option: op.option, all: true}
	return b.everything(v, reflect.ValueOf(v).Elem(), op.withBody)
}

// negotiated returns the function that sends the output in the media type that the client prefers, nil if there is no output. With a single
// media type, Accept is ignored. RFC 9110, section 12.4.1, lets a server "disregard the header field", and a 406 wouldn't help a client
// that can't read JSON.
func (op *operation) negotiated(c *filo.Ctx) (answer func(c *filo.Ctx, status int, v any) error, err error) {
	switch len(op.answers) {
	case 0:
		return nil, nil
	case 1:
		return op.answers[0], nil
	}
	offers := op.description.MediaTypes
	i := slices.Index(offers, c.Negotiate(offers...))
	if i < 0 {
		return nil, filo.Error(406, "the response is available as "+strings.Join(offers, ", "))
	}
	return op.answers[i], nil
}

// failed returns err. It sets the Content-Type to JSON first, so that the error is rendered as JSON, too.
func failed(c *filo.Ctx, err error) error {
	if !c.Committed() {
		c.Response.Header.Set("Content-Type", "application/json")
	}
	return err
}

// Status sets the status of successful responses to usual, instead of 200, or 204 for NoContent. The argument others lists, for the
// documentation, further statuses that f may set with c.Response.SetStatus. Status panics if a status isn't from 200 to 399, and Handler
// panics if usual allows no body but f has an output.
func Status(usual int, others ...int) HandlerOption {
	statuses := append([]int{usual}, others...)
	for _, status := range statuses {
		if status < 200 || status > 399 {
			panic(fmt.Sprintf("bind: Status(%d): it is for answers, whose status is 200 to 399; an error has its own, as filo.Error", status))
		}
	}
	return statusOption(statuses)
}

type statusOption []int

func (o statusOption) apply(op *operation) {
	if bodiless := o[0] == 204 || o[0] == 205 || o[0] == 304; bodiless && op.description.Output != nil {
		panic(fmt.Sprintf("bind: Status(%d) has no body, and the function returns a %v: make that a bind.NoContent", o[0], op.description.Output))
	}
	op.description.Statuses = o
}

// As offers the output as mediaType in addition to JSON: Ctx.Negotiate chooses between them according to the client's Accept. A
// client that accepts none of the offered types gets 406, before f is called.
//
//	bind.As("application/xml", (*filo.Ctx).XML)
//
// The function answer sends v, the output of the handler's function.
func As(mediaType string, answer func(c *filo.Ctx, status int, v any) error) HandlerOption {
	return asOption{mediaType, answer}
}

type asOption struct {
	mediaType string
	answer    func(c *filo.Ctx, status int, v any) error
}

func (o asOption) apply(op *operation) {
	if op.description.Output == nil {
		panic(fmt.Sprintf("bind: As(%q): the function returns a bind.NoContent, which has no media type", o.mediaType))
	}
	op.description.MediaTypes = append(op.description.MediaTypes, o.mediaType)
	op.answers = append(op.answers, o.answer)
}

func (o Option) apply(op *operation) { op.option = merge([]Option{op.option, o}) }
