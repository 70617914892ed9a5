package dashboard

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func quietServer(h filo.Handler) *filo.Server {
	return &filo.Server{Handler: h, Logger: slog.New(slog.DiscardHandler)}
}

// readings returns the counts of every route, by its name.
func (d *Dashboard) readings() map[string]reading {
	all := make(map[string]reading)
	for _, route := range *d.recorder.routes.Load() {
		all[route.name] = route.read()
	}
	if other := d.recorder.other.read(); other.counts.total() > 0 {
		all[otherRoutes] = other
	}
	return all
}

// Requests are counted by route and not by path, and errors only if they are the server's fault.
func TestMiddleware(t *testing.T) {
	r := router.New()
	server := quietServer(r.Serve)
	d := New(server, Options{})
	r.Use(d.Middleware())
	r.GET("/users/{id}", func(c *filo.Ctx) error { return c.NoContent() })
	r.GET("/fails", func(c *filo.Ctx) error { return errors.New("oh") })
	r.GET("/refuses", func(c *filo.Ctx) error { return filo.Error(400, "") })
	r.GET("/answers", func(c *filo.Ctx) error { return c.Text(503, "") })
	s := servertest.NewServer(t, server)
	for i := range 5 {
		s.Do(t, fmt.Sprint("GET /users/", i))
	}
	for _, path := range []string{"/fails", "/refuses", "/answers", "/nothing", "/nothing/else"} {
		s.Do(t, "GET "+path)
	}
	want := map[string][2]uint64{"GET /users/{id}": {5, 0}, "GET /fails": {1, 1}, "GET /refuses": {1, 0}, "GET /answers": {1, 1}, noRoute: {2, 0}}
	got := d.readings()
	for name, figures := range want {
		if r := got[name]; r.counts.total() != figures[0] || uint64(r.errors) != figures[1] {
			t.Errorf("%s: %d requests, %d errors, want %v", name, r.counts.total(), r.errors, figures)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d routes, want %d", len(got), len(want))
	}
}

// Outside of a router, the status of an error that isn't rendered yet decides whether it is the server's fault.
func TestMiddlewareAlone(t *testing.T) {
	for err, want := range map[error]uint32{errors.New("oh"): 1, filo.Error(404, ""): 0, filo.Error(502, ""): 1} {
		server := quietServer(nil)
		d := New(server, Options{})
		server.Handler = d.Middleware()(func(c *filo.Ctx) error { return err })
		servertest.NewServer(t, server).Do(t, "GET /")
		if got := d.readings()[noRoute]; got.errors != want || got.counts.total() != 1 {
			t.Errorf("%v: %d errors of %d, want %d of 1", err, got.errors, got.counts.total(), want)
		}
	}
}

// Invented route names can't use up memory: names beyond the limit share an entry, so that every request is still counted.
func TestMaxRoutes(t *testing.T) {
	server := quietServer(nil)
	d := New(server, Options{MaxRoutes: 3})
	server.Handler = d.Middleware()(func(c *filo.Ctx) error {
		inside.Match(c).Route = c.Path()
		return nil
	})
	s := servertest.NewServer(t, server)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 25 {
				s.Do(t, fmt.Sprintf("GET /%d/%d", i, j))
			}
		})
	}
	group.Wait()
	total := uint64(0)
	for _, r := range d.readings() {
		total += r.counts.total()
	}
	if n := len(*d.recorder.routes.Load()); n != 3 || total != 100 {
		t.Errorf("%d routes, %d requests; want 3, 100", n, total)
	}
}

// Differences are correct when 32-bit counters overflow.
func TestWrap(t *testing.T) {
	r := newRecorder(1)
	route := r.newRoute("a")
	route.shards[0].counts[5].Store(1<<32 - 3)
	route.since()
	route.shards[0].counts[5].Add(10)
	if since := route.since(); since.counts[5] != 10 || since.counts.total() != 10 {
		t.Errorf("%d, want 10", since.counts[5])
	}
}

// measured calls f in the handler of a request that has a route. The handler h that it passes to f is the middleware around an
// empty handler.
func measured(t testing.TB, f func(c *filo.Ctx, h filo.Handler)) {
	d := New(quietServer(nil), Options{})
	pass := d.Middleware()(func(*filo.Ctx) error { return nil })
	for i := range 50 {
		d.recorder.meet(fmt.Sprintf("GET /api/v1/things/%d/{id}", i))
	}
	s := servertest.New(t, func(c *filo.Ctx) error {
		inside.Match(c).Route = fmt.Sprintf("GET /api/v1/things/%d/{id}", 17)
		f(c, pass)
		return nil
	})
	s.Do(t, "GET /")
}

// Measuring a request allocates nothing.
func TestMiddlewareAllocations(t *testing.T) {
	measured(t, func(c *filo.Ctx, h filo.Handler) {
		if n := testing.AllocsPerRun(1000, func() { _ = h(c) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func BenchmarkMiddleware(b *testing.B) {
	b.ReportAllocs()
	measured(b, func(c *filo.Ctx, h filo.Handler) {
		for b.Loop() {
			_ = h(c)
		}
	})
}

// BenchmarkMiddlewareParallel lets all processors count requests of one route.
func BenchmarkMiddlewareParallel(b *testing.B) {
	b.ReportAllocs()
	d := New(quietServer(nil), Options{})
	pass := d.Middleware()(func(*filo.Ctx) error { return nil })
	s := servertest.New(b, func(c *filo.Ctx) error {
		inside.Match(c).Route = "GET /api/v1/things/{id}"
		for range b.N {
			_ = pass(c)
		}
		return nil
	})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { s.Do(b, "GET /") })
	}
	group.Wait()
}

// BenchmarkSample measures the sampler's work for one second with 100 routes.
func BenchmarkSample(b *testing.B) {
	b.ReportAllocs()
	d := New(quietServer(nil), Options{})
	for i := range 100 {
		route := d.recorder.newRoute(fmt.Sprint(i))
		for j := range 1000 {
			route.shards[0].counts[bucketOf(time.Duration(j)*time.Microsecond)].Add(1)
		}
		(*d.recorder.routes.Load())[route.name] = route
	}
	s := newSampler(d, 0)
	for b.Loop() {
		d.publish(s.take(time.Now()))
	}
}
