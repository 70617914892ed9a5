package middleware_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// The middleware of an API server is in the order that the package's documentation recommends.
func Example() {
	r := router.New()
	r.Use(
		middleware.RequestID(),
		middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("10.0.0.0/8")}),
		middleware.AccessLog(middleware.AccessLogOptions{Combined: io.Discard}), // os.Stdout, for example
		middleware.Recover(),
		middleware.Secure(),
		middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://app.example.com"}}),
	)
	admin := r.Group("/admin", middleware.KeyAuth(middleware.KeyAuthOptions{Keys: []string{"c2FtcGxlLWtleS1vbmU"}}))
	admin.GET("/stats", func(c *filo.Ctx) error { return c.Text(200, "all is well") })

	mwtest.Show(r.Serve, []string{"X-Content-Type-Options"}, "GET /admin/stats", "Authorization: Bearer c2FtcGxlLWtleS1vbmU")
	mwtest.Show(r.Serve, []string{"X-Content-Type-Options"}, "GET /admin/stats")
	mwtest.Show(r.Serve, []string{"X-Content-Type-Options"}, "GET /none")
	// Output:
	// 200 all is well
	// X-Content-Type-Options: nosniff
	// 401 Unauthorized
	// X-Content-Type-Options: nosniff
	// 404 Not Found
	// X-Content-Type-Options: nosniff
}

// frontChain is a typical chain in front of an API.
func frontChain() []filo.Middleware {
	return []filo.Middleware{
		middleware.RequestID(),
		middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24")}),
		middleware.Recover(),
		middleware.Secure(),
		middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"filo.test"}}),
		middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://app.example.com"}}),
		ratelimit.New(1<<30, time.Minute),
		middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 1 << 20}),
		middleware.KeyAuth(middleware.KeyAuthOptions{Keys: []string{"c2FtcGxlLWtleS1vbmU"}}),
		middleware.CacheControl(),
	}
}

var frontFields = []string{"X-Forwarded-For: 203.0.113.7", "Authorization: Bearer c2FtcGxlLWtleS1vbmU", "Origin: https://app.example.com"}

// For each request the whole chain allocates once: the request's id.
func TestChainAllocations(t *testing.T) {
	if got := mwtest.Allocations(t, mwtest.Wrap(mwtest.Hello, frontChain()...), "GET /", frontFields...); got > 1 && !raceEnabled {
		t.Errorf("%v allocations, want that of the id", got)
	}
}

// All middleware works together in the order that the documentation gives: for a form that a page posts as PUT, for errors and for panics.
func TestOrder(t *testing.T) {
	var log synchronized
	r := router.New()
	chain := []filo.Middleware{
		middleware.RequestID(),
		middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.0/24"), TrustProto: true, TrustHost: true}),
		middleware.AccessLog(middleware.AccessLogOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}),
		middleware.Recover(middleware.RecoverOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}),
		middleware.Secure(middleware.SecureOptions{HSTS: time.Hour}),
		middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"filo.test", "www.filo.test"}}),
		middleware.Redirect(middleware.RedirectOptions{HTTPS: true, Host: "filo.test"}),
		middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://app.example.com"}}),
		ratelimit.New(100, time.Minute, ratelimit.Options{HideFields: true}),
		middleware.CSRF(),
		middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 1 << 10}),
		middleware.Decompress(),
		middleware.KeyAuth(middleware.KeyAuthOptions{Keys: []string{"key"}}),
		idempotency.New(idempotency.Options{Scope: idempotency.AuthorizationScope}),
		cache.New(),
		middleware.Compress(),
		middleware.ETag(),
		middleware.CacheControl(middleware.CacheControlOptions{NoCache: true}),
		middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Minute}),
		middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 10}),
	}
	r.Use(chain...)
	r.GET("/page", func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("a page ", 1000)) })
	r.PUT("/items/{id}", func(c *filo.Ctx) error {
		return c.Text(200, c.Method()+" "+c.Param("id")+" for "+middleware.ClientIP(c).String())
	})
	r.GET("/panic", func(*filo.Ctx) error { panic("lost") })
	h := mwtest.Wrap(r.Serve, middleware.MethodOverride(),
		middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/items"}}}))
	s := servertest.New(t, h)
	const key, secure, override = "Authorization: Bearer key", "X-Forwarded-Proto: https", "X-HTTP-Method-Override: PUT"
	for _, test := range []struct {
		request string
		fields  []string
		status  int
		want    string // of the body, or of a field
	}{
		{"POST /old/7", []string{key, secure, override, "X-Forwarded-For: 203.0.113.7"}, 200, "PUT 7 for 203.0.113.7"},
		{"POST /old/7", []string{key, secure, override, "Sec-Fetch-Site: cross-site"}, 403, ""},
		{"GET /page", []string{key, secure, "Accept-Encoding: gzip"}, 200, "Content-Encoding: gzip"},
		{"GET /page", []string{key, secure}, 200, "a page a page"},
		{"GET /page", []string{secure}, 401, "Www-Authenticate: Bearer"},
		{"GET /page", nil, 301, "Location: https://filo.test/page"},
		{"GET http://www.filo.test/page", []string{secure}, 301, "Location: https://filo.test/page"},
		{"GET http://evil.test/page", []string{secure}, 421, ""},
		{"GET /panic", []string{key, secure}, 500, "Strict-Transport-Security: max-age=3600"},
		{"GET /none", []string{key, secure}, 404, "Cache-Control: no-store"},
		{"OPTIONS /page", []string{secure, "Origin: https://app.example.com", "Access-Control-Request-Method: GET"}, 204, "Access-Control-Allow-Methods: GET"},
		{"GET /page", []string{secure, "Origin: https://app.example.com"}, 401, "Access-Control-Allow-Origin: https://app.example.com"},
	} {
		got := s.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), test.request, test.fields...)
		var all strings.Builder
		got.Header.Write(&all)
		all.WriteString(got.Body)
		if got.Status != test.status || !strings.Contains(all.String(), test.want) {
			t.Errorf("%s %q: %d %s, want %d %s", test.request, test.fields, got.Status, all.String(), test.status, test.want)
		}
		logged := log.String()
		log.buffer.Reset()
		if strings.Count(logged, "\n") != 1 || !strings.Contains(logged, " status="+mwtest.StatusText(test.status)) || got.Header.Get("X-Frame-Options") == "" ||
			!strings.Contains(logged, " request_id="+got.Header.Get("X-Request-ID")) {
			t.Errorf("%s %q: logged %s, fields %v", test.request, test.fields, logged, got.Header)
		}
	}
}

// BenchmarkChain measures the cost of the whole chain for one request.
func BenchmarkChain(b *testing.B) {
	mwtest.Benchmark(b, mwtest.Wrap(mwtest.Hello, frontChain()...), "GET /", frontFields...)
}
