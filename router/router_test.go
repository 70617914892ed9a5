package router_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// trace makes middleware that adds its name to the Trace field before it calls next, and the response's status afterwards.
func trace(name string) filo.Middleware {
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.Add("Trace", name)
			err := next(c)
			c.Response.Header.Add("Trace", fmt.Sprint(name, c.Status()))
			return err
		}
	}
}

func traceOf(a servertest.Answer) string { return strings.Join(a.Header.Values("Trace"), " ") }

// The middleware of the router, outer groups, inner groups and the route runs in this order, whatever was registered first.
func TestMiddlewareOrder(t *testing.T) {
	r := router.New()
	outer := r.Group("/o", trace("o1"))
	inner := outer.Group("/i/{x}", trace("i1"))
	inner.GET("/end", show, trace("h1"), trace("h2"))
	outer.GET("", show)
	r.GET("/{$}", show)
	r.Use(trace("r1"))
	inner.Use(trace("i2"))
	outer.Use(trace("o2"))
	r.Use(trace("r2"))
	for request, want := range map[string]string{
		"GET /o/i/7/end": "GET /o/i/{x}/end x=7: r1 r2 o1 o2 i1 i2 h1 h2 h2200 h1200 i2200 i1200 o2200 o1200 r2200 r1200",
		"GET /o":         "GET /o: r1 r2 o1 o2 o2200 o1200 r2200 r1200",
		"GET /":          "GET /{$}: r1 r2 r2200 r1200",
		"GET /o/i":       "Not Found\n: r1 r2 r2404 r1404",
	} {
		got := do(t, r, request)
		if text := got.Body + ": " + traceOf(got); text != want {
			t.Errorf("%s: %q, want %q", request, text, want)
		}
	}
}

// A route for every method, such as one for an old application, doesn't take the preflights of more specific routes. Such a preflight goes
// to the middleware of the route that it asks about, as if the other route didn't exist.
func TestPreflightPastAnyMethod(t *testing.T) {
	newRouter := func() *router.Router {
		r := router.New()
		r.Any("/{path...}", show)
		r.Any("/users/{id}", show, trace("any"))
		api := r.Group("/users", trace("cors"))
		api.GET("/{id}", show)
		api.PUT("/{id}/photo", show, trace("put"))
		api.PUT("/{id}/list/", show)
		r.Any("/photos/{id}", show, trace("photos"))
		r.OPTIONS("/own/{id}", show)
		r.PUT("/own/{id}", show, trace("put"))
		return r
	}
	inner := newRouter()
	outer := router.New()
	outer.Mount("/in/{tenant}", inner.Serve)
	outer.PUT("/in/{tenant}/users/9/photo", show, trace("outer"))
	hosts := newRouter()
	hosts.PUT("b.test/{path...}", show, trace("b"))
	off := newRouter()
	off.DisableOptions = true
	const asksPUT, asksGET = "Access-Control-Request-Method: PUT", "Access-Control-Request-Method: GET"
	for _, test := range []struct {
		why, request, field string
		r                   *router.Router
		trace, route        string
	}{
		{"another route", "OPTIONS /users/7/photo", asksPUT, newRouter(), "cors put put204 cors204", ""},
		{"another route for the same path", "OPTIONS /users/7", asksGET, newRouter(), "cors cors204", ""},
		{"HEAD is GET's", "OPTIONS /users/7", "Access-Control-Request-Method: HEAD", newRouter(), "cors cors204", ""},
		{"an encoded path", "OPTIONS /users/a%2Fb/photo", asksPUT, newRouter(), "cors put put204 cors204", ""},
		{"the route for every method itself", "OPTIONS /photos/7", asksPUT, newRouter(), "photos photos200", "/photos/{id} id=7"},
		{"the same, with an encoded path", "OPTIONS /photos/a%2Fb", asksPUT, newRouter(), "photos photos200", "/photos/{id} id=a/b"},
		{"no such route", "OPTIONS /users/7/photo", asksGET, newRouter(), "", "/{path...} path=users/7/photo"},
		{"an unknown method", "OPTIONS /users/7/photo", "Access-Control-Request-Method: FOO", newRouter(), "", "/{path...} path=users/7/photo"},
		{"no preflight", "OPTIONS /users/7/photo", "A: b", newRouter(), "", "/{path...} path=users/7/photo"},
		{"a route for OPTIONS", "OPTIONS /own/7", asksPUT, newRouter(), "", "OPTIONS /own/{id} id=7"},
		{"DisableOptions", "OPTIONS /users/7/photo", asksPUT, off, "", "/{path...} path=users/7/photo"},
		{"a host's route", "OPTIONS http://b.test/users/7", asksPUT, hosts, "b b204", ""},
		{"mounted", "OPTIONS /in/a/users/7/photo", asksPUT, outer, "cors put put204 cors204", ""},
		{"mounted, the route for every method", "OPTIONS /in/a/x", asksPUT, outer, "", "/in/{tenant}/{path...} tenant=a path=x"},
		{"beside a mount", "OPTIONS /in/a/users/9/photo", asksPUT, outer, "outer outer204", ""},
	} {
		got := do(t, test.r, test.request, "Origin: http://a.test", test.field)
		if traceOf(got) != test.trace || got.Header.Get("Route") != test.route {
			t.Errorf("%s: %d %q %q, want %q %q", test.why, got.Status, traceOf(got), got.Header.Get("Route"), test.trace, test.route)
		}
		if got.Status == 204 && got.Header.Get("Allow") != "" {
			t.Errorf("%s: Allow %q, though every method has a route", test.why, got.Header.Get("Allow"))
		}
	}
}

