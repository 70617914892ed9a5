package otel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
)

// scope is the name of the instrumentation scope, which spans and metrics carry.
const scope = "github.com/filohttp/filo/contrib/otel"

// defaultMethods are the methods that the conventions know: the methods of RFC 9110, PATCH (RFC 5789) and QUERY.
var defaultMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"}

// Options are the options of Middleware.
type Options struct {
	// TracerProvider, MeterProvider and Propagators say where spans and metrics go, and how the client's trace and baggage are read from its
	// request. The defaults are OpenTelemetry's global ones at the time when Middleware is called, which do nothing unless the program has
	// set them.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagators    propagation.TextMapPropagator

	// TrustClients is for servers whose clients are all services of the same operator: the span joins the client's trace, and is recorded if
	// that trace is recorded. By default the span begins a new trace, with a link to the client's trace; otherwise any client could have its
	// requests recorded. Baggage is always read.
	TrustClients bool
	// Filter, if set, is called first. A request for which it returns false gets no span and isn't measured.
	Filter func(c *filo.Ctx) bool
	// Attributes, if set, is called when the request has been answered. It appends attributes to the span's attributes, and returns them all.
	// It isn't called if the span isn't recorded. It must not keep the slice.
	Attributes func(c *filo.Ctx, attributes []attribute.KeyValue) []attribute.KeyValue

	// Query records the request's query as url.query. "REDACTED" replaces the values of parameters that usually hold secrets (see
	// middleware.IsRedacted) and of those in Redact.
	Query bool
	// Redact are the names of further parameters whose values aren't recorded.
	Redact []string
	// Methods are the known methods, case-sensitive; other methods are "_OTHER". Default the methods of RFC 9110, PATCH and
	// QUERY.
	Methods []string
}

// Middleware gives each request a span, and measures it.
//
// The span's name is "{method} {route}", or the method alone if there is no route. The span has the attributes that the conventions require
// or recommend, and user_agent.original. The span's status is an error if the answer's status was 5xx, or if the answer was prevented or broken
// off. A 4xx isn't an error. An error that was answered with 5xx, or a panic, is added as an exception event. The metrics are
// http.server.request.duration, http.server.active_requests, http.server.request.body.size and http.server.response.body.size.
//
// A request ends when its handler returns. The size of a body that Response.SetBodyStream or Ctx.File sends later isn't measured, nor is the
// size of a chunked request body. The span and the metrics don't cover a connection after it was hijacked or parked.
//
// Put Middleware outside of all handlers and middleware that may answer a request, with Router.Use or around the server's handler, but inside
// of RealIP, so that it records the client's address that RealIP has found. If no middleware inside has rendered a handler's error as the
// response, Middleware does: see filo.Ctx.RenderError. It doesn't stop panics.
//
// Middleware panics if the options are invalid.
func Middleware(options ...Options) filo.Middleware {
	o := one(options)
	t := newTelemetry(&o)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if t.options.Filter != nil && !t.options.Filter(c) {
				return next(c)
			}
			return t.serve(c, next)
		}
	}
}

// one returns the options that were passed to Middleware, or the zero value if there are none. It panics if there are two.
func one(options []Options) (o Options) {
	if len(options) > 1 {
		panic("otel: Middleware takes one Options at most: set all of them in one")
	}
	if len(options) == 1 {
		o = options[0]
	}
	return o
}

// telemetry holds the state that all requests of a Middleware share.
type telemetry struct {
	options     Options
	tracer      trace.Tracer
	instruments instruments
	routes      routes
	secret      map[string]bool // the parameters of Options.Redact, in lower case

	methods      map[string]int // the indexes of methodLabels, except the last one
	methodLabels []string       // the last one stands for other methods
}

func newTelemetry(options *Options) *telemetry {
	t := &telemetry{options: *options, methods: make(map[string]int)}
	o := &t.options
	o.TracerProvider = cmp.Or(o.TracerProvider, api.GetTracerProvider())
	o.MeterProvider = cmp.Or(o.MeterProvider, api.GetMeterProvider())
	o.Propagators = cmp.Or(o.Propagators, api.GetTextMapPropagator())
	if o.Methods == nil {
		o.Methods = defaultMethods
	}
	for i, method := range o.Methods {
		if method == "" || valid(method) != method || slices.Contains(o.Methods[:i], method) {
			panic(fmt.Sprintf("otel: Methods: %q isn't a method, or is listed twice", method))
		}
		t.methods[method] = i
	}
	t.methodLabels = append(slices.Clone(o.Methods), semconv.HTTPRequestMethodOther.Value.AsString())
	t.secret = secretParameters(o.Redact)
	t.tracer = o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	t.instruments = newInstruments(o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)), t.methodLabels)
	t.routes.init()
	return t
}

