package middleware_test

import (
	"testing"

	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleHostCheck() {
	h := middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"example.com", "*.example.com"}})(mwtest.Hello)
	mwtest.Show(h, nil, "GET http://www.example.com:8080/")
	mwtest.Show(h, nil, "GET http://evil.test/")
	// Output:
	// 200 hello
	// 421 Misdirected Request: this host isn't served here
}

func TestHostCheck(t *testing.T) {
	h := middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"a.test", "*.b.test", "127.0.0.1", "[::1]"}})(mwtest.Hello)
	s := servertest.New(t, h)
	for host, want := range map[string]int{
		"a.test": 200, "A.TEST:8080": 200, "x.b.test": 200, "127.0.0.1:80": 200, "[::1]:80": 200, "a.test.": 200,
		"b.test": 421, "x.y.b.test": 421, "evil.test": 421, "a.test.evil.test": 421, "xa.test": 421, "127.0.0.2": 421, "[::2]": 421,
	} {
		if got := s.Do(t, "GET http://"+host+"/"); got.Status != want {
			t.Errorf("%s: %d, want %d", host, got.Status, want)
		}
	}
	for raw, want := range map[string]string{
		"GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n": "421", // the target's host takes precedence over the field
		"GET http://a.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n": "200",
		"GET / HTTP/1.0\r\n\r\n":                                 "421", // no host
	} {
		if got := s.Raw(t, raw); got[len("HTTP/1.1 "):][:3] != want {
			t.Errorf("%q: %q, want %s", raw, got, want)
		}
	}
}

// HostCheck checks the host that a trusted proxy names. It ignores an X-Forwarded-Host of any other client.
func TestHostCheckBehindProxy(t *testing.T) {
	realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: prefixes("192.0.2.1/32"), TrustHost: true})
	s := servertest.New(t, mwtest.Wrap(mwtest.Hello, realIP, middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"a.test"}})))
	for _, test := range []struct {
		from, host, forwarded string
		status                int
	}{
		{"192.0.2.1:1", "backend", "a.test", 200},
		{"192.0.2.1:1", "a.test", "evil.test", 421},
		{"192.0.2.2:1", "backend", "a.test", 421},
	} {
		got := s.DoFrom(t, mwtest.TCPAddress(test.from), "GET http://"+test.host+"/", "X-Forwarded-Host: "+test.forwarded)
		if got.Status != test.status {
			t.Errorf("%+v: %d", test, got.Status)
		}
	}
}

func TestHostCheckOptions(t *testing.T) {
	for _, name := range []string{"", "*", "*.", "a.test:80", "http://a.test", "a/b", "*.*.test", "a*.test", ".test", "a.test.", "a.test\r\n", "::1"} {
		mwtest.MustPanic(t, "middleware", map[string]func(){name: func() { middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{name}}) }})
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){"no host": func() { middleware.HostCheck(middleware.HostCheckOptions{}) }})
}

func BenchmarkHostCheck(b *testing.B) {
	check := middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"filo.test", "*.example.com"}})
	b.Run("a host", func(b *testing.B) { mwtest.Benchmark(b, check(mwtest.Hello), "GET /") })
	b.Run("a host below", func(b *testing.B) { mwtest.Benchmark(b, check(mwtest.Hello), "GET http://a.example.com/") })
}
