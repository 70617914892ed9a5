package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/conformance/site"
	"github.com/filohttp/filo/internal/tcptest"
)

// serve runs a server with all the routes, until the process is killed.
func (c *config) serve(addr, kind string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return c.serveListener(ln, kind)
}

func (c *config) serveListener(ln net.Listener, kind string) error {
	defer ln.Close()
	switch kind {
	case "net/http":
		s := &http.Server{Handler: http.HandlerFunc(site.ServeHTTP), Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetHTTP2(c.http2)
		s.Protocols.SetUnencryptedHTTP2(c.http2)
		if c.tls {
			s.TLSConfig = tcptest.TLSConfig()
			return s.ServeTLS(ln, "", "")
		}
		return s.Serve(ln)
	case "filo", "blocking":
		s := &filo.Server{Handler: site.Serve}
		s.HTTP2.Unencrypted = c.http2 // when it is unset, the table of HTTP/1.1 tests how the server answers HTTP/2's preface
		if kind == "blocking" {
			s.Driver = filo.DriverBlocking
		}
		if c.tls {
			s.TLSConfig = tcptest.TLSConfig()
			return s.ServeTLS(ln, "", "")
		}
		return s.Serve(ln)
	}
	return fmt.Errorf("there is no server %q", kind)
}
