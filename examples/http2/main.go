// Command http2 shows what HTTP/2 is good for: many requests on one connection, some of which never end, over TLS and without.
//
//	go run ./http2                                                            # ports 8443 and 8080
//	curl -k https://localhost:8443/                                           # HTTP/2 over TLS
//	curl --http2-prior-knowledge http://localhost:8080/                       # HTTP/2 without TLS (h2c)
//	curl http://localhost:8080/                                               # HTTP/1.1 on the same port
//	curl -kN https://localhost:8443/time                                      # an event each second
//	curl -N --http2-prior-knowledge -T . http://localhost:8080/upper -X POST  # type lines: each is answered before the next one
//	h2load -c 1 -m 100 -n 100000 http://localhost:8080/                       # a hundred requests at a time
//
// The handlers are ordinary ones. Only the server's options say HTTP/2, and only for the port without TLS.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/program"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/sse"
)

// longestStream is how long a stream in both directions may last.
const longestStream = 8 * time.Hour

func main() { program.Main("http2", run) }

// run serves until ctx ends, and returns nil after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("http2", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` without TLS")
	tlsAddr := flags.String("tls-addr", "localhost:8443", "TCP `address` with TLS")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	server := &filo.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, // h2 needs nothing else
		HTTP2:     filo.HTTP2Options{Unencrypted: true},
	}
	hub := sse.NewHub()
	server.Handler = newHandler(hub)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go announce(ctx, hub)

	secure, err := server.Listen(*tlsAddr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on https://%s\n", secure.Addr())
	served := make(chan error, 1)
	go func() {
		served <- server.ServeTLS(secure, "", "")
		cancel() // without one of the ports the program ends
	}()
	err = program.Serve(ctx, server, *addr, stdout)
	if err != nil {
		server.Close()
	}
	if tlsErr := <-served; !errors.Is(tlsErr, filo.ErrServerClosed) {
		err = errors.Join(err, tlsErr)
	}
	return err
}

func newHandler(hub *sse.Hub) filo.Handler {
	r := router.New()
	r.GET("/", func(c *filo.Ctx) error {
		stats := c.Server().Stats()
		return c.Text(200, fmt.Sprintf("You speak %s. HTTP/2: %d connections with %d open requests, this one included if it is one.\n",
			c.Request.Proto(), stats.ConnsHTTP2, stats.Streams))
	})
	// A browser may have a hundred event streams on its connection. With HTTP/1.1 it opens six connections, and then it waits.
	r.GET("/time", func(c *filo.Ctx) error { return hub.Serve(c, "time") })
	r.POST("/upper", upper)
	return r.Serve
}

// announce publishes the time each second, to all clients at once.
func announce(ctx context.Context, hub *sse.Hub) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			hub.Publish("time", sse.Event{Data: now.Format(time.TimeOnly)})
		case <-ctx.Done():
			return
		}
	}
}

// upper answers each line as soon as it comes, as a method of gRPC does that streams in both directions.
func upper(c *filo.Ctx) error {
	c.SetMaxBodyBytes(-1)                            // a stream has no size,
	c.SetReadDeadline(time.Now().Add(longestStream)) // and its client may be silent
	c.Response.Header.Set("Content-Type", "text/plain; charset=utf-8")
	w, lines := c.Stream(), bufio.NewScanner(c.BodyReader())
	if err := w.Flush(); err != nil { // the client may wait for the head before it sends
		return err
	}
	for lines.Scan() {
		if _, err := fmt.Fprintln(w, strings.ToUpper(lines.Text())); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// selfSigned returns a certificate that is good for trying things out.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, // Java wants the former, too
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
