package conformance_test

import (
	"context"
	"net"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/servertest"
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

// TestMemory runs the table over in-memory connections, where every cut is exact.
func TestMemory(t *testing.T) {
	conformance.Run(t, servertest.New(t, site).Listener.Dial)
}

// TestTCP runs the table over sockets.
func TestTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: site}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			s.Close()
		}
		<-served
	})
	conformance.Run(t, func() (net.Conn, error) {
		return net.Dial("tcp", ln.Addr().String())
	})
}
