package middleware_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleRedirect() {
	redirect := middleware.Redirect(middleware.RedirectOptions{HTTPS: true, WWW: middleware.StripWWW})
	mwtest.Show(redirect(mwtest.Hello), []string{"Location"}, "GET http://www.example.com/path?q=1")
	// Output:
	// 301
	// Location: https://example.com/path?q=1
}

func TestRedirect(t *testing.T) {
	https := middleware.RedirectOptions{HTTPS: true}
	port := middleware.RedirectOptions{HTTPS: true, HTTPSPort: 8443}
	host := middleware.RedirectOptions{Host: "example.com"}
	both := middleware.RedirectOptions{HTTPS: true, Host: "example.com:8443"}
	add := middleware.RedirectOptions{WWW: middleware.AddWWW}
	strip := middleware.RedirectOptions{WWW: middleware.StripWWW, Temporary: true}
	skip := middleware.RedirectOptions{HTTPS: true, Skip: func(c *filo.Ctx) bool { return strings.HasPrefix(c.Path(), "/.well-known/") }}
	for _, test := range []struct {
		sentence string
		options  middleware.RedirectOptions
		request  string
		proto    string // as a trusted proxy says
		status   int
		location string
	}{
		{"to https, with path and query as they were sent", https, "GET http://a.test/a%20b/../%2F?q=%20&r=/", "http", 301, "https://a.test/a%20b/../%2F?q=%20&r=/"},
		{"a default port that a proxy sends is no other host", host, "GET http://example.com:80/", "http", 200, ""},
		{"nor is one over https", middleware.RedirectOptions{HTTPS: true, Host: "example.com"}, "GET http://example.com:443/", "https", 200, ""},
		{"the port was that of http", https, "GET http://a.test:8080/", "http", 301, "https://a.test/"},
		{"also behind an IPv6 address", https, "GET http://[::1]:8080/", "http", 301, "https://[::1]/"},
		{"https has a port of its own", port, "GET http://a.test:8080/", "http", 301, "https://a.test:8443/"},
		{"https stays", https, "GET http://a.test/", "https", 200, ""},
		{"other methods stay what they are", https, "POST http://a.test/", "http", 308, "https://a.test/"},
		{"HEAD is like GET", https, "HEAD http://a.test/", "http", 301, "https://a.test/"},
		{"two slashes lead to no other host", https, "GET http://a.test//evil.test/", "http", 301, "https://a.test//evil.test/"},
		{"nor does a backslash", https, `GET http://a.test/\evil.test/`, "http", 301, `https://a.test/\evil.test/`},
		{"nor does an at sign", https, "GET http://a.test/@evil.test/", "http", 301, "https://a.test/@evil.test/"},
		{"what is left out", skip, "GET http://a.test/.well-known/acme-challenge/x", "http", 200, ""},
		{"and what isn't", skip, "GET http://a.test/x", "http", 301, "https://a.test/x"},

		{"another host", host, "GET http://www.example.com/a?b", "http", 301, "http://example.com/a?b"},
		{"keeps the scheme", host, "GET http://www.example.com/a?b", "https", 301, "https://example.com/a?b"},
		{"the host itself, in any case", host, "GET http://EXAMPLE.com/", "http", 200, ""},
		{"a port makes another one", host, "GET http://example.com:81/", "http", 301, "http://example.com/"},
		{"a made-up host leads nowhere else", host, "GET http://evil.test/", "http", 301, "http://example.com/"},
		{"one redirect for all", both, "GET http://www.example.com/", "http", 301, "https://example.com:8443/"},
		{"the scheme alone", both, "GET http://example.com:8443/", "http", 301, "https://example.com:8443/"},
		{"nothing", both, "GET http://example.com:8443/", "https", 200, ""},

		{"www is added, before the port", add, "GET http://a.test:8080/x", "http", 301, "http://www.a.test:8080/x"},
		{"to a name that is fully qualified", add, "GET http://a.test./x", "http", 301, "http://www.a.test./x"},
		{"not twice", add, "GET http://www.a.test/", "http", 200, ""},
		{"not twice, in any case", add, "GET http://WWW.test/", "http", 200, ""},
		{"not to other names", add, "GET http://api.a.test/", "http", 200, ""},
		{"not to names without a dot", add, "GET http://localhost/", "http", 200, ""},
		{"not to addresses", add, "GET http://127.0.0.1/", "http", 200, ""},
		{"not to addresses", add, "GET http://[::1]/", "http", 200, ""},
		{"not to short ones either", add, "GET http://127.1/", "http", 200, ""},
		{"www is taken off, for a time", strip, "GET http://WWW.a.test:8080/x", "http", 307, "http://a.test:8080/x"},
		{"there is none", strip, "GET http://a.test/", "http", 200, ""},
		{"it isn't all there is", strip, "GET http://www.test/", "http", 200, ""},
	} {
		realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.1/32"), TrustProto: true})
		s := servertest.New(t, mwtest.Wrap(mwtest.Hello, realIP, middleware.Redirect(test.options)))
		got := s.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), test.request, "X-Forwarded-Proto: "+test.proto)
		if got.Status != test.status || got.Header.Get("Location") != test.location {
			t.Errorf("%s: %s: %d %s, want %d %s", test.sentence, test.request, got.Status, got.Header.Get("Location"), test.status, test.location)
		}
	}
}

