package middleware_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
)

// What ten middlewares of a public service take together: the difference of the two.
func BenchmarkTogether(b *testing.B) {
	ten := []filo.Middleware{
		middleware.Recover(), middleware.RequestID(),
		middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}),
		middleware.HostCheck(middleware.HostCheckOptions{Hosts: []string{"filo.test"}}),
		middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1000}),
		middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 1 << 20}),
		middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://filo.test"}}),
		middleware.CSRF(), middleware.Secure(), middleware.CacheControl(),
	}
	all := filo.Handler(mwtest.Hello)
	for _, each := range slices.Backward(ten) {
		all = each(all)
	}
	for name, h := range map[string]filo.Handler{"none": mwtest.Hello, "ten": all} {
		b.Run(name, func(b *testing.B) {
			mwtest.Benchmark(b, h, "GET http://filo.test/users/7?page=2", "X-Forwarded-For: 203.0.113.7", "Origin: https://filo.test")
		})
	}
}
