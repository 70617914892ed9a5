package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleSecure() {
	secure := middleware.Secure(middleware.SecureOptions{
		HSTS:                  365 * 24 * time.Hour, // over TLS only
		ContentSecurityPolicy: "default-src 'self'",
		OpenerPolicy:          "-",
	})
	mwtest.Show(secure(mwtest.Hello), []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy",
		"Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Strict-Transport-Security"}, "GET /")
	// Output:
	// 200 hello
	// Content-Security-Policy: default-src 'self'
	// X-Content-Type-Options: nosniff
	// X-Frame-Options: SAMEORIGIN
	// Referrer-Policy: strict-origin-when-cross-origin
	// Cross-Origin-Resource-Policy: same-origin
}

// secureAnswer returns the fields of an answer that Secure sets.
func secureAnswer(header http.Header) string {
	var fields []string
	for _, name := range []string{"Content-Security-Policy", "Content-Security-Policy-Report-Only", "X-Content-Type-Options", "X-Frame-Options",
		"Referrer-Policy", "Permissions-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Embedder-Policy", "Cross-Origin-Resource-Policy",
		"Strict-Transport-Security"} {
		for _, value := range header.Values(name) {
			fields = append(fields, name+": "+value)
		}
	}
	return strings.Join(fields, "\n")
}

func TestSecure(t *testing.T) {
	const year = 365 * 24 * time.Hour
	defaults := strings.Join([]string{"X-Content-Type-Options: nosniff", "X-Frame-Options: SAMEORIGIN", "Referrer-Policy: strict-origin-when-cross-origin",
		"Cross-Origin-Opener-Policy: same-origin", "Cross-Origin-Resource-Policy: same-origin"}, "\n")
	for _, test := range []struct {
		sentence string
		options  middleware.SecureOptions
		proto    string // as a trusted proxy says
		want     string
	}{
		{"the zero value has what seldom hurts", middleware.SecureOptions{}, "https", defaults},
		{"over TLS, browsers are held to it", middleware.SecureOptions{HSTS: year}, "https", defaults + "\nStrict-Transport-Security: max-age=31536000"},
		{"RFC 6797, 7.2: not over plain HTTP", middleware.SecureOptions{HSTS: year}, "http", defaults},
		{"hosts below, and built in", middleware.SecureOptions{HSTS: 2 * year, HSTSSubdomains: true, HSTSPreload: true}, "https",
			defaults + "\nStrict-Transport-Security: max-age=63072000; includeSubDomains; preload"},
		{"each field can be set, or left out", middleware.SecureOptions{ContentSecurityPolicy: "a", ContentSecurityPolicyReportOnly: "b", ContentTypeOptions: "-",
			FrameOptions: "DENY", ReferrerPolicy: "no-referrer", PermissionsPolicy: "camera=()", OpenerPolicy: "-", EmbedderPolicy: "require-corp", ResourcePolicy: "-"}, "http",
			"Content-Security-Policy: a\nContent-Security-Policy-Report-Only: b\nX-Frame-Options: DENY\nReferrer-Policy: no-referrer\n" +
				"Permissions-Policy: camera=()\nCross-Origin-Embedder-Policy: require-corp"},
	} {
		realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.1/32"), TrustProto: true})
		s := servertest.New(t, mwtest.Wrap(mwtest.Hello, realIP, middleware.Secure(test.options)))
		if got := secureAnswer(s.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET /", "X-Forwarded-Proto: "+test.proto).Header); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.sentence, got, test.want)
		}
	}
}

// An error has the fields, too, and a handler can change them.
func TestSecureAndHandlers(t *testing.T) {
	secure := middleware.Secure()
	if got := mwtest.Do(t, secure(func(*filo.Ctx) error { return filo.Error(404, "") }), "GET /"); got.Header.Get("X-Frame-Options") == "" {
		t.Errorf("an error has %v", got.Header)
	}
	got := mwtest.Do(t, secure(func(c *filo.Ctx) error {
		c.Response.Header.Set("X-Frame-Options", "DENY")
		c.Response.Header.Del("Referrer-Policy")
		return nil
	}), "GET /")
	if values := got.Header.Values("X-Frame-Options"); len(values) != 1 || values[0] != "DENY" || got.Header.Get("Referrer-Policy") != "" {
		t.Errorf("got %v", got.Header)
	}
}

func TestSecureOptions(t *testing.T) {
	with := func(options middleware.SecureOptions) func() {
		return func() { middleware.Secure(options) }
	}
	const evil = "a\r\nX: y"
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"negative":                 with(middleware.SecureOptions{HSTS: -1}),
		"subdomains of nothing":    with(middleware.SecureOptions{HSTSSubdomains: true}),
		"preload needs subdomains": with(middleware.SecureOptions{HSTS: 365 * 24 * time.Hour, HSTSPreload: true}),
		"preload needs a year":     with(middleware.SecureOptions{HSTS: time.Hour, HSTSSubdomains: true, HSTSPreload: true}),
		"policy":                   with(middleware.SecureOptions{ContentSecurityPolicy: evil}),
		"report-only":              with(middleware.SecureOptions{ContentSecurityPolicyReportOnly: evil}),
		"type":                     with(middleware.SecureOptions{ContentTypeOptions: evil}),
		"frame":                    with(middleware.SecureOptions{FrameOptions: evil}),
		"referrer":                 with(middleware.SecureOptions{ReferrerPolicy: evil}),
		"permissions":              with(middleware.SecureOptions{PermissionsPolicy: evil}),
		"opener":                   with(middleware.SecureOptions{OpenerPolicy: evil}),
		"embedder":                 with(middleware.SecureOptions{EmbedderPolicy: evil}),
		"resource":                 with(middleware.SecureOptions{ResourcePolicy: evil}),
	})
}

func BenchmarkSecure(b *testing.B) {
	mwtest.Benchmark(b, middleware.Secure(middleware.SecureOptions{HSTS: time.Hour, ContentSecurityPolicy: "default-src 'self'"})(mwtest.Hello), "GET /")
}