// exchange holds the figures of one request and its answer.
type exchange struct {
	start  time.Time
	method int   // an index of telemetry.methodLabels
	https  bool  // the client's scheme is https
	size   int64 // the size of the request's body, -1 if it isn't known
	result result
	status int // 0 if there is no answer
	// cause is the error or the panic's value that has led to the result, or nil; stack is the panic's stack.
	cause any
	stack []byte
}

// result is how a request ended, apart from its status.
type result uint8

const (
	resultAnswered  result = iota
	resultBrokenOff        // the handler failed after the answer had begun
	resultAborted          // there is no answer
	resultLeft             // there is no answer, because the client has left
)

// errorTypes are the values of error.type for the results. For a 5xx answer, error.type is the status.
var errorTypes = [...]string{resultBrokenOff: "broken_off", resultAborted: "aborted", resultLeft: ""}

// serve runs the handler within a span, which it ends even if the handler panics or ends its goroutine.
func (t *telemetry) serve(c *filo.Ctx, next filo.Handler) (err error) {
	x := exchange{
		start: time.Now(), method: t.method(c.Request.MethodBytes()), https: middleware.Scheme(c) == "https",
		size: c.Request.ContentLength(),
	}
	ctx, span := t.begin(c, &x)
	t.instruments.begin(ctx, &x)
	returned := false
	defer func() {
		if returned {
			x.returned(c, err)
			t.end(ctx, c, span, &x)
			return
		}
		value := recover()
		x.panicked(c, value)
		t.end(ctx, c, span, &x)
		if value != nil {
			panic(value) // the stack that the server logs still contains the frames below this call
		}
	}()
	err = c.RenderError(next(c))
	returned = true
	return err
}

func (t *telemetry) method(method []byte) int {
	if i, ok := t.methods[string(method)]; ok {
		return i
	}
	return len(t.methods)
}

// returned records the result of a request whose handler has returned. The handler's error has been rendered, if that was possible.
func (x *exchange) returned(c *filo.Ctx, err error) {
	x.status = c.Status()
	switch {
	case err == nil:
		return
	case errors.Is(err, filo.ErrAbort):
		if x.prevented(c); x.result == resultAborted && errors.Is(err, filo.ErrClientGone) {
			x.result = resultLeft
		}
		return
	case c.Hijacked():
		return // usually the error of a client that has left
	case !c.ErrorRendered() && c.Committed() && x.status < 500:
		x.result = resultBrokenOff
	case x.status < 500:
		return // the client has caused the error
	}
	x.cause = err
	if panicError, ok := errors.AsType[*filo.PanicError](err); ok {
		x.cause, x.stack = panicError.Value, panicError.Stack
	}
}

// panicked records a panic that continues to the server, which answers it with 500 if it can. If value is nil, the handler has ended its
// goroutine by runtime.Goexit. The server also answers that with 500.
func (x *exchange) panicked(c *filo.Ctx, value any) {
	if isAbort(value) {
		x.prevented(c)
		return
	}
	x.cause, x.status = value, 500
	if c.Committed() {
		x.result, x.status = resultBrokenOff, c.Status()
	}
	if value != nil {
		x.stack = debug.Stack()
	}
}

// prevented records that there is no answer, or only a part of one.
func (x *exchange) prevented(c *filo.Ctx) {
	if c.Committed() {
		x.result, x.status = resultBrokenOff, c.Status()
		return
	}
	x.result, x.status = resultAborted, 0
}

// isAbort reports whether a panic's value is filo.ErrAbort.
func isAbort(value any) bool {
	err, ok := value.(error)
	return ok && errors.Is(err, filo.ErrAbort)
}

// end completes the metrics and the span.
func (t *telemetry) end(ctx context.Context, c *filo.Ctx, span trace.Span, x *exchange) {
	route := t.routes.find(c.Route(), t.methodLabels)
	t.instruments.end(ctx, c, route, x)
	if span.IsRecording() {
		t.complete(c, span, route, x)
	}
	span.End()
}