// Middleware of Use also covers the router's own answers.
func TestUseCoversTheRoutersAnswers(t *testing.T) {
	r := router.New()
	r.GET("/a", show)
	r.GET("/tree/", show)
	r.Group("/g", trace("g")).GET("/b", show)
	r.Use(trace("r"))
	for _, c := range []struct {
		request, trace, allow, location string
	}{
		{"GET /none", "r r404", "", ""},
		{"POST /a", "r r405", "GET, HEAD, OPTIONS", ""},
		{"POST /g/b", "r r405", "GET, HEAD, OPTIONS", ""},
		{"OPTIONS /a", "r r204", "GET, HEAD, OPTIONS", ""},
		{"OPTIONS /none", "r r404", "", ""},
		{"GET /tree", "r r301", "", "/tree/"},
		{"HEAD /tree", "r r301", "", "/tree/"},
		{"OPTIONS /tree", "r r204", "GET, HEAD, OPTIONS", ""},
		{"POST /x//y", "r r308", "", "/x/y"},
	} {
		got := do(t, r, c.request)
		if traceOf(got) != c.trace || got.Header.Get("Allow") != c.allow || got.Header.Get("Location") != c.location {
			t.Errorf("%s: %d %v", c.request, got.Status, got.Header)
		}
	}
}

// When next returns an error of a handler or an inner middleware, the error has already been rendered as the response, and the
// middleware also receives the error.
func TestErrorsAreRenderedInside(t *testing.T) {
	teapot := &filo.HTTPError{Status: 418, Detail: "short and stout"}
	r := router.New()
	var status []int
	var seen []error
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			status, seen = append(status, c.Status()), append(seen, err)
			if c.BytesWritten() == 0 {
				t.Errorf("%s: the body isn't there yet", c.Path())
			}
			return err
		}
	})
	r.GET("/handler", func(*filo.Ctx) error { return teapot })
	r.GET("/middleware", show, func(filo.Handler) filo.Handler {
		return func(*filo.Ctx) error { return teapot }
	})
	for _, request := range []string{"GET /handler", "GET /middleware"} {
		if got := do(t, r, request); got.Status != 418 || !strings.Contains(got.Body, "short and stout") {
			t.Errorf("%s: %d %q", request, got.Status, got.Body)
		}
	}
	if !slices.Equal(status, []int{418, 418}) || !errors.Is(seen[0], teapot) || !errors.Is(seen[1], teapot) {
		t.Errorf("middleware found %v, %v", status, seen)
	}
}

