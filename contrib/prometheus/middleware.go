package prometheus

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
)

// MaxRoutes is the number of routes that a Middleware distinguishes; further routes share the label "_OTHER". A router has a fixed number of
// routes, but a program may make routers while it serves.
const MaxRoutes = 1000

// unmatched is the label of requests for which no route was found.
const unmatched = "_UNMATCHED"

var (
	defaultBuckets     = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	defaultSizeBuckets = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
	// defaultMethods are the methods of RFC 9110, PATCH (RFC 5789) and QUERY, which OpenTelemetry's conventions list as well.
	defaultMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"}
)

// Options are the options of Middleware.
type Options struct {
	// Registerer registers the metrics. Default client_golang's DefaultRegisterer.
	Registerer client.Registerer
	// Buckets are the upper bounds of durations, in seconds, in increasing order. Default 1 ms to 10 s. A non-nil empty slice
	// means no buckets, for NativeHistograms only.
	Buckets []float64
	// SizeBuckets are the upper bounds of the sizes of bodies, in bytes. Default 256 B to 64 MB, each four times the one
	// before. A non-nil empty slice omits the histograms of sizes.
	SizeBuckets []float64
	// NativeHistograms also makes the histogram of durations a native one, whose buckets adapt to the observed values, for a Prometheus that
	// scrapes native histograms. Other scrapers still get Buckets.
	NativeHistograms bool
	// Methods are the methods with separate labels; other methods are "_OTHER". Default the methods of RFC 9110, PATCH and
	// QUERY.
	Methods []string
	// Exemplars returns the labels of an exemplar for an answered request, which links a bucket to one of its traces, or nil for none. Each
	// bucket of a series gets at most one exemplar a second. Exemplars are dropped if Prometheus doesn't allow their labels, for example
	// because a value is empty, or because the labels have more than 128 characters together. By default there are no exemplars. For the
	// tracer's trace, use TraceID of contrib/otel. For the client's trace, see ClientTrace.
	Exemplars func(c *filo.Ctx) client.Labels
	// Skip, if set, is called when a request has been answered. If it returns true, the request isn't measured, for example a scrape by
	// Prometheus. While such a request is running, it still counts as in flight.
	Skip func(c *filo.Ctx) bool
}

// Middleware measures requests:
//
//   - http_request_duration_seconds, by method, route and status ("2xx", or "none" if there was no answer), from the call of
//     the middleware until the handler has returned. The label paced is "client" if the client may have set the pace, because the handler
//     has streamed its answer, or because the request's body was chunked or larger than 64 KB. Otherwise it is empty. Alerts for slow
//     handlers leave requests with "client" out.
//   - http_requests_in_flight, the running handlers.
//   - http_request_size_bytes and http_response_size_bytes, by method and route: the bodies, if their size is known when the
//     handler returns. The size of a chunked request body, or of a body that Response.SetBodyStream or Ctx.File will send, isn't known then.
//   - http_request_panics_total and http_request_errors_total, by method and route. Errors are panics, filo.ErrAbort, and errors of a
//     handler that were answered with 5xx, or that couldn't be rendered because the answer had begun. A handler that fails because its
//     client has left isn't an error: its status is "none".
//
// Put Middleware outside of all handlers and middleware that may answer a request: with Router.Use or, to include the answers of middleware
// around the router, around the server's handler. Inside of a compressing middleware the sizes count the uncompressed bodies. If no
// middleware inside has rendered a handler's error as the response, Middleware does: see filo.Ctx.RenderError. It doesn't stop panics. A
// handler that switches protocols is measured with the status "1xx".
//
// Middleware panics if the options are invalid, or if the Registerer already has metrics with these names.
func Middleware(options ...Options) filo.Middleware {
	o := one("Middleware", options)
	m := newMetrics(&o)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return m.serve(c, next) }
	}
}

// one returns the options that a constructor was given, or the zero value if there are none. It panics if there are two.
func one[T any](constructor string, options []T) (o T) {
	if len(options) > 1 {
		panic("prometheus: " + constructor + " takes its options once at most: set all of them in one")
	}
	if len(options) == 1 {
		o = options[0]
	}
	return o
}

func (o *Options) complete() {
	o.Registerer = cmp.Or(o.Registerer, client.DefaultRegisterer)
	if o.Buckets == nil {
		o.Buckets = defaultBuckets
	}
	if o.SizeBuckets == nil {
		o.SizeBuckets = defaultSizeBuckets
	}
	if o.Methods == nil {
		o.Methods = defaultMethods
	}
	checkBuckets("Buckets", o.Buckets)
	checkBuckets("SizeBuckets", o.SizeBuckets)
	if len(o.Buckets) == 0 && !o.NativeHistograms {
		panic("prometheus: Buckets must not be empty without NativeHistograms")
	}
	for i, method := range o.Methods {
		if method == "" || labelValue(method) != method || slices.Contains(o.Methods[:i], method) {
			panic(fmt.Sprintf("prometheus: Methods: %q isn't a method, or is listed twice", method))
		}
	}
}

