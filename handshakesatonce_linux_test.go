package filo_test

import (
	"crypto/tls"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/handshakes"
)

// heldHandshakes lets handshakes for the server name "slow" wait in a function of the program until gate is closed.
type heldHandshakes struct {
	gate    chan struct{}
	running atomic.Int32
	peak    atomic.Int32
}

func (h *heldHandshakes) listen(t *testing.T, config *filo.Server) *filotest.Server {
	t.Helper()
	h.gate = make(chan struct{})
	config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
	config.TLSConfig.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != "slow" {
			return nil, nil
		}
		running := h.running.Add(1)
		for peak := h.peak.Load(); running > peak && !h.peak.CompareAndSwap(peak, running); peak = h.peak.Load() {
		}
		<-h.gate
		h.running.Add(-1)
		return nil, nil
	}
	return filotest.ListenTLS(t, config)
}

// dial begins n slow handshakes. The channel delivers their results.
func (h *heldHandshakes) dial(t *testing.T, s *filotest.Server, n int) <-chan error {
	ended := make(chan error, n)
	for range n {
		c := s.Dial(t)
		s.Go(func() {
			config := filotest.ClientTLS()
			config.ServerName, config.InsecureSkipVerify = "slow", true
			ended <- tls.Client(c, config).Handshake()
		})
	}
	return ended
}

// No more handshakes compute at once than the processors can take, however many clients come.
func TestHandshakesAtOnce(t *testing.T) {
	filotest.NeedLoops(t)
	var held heldHandshakes
	config := &filo.Server{Handler: filotest.NewGate().Handle}
	config.SetLongHandshake(time.Hour)
	s := held.listen(t, config)
	most := handshakes.PerProc * runtime.GOMAXPROCS(0)
	clients := 4 * most
	ended := held.dial(t, s, clients)
	filotest.Await(t, "the clients to come", func() bool { return s.Stats().ConnsOpen == clients })
	filotest.Await(t, "as many as may to compute", func() bool { return held.running.Load() >= int32(most) })
	close(held.gate)
	for range clients {
		if err := filotest.Recv(t, ended, "the end of a handshake"); err != nil {
			t.Error(err)
		}
	}
	if peak := int(held.peak.Load()); peak != most {
		t.Errorf("%d handshakes computed at once, want %d", peak, most)
	}
}

// Handshakes that wait for a function of the program keep other handshakes waiting only briefly.
func TestHandshakesHeldByTheProgram(t *testing.T) {
	filotest.NeedLoops(t)
	var held heldHandshakes
	s := held.listen(t, &filo.Server{Handler: filotest.NewGate().Handle})
	clients := 4 * handshakes.PerProc * runtime.GOMAXPROCS(0)
	ended := held.dial(t, s, clients)
	filotest.Await(t, "all of them to begin", func() bool { return held.running.Load() == int32(clients) })
	c := s.DialTLS(t)
	c.Get("/")
	c.Want(200, "quick", false)
	c.Close()
	close(held.gate)
	for range clients {
		if err := filotest.Recv(t, ended, "the end of a handshake"); err != nil {
			t.Error(err)
		}
	}
}