// A preflight passes through the middleware of the route that it asks about, and gets 204 if that middleware doesn't answer.
func TestPreflight(t *testing.T) {
	cors := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.Set("Access-Control-Allow-Origin", "*")
			if c.Method() == "OPTIONS" && c.Request.Header.Has("Access-Control-Request-Method") {
				c.Response.Header.Set("Access-Control-Allow-Methods", "PUT")
				return c.Text(200, "by cors")
			}
			return next(c)
		}
	}
	r := router.New()
	r.Use(trace("r"))
	api := r.Group("/api", trace("g"))
	api.GET("/a/{x}", show)
	api.PUT("/a/{x}", show, trace("put"))
	api.Group("", cors).PUT("/b", show)
	r.OPTIONS("/own", show)
	r.PUT("/own", show, trace("put"))
	for _, c := range []struct {
		why, request, method string
		status               int
		trace                string
	}{
		{"of the group", "OPTIONS /api/a/7", "GET", 204, "r g g204 r204"},
		{"of the group and the route", "OPTIONS /api/a/7", "PUT", 204, "r g put put204 g204 r204"},
		{"HEAD is GET's", "OPTIONS /api/a/7", "HEAD", 204, "r g g204 r204"},
		{"middleware answers", "OPTIONS /api/b", "PUT", 200, "r g g200 r200"},
		{"no route for the method", "OPTIONS /api/b", "DELETE", 204, "r r204"},
		{"no route for the path", "OPTIONS /api/c", "PUT", 404, "r r404"},
		{"no preflight", "OPTIONS /api/a/7", "", 204, "r r204"},
		{"a route of its own", "OPTIONS /own", "PUT", 200, "r r200"},
	} {
		var fields []string
		if c.method != "" {
			fields = []string{"Origin: http://a.test", "Access-Control-Request-Method: " + c.method}
		}
		got := do(t, r, c.request, fields...)
		if got.Status != c.status || traceOf(got) != c.trace {
			t.Errorf("%s: %d %s, want %d %s", c.why, got.Status, traceOf(got), c.status, c.trace)
		}
		if got.Status == 204 && got.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", c.why)
		}
	}
	r = router.New()
	r.DisableOptions = true
	r.PUT("/a", show, trace("put"))
	if got := do(t, r, "OPTIONS /a", "Access-Control-Request-Method: PUT"); got.Status != 405 || got.Header.Get("Allow") != "PUT" {
		t.Errorf("with DisableOptions: %d %v", got.Status, got.Header)
	}
}

// From the first request on, nothing can be changed.
func TestFreeze(t *testing.T) {
	r := router.New()
	g := r.Group("/g")
	route := r.GET("/a", show)
	if got := do(t, r, "GET /a"); got.Status != 200 {
		t.Fatal(got)
	}
	for name, f := range map[string]func(){
		"Use":              func() { r.Use(trace("r")) },
		"Group.Use":        func() { g.Use(trace("r")) },
		"Handle":           func() { r.Handle("/b", show) },
		"Mount":            func() { g.Mount("/b", show) },
		"NotFound":         func() { r.NotFound(show) },
		"MethodNotAllowed": func() { r.MethodNotAllowed(show) },
		"Route.Name":       func() { route.Name("a") },
	} {
		if message := panicOf(f); !strings.Contains(message, "while the router serves") {
			t.Errorf("%s: %q", name, message)
		}
	}
}

// If a middleware returns no handler, the router panics when the chains are built, whatever the request is for. The panic names the
// middleware.
func TestMiddlewareWithoutHandler(t *testing.T) {
	for name, add := range map[string]func(*router.Router){
		"Use":     func(r *router.Router) { r.Use(noHandler) },
		"Group":   func(r *router.Router) { r.Group("/g", noHandler).GET("/b", show) },
		"a route": func(r *router.Router) { r.GET("/b", show, noHandler) },
	} {
		r := with("/a")
		add(r)
		servertest.New(t, func(c *filo.Ctx) error {
			message := panicOf(func() { r.Serve(c) })
			if !strings.Contains(message, "router_test.noHandler (") || !strings.Contains(message, "returned no handler") {
				t.Errorf("%s: %q", name, message)
			}
			return nil
		}).Do(t, "GET /a")
	}
}

func noHandler(filo.Handler) filo.Handler { return nil }

// If the first requests are concurrent, each of them finds all chains built, and each chain is built only once.
func TestFreezeAtOnce(t *testing.T) {
	r := router.New()
	made := 0
	r.GET("/a", show)
	r.Use(func(next filo.Handler) filo.Handler { made++; return next })
	s := servertest.New(t, r.Serve)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := s.Raw(t, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.Contains(got, "GET /a") {
				t.Errorf("%q", got)
			}
		})
	}
	all.Wait()
	if made != 3 { // for the route, its preflight and the router's own answers
		t.Errorf("the middleware was called %d times", made)
	}
}

