package prometheus_test

import (
	"testing"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

// inHandler runs f in the handler of a request.
func inHandler(t testing.TB, f func(*filo.Ctx), fields ...string) {
	t.Helper()
	ran := false
	servertest.New(t, func(c *filo.Ctx) error {
		ran = true
		inside.Match(c).Route = "GET /users/{id}/repositories"
		f(c)
		return c.NoContent()
	}).Do(t, "GET /users/7/repositories", fields...)
	if !ran {
		t.Fatal("the handler didn't run")
	}
}

func measuring(change ...func(*prometheus.Options)) filo.Handler {
	options := prometheus.Options{Registerer: client.NewRegistry()}
	for _, f := range change {
		f(&options)
	}
	return prometheus.Middleware(options)(func(c *filo.Ctx) error { return nil })
}

func TestMiddlewareAllocations(t *testing.T) {
	h := measuring()
	inHandler(t, func(c *filo.Ctx) {
		_ = h(c)
		if n := testing.AllocsPerRun(1000, func() { _ = h(c) }); n != 0 {
			t.Errorf("%v allocations for a request", n)
		}
	})
}

// BenchmarkMiddleware measures the middleware alone: the handler of a single request calls it repeatedly.
func BenchmarkMiddleware(b *testing.B) {
	traced := "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, bm := range []struct {
		name   string
		h      filo.Handler
		fields []string
	}{
		{"default", measuring(), nil},
		{"traced", measuring(), []string{traced}},
		{"native", measuring(func(o *prometheus.Options) { o.NativeHistograms = true }), nil},
		{"without sizes", measuring(func(o *prometheus.Options) { o.SizeBuckets = []float64{} }), nil},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			inHandler(b, func(c *filo.Ctx) {
				_ = bm.h(c)
				b.ResetTimer()
				for range b.N {
					_ = bm.h(c)
				}
				b.StopTimer()
			}, bm.fields...)
		})
	}
}

// BenchmarkLabels measures, for comparison, the cost of looking up the labels of one histogram.
func BenchmarkLabels(b *testing.B) {
	vector := client.NewHistogramVec(client.HistogramOpts{Name: "x", Buckets: client.DefBuckets}, []string{"method", "route", "status"})
	b.ReportAllocs()
	for range b.N {
		vector.WithLabelValues("GET", "/users/{id}/repositories", "2xx").Observe(0.001)
	}
}

func BenchmarkScrape(b *testing.B) {
	registry := client.NewRegistry()
	m := prometheus.Middleware(prometheus.Options{Registerer: registry})
	s := servertest.New(b, routes(m).Serve)
	registry.MustRegister(prometheus.Collector(s.Config))
	s.Do(b, "GET /users/7")
	b.ReportAllocs()
	for range b.N {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
