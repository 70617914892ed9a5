package router_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
)

// Two patterns conflict if both match some request, and neither is more specific: the order in which they are registered
// makes no difference.
func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		why, first, second string
		want               string // in the panic's text; "" is no conflict
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
			// What it says of methods depends on the order.
			if order[0] == c.second && !strings.Contains(message, c.want) && !strings.Contains(c.want, "methods") {
				t.Errorf("%s: %q, want it to say %s", c.why, message, c.want)
			}
		}
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
		if message := panicOf(f); !strings.Contains(message, "nil middleware") {
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

// Ten thousand routes are registered quickly, and found.
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
