package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func TestCSRF(t *testing.T) {
	guard := middleware.CSRF(middleware.CSRFOptions{
		TrustedOrigins: []string{"https://trusted.test", "http://trusted.test:8080", "https://*.below.test"},
		Bypass:         func(c *filo.Ctx) bool { return c.Path() == "/hook" },
	})
	s := servertest.New(t, guard(mwtest.Hello))
	for _, test := range []struct {
		why, request string
		fields       []string
		status       int
	}{
		{"a request of the same origin", "POST /", []string{"Sec-Fetch-Site: same-origin"}, 200},
		{"one that the user has made", "POST /", []string{"Sec-Fetch-Site: none"}, 200},
		{"one of another site", "POST /", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"one of another origin of the same site", "POST /", []string{"Sec-Fetch-Site: same-site"}, 403},
		{"a value that isn't known", "POST /", []string{"Sec-Fetch-Site: SAME-ORIGIN"}, 403},
		{"Sec-Fetch-Site goes before Origin", "POST /", []string{"Sec-Fetch-Site: cross-site", "Origin: http://filo.test"}, 403},
		{"a method that changes nothing", "GET /", []string{"Sec-Fetch-Site: cross-site"}, 200},
		{"HEAD", "HEAD /", []string{"Sec-Fetch-Site: cross-site"}, 200},
		{"OPTIONS", "OPTIONS /", []string{"Sec-Fetch-Site: cross-site"}, 200},
		{"QUERY", "QUERY /", []string{"Sec-Fetch-Site: cross-site"}, 200},
		{"TRACE", "TRACE /", []string{"Sec-Fetch-Site: cross-site"}, 200},
		{"other methods may change something", "PUT /", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"methods are case-sensitive", "get /", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"methods that aren't known", "SEARCH /", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"not a browser", "POST /", nil, 200},
		{"an older browser, the same host", "POST /", []string{"Origin: http://filo.test"}, 200},
		{"a proxy took TLS off", "POST /", []string{"Origin: https://filo.test"}, 200},
		{"another host", "POST /", []string{"Origin: https://evil.test"}, 403},
		{"another port", "POST /", []string{"Origin: https://filo.test:8443"}, 403},
		{"a host that ends alike", "POST /", []string{"Origin: https://evilfilo.test"}, 403},
		{"no scheme", "POST /", []string{"Origin: ://filo.test"}, 403},
		{"a sandboxed page", "POST /", []string{"Origin: null"}, 403},
		{"a trusted origin", "POST /", []string{"Sec-Fetch-Site: cross-site", "Origin: https://trusted.test"}, 200},
		{"a trusted origin with a port", "POST /", []string{"Origin: http://trusted.test:8080"}, 200},
		{"an origin below a trusted one", "POST /", []string{"Sec-Fetch-Site: cross-site", "Origin: https://a.below.test"}, 200},
		{"one further below", "POST /", []string{"Origin: https://a.b.below.test"}, 403},
		{"the one above", "POST /", []string{"Origin: https://below.test"}, 403},
		{"the scheme's port", "POST /", []string{"Origin: http://filo.test:80"}, 200},
		{"the scheme counts for trust", "POST /", []string{"Origin: http://trusted.test"}, 403},
		{"a route that isn't covered", "POST /hook", []string{"Sec-Fetch-Site: cross-site"}, 200},
	} {
		if got := s.Do(t, test.request, test.fields...); got.Status != test.status {
			t.Errorf("%s: %d, want %d", test.why, got.Status, test.status)
		}
	}
}

// For any combination of header fields, CSRF decides as net/http's CrossOriginProtection does.
func FuzzCSRF(f *testing.F) {
	for _, site := range []string{"", "same-origin", "none", "cross-site", "x"} {
		for _, origin := range []string{"", "null", "http://filo.test", "https://filo.test", "http://a.test", "://", "http://filo.test/", "filo.test"} {
			f.Add("POST", site, origin)
		}
	}
	protection := http.NewCrossOriginProtection()
	if err := protection.AddTrustedOrigin("http://a.test"); err != nil {
		f.Fatal(err)
	}
	h := middleware.CSRF(middleware.CSRFOptions{TrustedOrigins: []string{"http://a.test"}})(mwtest.Hello)
	f.Fuzz(func(t *testing.T, method, site, origin string) {
		request := httptest.NewRequest("GET", "http://filo.test/", nil)
		request.Method = "POST"
		if len(method)%2 == 0 {
			request.Method = "GET"
		}
		for _, value := range []string{site, origin} {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0x7F }) || strings.TrimSpace(value) != value {
				t.Skip("not a field's value")
			}
		}
		fields := []string{}
		if site != "" {
			request.Header.Set("Sec-Fetch-Site", site)
			fields = append(fields, "Sec-Fetch-Site: "+site)
		}
		if origin != "" {
			request.Header.Set("Origin", origin)
			fields = append(fields, "Origin: "+origin)
		}
		got, want := error(nil), protection.Check(request)
		mwtest.InHandler(t, request.Method+" /", fields, func(c *filo.Ctx) { got = h(c) })
		if _, host, _ := strings.Cut(origin, "://"); got == nil && want != nil && strings.HasPrefix(strings.ToLower(host), "filo.test") {
			t.Skip("hosts are compared without regard to case, and to the scheme's port")
		}
		// Unlike CSRF, net/http also accepts "http://filo.test/path" and "x://filo.test" as the server's own origin. No browser sends such origins.
		if (got == nil) != (want == nil) && !(got != nil && strings.Contains(strings.TrimPrefix(origin, "http://"), "filo.test")) {
			t.Errorf("%s with %q: %v, net/http: %v", request.Method, fields, got, want)
		}
	})
}

func TestCSRFOptions(t *testing.T) {
	constructions := make(map[string]func())
	for _, origin := range []string{"", "trusted.test", "https://", "https://a.test/", "https://a.test/path", "https://a.test?q", "https://a.test\r\nA: b", "HTTPS://a.test",
		"*", "null", "https://A.test", "https://a.test:443", "http://a.test:80", "https://*", "https://*.", "https://a.*.test", "https://*a.test", "https://user@a.test"} {
		constructions[origin] = func() { middleware.CSRF(middleware.CSRFOptions{TrustedOrigins: []string{origin}}) }
	}
	mwtest.MustPanic(t, "middleware", constructions)
}

func ExampleCSRF() {
	guard := middleware.CSRF(middleware.CSRFOptions{TrustedOrigins: []string{"https://app.example.com"}})
	mwtest.Show(guard(mwtest.Hello), nil, "POST /transfer", "Sec-Fetch-Site: cross-site", "Origin: https://evil.example")
	mwtest.Show(guard(mwtest.Hello), nil, "POST /transfer", "Sec-Fetch-Site: cross-site", "Origin: https://app.example.com")
	// Output:
	// 403 Forbidden: cross-origin request refused
	// 200 hello
}

func BenchmarkCSRF(b *testing.B) {
	mwtest.Benchmark(b, mwtest.Wrap(mwtest.Hello, middleware.CSRF()), "POST /", "Sec-Fetch-Site: same-origin")
}
