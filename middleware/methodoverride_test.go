package middleware_test

import (
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleMethodOverride() {
	r := router.New()
	r.PUT("/posts/{id}", func(c *filo.Ctx) error { return c.Text(200, "put "+c.Param("id")) })
	override := middleware.MethodOverride()
	mwtest.Show(override(r.Serve), nil, "POST /posts/7", "X-HTTP-Method-Override: PUT")
	// Output:
	// 200 put 7
}

func TestMethodOverride(t *testing.T) {
	const form = "Content-Type: application/x-www-form-urlencoded"
	byForm := middleware.MethodOverrideOptions{FormField: "_method"}
	onlyForm := middleware.MethodOverrideOptions{FormField: "_method", Header: "-"}
	own := middleware.MethodOverrideOptions{Header: "X-Method", Methods: []string{"PURGE", "HEAD"}}
	tellMethod := func(c *filo.Ctx) error { return c.Text(200, "<"+c.Method()+">") }
	for _, test := range []struct {
		sentence            string
		options             middleware.MethodOverrideOptions
		method, field, body string
		want                string
	}{
		{"POST becomes what the field says", middleware.MethodOverrideOptions{}, "POST", "X-HTTP-Method-Override: DELETE", "", "200 <DELETE>"},
		{"without the field it stays", middleware.MethodOverrideOptions{}, "POST", "A: b", "", "200 <POST>"},
		{"POST may be said, too", middleware.MethodOverrideOptions{}, "POST", "X-HTTP-Method-Override: POST", "", "200 <POST>"},
		{"GET stays, so that nothing safe becomes unsafe", middleware.MethodOverrideOptions{}, "GET", "X-HTTP-Method-Override: DELETE", "", "200 <GET>"},
		{"PUT stays", middleware.MethodOverrideOptions{}, "PUT", "X-HTTP-Method-Override: DELETE", "", "200 <PUT>"},
		{"what isn't in the list is refused", middleware.MethodOverrideOptions{}, "POST", "X-HTTP-Method-Override: GET", "", "400 "},
		{"methods are case-sensitive", middleware.MethodOverrideOptions{}, "POST", "X-HTTP-Method-Override: put", "", "400 "},
		{"a tunnel can't be opened", middleware.MethodOverrideOptions{}, "POST", "X-HTTP-Method-Override: CONNECT", "", "400 "},
		{"a field and methods of one's own", own, "POST", "X-Method: PURGE", "", "200 <PURGE>"},
		{"the answer to a POST has a body, whatever it became", own, "POST", "X-Method: HEAD", "", "200 <HEAD>"},
		{"the usual field isn't looked at then", own, "POST", "X-HTTP-Method-Override: PURGE", "", "200 <POST>"},
		{"a form's field isn't looked at unless it is named", middleware.MethodOverrideOptions{}, "POST", form, "_method=PUT", "200 <POST>"},
		{"a form's field", byForm, "POST", form + "; charset=utf-8", "a=b&_method=P%55T", "200 <PUT>"},
		{"a form without it", byForm, "POST", form, "a=b", "200 <POST>"},
		{"a wrong one", byForm, "POST", form, "_method=TRACE", "400 "},
		{"another kind of body isn't read", byForm, "POST", "Content-Type: application/json", "_method=PUT", "200 <POST>"},
		{"another kind of body isn't read", byForm, "POST", form + "2", "_method=PUT", "200 <POST>"},
		{"no field", onlyForm, "POST", "X-HTTP-Method-Override: PUT", "", "200 <POST>"},
		{"too large a form", byForm, "POST", form, "_method=PUT&a=" + strings.Repeat("a", 5<<20), "413 "},
	} {
		s := servertest.New(t, middleware.MethodOverride(test.options)(tellMethod))
		got := s.DoBody(t, test.method+" /", test.body, test.field)
		if text := strings.TrimSpace(got.Body); !strings.HasPrefix(mwtest.StatusText(got.Status)+" "+text, test.want) {
			t.Errorf("%s: %d %s, want %s", test.sentence, got.Status, text, test.want)
		}
	}
}

func TestMethodOverrideOptions(t *testing.T) {
	with := func(options middleware.MethodOverrideOptions) func() {
		return func() { middleware.MethodOverride(options) }
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"nothing to look at": with(middleware.MethodOverrideOptions{Header: "-"}),
		"no field name":      with(middleware.MethodOverrideOptions{Header: "a\r\nb"}),
		"no method":          with(middleware.MethodOverrideOptions{Methods: []string{"PUT X"}}),
		"a tunnel":           with(middleware.MethodOverrideOptions{Methods: []string{"CONNECT"}}),
		"too long":           with(middleware.MethodOverrideOptions{Methods: []string{strings.Repeat("A", 33)}}),
	})
}

func TestMethodOverrideAllocations(t *testing.T) {
	h := middleware.MethodOverride()(mwtest.Hello)
	if got := mwtest.Allocations(t, h, "GET /"); got != 0 {
		t.Errorf("%v allocations for a GET, want none", got)
	}
}

func BenchmarkMethodOverride(b *testing.B) {
	h := middleware.MethodOverride()(mwtest.Hello)
	b.Run("GET", func(b *testing.B) { mwtest.Benchmark(b, h, "GET /") })
	b.Run("POST", func(b *testing.B) { mwtest.BenchmarkServer(b, h, "POST /", "", "X-HTTP-Method-Override: PUT") })
}

// A middleware that must run before the router looks at the request is refused inside of the router. Around a mounted router it is allowed.
func TestBeforeTheRouter(t *testing.T) {
	override := middleware.MethodOverride()
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/new"}}})
	answer := func(c *filo.Ctx) error { return c.NoContent() }
	for name, m := range map[string]filo.Middleware{"middleware.MethodOverride": override, "middleware.Rewrite": rewrite} {
		for place, use := range map[string]func(){
			"Use":      func() { router.New().Use(m) },
			"Group":    func() { router.New().Group("/a", m).POST("/b", answer) },
			"of Group": func() { g := router.New().Group("/a"); g.POST("/b", answer); g.Use(m) },
			"a route":  func() { router.New().POST("/a", answer, m) },
		} {
			if message := mwtest.PanicOf(use); !strings.Contains(message, name+"(options)(r.Serve)") {
				t.Errorf("%s in %s: %q, want a panic that says where it belongs", name, place, message)
			}
		}
	}
	inner, outer := router.New(), router.New()
	inner.PUT("/a", answer)
	outer.Mount("/in", inner.Serve, override)
	if got := servertest.New(t, outer.Serve).Do(t, "POST /in/a", "X-HTTP-Method-Override: PUT"); got.Status != 204 {
		t.Errorf("around a mounted router: %d %s", got.Status, got.Body)
	}
}
