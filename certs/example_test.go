package certs_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/certs"
)

// The server has two certificates, which are renewed without a restart. Clients present certificates that the company's own
// authority has signed.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := certs.New(certs.Options{
		Pairs: []certs.Pair{
			{Cert: "/etc/app/example.com.pem", Key: "/etc/app/example.com.key"},
			{Cert: "/etc/app/example.org.pem", Key: "/etc/app/example.org.key"},
		},
		ClientCAs: "/etc/app/clients.pem",
	})
	if err != nil {
		log.Fatal(err)
	}
	store.ReloadOn(ctx, syscall.SIGHUP)
	s := &filo.Server{
		TLSConfig: store.TLSConfig(),
		Handler: func(c *filo.Ctx) error {
			return c.Text(200, "Hello, "+c.TLS().PeerCertificates[0].Subject.CommonName+"!")
		},
	}
	if err := s.RunTLS(ctx, ":443", "", ""); err != nil {
		log.Fatal(err)
	}
}
