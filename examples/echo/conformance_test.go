package main

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/conformance/http2conf"
)

// The example passes the conformance table: raw requests, each with the sentence of the RFC that says how to answer it. Each request is sent over
// real sockets, in one piece, and split at every byte.
func TestConformance(t *testing.T) {
	r := start(t, "-h2c=false") // the table also has the HTTP/2 preface, which must be refused here
	conformance.Run(t, func() (net.Conn, error) { return net.Dial("tcp", r.addr) })
}

// The example passes the HTTP/2 table over TLS. In this test /echo answers while the request is still arriving.
func TestConformanceHTTP2(t *testing.T) {
	cert, key := writeCert(t)
	r := start(t, "-tls-cert", cert, "-tls-key", key)
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	http2conf.RunWhole(t, func() (net.Conn, error) { return tls.Dial("tcp", r.addr, config) })
}
