package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

var quiet = slog.New(slog.DiscardHandler)

// routes returns a router with the routes that the tests request.
func routes(use ...filo.Middleware) *router.Router {
	r := router.New()
	r.Use(use...)
	r.GET("/users/{id}", func(c *filo.Ctx) error { return c.Text(200, "hello") })
	r.POST("/upload", func(c *filo.Ctx) error {
		if _, err := c.Body(); err != nil {
			return err
		}
		return c.NoContent()
	})
	r.GET("example.com/hosted", func(c *filo.Ctx) error { return c.NoContent() })
	r.GET("/slash/", func(c *filo.Ctx) error { return c.NoContent() })
	r.Any("/any", func(c *filo.Ctx) error { return c.NoContent() })
	r.GET("/missing", func(c *filo.Ctx) error { return filo.Error(404, "") })
	r.GET("/failing", func(c *filo.Ctx) error { return errors.New("no \xffdatabase") })
	r.GET("/unavailable", func(c *filo.Ctx) error { return filo.Error(503, "") })
	r.GET("/panicking", func(c *filo.Ctx) error { panic("ouch \xff") })
	r.GET("/aborting", func(c *filo.Ctx) error { return filo.ErrAbort })
	r.GET("/panicabort", func(c *filo.Ctx) error { panic(filo.ErrAbort) })
	r.GET("/breaking", func(c *filo.Ctx) error {
		c.Stream().WriteString("half")
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		return errors.New("and no \xffmore")
	})
	r.GET("/halfpanic", func(c *filo.Ctx) error {
		c.Stream().WriteString("half")
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		panic("and no more")
	})
	r.GET("/goexit", func(c *filo.Ctx) error { runtime.Goexit(); return nil })
	r.GET("/reader", func(c *filo.Ctx) error { return c.Reader(200, "text/plain", strings.NewReader("read"), 4) })
	r.GET("/leaving", func(c *filo.Ctx) error {
		ctx := c.Context()
		ctx.Done()
		c.Get(leaveKey{}).(func())()
		<-ctx.Done()
		return ctx.Err()
	})
	r.GET("/upgrade", func(c *filo.Ctx) error {
		conn, _, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return r
}

// observed is a server with the spans and metrics that its middleware has recorded.
type observed struct {
	*servertest.Server
	recorder *tracetest.SpanRecorder
	reader   *sdkmetric.ManualReader
}

func within(m filo.Middleware) filo.Handler { return routes(m).Serve }
func around(m filo.Middleware) filo.Handler { return m(routes().Serve) }

// serve starts a server with a middleware that records everything.
func serve(t testing.TB, wrap func(filo.Middleware) filo.Handler, change ...func(*otel.Options)) observed {
	t.Helper()
	o := observed{recorder: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	options := otel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.recorder)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader)),
		Propagators:    propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	}
	for _, f := range change {
		f(&options)
	}
	o.Server = servertest.NewServer(t, &filo.Server{Handler: wrap(otel.Middleware(options)), Logger: quiet})
	return o
}

// client is the address from which the tests send requests.
var client = net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.7:4711"))

// ask sends a request and reads the whole answer, which may be empty.
func (o observed) ask(t testing.TB, request, body string, fields ...string) string {
	t.Helper()
	c, err := o.Listener.DialFrom(client)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	if _, err := io.WriteString(c, servertest.Request(request, body, append(fields, "Connection: close")...)); err != nil {
		t.Error(err)
		return ""
	}
	raw, _ := io.ReadAll(c) // ignores the error, since some requests must end with a reset
	return string(raw)
}

// spans waits until n spans have ended, and returns them.
func (o observed) spans(t testing.TB, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if len(o.recorder.Ended()) >= n {
			break
		}
	}
	if ended, started := len(o.recorder.Ended()), len(o.recorder.Started()); ended != n || started != n {
		t.Fatalf("%d spans were started and %d ended, want %d", started, ended, n)
	}
	return o.recorder.Ended()
}

// metrics returns the measurements as lines such as `name{key=value,…} count sum`, where the sum of durations is left out.
func (o observed) metrics(t testing.TB) (lines []string) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := o.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	for _, scope := range data.ScopeMetrics {
		for _, metric := range scope.Metrics {
			switch data := metric.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, point := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d", metric.Name, text(point.Attributes.ToSlice()), point.Count))
				}
			case metricdata.Histogram[int64]:
				for _, point := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d %d", metric.Name, text(point.Attributes.ToSlice()), point.Count, point.Sum))
				}
			case metricdata.Sum[int64]:
				for _, point := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d", metric.Name, text(point.Attributes.ToSlice()), point.Value))
				}
			default:
				t.Fatalf("%s is a %T", metric.Name, metric.Data)
			}
		}
	}
	return lines
}

// text returns attributes as key=value, sorted by key and separated by commas.
func text(attributes []attribute.KeyValue) string {
	set := attribute.NewSet(attributes...)
	var parts []string
	for _, each := range set.ToSlice() {
		parts = append(parts, string(each.Key)+"="+each.Value.String())
	}
	return strings.Join(parts, ",")
}

// leaveKey is the key of a function that makes a request's client leave.
type leaveKey struct{}

// leaving sends a request whose handler makes the client leave, and waits until the handler has ended.
func leaving(t *testing.T, s *servertest.Server, ended <-chan struct{}, clients chan<- *servertest.Conn) {
	t.Helper()
	c := s.Dial(t)
	clients <- c
	if _, err := io.WriteString(c, servertest.Request("GET /leaving", "")); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// watched is middleware that gives a handler a function to make its client leave, and reports when the handler has ended.
func watched(clients <-chan *servertest.Conn, ended chan<- struct{}) filo.Middleware {
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Set(leaveKey{}, func() { (<-clients).Reset() })
			err := next(c)
			ended <- struct{}{}
			return err
		}
	}
}
