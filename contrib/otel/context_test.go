package otel_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/servertest"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
)

// inHandler serves requests with f inside of the middleware.
func inHandler(f filo.Handler) func(filo.Middleware) filo.Handler {
	return func(m filo.Middleware) filo.Handler { return m(f) }
}

func TestPropagation(t *testing.T) {
	for _, test := range []struct {
		sentence string
		fields   []string
		trusted  bool
		child    bool // the span is a child of the client's span
		linked   bool
		state    string
		baggage  string
	}{
		{"a client without a trace", nil, false, false, false, "", ""},
		{"a trusted client's trace goes on", []string{"Traceparent: 00-" + traceID + "-" + parentID + "-01", "Tracestate: a=b"}, true, true, false, "a=b", ""},
		{"names are compared in any case", []string{"TRACEPARENT: 00-" + traceID + "-" + parentID + "-01"}, true, true, false, "", ""},
		{"for others the server begins its own, with a link", []string{"Traceparent: 00-" + traceID + "-" + parentID + "-01"}, false, false, true, "", ""},
		{"a trusted one without a trace", nil, true, false, false, "", ""},
		{"a malformed one is none", []string{"Traceparent: 00-" + traceID + "-" + parentID + "-0\""}, true, false, false, "", ""},
		{"nor is there a link to it", []string{"Traceparent: 00-" + traceID + "-" + parentID + "-0\""}, false, false, false, "", ""},
		{"baggage", []string{"Baggage: user=7"}, false, false, false, "", "user=7"},
		{"baggage in several fields", []string{"Baggage: user=7", "Baggage: team=9"}, false, false, false, "", "team=9,user=7"},
		{"baggage that is none", []string{"Baggage: ;;=\xff"}, false, false, false, "", ""},
	} {
		carried := make(chan string, 1)
		o := serve(t, inHandler(func(c *filo.Ctx) error {
			bag := baggage.FromContext(c.Context())
			var members []string
			for _, key := range []string{"team", "user"} {
				if value := bag.Member(key).Value(); value != "" {
					members = append(members, key+"="+value)
				}
			}
			outgoing := propagation.MapCarrier{}
			propagation.TraceContext{}.Inject(c.Context(), outgoing)
			carried <- strings.Join(members, ",")
			carried <- outgoing["traceparent"]
			return c.NoContent()
		}), func(o *otel.Options) { o.TrustClients = test.trusted })
		go o.ask(t, "GET /", "", test.fields...)
		if got := <-carried; got != test.baggage {
			t.Errorf("%s: baggage %q", test.sentence, got)
		}
		outgoing := <-carried
		span := o.spans(t, 1)[0]
		if want := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"; outgoing != want {
			t.Errorf("%s: what the handler calls gets %q, want %q", test.sentence, outgoing, want)
		}
		if child := span.SpanContext().TraceID().String() == traceID && span.Parent().SpanID().String() == parentID && span.Parent().IsRemote(); child != test.child {
			t.Errorf("%s: child is %v, of %v", test.sentence, child, span.Parent())
		}
		if linked := len(span.Links()) == 1 && span.Links()[0].SpanContext.SpanID().String() == parentID; linked != test.linked {
			t.Errorf("%s: links %v", test.sentence, span.Links())
		}
		if got := span.SpanContext().TraceState().String(); got != test.state {
			t.Errorf("%s: state %q", test.sentence, got)
		}
	}
}

// The context that handlers get ends when the request ends, and when its client leaves.
func TestContextEnds(t *testing.T) {
	contexts, left := make(chan context.Context, 1), make(chan error, 1)
	o := serve(t, inHandler(func(c *filo.Ctx) error {
		ctx := c.Context()
		contexts <- ctx
		if c.Path() == "/wait" {
			<-ctx.Done()
			left <- context.Cause(ctx)
		}
		return c.NoContent()
	}))
	o.ask(t, "GET /", "")
	ctx := <-contexts
	<-ctx.Done()
	if !trace.SpanContextFromContext(ctx).IsValid() {
		t.Error("no span in the context")
	}
	c := o.Dial(t)
	if _, err := io.WriteString(c, servertest.Request("GET /wait", "")); err != nil {
		t.Fatal(err)
	}
	<-contexts
	c.Reset()
	if err := <-left; !errors.Is(err, filo.ErrClientGone) {
		t.Errorf("a client that leaves ends it with %v", err)
	}
}

