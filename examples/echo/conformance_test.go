package main

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/conformance/http2conf"
)

// The example passes the table of raw requests, each with the sentence of the RFC that decides it. Each request is sent
// whole, and cut at every byte, over real sockets.
func TestConformance(t *testing.T) {
	r := start(t, "-h2c=false") // the preface of HTTP/2 is in the table, too
	conformance.Run(t, func() (net.Conn, error) { return net.Dial("tcp", r.addr) })
}

// The table of HTTP/2, over TLS. Here /echo answers while the request is still arriving.
func TestConformanceHTTP2(t *testing.T) {
	cert, key := writeCert(t)
	r := start(t, "-tls-cert", cert, "-tls-key", key)
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	http2conf.RunWhole(t, func() (net.Conn, error) { return tls.Dial("tcp", r.addr, config) })
}
