package router_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/githubapi"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// githubCalls are a request for each of GitHub's routes.
func githubCalls() (patterns, requests []string) {
	for _, route := range githubapi.Routes() {
		patterns = append(patterns, route.Method+" "+route.Path)
		requests = append(requests, route.Method+" "+route.Request())
	}
	return patterns, requests
}

// readAll reads each parameter, as a handler would.
func readAll(names []string) filo.Handler {
	return func(c *filo.Ctx) error {
		for _, name := range names {
			if len(c.ParamBytes(name)) == 0 {
				return filo.Error(500, "no value for "+name)
			}
		}
		return nil
	}
}

func githubRouter() *router.Router {
	r := router.New()
	for _, route := range githubapi.Routes() {
		r.Handle(route.Method+" "+route.Path, readAll(route.Wildcards()))
	}
	return r
}

func TestGitHub(t *testing.T) {
	patterns, requests := githubCalls()
	if len(patterns) != 203 {
		t.Errorf("%d routes, want 203", len(patterns))
	}
	s := servertest.New(t, with(patterns...).Serve)
	for i, route := range githubapi.Routes() {
		request, want := requests[i], patterns[i]
		got := s.Do(t, request)
		for _, name := range route.Wildcards() {
			want += fmt.Sprintf(" %s=%s", name, name)
		}
		if got.Header.Get("Route") != want {
			t.Errorf("%s: %d %s, want %s", request, got.Status, got.Body, want)
		}
	}
}

// inHandler sends requests one after the other to a server whose handler calls f.
func inHandler(t testing.TB, requests []string, f func(c *filo.Ctx)) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		f(c)
		c.Response.SetBody(nil)
		return nil
	})
	var raw strings.Builder
	for _, request := range requests {
		raw.WriteString(request + " HTTP/1.1\r\nHost: filo.test\r\n\r\n")
	}
	conn := s.Dial(t)
	defer conn.Close()
	go conn.Write([]byte(raw.String()))
	buffer := make([]byte, 1<<16)
	for answers := 0; answers < len(requests); {
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		answers += strings.Count(string(buffer[:n]), "HTTP/1.1 ")
	}
}

// A match through Serve allocates nothing, not even for a path with percent-encoding, a constraint, a host or a mount point.
func TestMatchAllocatesNothing(t *testing.T) {
	_, requests := githubCalls()
	inner := router.New()
	inner.GET("/c/{d:[a-z]+}", readAll([]string{"tenant", "d"}))
	r := githubRouter()
	r.Handle("GET /x/{id:int}/{rest...}", readAll([]string{"id", "rest"}))
	r.Handle("GET filo.test/y/{slug:[a-z]+}", readAll([]string{"slug"}))
	r.Mount("/t/{tenant}", inner.Serve)
	requests = append(requests, "GET /x/12/a/b/c", "GET /x/%31/a/%62/c", "GET /y/%61bc", "GET /t/ab/c/d", "GET /t/%61b/c/%64")
	r.Use(func(next filo.Handler) filo.Handler { return func(c *filo.Ctx) error { return next(c) } })
	inHandler(t, requests, func(c *filo.Ctx) {
		if raceEnabled && strings.Contains(c.Request.Target(), "%") {
			return // with the race detector, a sync.Pool randomly drops values
		}
		var err error
		allocations := testing.AllocsPerRun(100, func() { err = r.Serve(c) })
		if err != nil || allocations != 0 || c.Route() == "" {
			t.Errorf("%s %s: error %v, %v allocations", c.Method(), c.Path(), err, allocations)
		}
	})
}

// Neither does a preflight, whether it goes past a route for every method or has one as its own.
func TestPreflightAllocatesNothing(t *testing.T) {
	preflights := 0
	cors := func(filo.Handler) filo.Handler {
		return func(*filo.Ctx) error { preflights++; return nil }
	}
	r := router.New()
	r.Any("/{path...}", func(c *filo.Ctx) error { return nil })
	r.Group("", cors).PUT("/users/{id:int}/photo", show)
	inHandler(t, []string{"OPTIONS /users/7/photo", "OPTIONS /users/me/photo"}, func(c *filo.Ctx) {
		c.Request.Header.Set("Access-Control-Request-Method", "PUT")
		preflights = 0
		var err error
		allocations := testing.AllocsPerRun(100, func() { err = r.Serve(c) })
		if past := strings.Contains(c.Path(), "7"); err != nil || allocations != 0 || past != (preflights > 0) {
			t.Errorf("%s: error %v, %v allocations, %d preflights", c.Path(), err, allocations, preflights)
		}
	})
}

// BenchmarkGitHub finds the route of one request for each route of GitHub's API, and reads the request's parameters.
func BenchmarkGitHub(b *testing.B) {
	patterns, all := githubCalls()
	var static, parametrised []string
	for i, request := range all {
		if strings.Contains(patterns[i], "{") {
			parametrised = append(parametrised, request)
		} else {
			static = append(static, request)
		}
	}
	for _, set := range []struct {
		name     string
		requests []string
	}{{"all", all}, {"static", static}, {"parametrised", parametrised}} {
		b.Run(set.name, func(b *testing.B) { benchmark(b, githubRouter(), set.requests) })
	}
}

// BenchmarkServe measures kinds of routes that GitHub's API doesn't have.
func BenchmarkServe(b *testing.B) {
	inner := router.New()
	inner.GET("/users/{id}", readAll([]string{"id"}))
	r := githubRouter()
	r.GET("/x/{id:int}", readAll([]string{"id"}))
	r.GET("/y/{id:[0-9]+}", readAll([]string{"id"}))
	r.GET("/files/{path...}", readAll([]string{"path"}))
	r.Mount("/t/{tenant}", inner.Serve)
	hosts := router.New()
	hosts.Handle("GET filo.test/users/{id}", readAll([]string{"id"}))
	middleware := router.New()
	middleware.GET("/users/{id}", readAll([]string{"id"}))
	for range 5 {
		middleware.Use(func(next filo.Handler) filo.Handler { return func(c *filo.Ctx) error { return next(c) } })
	}
	for _, c := range []struct {
		name    string
		router  *router.Router
		request string
	}{
		{"type", r, "GET /x/1234"},
		{"expression", r, "GET /y/1234"},
		{"rest", r, "GET /files/static/css/site.css"},
		{"encoded", r, "GET /users/gopher%20x/repos"},
		{"mount", r, "GET /t/red/users/7"},
		{"host", hosts, "GET /users/7"},
		{"five middleware", middleware, "GET /users/7"},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.router, []string{c.request}) })
	}
}

// benchmark measures r.Serve for the requests, one after the other.
func benchmark(b *testing.B, r *router.Router, requests []string) {
	b.ReportAllocs()
	const warm = 3 // rounds until the classes of the routes are known to be quick
	rounds := slices.Repeat(requests, warm+1)
	served := 0
	var took time.Duration
	inHandler(b, rounds, func(c *filo.Ctx) {
		if err := r.Serve(c); err != nil {
			b.Error(err)
		}
		if served++; served <= warm*len(requests) {
			return
		}
		match := inside.Match(c)
		start := time.Now()
		for range b.N {
			match.Route = ""
			_ = r.Serve(c)
		}
		took += time.Since(start)
	})
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*len(requests)), "ns/route")
}
