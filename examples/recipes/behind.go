package recipes

import (
	"net/netip"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

// BehindProxy sets a server up for nginx or HAProxy on the networks that are given, for example 10.0.0.0/8.
func BehindProxy(s *filo.Server, r *router.Router, proxies ...netip.Prefix) {
	// The proxy must be the one that closes idle connections: a request that it sends while the server closes is lost.
	// nginx keeps them for 60 s.
	s.IdleTimeout = 90 * time.Second
	r.Use(middleware.RealIP(middleware.RealIPOptions{
		TrustedProxies: proxies,
		TrustProto:     true, // the configurations in docs/RECIPES.md always set X-Forwarded-Proto
	}))
}

// BehindHTTP2Proxy does the same for a proxy that speaks HTTP/2 to the server, without TLS.
func BehindHTTP2Proxy(s *filo.Server, r *router.Router, proxies ...netip.Prefix) {
	BehindProxy(s, r, proxies...)
	s.HTTP2 = filo.HTTP2Options{
		Unencrypted:  true,
		PingInterval: 30 * time.Second, // finds a proxy that has vanished
	}
}

// BehindCloudflare does the same for Cloudflare, which keeps idle connections for 900 s. Its networks are listed at
// https://www.cloudflare.com/ips/. Let the firewall admit nobody else: anyone can rent an address that Cloudflare passes on.
func BehindCloudflare(s *filo.Server, r *router.Router, networks []netip.Prefix) {
	BehindProxy(s, r, networks...)
	s.IdleTimeout = 16 * time.Minute
}
