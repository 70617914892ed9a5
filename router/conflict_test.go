package router_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// Two patterns conflict if both match some request, and neither is more specific: the order in which they are registered
// makes no difference.
func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		why, first, second string
		want               string // in the panic's text; "" means that there is no conflict
	}{
		{"the same", "/a", "/a", "the same requests"},
		{"the same but for names", "/{x}", "/{y}", "the same requests"},
		{"a trailing slash is {name...}", "/a/", "/a/{rest...}", "the same requests"},
		{"the same when decoded", "/a", "/%61", "the same requests"},
		{"the same host in another case", "a.test/", "A.test/", "the same requests"},
		{"other methods", "GET /a", "POST /a", ""},
		{"GET is more general than HEAD", "GET /a", "HEAD /a", ""},
		{"no method is more general", "GET /a", "/a", ""},
		{"ServeMux: fewer methods, more paths", "GET /", "/index.html", "fewer methods"},
		{"fewer methods, more paths, by a wildcard", "HEAD /{x}", "GET /a", "fewer methods"},
		{"other hosts", "a.test/", "b.test/", ""},
		{"hosts below another, which wins", "*.test/", "a.test/a", ""},
		{"the same hosts below another", "*.test/{a}", "*.test/{b}", "the same requests"},
		{"a host wins whatever the rest", "a.test/", "GET /a", ""},
		{"ServeMux: a longer subtree", "/images/thumbnails/", "/images/", ""},
		{"ServeMux: neither is more specific", "/posts/{id}", "/{resource}/latest", `"/posts/latest"`},
		{"a subtree and a wildcard", "/a/", "/{x}/b", `"/a/b"`},
		{"a subtree and a longer wildcard", "/a/", "/{x}/b/c", `"/a/b/c"`},
		{"{$} is more specific than a subtree", "/a/{$}", "/a/", ""},
		{"{$} and a wildcard match nothing both", "/{$}", "/{x}", ""},
		{"{$} below a wildcard and a subtree", "/{x}/{$}", "/a/", `"/a/"`},
		{"{$} twice", "/{x}/{$}", "/{y}/{$}", "the same requests"},
		{"literals part them", "/{x}/a", "/b/c", ""},
		{"another length", "/{x}", "/a/b", ""},
		{"the same constraint", "/{x:int}", "/{y:int}", "the same requests"},
		{"a constraint is more specific than none", "/{x:int}", "/{y}", ""},
		{"another constraint", "/{x:int}", "/{y:uint}", "different constraints"},
		{"another constraint, in other methods", "GET /{x:int}", "POST /{y:uint}", ""},
		{"another constraint, another way on", "/{x:int}/a", "/{y:uint}/b", ""},
		{"another constraint above", "/{x:int}/a", "/{y:[0-9]+}/{z}", "different constraints"},
		{"a literal that satisfies", "/12", "/{x:int}", ""},
		{"a literal that doesn't, below what overlaps", "/{a}/x/12", "/b/{c}/{d:alpha}", ""},
		{"a literal that does, below what overlaps", "/{a}/x/z", "/b/{c}/{d:alpha}", `"/b/x/z"`},
		{"crosswise with a constraint", "/{a:int}/b", "/1/{c}", `"/1/b"`},
		{"an expression of an encoded literal", "/a%2Fb", "/{x:[a-z/]+}", ""},
	} {
		for _, order := range [][2]string{{c.first, c.second}, {c.second, c.first}} {
			message := panicOf(func() {
				r := router.New()
				r.Handle(order[0], show)
				r.Handle(order[1], show)
			})
			if (message == "") != (c.want == "") {
				t.Errorf("%s: %q and %q: %q", c.why, order[0], order[1], message)
			}
			// What the message says about methods depends on the order.
			if order[0] == c.second && !strings.Contains(message, c.want) && !strings.Contains(c.want, "methods") {
				t.Errorf("%s: %q, want it to say %s", c.why, message, c.want)
			}
		}
	}
}

// "GET /" next to a mounted handler, such as that of package debug, is usually meant for the path "/" alone. The conflict's message
// recommends a pattern for that path, and the recommended pattern is accepted.
func TestRootBesideMount(t *testing.T) {
	for _, register := range [][]func(r *router.Router, path string){
		{func(r *router.Router, path string) { r.GET(path, show) }, func(r *router.Router, _ string) { r.Mount("/debug", show) }},
		{func(r *router.Router, _ string) { r.Mount("/debug", show) }, func(r *router.Router, path string) { r.GET(path, show) }},
	} {
		both := func(path string) string {
			return panicOf(func() {
				r := router.New()
				register[0](r, path)
				register[1](r, path)
			})
		}
		if message := both("/"); !strings.Contains(message, `; write "GET /{$}" for that path alone`) {
			t.Errorf("%q", message)
		}
		if message := both("/{$}"); message != "" {
			t.Errorf("then %q", message)
		}
	}
	if message := panicOf(func() { r := router.New(); r.GET("/{x...}", show); r.Mount("/debug", show) }); message == "" || strings.Contains(message, "write") {
		t.Errorf("%q", message)
	}
}

