package http2conf_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/conformance/http2conf"
	"github.com/filohttp/filo/servertest"
)

// site has the routes that the table asks for.
func site(c *filo.Ctx) error {
	switch c.Path() {
	case "/hello":
		return only(c, "GET, HEAD", func(c *filo.Ctx) error { return c.Text(200, "Hello, World!") })
	case "/echo":
		return only(c, "POST", echo)
	case "/hold":
		return only(c, "POST", hold)
	}
	return filo.Error(404, "no such page")
}

func only(c *filo.Ctx, allow string, h filo.Handler) error {
	switch method := c.Method(); {
	case method == "GET" && allow != "POST", method == "HEAD" && allow != "POST", method == allow:
		return h(c)
	}
	c.Response.Header.Set("Allow", allow)
	return filo.Error(405, "allowed here: "+allow)
}

func echo(c *filo.Ctx) error {
	c.SetMaxBodyBytes(-1)
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.Bytes(200, c.Request.ContentType(), body)
}

func hold(c *filo.Ctx) error {
	<-c.Context().Done()
	return filo.ErrAbort
}

// serve serves the site by the driver, with TLS if there is a configuration for it, and returns how to dial it.
func serve(t *testing.T, driver filo.Driver, config *tls.Config) func() (net.Conn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: site, Driver: driver, TLSConfig: config, HTTP2: filo.HTTP2Options{Unencrypted: config == nil}}
	served := make(chan error, 1)
	go func() {
		if config != nil {
			served <- s.ServeTLS(ln, "", "")
			return
		}
		served <- s.Serve(ln)
	}()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			s.Close()
		}
		<-served
	})
	if config == nil {
		return func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	}
	client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	return func() (net.Conn, error) { return tls.Dial("tcp", ln.Addr().String(), client) }
}

// testCertificate is httptest's.
func testCertificate(t *testing.T) *tls.Config {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// TestMemory runs the table over in-memory connections, where every cut is exact.
func TestMemory(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{Handler: site, HTTP2: filo.HTTP2Options{Unencrypted: true}})
	http2conf.Run(t, s.Listener.Dial)
}

// TestTCP runs the table over sockets, without TLS.
func TestTCP(t *testing.T) {
	t.Run("loop", func(t *testing.T) { http2conf.Run(t, serve(t, filo.DriverAuto, nil)) })
	t.Run("blocking", func(t *testing.T) { http2conf.Run(t, serve(t, filo.DriverBlocking, nil)) })
}

// TestTLS runs the table over TLS. The cases are cut as without it, so they aren't here.
func TestTLS(t *testing.T) {
	t.Run("loop", func(t *testing.T) { http2conf.RunWhole(t, serve(t, filo.DriverAuto, testCertificate(t))) })
	t.Run("blocking", func(t *testing.T) { http2conf.RunWhole(t, serve(t, filo.DriverBlocking, testCertificate(t))) })
}