// With the loop driver, whose handlers share a goroutine until one may block, contexts are the same as with other drivers.
func TestLoopDriver(t *testing.T) {
	const clients, each = 4, 50
	entered, left := make(chan struct{}), make(chan error, 1)
	recorder := tracetest.NewSpanRecorder()
	r := routes(otel.Middleware(otel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), Propagators: propagation.TraceContext{},
		TrustClients: true,
	}))
	r.GET("/wait", func(c *filo.Ctx) error {
		ctx := c.Context()
		close(entered)
		<-ctx.Done()
		left <- context.Cause(ctx)
		return c.NoContent()
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &filo.Server{Handler: r.Serve, Logger: quiet}
	go server.Serve(ln)
	request := func(path string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Error(err)
			return nil
		}
		if _, err := io.WriteString(c, servertest.Request("GET "+path, "", "Traceparent: 00-"+traceID+"-"+parentID+"-01", "Connection: close")); err != nil {
			t.Error(err)
		}
		return c
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				if c := request("/users/7"); c != nil {
					if _, err := io.Copy(io.Discard, c); err != nil {
						t.Error(err)
					}
					c.Close()
				}
			}
		})
	}
	wg.Wait()
	c := request("/wait")
	<-entered
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-left; !errors.Is(err, filo.ErrClientGone) {
		t.Errorf("a client that leaves ends the context with %v", err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(recorder.Ended()); n != clients*each+1 {
		t.Errorf("%d spans", n)
	}
	for _, span := range recorder.Ended() {
		if span.SpanContext().TraceID().String() != traceID || span.Parent().SpanID().String() != parentID {
			t.Errorf("a child of %v", span.Parent())
		}
	}
}

// Behind a server of net/http, the span is a child of the span in the context of net/http's request.
func TestAdaptor(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	h := adaptor.ToHTTP(routes(otel.Middleware(otel.Options{TracerProvider: tracers, Propagators: propagation.TraceContext{}})).Serve)
	ctx, outer := tracers.Tracer("outer").Start(t.Context(), "outer")
	w := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(ctx, "GET", "/users/7", nil)
	request.Header.Set("Traceparent", "00-"+traceID+"-"+parentID+"-01") // the outer span takes it into account
	h.ServeHTTP(w, request)
	outer.End()
	spans := recorder.Ended()
	if w.Code != 200 || len(spans) != 2 || spans[0].Name() != "GET /users/{id}" || spans[0].Parent().SpanID() != outer.SpanContext().SpanID() {
		t.Errorf("answered with %d; spans %v", w.Code, spans)
	}
}

// A client that isn't trusted can't decide what is recorded.
func TestSamplingIsTheServers(t *testing.T) {
	for flags, sampler := range map[string]sdktrace.Sampler{"01": sdktrace.NeverSample(), "00": sdktrace.AlwaysSample()} {
		sampled := make(chan bool, 1)
		o := serve(t, inHandler(func(c *filo.Ctx) error {
			sampled <- otel.SpanOf(c).SpanContext().IsSampled()
			return c.NoContent()
		}), func(o *otel.Options) {
			o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sampler)))
		})
		o.ask(t, "GET /", "", "Traceparent: 00-"+traceID+"-"+parentID+"-"+flags)
		if got := <-sampled; got != (flags == "00") {
			t.Errorf("a client's flags are %s, and it is recorded: %t", flags, got)
		}
	}
}

// A trace that isn't recorded is nevertheless continued.
func TestUnsampled(t *testing.T) {
	ids := make(chan string, 2)
	o := serve(t, inHandler(func(c *filo.Ctx) error {
		ids <- otel.SpanOf(c).SpanContext().TraceID().String()
		ids <- otel.TraceID(c)
		return c.NoContent()
	}), func(o *otel.Options) {
		o.TrustClients = true
		o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	})
	o.ask(t, "GET /", "", "Traceparent: 00-"+traceID+"-"+parentID+"-00")
	if id, recorded := <-ids, <-ids; id != traceID || recorded != "" {
		t.Errorf("trace %q, recorded %q", id, recorded)
	}
}

func TestSpanOf(t *testing.T) {
	logged := make(chan string, 1)
	o := serve(t, inHandler(func(c *filo.Ctx) error {
		otel.SpanOf(c).AddEvent("mine")
		attributes := otel.LogAttributes(c, []slog.Attr{slog.String("a", "b")})
		logged <- slog.GroupValue(attributes...).String()
		if id := otel.TraceID(c); id != otel.SpanOf(c).SpanContext().TraceID().String() {
			t.Errorf("trace %q", id)
		}
		if otel.SpanOf(c) != trace.SpanFromContext(c.Context()) {
			t.Error("the context has another span")
		}
		return c.NoContent()
	}))
	o.ask(t, "GET /", "")
	span := o.spans(t, 1)[0]
	if len(span.Events()) != 1 || span.Events()[0].Name != "mine" {
		t.Errorf("events %v", span.Events())
	}
	if got, want := <-logged, "[a=b trace_id="+span.SpanContext().TraceID().String()+" span_id="+span.SpanContext().SpanID().String()+"]"; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

// "Within Middleware, the logger of Ctx.Logger has both attributes already."
func TestLoggerHasTheTrace(t *testing.T) {
	var log strings.Builder
	var span trace.SpanContext
	traced := otel.Middleware(otel.Options{TracerProvider: sdktrace.NewTracerProvider()})
	s := servertest.NewServer(t, &filo.Server{
		Handler: traced(func(c *filo.Ctx) error {
			span = otel.SpanOf(c).SpanContext()
			c.Logger().Info("here")
			return c.NoContent()
		}),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	s.Do(t, "GET /")
	if want := "msg=here trace_id=" + span.TraceID().String() + " span_id=" + span.SpanID().String() + "\n"; !strings.HasSuffix(log.String(), want) {
		t.Errorf("logged %q, want %q", log.String(), want)
	}
}

func TestSpanOfNothing(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		if otel.SpanOf(c).IsRecording() || otel.TraceID(c) != "" || len(otel.LogAttributes(c, nil)) > 0 {
			t.Error("a span without the middleware")
		}
		return c.NoContent()
	})
	s.Do(t, "GET /")
}