// A conflict names both routes, with the file and line of their registration, however they were registered.
func TestConflictNamesBothPlaces(t *testing.T) {
	handle := func(r *router.Router) { r.Handle("GET /a/{x}", show) }
	get := func(r *router.Router) { r.GET("/a/{y}", show) }
	group := func(r *router.Router) { r.Group("/a").GET("/{z}", show) }
	anyMethod := func(r *router.Router) { r.Group("/a").Any("/b/..", show) }
	place := regexp.MustCompile(`pattern "GET /a/{[xyz]}" \(registered at \S*/router/conflict_test\.go:(\d+)\)`)
	for _, pair := range [][2]func(*router.Router){{handle, get}, {get, group}, {group, handle}} {
		message := panicOf(func() {
			r := router.New()
			pair[0](r)
			pair[1](r)
		})
		places := place.FindAllStringSubmatch(message, -1)
		if len(places) != 2 || places[0][1] == places[1][1] {
			t.Errorf("%q, want two places", message)
		}
	}
	if message := panicOf(func() { anyMethod(router.New()) }); !strings.Contains(message, `"/b/.." (registered at `) || !strings.Contains(message, "/conflict_test.go:") {
		t.Errorf("%q, want the place", message)
	}
}

func TestBadPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"":              "path",
		"GET":           "path",
		"GET ":          "path",
		"a.test":        "path",
		"G(T /":         "invalid method",
		" /":            "invalid method",
		"/a{x}":         "whole segment",
		"/{x}a":         "whole segment",
		"/{x":           "balanced",
		"/{x:[{]}":      "balanced",
		"/{}":           "Go identifier",
		"/{1x}":         "Go identifier",
		"/{a-b}":        "Go identifier",
		"/{...}":        "Go identifier",
		"/{x}/{x}":      "two wildcards",
		"/{x}/{x...}":   "two wildcards",
		"/{$}/a":        "last segment",
		"/{$}/":         "last segment",
		"/{x...}/":      "last segment",
		"/{x...:int}":   "no constraint",
		"/{x:}":         "empty constraint",
		"/{x:(}":        "missing closing",
		"/{x:a)(b}":     "unexpected )",
		"/{x:[a-}":      "missing closing",
		"{x}/":          "wildcard",
		"a.test:80/":    "port",
		"/a//b":         "never match",
		"/a/../b":       "never match",
		"/.":            "never match",
		"GET a.test/./": "never match",
	} {
		message := panicOf(func() { router.New().Handle(pattern, show) })
		if !strings.Contains(message, want) || !strings.Contains(message, "conflict_test.go:") {
			t.Errorf("%q: %q, want it to say %q", pattern, message, want)
		}
	}
	if message := panicOf(func() { router.New().GET("/", nil) }); !strings.Contains(message, "no handler") {
		t.Errorf("no handler: %q", message)
	}
	for _, f := range []func(){
		func() { router.New().GET("/", show, nil) },
		func() { router.New().Use(nil) },
		func() { router.New().Group("/a", nil) },
	} {
		if message := panicOf(f); !strings.Contains(message, "middleware 1 of 1 is nil") {
			t.Errorf("nil middleware: %q", message)
		}
	}
	for prefix, want := range map[string]string{"/{x...}": "last segment", "GET /a": "no method", "/a//b": "never match"} {
		if message := panicOf(func() { router.New().Group(prefix) }); !strings.Contains(message, want) {
			t.Errorf("group %q: %q, want it to say %q", prefix, message, want)
		}
	}
	r := router.New()
	for _, f := range []func(){
		func() { r.Group("/a").Group("b.test/c") },
		func() { r.Group("a.test").GET("b.test/c", show) },
		func() { r.Group("/a").GET("b", show) },
	} {
		if panicOf(f) == "" {
			t.Error("no panic for a host, or a path without a slash, behind a prefix")
		}
	}
}

