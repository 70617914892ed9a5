package otel_test

import (
	"context"
	"io"
	"net"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// BenchmarkMiddleware measures whole requests, one after the other on one connection. The cost of the middleware is the difference from the
// requests without it. The connection is either over TCP, served by a loop on systems that support loops, or in memory, served by a separate
// worker.
func BenchmarkMiddleware(b *testing.B) {
	traced := "Traceparent: 00-" + traceID + "-" + parentID
	for _, bm := range []struct {
		name    string
		options *otel.Options
		field   string
	}{
		{"none", nil, traced + "-01"},
		{"without providers", &otel.Options{}, traced + "-01"},
		{"metrics", &otel.Options{MeterProvider: meters()}, traced + "-01"},
		{"not sampled", recording(), traced + "-00"},
		{"sampled", recording(), traced + "-01"},
	} {
		r := router.New()
		if bm.options != nil {
			r.Use(otel.Middleware(*bm.options))
		}
		r.GET("/users/{id}", func(c *filo.Ctx) error { return c.Text(200, "hello") })
		request := servertest.Request("GET /users/7", "", "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101", bm.field)
		for _, network := range []string{"tcp", "memory"} {
			b.Run(bm.name+"/"+network, func(b *testing.B) { benchmark(b, r.Serve, network, request) })
		}
	}
}

func meters() *sdkmetric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// recording returns options for spans that are recorded if the client's span is recorded, and are dropped when they end.
func recording() *otel.Options {
	return &otel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropping{})),
		MeterProvider:  meters(),
		Propagators:    propagation.TraceContext{},
		TrustClients:   true,
	}
}

type dropping struct{}

func (dropping) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropping) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropping) Shutdown(context.Context) error                  { return nil }
func (dropping) ForceFlush(context.Context) error                { return nil }

func benchmark(b *testing.B, h filo.Handler, network, request string) {
	c := dial(b, h, network)
	in, out := []byte(request), make([]byte, 4<<10)
	if _, err := c.Write(in); err != nil {
		b.Fatal(err)
	}
	size, err := c.Read(out)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(in); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, out[:size]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

func dial(b *testing.B, h filo.Handler, network string) net.Conn {
	if network == "memory" {
		return servertest.New(b, h).Dial(b)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &filo.Server{Handler: h, Logger: quiet}
	go server.Serve(ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c
}
