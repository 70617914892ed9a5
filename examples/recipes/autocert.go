package recipes

import (
	"golang.org/x/crypto/acme/autocert"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// Autocert obtains certificates from Let's Encrypt for a server's hosts, and renews them. Start the server with RunTLS(ctx, ":443", "", "").
// The cache stores the certificates, for example autocert.DirCache("/var/lib/app/certs"). The handler is for port 80: it answers Let's Encrypt's
// challenges, and redirects all other requests to HTTPS.
func Autocert(s *filo.Server, cache autocert.Cache, hosts ...string) (port80 filo.Handler) {
	manager := &autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      cache,
		HostPolicy: autocert.HostWhitelist(hosts...), // otherwise anyone could make the server request certificates for other names
	}
	s.TLSConfig = manager.TLSConfig()
	return adaptor.FromHTTP(manager.HTTPHandler(nil))
}