func TestNotFoundAndMethodNotAllowed(t *testing.T) {
	r := with("POST /a")
	r.NotFound(func(c *filo.Ctx) error { return c.Text(404, "nothing here") })
	r.MethodNotAllowed(func(c *filo.Ctx) error { return filo.Error(405, "try another") })
	if got := do(t, r, "GET /b"); got.Status != 404 || got.Body != "nothing here" {
		t.Error(got)
	}
	if got := do(t, r, "GET /a"); got.Status != 405 || !strings.Contains(got.Body, "try another") || got.Header.Get("Allow") != "OPTIONS, POST" {
		t.Error(got)
	}
	r = with("POST /a", "/t/")
	r.DisableMethodNotAllowed = true
	if got := do(t, r, "GET /a"); got.Status != 404 || got.Header.Get("Allow") != "" {
		t.Error(got)
	}
}

func TestRedirectsCanBeDisabled(t *testing.T) {
	r := with("GET /t/", "/f/{x}", "/{rest...}")
	r.DisableSlashRedirect, r.DisablePathRedirect = true, true
	for request, want := range map[string]string{
		"GET /t":      "/{rest...} rest=t",
		"PUT /t":      "/{rest...} rest=t",
		"GET /f/..":   "/f/{x} x=..",
		"GET /f//":    "/{rest...} rest=f//",
		"GET /f/../a": "/{rest...} rest=f/../a",
		"GET //a/":    "/{rest...} rest=/a/",
		"GET /f/%2e/": "/{rest...} rest=f/./",
	} {
		if got := do(t, r, request); got.Body != want {
			t.Errorf("%s: %d %q, want %q", request, got.Status, got.Body, want)
		}
	}
}

// CONNECT is matched by its host, and never redirected. A handler for every method isn't called for CONNECT.
func TestConnect(t *testing.T) {
	r := with("CONNECT proxy.test/", "/")
	if got := do(t, r, "CONNECT proxy.test:443"); got.Status != 200 || got.Header.Get("Route") != "CONNECT proxy.test/" {
		t.Error(got)
	}
	if got := do(t, r, "CONNECT other.test:443"); got.Status != 404 {
		t.Error(got)
	}
}

