package http2conf_test

import (
	"context"
	"net"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/conformance/http2conf"
)

// site has the routes that the table asks for.
func site(c *filo.Ctx) error {
	switch c.Path() {
	case "/":
		return only(c, "GET, HEAD", func(c *filo.Ctx) error {
			return c.Bytes(200, "text/html; charset=utf-8", []byte("<!DOCTYPE html><title>filo</title>"))
		})
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

// TestTCP runs the table over sockets, without TLS.
func TestTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: site, HTTP2: filo.HTTP2Options{Unencrypted: true}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			s.Close()
		}
		<-served
	})
	http2conf.Run(t, func() (net.Conn, error) {
		return net.Dial("tcp", ln.Addr().String())
	})
}
