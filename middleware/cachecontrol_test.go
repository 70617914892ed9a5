package middleware_test

import (
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
)

func ExampleCacheControl() {
	assets := middleware.CacheControl(middleware.CacheControlOptions{Public: true, MaxAge: 365 * 24 * time.Hour, Immutable: true})
	mwtest.Show(assets(mwtest.Hello), []string{"Cache-Control"}, "GET /app.3f2a.js")
	// Output:
	// 200 hello
	// Cache-Control: public, immutable, max-age=31536000
}

func TestCacheControl(t *testing.T) {
	hour := middleware.CacheControlOptions{Public: true, MaxAge: time.Hour}
	for _, test := range []struct {
		sentence string
		options  middleware.CacheControlOptions
		handler  filo.Handler
		want     string
	}{
		{"the zero value keeps nothing", middleware.CacheControlOptions{}, mwtest.Hello, "no-store"},
		{"all that goes together", middleware.CacheControlOptions{Public: true, NoCache: true, NoTransform: true, MustRevalidate: true, ProxyRevalidate: true,
			Immutable: true, MaxAge: time.Minute, SharedMaxAge: time.Hour, StaleWhileRevalidate: time.Second, StaleIfError: 1500 * time.Millisecond}, mwtest.Hello,
			"public, no-cache, no-transform, must-revalidate, proxy-revalidate, immutable, max-age=60, s-maxage=3600, stale-while-revalidate=1, stale-if-error=1"},
		{"negative is no seconds", middleware.CacheControlOptions{Private: true, MaxAge: -1}, mwtest.Hello, "private, max-age=0"},
		{"no-store alone", middleware.CacheControlOptions{NoStore: true, NoTransform: true}, mwtest.Hello, "no-store, no-transform"},
		{"a handler has its own", hour, func(c *filo.Ctx) error {
			c.Response.Header.Set("Cache-Control", "private")
			return mwtest.Hello(c)
		}, "private"},
		{"an error isn't kept", hour, func(*filo.Ctx) error { return filo.Error(503, "") }, "no-store"},
		{"nor one that the handler writes", hour, func(c *filo.Ctx) error { return c.Text(404, "") }, "no-store"},
		{"unless it says so", hour, func(c *filo.Ctx) error {
			c.Response.Header.Set("Cache-Control", "max-age=5")
			return c.Text(404, "")
		}, "max-age=5"},
		{"what it has said before it fails doesn't count", hour, func(c *filo.Ctx) error {
			c.Response.Header.Set("Cache-Control", "max-age=5")
			return filo.Error(404, "")
		}, "no-store"},
		{"a redirect is kept", hour, func(c *filo.Ctx) error { return c.Redirect(301, "/") }, "public, max-age=3600"},
		{"a stream", hour, func(c *filo.Ctx) error { return c.Stream().Flush() }, "public, max-age=3600"},
	} {
		if got := mwtest.Do(t, middleware.CacheControl(test.options)(test.handler), "GET /").Header.Get("Cache-Control"); got != test.want {
			t.Errorf("%s: %q, want %q", test.sentence, got, test.want)
		}
	}
}

// From an error, CacheControl also removes a CDN-Cache-Control that the handler has set.
func TestCacheControlTargeted(t *testing.T) {
	for status, want := range map[int]string{200: "max-age=60", 404: ""} {
		h := middleware.CacheControl(middleware.CacheControlOptions{MaxAge: time.Hour})(func(c *filo.Ctx) error {
			c.Response.Header.Set("CDN-Cache-Control", "max-age=60")
			return c.Text(status, "")
		})
		if got := mwtest.Do(t, h, "GET /").Header.Get("CDN-Cache-Control"); got != want {
			t.Errorf("%d: %q, want %q", status, got, want)
		}
	}
}

func TestCacheControlOptions(t *testing.T) {
	with := func(options middleware.CacheControlOptions) func() {
		return func() { middleware.CacheControl(options) }
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"public and private":            with(middleware.CacheControlOptions{Public: true, Private: true}),
		"nothing for a time":            with(middleware.CacheControlOptions{NoStore: true, MaxAge: 1}),
		"nothing, publicly":             with(middleware.CacheControlOptions{NoStore: true, Public: true}),
		"nothing, unchanged":            with(middleware.CacheControlOptions{NoStore: true, Immutable: true}),
		"private in shared caches":      with(middleware.CacheControlOptions{Private: true, SharedMaxAge: 1}),
		"private in shared caches, too": with(middleware.CacheControlOptions{Private: true, ProxyRevalidate: true}),
		"negative":                      with(middleware.CacheControlOptions{StaleIfError: -1}),
	})
}

func BenchmarkCacheControl(b *testing.B) {
	mwtest.Benchmark(b, middleware.CacheControl(middleware.CacheControlOptions{Public: true, MaxAge: time.Hour})(mwtest.Hello), "GET /")
}
