package main

import (
	"net"
	"testing"

	"github.com/filohttp/filo/internal/conformance"
)

// The table of raw requests, each with the sentence of the RFC that it is held to, whole and cut at every
// byte, over real sockets.
func TestConformance(t *testing.T) {
	r := start(t)
	conformance.Run(t, func() (net.Conn, error) { return net.Dial("tcp", r.addr) })
}