// RFC 9112, section 3.2.2: a target in absolute-form names the host; a target without a path is for "/".
func TestAbsoluteForm(t *testing.T) {
	r := with("a.test/{$}", "b.test/{x}")
	s := servertest.New(t, r.Serve)
	for target, want := range map[string]string{"http://a.test": "a.test/{$}", "http://a.test/": "a.test/{$}", "http://b.test:8/%41?x": "b.test/{x} x=A"} {
		if got := s.Raw(t, "GET "+target+" HTTP/1.1\r\nHost: c.test\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n"+want) {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

// The star of a host stands for one label. Routes of the request's own host come first, then those of the starred domain above it, then
// those of any host. Each path is searched in all three.
func TestHostsBelow(t *testing.T) {
	r := with("admin.a.test/", "GET *.a.test/shop/{x}", "POST *.a.test/shop/{x}", "*.b.a.test/{$}", "/shop/{x}", "/{$}")
	for target, want := range map[string]string{
		"GET admin.a.test/shop/1":                            "admin.a.test/",
		"GET shop.a.test/shop/1":                             "GET *.a.test/shop/{x} x=1",
		"GET SHOP.A.Test:8080/shop/1":                        "GET *.a.test/shop/{x} x=1",
		"GET shop.a.test./shop/1":                            "GET *.a.test/shop/{x} x=1",
		"POST shop.a.test/shop/1":                            "POST *.a.test/shop/{x} x=1",
		"PUT shop.a.test/shop/1":                             "/shop/{x} x=1",
		"GET shop.a.test/":                                   "/{$}",
		"GET a.test/shop/1":                                  "/shop/{x} x=1",
		"GET .a.test/shop/1":                                 "/shop/{x} x=1",
		"GET x.shop.a.test/shop/1":                           "/shop/{x} x=1",
		"GET xa.test/shop/1":                                 "/shop/{x} x=1",
		"GET x.b.a.test/":                                    "*.b.a.test/{$}",
		"GET b.a.test/shop/2":                                "GET *.a.test/shop/{x} x=2",
		"GET [::1]/shop/1":                                   "/shop/{x} x=1",
		"GET " + strings.Repeat("a", 300) + ".a.test/shop/1": "/shop/{x} x=1",
	} {
		method, target, _ := strings.Cut(target, " ")
		if got := do(t, r, method+" http://"+target); got.Status != 200 || got.Body != want {
			t.Errorf("%s %s: %d %q, want %q", method, target, got.Status, got.Body, want)
		}
	}
	r = with("GET *.a.test/x", "PUT /x")
	if got := do(t, r, "POST http://shop.a.test/x"); got.Status != 405 || got.Header.Get("Allow") != "GET, HEAD, OPTIONS, PUT" {
		t.Error(got)
	}
}

// Paths of the maximum length that the server accepts are matched and answered like others.
func TestOverlongPaths(t *testing.T) {
	r := with("/a/{x}", "/b/{rest...}", "/c/{x:[a-z]+}", "/d/{x}/e")
	long := strings.Repeat("x", 6000)
	for path, status := range map[string]int{
		"/a/" + long:                        200,
		"/a/" + strings.Repeat("%41", 2000): 200,
		"/b/" + strings.Repeat("a/", 3000):  200,
		"/c/" + long:                        200,
		"/c/" + long + "1":                  404,
		"/d/" + long + "/f":                 404,
		"/b/" + strings.Repeat("../", 2000): 301,
		strings.Repeat("/", 6000):           301,
		strings.Repeat("/a", 3000):          404,
	} {
		if got := do(t, r, "GET "+path); got.Status != status {
			t.Errorf("%.20s…: %d, want %d", path, got.Status, status)
		}
	}
}

func TestGroups(t *testing.T) {
	r := router.New()
	r.Group("/a/{x}/").Group("/b").Handle("GET /c/{y:int}", show)
	r.Group("api.test").GET("/a", show)
	host := r.Group("api.test/v1")
	host.Any("/{$}", show)
	host.Handle("POST ", show)
	r.Group("/h").Handle("GET h.test/x", show)
	for request, want := range map[string]string{
		"GET /a/1/b/c/2":          "GET /a/{x}/b/c/{y:int} x=1 y=2",
		"GET http://api.test/a":   "GET api.test/a",
		"PUT http://api.test/v1/": "api.test/v1/{$}",
		"POST http://api.test/v1": "POST api.test/v1",
		"GET http://h.test/h/x":   "GET h.test/h/x",
	} {
		if got := do(t, r, request); got.Body != want {
			t.Errorf("%s: %d %q, want %q", request, got.Status, got.Body, want)
		}
	}
}

func TestMount(t *testing.T) {
	innermost := router.New()
	innermost.GET("/z/{c}", show)
	innermost.GET("/{$}", show)
	inner := router.New()
	inner.Use(trace("inner"))
	inner.GET("/x/{b}", show)
	inner.GET("/literal", show)
	inner.GET("/tree/", show)
	inner.Mount("/deep/{d}", innermost.Serve)
	r := router.New()
	r.Use(trace("outer"))
	r.GET("/t/{a}/own", show)
	r.Mount("/t/{a}", inner.Serve)
	r.Mount("/u", inner.Serve, trace("mount"))
	r.Mount("/raw/", func(c *filo.Ctx) error { return c.Text(200, c.Path()) })
	for _, c := range []struct{ request, want, trace string }{
		{"GET /t/1/x/2", "GET /t/{a}/x/{b} a=1 b=2", "outer inner inner200 outer200"},
		{"GET /t/1/x/%2f", "GET /t/{a}/x/{b} a=1 b=/", "outer inner inner200 outer200"},
		{"GET /t/%2f/x/2", "GET /t/{a}/x/{b} a=/ b=2", "outer inner inner200 outer200"},
		{"GET /u/x/2", "GET /u/x/{b} b=2", "outer mount inner inner200 mount200 outer200"},
		{"GET /u/literal", "GET /u/literal", "outer mount inner inner200 mount200 outer200"},
		{"GET /t/1/own", "GET /t/{a}/own a=1", "outer outer200"},
		{"GET /t/1/deep/2/z/3", "GET /t/{a}/deep/{d}/z/{c} a=1 d=2 c=3", "outer inner inner200 outer200"},
		{"GET /u/deep/2/z/3", "GET /u/deep/{d}/z/{c} d=2 c=3", "outer mount inner inner200 mount200 outer200"},
		{"GET /u/deep/2/", "GET /u/deep/{d}/{$} d=2", "outer mount inner inner200 mount200 outer200"},
		{"GET /t/1/none", "Not Found\n", "outer inner inner404 outer404"},
		{"POST /t/1/x/2", "Method Not Allowed\n", "outer inner inner405 outer405"},
		{"OPTIONS /t/1/x/2", "", "outer inner inner204 outer204"},
		{"GET /t/1/tree", "301 /t/1/tree/", "outer inner inner301 outer301"},
		{"GET /t/1", "301 /t/1/", "outer outer301"},
		{"GET /t/1/", "Not Found\n", "outer inner inner404 outer404"},
		{"GET /t/../u/x/2", "301 /u/x/2", "outer outer301"},
		{"GET /raw/a/b", "/raw/a/b", "outer outer200"},
	} {
		for range 2 { // the second time with the classes known
			got := do(t, r, c.request)
			if got.Status == 301 {
				got.Body = "301 " + got.Header.Get("Location")
			}
			if got.Body != c.want || traceOf(got) != c.trace {
				t.Errorf("%s: %d %q %s, want %q %s", c.request, got.Status, got.Body, traceOf(got), c.want, c.trace)
			}
		}
	}
}

// Classes are listed by the patterns of their routes. A mounted router's routes are listed with their own classes, instead of the
// class of the mount point.
func TestClasses(t *testing.T) {
	inner := with("GET /x")
	r := with("GET /a/{b}")
	r.Mount("/m", inner.Serve)
	s := servertest.New(t, r.Serve)
	for range 3 {
		for _, request := range []string{"GET /a/1", "GET /m/x", "GET /none"} {
			s.Do(t, request)
		}
	}
	var names []string
	for _, class := range s.Config.Stats().Classes {
		names = append(names, class.Name)
	}
	for _, name := range []string{"GET /a/{b}", "GET /x", "no route"} {
		if !slices.Contains(names, name) {
			t.Errorf("classes %q, want %q among them", names, name)
		}
	}
}

// The handlers of NotFound and MethodNotAllowed, and preflights, run in a class of their own, with their middleware.
func TestClassOfNoRoute(t *testing.T) {
	waits := func(c *filo.Ctx) error {
		time.Sleep(time.Millisecond)
		return nil
	}
	for name, test := range map[string]struct {
		request string
		header  []string
		prepare func(*router.Router)
	}{
		"404": {"GET /none", nil, func(r *router.Router) { r.NotFound(waits) }},
		"405": {"POST /a", nil, func(r *router.Router) { r.MethodNotAllowed(waits) }},
		"preflight": {"OPTIONS /a", []string{"Access-Control-Request-Method: GET"}, func(r *router.Router) {
			r.Use(func(filo.Handler) filo.Handler { return waits })
		}},
	} {
		r := with("GET /a")
		test.prepare(r)
		s := servertest.New(t, r.Serve)
		for range 10 {
			s.Do(t, test.request, test.header...)
		}
		found := false
		for _, class := range s.Config.Stats().Classes {
			found = found || class.Name == "no route" && class.Kind == "slow"
		}
		if !found {
			t.Errorf("%s: %+v; want a slow class of no route", name, s.Config.Stats().Classes)
		}
	}
}

// A route marked Inline or Offload runs accordingly from the first request on, together with all its middleware, however long they take.
// When all places of the server are taken, Inline routes are answered and others are refused, in both drivers.
func TestRouteInlineAndOffload(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loops": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		t.Run(name, func(t *testing.T) {
			if driver == filo.DriverLoop && runtime.GOOS != "linux" {
				t.Skip("no loops here")
			}
			testRouteInlineAndOffload(t, driver)
		})
	}
}

