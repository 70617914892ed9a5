package conformance_test

import (
	"context"
	"net"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/conformance/site"
	"github.com/filohttp/filo/servertest"
)

// TestMemory runs the table over in-memory connections, where every cut is exact.
func TestMemory(t *testing.T) {
	conformance.Run(t, servertest.New(t, site.Serve).Listener.Dial)
}

// TestTCP runs the table over sockets.
func TestTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: site.Serve}
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