// A scheme in a field is used only if a trusted proxy may have set the field.
func TestRedirectIsntFooled(t *testing.T) {
	h := middleware.Redirect(middleware.RedirectOptions{HTTPS: true})(mwtest.Hello)
	s := servertest.New(t, h)
	if got := s.Do(t, "GET /", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test"); got.Header.Get("Location") != "https://filo.test/" {
		t.Errorf("%d %v", got.Status, got.Header)
	}
	if raw := s.Raw(t, "GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"); !strings.Contains(raw, "Location: https://a.test/\r\n") {
		t.Errorf("an absolute-form that says https: %q", raw)
	}
	if raw := s.Raw(t, "GET http://a.test?x=%20 HTTP/1.1\r\nHost: evil.test\r\n\r\n"); !strings.Contains(raw, "Location: https://a.test?x=%20\r\n") {
		t.Errorf("an absolute-form with a query: %q", raw)
	}
	if raw := s.Raw(t, "GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 400") {
		t.Errorf("no host: %q", raw)
	}
	if raw := s.Raw(t, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 200") {
		t.Errorf("CONNECT: %q", raw)
	}
}

func TestRedirectOptions(t *testing.T) {
	with := func(options middleware.RedirectOptions) func() {
		return func() { middleware.Redirect(options) }
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"nothing":              with(middleware.RedirectOptions{}),
		"two hosts":            with(middleware.RedirectOptions{Host: "a.test", WWW: middleware.AddWWW}),
		"no such value":        with(middleware.RedirectOptions{WWW: 3}),
		"no host":              with(middleware.RedirectOptions{Host: "https://a.test"}),
		"a line break":         with(middleware.RedirectOptions{Host: "a.test\r\nX: y"}),
		"a port of nothing":    with(middleware.RedirectOptions{Host: "a.test", HTTPSPort: 8443}),
		"two ports":            with(middleware.RedirectOptions{HTTPS: true, Host: "a.test:1", HTTPSPort: 8443}),
		"a port out of bounds": with(middleware.RedirectOptions{HTTPS: true, HTTPSPort: 65536}),
	})
}

// For all paths and queries, a redirect leads to the request's own host.
func FuzzRedirect(f *testing.F) {
	f.Add("/a?b")
	f.Add("/?")
	f.Add("//evil.test/%2e%2e")
	f.Add(`/\evil.test`)
	s := servertest.New(f, middleware.Redirect(middleware.RedirectOptions{HTTPS: true})(mwtest.Hello))
	f.Fuzz(func(t *testing.T, target string) {
		if !strings.HasPrefix(target, "/") || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) || len(target) > 1000 {
			return
		}
		got := s.Do(t, "GET "+target)
		if got.Status == 400 {
			return // percent-encoding that isn't well-formed
		}
		location, err := url.Parse(got.Header.Get("Location"))
		if got.Status != 301 || err != nil || location.Host != "filo.test" || location.Scheme != "https" || got.Header.Get("Location") != "https://filo.test"+target {
			t.Errorf("%q: %d %q, %v", target, got.Status, got.Header.Get("Location"), err)
		}
	})
}

func BenchmarkRedirect(b *testing.B) {
	redirect := middleware.Redirect(middleware.RedirectOptions{HTTPS: true, WWW: middleware.StripWWW})
	b.Run("to https", func(b *testing.B) { mwtest.Benchmark(b, redirect(mwtest.Hello), "GET http://www.example.com/path?q=1") })
	same := middleware.Redirect(middleware.RedirectOptions{Host: "filo.test"})
	b.Run("none", func(b *testing.B) { mwtest.Benchmark(b, same(mwtest.Hello), "GET /") })
}