// A pattern in another framework's syntax panics, and the panic says how to write the pattern here.
func TestForeignPatterns(t *testing.T) {
	for _, c := range []struct {
		call string // "" means Handle
		text string
		want string // in the panic's text; "" means no panic
	}{
		{"GET", "/users/:id", "write {id} "},
		{"", "GET /users/:id", "write {id} "},
		{"", "/users/:id/posts", "write {id} "},
		{"", "/users/:id?", "write {id} "},
		{"", "/users/:id<int>", "write {id} "},
		{"", "/users/:", "write {name} "},
		{"", "/users/%3Aid", ""},
		{"", "/things:undelete", ""},
		{"GET", "/files/*path", "write {path...},"},
		{"GET", "/files/*", "write {name...},"},
		{"GET", "/a/*b/c", "write {b}, or {b...} "},
		{"", "/files/%2A", ""},
		{"", "/a*b", ""},
		{"", "/search?q=x", "Ctx.Query"},
		{"", "/page#top", "fragment"},
		{"", "/what%3F", ""},
		{"", "/a ", "space"},
		{"", "/a b", ""},
		{"", "/{id:string}", "write {id}"},
		{"", "/{id:int64}", "write {id:int}"},
		{"", "/{version:v1}/users", "or {version:(v1)}"},
		{"", "/{id:uint32}", "write {id:uint}"},
		{"", "/{id:guid}", "write {id:uuid}"},
		{"", "/{id:path}", "write {id...}"},
		{"", "/{id:float}", "write {id:int}, {id:uint}, {id:uuid} or {id:alpha}"},
		{"", "/{id:users|groups}", ""},
		{"", "/{id:[0-9]+}", ""},
		{"", "/{path:.*}", "write that, or {path...}"},
		{"", "/{path:.+}", "write that, or {path...}"},
		{"GET", "GET /x", `the method "GET" doesn't belong here`},
		{"POST", "GET /x", `the method "GET" doesn't belong here`},
		{"Any", "POST /x", `the method "POST" doesn't belong here`},
		{"Mount", "POST /x", `the method "POST" doesn't belong here`},
		{"", "GET POST /x", `not "POST /x"`},
		{"", "get /users", `write "GET"`},
		{"", "Post /users", `write "POST"`},
		{"", "purge /users", ""},
		{"", "GET/users", `write "GET /users"`},
		{"", "get/users", ""}, // a host
		{"GET", "users/{id}", `write "/users/{id}"`},
		{"GET", "users", `write "/users"`},
		{"Mount", "api", `write "/api/"`},
		{"GET", "localhost/x", ""},
		{"GET", "a.test/x", ""},
		{"", "users/{id}", ""}, // a host
		{"", "http://a.test/x", `write "a.test/x"`},
		{"", "*.a.test/x", ""},
		{"GET", "*.a.test/x", ""},
		{"", "*/x", "without a host"},
		{"", "*./x", "*.example.com"},
		{"", "a.*.test/x", "*.example.com"},
		{"", "shop-*.a.test/x", "*.example.com"},
		{"", "*.*.a.test/x", "*.example.com"},
		{"", "*a.test/x", "*.example.com"},
		{"", "^/users", "isn't a host"},
	} {
		r := router.New()
		call := map[string]func(string, filo.Handler, ...filo.Middleware) *router.Route{
			"": r.Handle, "GET": r.GET, "POST": r.POST, "Any": r.Any, "Mount": r.Mount,
		}[c.call]
		message := panicOf(func() { call(c.text, show) })
		if (message == "") != (c.want == "") || !strings.Contains(message, c.want) {
			t.Errorf("%s %q: %q, want it to say %q", c.call, c.text, message, c.want)
		}
		if c.want != "" && !strings.Contains(message, "conflict_test.go:") {
			t.Errorf("%s %q: %q doesn't say where", c.call, c.text, message)
		}
	}
	if message := panicOf(func() { router.New().Group("/api").GET("users", show) }); !strings.Contains(message, `write "/users"`) {
		t.Errorf("no slash in a group: %q", message)
	}
	if message := panicOf(func() { router.New().Group("/users/:id") }); !strings.Contains(message, "write {id} ") {
		t.Errorf("a group: %q", message)
	}
}

// In other frameworks, the path "/" in a group means the prefix itself. Here it would match every path below the prefix, so it
// panics.
func TestGroupsSubtree(t *testing.T) {
	for i, register := range []func(users *router.Group){
		func(users *router.Group) { users.GET("/", show) },
		func(users *router.Group) { users.DELETE("/", show) },
		func(users *router.Group) { users.Any("/", show) },
		func(users *router.Group) { users.Handle("/", show) },
		func(users *router.Group) { users.Handle("DELETE /", show) },
		func(users *router.Group) { users.Handle("DELETE \t/", show) },
		func(users *router.Group) { users.Group("").GET("/", show) },
		func(users *router.Group) { users.Group("/").GET("/", show) },
		func(users *router.Group) { users.Group("/{id}").GET("/", show) },
	} {
		message := panicOf(func() { register(router.New().Group("/users")) })
		for _, instead := range []string{`""`, `"/{$}"`, `"/{rest...}"`, "conflict_test.go:"} {
			if !strings.Contains(message, instead) {
				t.Errorf("registration %d: %q doesn't have %s", i, message, instead)
			}
		}
	}
	r := router.New()
	r.GET("/", show)
	r.Group("b.test").GET("/", show)
	r.Group("").POST("/", show)
	r = router.New()
	r.Group("/a").Mount("/", show)
	r.Group("/b").Mount("", show)
	r.Group("/c").GET("/d/", show)
}

