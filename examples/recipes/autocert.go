package recipes

import (
	"golang.org/x/crypto/acme/autocert"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// Autocert gives a server certificates of Let's Encrypt for its hosts, and renews them. Start the server by RunTLS(ctx, ":443", "", "").
// The cache keeps them, as autocert.DirCache("/var/lib/app/certs") does. The handler is for port 80: it answers Let's Encrypt's
// challenges, and redirects all other requests to HTTPS.
func Autocert(s *filo.Server, cache autocert.Cache, hosts ...string) (port80 filo.Handler) {
	manager := &autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      cache,
		HostPolicy: autocert.HostWhitelist(hosts...), // or anyone who knows the address could ask for names of their own
	}
	s.TLSConfig = manager.TLSConfig()
	return adaptor.FromHTTP(manager.HTTPHandler(nil))
}