func testRouteInlineAndOffload(t *testing.T, driver filo.Driver) {
	held, release := make(chan bool), make(chan bool)
	r, mounted := router.New(), router.New()
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			time.Sleep(100 * time.Microsecond) // long enough that an unmarked route's class would become slow
			return next(c)
		}
	})
	r.GET("/hold", func(c *filo.Ctx) error { held <- true; <-release; return nil }).Offload()
	r.GET("/inline", show).Name("inline").Inline().Inline()
	r.Mount("/inline/mounted", show).Inline()
	r.GET("/offload", show).Offload()
	mounted.GET("/learned", show)
	r.Mount("/mount", mounted.Serve).Offload()
	server := &filo.Server{Handler: r.Serve, Concurrency: 1, Leaders: 1, Driver: driver, Logger: slog.New(slog.DiscardHandler)}
	address := "http://" + tcptest.Serve(t, server)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	status := func(path string) int {
		response, err := client.Get(address + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	var group sync.WaitGroup
	group.Go(func() { status("/hold") })
	<-held
	for range 10 {
		for path, want := range map[string]int{"/inline": 200, "/inline/mounted/x": 200, "/offload": 503, "/mount/learned": 503} {
			if got := status(path); got != want {
				t.Errorf("%s of a server without a place: %d, want %d", path, got, want)
			}
		}
	}
	close(release)
	group.Wait()
	for _, path := range []string{"/offload", "/mount/learned"} {
		for deadline := time.Now().Add(time.Minute); status(path) != 200; { // the held worker's place is free soon
			if time.Now().After(deadline) {
				t.Fatalf("%s is refused by a server that has nothing to do", path)
			}
		}
	}
	want := map[string]string{"GET /inline": "inline", "/inline/mounted/": "inline", "GET /offload": "offload", "/mount/": "offload"}
	for _, class := range server.Stats().Classes {
		if kind := want[class.Name]; kind != "" && class.Kind != kind {
			t.Errorf("the class %q is %s, want %s", class.Name, class.Kind, kind)
		}
		if class.Inline > 0 && class.Kind == "offload" {
			t.Errorf("%q ran %d times where its requests were read", class.Name, class.Inline)
		}
		delete(want, class.Name)
	}
	if len(want) > 0 {
		t.Errorf("Stats doesn't list %v", want)
	}
}

// A handler made by filo.Inline or filo.Offload keeps its class in a route that isn't marked. A handler made by filo.Offload leaves the
// loop even in an Inline route.
func TestInlineAndOffloadInRoutes(t *testing.T) {
	r := router.New()
	r.GET("/inline", filo.Inline(show))
	r.GET("/offload", filo.Offload(show)).Inline()
	s := servertest.New(t, r.Serve)
	for range 100 {
		s.Do(t, "GET /inline")
		s.Do(t, "GET /offload")
	}
	want := map[string]string{"GET /inline": "quick", "inline": "inline", "GET /offload": "inline", "offload": "offload"}
	for _, class := range s.Config.Stats().Classes {
		if kind := want[class.Name]; kind != "" && class.Kind != kind {
			t.Errorf("the class %q is %s, want %s", class.Name, class.Kind, kind)
		}
		delete(want, class.Name)
	}
	if len(want) > 0 {
		t.Errorf("Stats doesn't list %v", want)
	}
}

// Marking a route with both Inline and Offload, or too late, panics with a remedy.
func TestRouteToldTwice(t *testing.T) {
	for name, tell := range map[string]func(*router.Router, *router.Route){
		"can't be Offload, it is Inline already": func(_ *router.Router, a *router.Route) { a.Inline().Offload() },
		"can't be Inline, it is Offload already": func(_ *router.Router, a *router.Route) { a.Offload().Inline() },
		"Route.Inline while the router serves: everything must": func(r *router.Router, a *router.Route) {
			servertest.New(t, r.Serve).Do(t, "GET /a")
			a.Inline()
		},
	} {
		func() {
			defer func() {
				if value := fmt.Sprint(recover()); !strings.Contains(value, name) {
					t.Errorf("panic %q, want %q", value, name)
				}
			}()
			r := router.New()
			tell(r, r.GET("/a", show))
		}()
	}
}

func TestURL(t *testing.T) {
	r := router.New()
	r.GET("/users/{id:int}/files/{path...}", show).Name("file")
	r.GET("/tags/{tag}/{$}", show).Name("tag")
	r.GET("/a%2Fb/ü/", show).Name("literal")
	r.Group("a.test/g").GET("/{x}", show).Name("host")
	r.Group("*.a.test/g").GET("/{x}", show).Name("below")
	for _, c := range []struct {
		name   string
		values []string
		want   string // "" means an error
	}{
		{"file", []string{"7", "a b/c%/d?"}, "/users/7/files/a%20b/c%25/d%3F"},
		{"file", []string{"7", ""}, "/users/7/files/"},
		{"file", []string{"x", "a"}, ""},
		{"file", []string{"7", "a/../b"}, ""},
		{"file", []string{"7", "/b"}, ""},
		{"file", []string{"7"}, ""},
		{"tag", []string{"a/b"}, "/tags/a%2Fb/"},
		{"tag", []string{`\?#ü`}, "/tags/%5C%3F%23%C3%BC/"},
		{"tag", []string{".."}, ""},
		{"tag", []string{""}, ""},
		{"tag", []string{"a", "b"}, ""},
		{"literal", nil, "/a%2Fb/%C3%BC/"},
		{"host", []string{"y"}, "//a.test/g/y"},
		{"below", []string{"shop-1", "y"}, "//shop-1.a.test/g/y"},
		{"below", []string{"y"}, ""},
		{"below", []string{"", "y"}, ""},
		{"below", []string{"evil.test/", "y"}, ""},
		{"none", nil, ""},
	} {
		got, err := r.URL(c.name, c.values...)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("URL(%q, %q) = %q, %v; want %q", c.name, c.values, got, err, c.want)
		}
	}
	route := r.GET("/other", show)
	if message := panicOf(func() { route.Name("tag") }); strings.Count(message, "router_test.go:") != 2 {
		t.Errorf("a name that is taken: %q", message)
	}
	if got := do(t, r, "GET /tags/a%2Fb/"); got.Body != "GET /tags/{tag}/{$} tag=a/b" {
		t.Error(got)
	}
}

