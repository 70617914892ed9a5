// Package routers compares filo's router with the routers that Go programs use most, over the routes of GitHub's API.
package routers

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/githubapi"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/julienschmidt/httprouter"
	"github.com/labstack/echo/v4"
)

// A peer creates a router with all routes. The handlers read each parameter, and call miss for a parameter without a value.
type peer struct {
	name string
	make func(routes []githubapi.Route, miss func(name string)) http.Handler
}

var peers = []peer{{"httprouter", newHTTPRouter}, {"gin", newGin}, {"echo", newEcho}, {"servemux", newServeMux}, {"chi", newChi}}

func newHTTPRouter(routes []githubapi.Route, miss func(string)) http.Handler {
	r := httprouter.New()
	for _, route := range routes {
		names := route.Wildcards()
		r.Handle(route.Method, route.Replace(":$1"), func(_ http.ResponseWriter, _ *http.Request, p httprouter.Params) {
			for _, name := range names {
				if p.ByName(name) == "" {
					miss(name)
				}
			}
		})
	}
	return r
}

func newGin(routes []githubapi.Route, miss func(string)) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	for _, route := range routes {
		names := route.Wildcards()
		r.Handle(route.Method, route.Replace(":$1"), func(c *gin.Context) {
			for _, name := range names {
				if c.Param(name) == "" {
					miss(name)
				}
			}
		})
	}
	return r
}

func newEcho(routes []githubapi.Route, miss func(string)) http.Handler {
	r := echo.New()
	for _, route := range routes {
		names := route.Wildcards()
		r.Add(route.Method, route.Replace(":$1"), func(c echo.Context) error {
			for _, name := range names {
				if c.Param(name) == "" {
					miss(name)
				}
			}
			return nil
		})
	}
	return r
}

func newServeMux(routes []githubapi.Route, miss func(string)) http.Handler {
	r := http.NewServeMux()
	for _, route := range routes {
		names := route.Wildcards()
		r.HandleFunc(route.Method+" "+route.Path, func(_ http.ResponseWriter, q *http.Request) {
			for _, name := range names {
				if q.PathValue(name) == "" {
					miss(name)
				}
			}
		})
	}
	return r
}

func newChi(routes []githubapi.Route, miss func(string)) http.Handler {
	r := chi.NewRouter()
	for _, route := range routes {
		names := route.Wildcards()
		r.MethodFunc(route.Method, route.Path, func(_ http.ResponseWriter, q *http.Request) {
			for _, name := range names {
				if chi.URLParam(q, name) == "" {
					miss(name)
				}
			}
		})
	}
	return r
}

func newFilo(routes []githubapi.Route, miss func(string)) *router.Router {
	r := router.New()
	for _, route := range routes {
		names := route.Wildcards()
		r.Handle(route.Method+" "+route.Path, func(c *filo.Ctx) error {
			for _, name := range names {
				if len(c.ParamBytes(name)) == 0 {
					miss(name)
				}
			}
			return nil
		})
	}
	return r
}

// sets returns the sets of routes that are measured together.
func sets() map[string][]githubapi.Route {
	sets := map[string][]githubapi.Route{"all": githubapi.Routes()}
	for _, route := range sets["all"] {
		kind := "static"
		if strings.Contains(route.Path, "{") {
			kind = "parametrised"
		}
		sets[kind] = append(sets[kind], route)
	}
	return sets
}

// discard is a ResponseWriter for handlers that write nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func requestFor(route githubapi.Route) *http.Request {
	path := route.Request()
	return &http.Request{Method: route.Method, URL: &url.URL{Path: path}, RequestURI: path, Host: "filo.test", Header: http.Header{}}
}

// inHandler calls f in a handler, once for each route, with a request for that route.
func inHandler(tb testing.TB, routes []githubapi.Route, f func(c *filo.Ctx)) {
	s := servertest.New(tb, func(c *filo.Ctx) error {
		f(c)
		c.Response.SetBody(nil)
		return nil
	})
	for _, route := range routes {
		s.Raw(tb, route.Method+" "+route.Request()+" HTTP/1.1\r\nHost: filo.test\r\n\r\n")
	}
}

// Each router finds every route, and each handler its parameters, so the benchmark compares the same work.
func TestRoutersFindEachRoute(t *testing.T) {
	routes := githubapi.Routes()
	if len(routes) != 203 {
		t.Errorf("%d routes, want 203", len(routes))
	}
	var missed []string
	miss := func(name string) { missed = append(missed, name) }
	for _, p := range peers {
		h := p.make(routes, miss)
		for _, route := range routes {
			recorder := &statusRecorder{discard: discard{http.Header{}}}
			h.ServeHTTP(recorder, requestFor(route))
			if recorder.status != 0 && recorder.status != 200 {
				t.Errorf("%s: %s %s is answered with %d", p.name, route.Method, route.Request(), recorder.status)
			}
		}
	}
	r := newFilo(routes, miss)
	inHandler(t, routes, func(c *filo.Ctx) {
		if err := r.Serve(c); err != nil {
			t.Errorf("filo: %s: %v", c.Path(), err)
		}
	})
	if len(missed) > 0 {
		t.Errorf("parameters without a value: %q", missed)
	}
}

type statusRecorder struct {
	discard
	status int
}

func (r *statusRecorder) WriteHeader(status int) { r.status = status }

// BenchmarkRouters measures Serve, or ServeHTTP, for a request of each route. ns/route is the average of a set.
func BenchmarkRouters(b *testing.B) {
	miss := func(name string) { b.Errorf("%s has no value", name) }
	for _, set := range []string{"all", "static", "parametrised"} {
		routes := sets()[set]
		b.Run(set+"/filo", func(b *testing.B) {
			r := newFilo(githubapi.Routes(), miss)
			// Soon after its start a server has learned which routes are quick, and no longer times each of their calls. So the first calls don't
			// count.
			const warm = 3
			served := 0
			var took time.Duration
			inHandler(b, slices.Repeat(routes, warm+1), func(c *filo.Ctx) {
				if served++; served <= warm*len(routes) {
					_ = r.Serve(c)
					return
				}
				start := time.Now()
				for range b.N {
					inside.Match(c).Route = ""
					_ = r.Serve(c)
				}
				took += time.Since(start)
			})
			report(b, took, len(routes))
		})
		for _, p := range peers {
			b.Run(set+"/"+p.name, func(b *testing.B) {
				h := p.make(githubapi.Routes(), miss)
				var took time.Duration
				for _, route := range routes {
					request, w := requestFor(route), discard{http.Header{}}
					start := time.Now()
					for range b.N {
						h.ServeHTTP(w, request)
					}
					took += time.Since(start)
				}
				report(b, took, len(routes))
			})
		}
	}
}

func report(b *testing.B, took time.Duration, routes int) {
	b.ReportAllocs()
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*routes), "ns/route")
}
