package adaptor_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

// Handlers and middleware of net/http see the client and the host that RealIP has found. The filo handler behind such middleware sees the same
// client, host and scheme as the one before.
func TestRealIP(t *testing.T) {
	show := func(w io.Writer, r *http.Request) { fmt.Fprintf(w, "%s %s; ", r.RemoteAddr, r.Host) }
	seen := func(then func(http.ResponseWriter, *http.Request, http.Handler)) filo.Middleware {
		return adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Seen", fmt.Sprint(r.RemoteAddr, " ", r.Host))
				then(w, r, next)
			})
		})
	}
	inner := func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprint(c.Response.Header.Get("X-Seen"), "; ", middleware.ClientIP(c), " ", middleware.Host(c), " ", middleware.Scheme(c)))
	}
	r := router.New()
	r.GET("/handler", adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { show(w, r) })))
	r.GET("/direct", inner, seen(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }))
	r.GET("/carried", inner, seen(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Header.Set("X-Changed", "1")
		next.ServeHTTP(w, r)
	}))
	everyone := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	trusting := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: everyone, TrustUnixSocket: true, TrustHost: true, TrustProto: true})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	filotest.ServeOn(t, &filo.Server{Handler: trusting(r.Serve), Logger: quiet}, listener)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{
		"/handler": "203.0.113.9:0 shop.example; ",
		"/direct":  "203.0.113.9:0 shop.example; 203.0.113.9 shop.example https",
		"/carried": "203.0.113.9:0 shop.example; 203.0.113.9 shop.example https",
	} {
		request, err := http.NewRequest("GET", "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Forwarded-For", "203.0.113.9")
		request.Header.Set("X-Forwarded-Host", "shop.example")
		request.Header.Set("X-Forwarded-Proto", "https")
		if body := fetch(t, client, request); body != want {
			t.Errorf("%s: got %q, want %q", path, body, want)
		}
	}
}
