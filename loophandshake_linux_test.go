//go:build !386

package filo_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// deafConn is a client that sends its hello, and never hears the answer.
type deafConn struct {
	net.Conn
	ended chan struct{}
}

func (c *deafConn) Read([]byte) (int, error) {
	<-c.ended
	return 0, net.ErrClosed
}

// Handshakes that stall take turns: none waits for longer than its own time, and neither Close nor Shutdown waits for any.
func TestStalledHandshakes(t *testing.T) {
	lifeLooped(t)
	for name, end := range map[string]func(s *lifeServer) error{
		"they end by themselves": func(s *lifeServer) error { return nil },
		"Close": func(s *lifeServer) error {
			s.Close()
			return s.Shutdown(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := &filo.Server{Loops: 1, ReadHeaderTimeout: 2 * time.Second, Handler: newLifeGate().handle}
			config.SetMaxHandshakes(2)
			s := lifeListenTLS(t, config)
			ended := make(chan struct{})
			defer close(ended)
			const clients = 20
			for range clients {
				c := s.dial(t)
				s.run(func() {
					tls.Client(&deafConn{c.Conn, ended}, &tls.Config{InsecureSkipVerify: true}).Handshake()
				})
			}
			lifeAwait(t, "the clients to come", func() bool { return s.Stats().ConnsAccepted > clients/2 })
			if err := end(s); err != nil {
				t.Error(err)
			}
			lifeAwait(t, "all of them to be gone", func() bool { return s.Stats().ConnsOpen == 0 })
			if name != "Close" {
				s.wantServesTLS(t)
			}
		})
	}
}
