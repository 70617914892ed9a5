package recipes

import (
	"net/netip"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

// BehindProxy configures a server behind nginx or HAProxy. proxies are the networks of these proxies, for example 10.0.0.0/8.
func BehindProxy(s *filo.Server, r *router.Router, proxies ...netip.Prefix) {
	// The proxy must be the one that closes idle connections: a request that it sends while the server closes is lost.
	// nginx keeps idle connections for 60 s.
	s.IdleTimeout = 90 * time.Second
	r.Use(middleware.RealIP(middleware.RealIPOptions{
		TrustedProxies: proxies,
		TrustProto:     true, // the configurations in docs/RECIPES.md always set X-Forwarded-Proto
	}))
}

// BehindHTTP2Proxy is BehindProxy for a proxy that uses HTTP/2 without TLS.
func BehindHTTP2Proxy(s *filo.Server, r *router.Router, proxies ...netip.Prefix) {
	BehindProxy(s, r, proxies...)
	s.HTTP2 = filo.HTTP2Options{
		Unencrypted:  true,
		PingInterval: 30 * time.Second, // detects a proxy that has vanished
	}
}

// BehindCloudflare is BehindProxy for Cloudflare, which keeps idle connections for 900 s. Its networks are listed at
// https://www.cloudflare.com/ips/. The firewall must admit no other peers.
func BehindCloudflare(s *filo.Server, r *router.Router, networks []netip.Prefix) {
	BehindProxy(s, r, networks...)
	s.IdleTimeout = 16 * time.Minute
}