func checkBuckets(option string, buckets []float64) {
	for i, bound := range buckets {
		if math.IsNaN(bound) || i > 0 && bound <= buckets[i-1] {
			panic(fmt.Sprintf("prometheus: %s: the bounds must increase, which %v doesn't", option, bound))
		}
	}
}

// serve runs the handler and measures it, even if the handler panics or ends its goroutine.
func (m *metrics) serve(c *filo.Ctx, next filo.Handler) (err error) {
	r := measured{start: time.Now(), method: m.method(c.Request.MethodBytes()), size: c.Request.ContentLength()}
	m.inFlight.Inc()
	defer m.inFlight.Dec() // runs after the other deferred functions
	returned := false
	defer func() {
		if returned {
			m.answered(c, &r, err)
			return
		}
		value := recover()
		r.aborted = isAbort(value)
		r.panicked = !r.aborted && value != nil
		r.failed = true
		m.observe(c, &r)
		if value != nil {
			panic(value) // the stack that the server logs still contains the frames below this call
		}
	}()
	err = c.RenderError(next(c))
	returned = true
	return err
}

// isAbort reports whether a panic's value is filo.ErrAbort.
func isAbort(value any) bool {
	err, ok := value.(error)
	return ok && errors.Is(err, filo.ErrAbort)
}

// measured collects the figures of one request.
type measured struct {
	start  time.Time
	method int   // an index into metrics.methodLabels
	size   int64 // the size of the request's body, -1 if it isn't known

	panicked bool
	failed   bool
	aborted  bool // no complete answer was sent
}

// answered measures a request whose handler has returned. The handler's error has been rendered, if that was possible.
func (m *metrics) answered(c *filo.Ctx, r *measured, err error) {
	if err != nil {
		var panicError *filo.PanicError
		r.panicked = errors.As(err, &panicError)
		r.aborted = errors.Is(err, filo.ErrAbort)
		// A handler that has taken over the connection usually ends with an error because the client has left.
		brokenOff := !c.ErrorRendered() && c.Committed() && !c.Hijacked()
		left := errors.Is(err, filo.ErrClientGone) && !c.ErrorRendered()
		r.failed = r.panicked || !left && (r.aborted || brokenOff || c.Status() >= 500)
	}
	if m.skip == nil || !m.skip(c) {
		m.observe(c, r)
	}
}

func (m *metrics) observe(c *filo.Ctx, r *measured) {
	now := time.Now()
	s := m.route(c.Route()).series(m, r.method)
	s.duration(m, statusClass(c, r), paced(c, r)).observe(c, now.Sub(r.start), m.since(now), m.exemplars)
	if m.requestSize != nil {
		if r.size >= 0 {
			s.requestSize.Observe(float64(r.size))
		}
		if size := responseSize(c); size >= 0 && !r.aborted {
			s.responseSize.Observe(float64(size))
		}
	}
	if r.panicked {
		s.panics.Inc()
	}
	if r.failed {
		s.errors.Inc()
	}
}

// smallBody is the size up to which a body is assumed to arrive at once, usually in the same segment as the head or in the next few.
const smallBody = 64 << 10

// paced returns the index of the pacedLabels element for a request. The client may have determined the request's duration if the handler has
// streamed the answer, or may have waited for a large body. If a time-out has answered 503 before the handler returned, the client isn't the
// cause.
func paced(c *filo.Ctx, r *measured) int {
	if c.Committed() && c.Status() < 500 || r.size > smallBody || r.size < 0 {
		return 1
	}
	return 0
}

// statusClass returns the index of a status's label in statusLabels; 0 means no answer.
func statusClass(c *filo.Ctx, r *measured) int {
	switch {
	case c.Committed():
		return c.Status() / 100
	case r.aborted:
		return 0
	case r.failed && c.Status() < 500:
		return 5 // the server will answer the panic with 500
	}
	return c.Status() / 100
}

// responseSize returns the size of the response's body as sent, or -1 if that isn't known yet.
func responseSize(c *filo.Ctx) int64 {
	size := c.BytesWritten()
	switch {
	case string(c.Request.MethodBytes()) == "HEAD":
		return 0
	case c.Hijacked():
		return -1
	case size > 0 || c.Committed():
		return size
	}
	if _, whole := c.Response.WholeBody(); !whole {
		return -1
	}
	return 0
}