// Ten thousand routes are registered quickly, and each of them is found.
func TestManyRoutes(t *testing.T) {
	const n = 10_000
	r := router.New()
	for i := range n {
		r.Handle(fmt.Sprintf("GET /api/v1/resource%d/{id}/part%d", i, i), readAll([]string{"id"}))
	}
	for i := range n / 10 {
		r.Handle(fmt.Sprintf("GET /api/v1/tree%d/", i), readAll(nil))
	}
	for i := range n {
		r.Handle(fmt.Sprintf("GET /api/v1/literal%d/settings", i), readAll(nil))
	}
	var requests []string
	for i := 0; i < n; i += 97 {
		requests = append(requests, fmt.Sprintf("GET /api/v1/resource%d/7/part%d", i, i), fmt.Sprintf("GET /api/v1/tree%d/x", i/10),
			fmt.Sprintf("GET /api/v1/literal%d/settings", i))
	}
	inHandler(t, requests, func(c *filo.Ctx) {
		if err := r.Serve(c); err != nil || !strings.HasPrefix(c.Route(), "GET /api/v1/") {
			t.Errorf("%s: %q, %v", c.Path(), c.Route(), err)
		}
		if pattern, isLiteral := strings.CutPrefix(c.Route(), "GET /api/v1/literal"); isLiteral && !strings.HasSuffix(c.Path(), pattern) {
			t.Errorf("%s found %s", c.Path(), c.Route())
		}
	})
	if got := do(t, r, fmt.Sprintf("GET /api/v1/literal%d/settings", n)); got.Status != 404 {
		t.Errorf("one too many: %v", got)
	}
}

// The patterns that panics recommend are accepted.
func TestInsteadOfMistakes(t *testing.T) {
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/api", To: "/"}}})
	r := router.New()
	r.Any("/api/{rest...}", rewrite(func(c *filo.Ctx) error { return c.Text(200, c.Path()) }))
	r.GET("/{version:(v1)}/users", func(c *filo.Ctx) error { return c.Text(200, c.Param("version")) })
	s := servertest.New(t, r.Serve)
	for request, want := range map[string]string{"GET /api/a/b": "/a/b", "GET /v1/users": "v1"} {
		if got := s.Do(t, request); got.Body != want {
			t.Errorf("%s: %v, want %q", request, got, want)
		}
	}
}

// Middleware of a group may change the path if the group contains only mounted routers, which match the new path themselves. If the group
// also has a route of its own, the registration panics, whether the middleware or the route is added first.
func TestGroupOfMounts(t *testing.T) {
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/api/old", To: "/api/new"}}})
	inner := router.New()
	inner.GET("/new/a", func(c *filo.Ctx) error { return c.Text(200, c.Path()) })
	r := router.New()
	outer := r.Group("/api", rewrite)
	outer.Group("").Mount("/", inner.Serve)
	if got := do(t, r, "GET /api/old/a"); got.Body != "/api/new/a" {
		t.Errorf("mounted in a group: %v", got)
	}
	hello := func(c *filo.Ctx) error { return c.NoContent() }
	for why, register := range map[string]func(r *router.Router){
		"a route in the group":           func(r *router.Router) { r.Group("/b", rewrite).GET("/a", hello) },
		"a route in a group within":      func(r *router.Router) { r.Group("/b", rewrite).Group("/c").GET("/a", hello) },
		"a group that has a route":       func(r *router.Router) { g := r.Group("/b"); g.GET("/a", hello); g.Use(rewrite) },
		"a group around one with routes": func(r *router.Router) { g := r.Group("/b"); g.Group("/c").GET("/a", hello); g.Use(rewrite) },
		"the router":                     func(r *router.Router) { r.Use(rewrite) },
	} {
		func() {
			defer func() {
				if message, _ := recover().(string); !strings.Contains(message, "middleware.Rewrite must run before") {
					t.Errorf("%s: panics with %q", why, message)
				}
			}()
			register(router.New())
		}()
	}
}