func TestRoutes(t *testing.T) {
	r := router.New()
	r.GET("/b", show).Name("b")
	r.Group("a.test/g").Any("/{x}", show)
	got := r.Routes()
	for i, want := range []router.RouteInfo{
		{Method: "GET", Path: "/b", Pattern: "GET /b", Name: "b"},
		{Host: "a.test", Path: "/g/{x}", Pattern: "a.test/g/{x}"},
	} {
		if !strings.Contains(got[i].Location, "router_test.go:") {
			t.Errorf("no location: %+v", got[i])
		}
		if got[i].Handler == nil {
			t.Errorf("no handler: %+v", got[i])
		}
		got[i].Location, got[i].Handler = "", nil
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("%+v, want %+v", got[i], want)
		}
	}
}

// A middleware function may ask the router for its routes while the router builds the chains. A change is then too late.
func TestMiddlewareAsksRouter(t *testing.T) {
	r := router.New()
	r.GET("/users/{id}", show).Name("user")
	r.Use(func(next filo.Handler) filo.Handler {
		routes := len(r.Routes())
		at, err := r.URL("user", "7")
		late := panicOf(func() { r.GET("/late", show) })
		return func(c *filo.Ctx) error {
			c.Response.Header.Set("Asked", fmt.Sprintf("%d %s %v %s", routes, at, err, late))
			return next(c)
		}
	})
	got := do(t, r, "GET /users/7").Header.Get("Asked")
	if !strings.HasPrefix(got, "1 /users/7 <nil>") || !strings.Contains(got, "while the router serves") {
		t.Errorf("the middleware got %q", got)
	}
}

// Parameters of a path with percent-encoding stay valid after the router has returned, until the handler has.
func TestEncodedParametersOutliveRouter(t *testing.T) {
	r := router.New()
	r.GET("/u/{id}", func(c *filo.Ctx) error { return nil })
	var other *servertest.Server
	outer := func(c *filo.Ctx) error {
		err := r.Serve(c)
		if other != nil && c.Query("first") != "" {
			other.Do(t, "GET /u/%42%42%42%42%42") // takes memory out of the same pool
			return c.Text(200, c.Param("id"))
		}
		return err
	}
	other = servertest.New(t, outer)
	s := servertest.New(t, outer)
	for range 100 {
		if got := s.Do(t, "GET /u/%41lice?first=1"); got.Body != "Alice" {
			t.Fatalf("got %q", got.Body)
		}
	}
}
