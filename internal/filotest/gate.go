package filotest

import (
	"bytes"
	"sync"
	"testing"

	"github.com/filohttp/filo"
)

// Gate is a handler that holds the requests for /hold until Open is called.
type Gate struct {
	Entered chan *filo.Ctx // gets each request that is held; its handler waits until that is received
	release chan struct{}  // closed to let them go
	once    sync.Once
}

// NewGate returns a gate that is shut.
func NewGate() *Gate {
	return &Gate{Entered: make(chan *filo.Ctx), release: make(chan struct{})}
}

// Handle is the handler.
func (g *Gate) Handle(c *filo.Ctx) error {
	if c.Path() != "/hold" {
		return c.Text(200, "quick")
	}
	select {
	case g.Entered <- c:
		<-g.release
	case <-g.release:
	}
	return c.Text(200, "held")
}

// Open lets all requests go, also later ones. It may be called again.
func (g *Gate) Open() { g.once.Do(func() { close(g.release) }) }

// Hold sends a request that is held, and returns its context when its handler runs.
func (g *Gate) Hold(t testing.TB, c *Client) *filo.Ctx {
	t.Helper()
	c.Get("/hold")
	return Recv(t, g.Entered, "the handler to run")
}

// ServeGated serves with a handler that is a gate, which opens at the end of the test.
func ServeGated(t testing.TB, config *filo.Server) (*Server, *Gate) {
	t.Helper()
	gate := NewGate()
	config.Handler = gate.Handle
	s := Serve(t, config)
	t.Cleanup(gate.Open)
	return s, gate
}

// Begun returns a channel that is closed when the server starts to shut down. For this it makes a further request that is held.
func (g *Gate) Begun(t testing.TB, s *Server) <-chan struct{} {
	t.Helper()
	return g.Hold(t, s.Dial(t)).ShuttingDown()
}

// Huge is an answer that no socket's buffers hold.
var Huge = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 2<<20) }) // 32 MB

// HoldPlace is Hold for a server with few places: a leader that has lost its loop may have the last one for a moment, and then the
// client asks once more.
func (g *Gate) HoldPlace(t testing.TB, s *Server, c *Client) {
	t.Helper()
	held := false
	for !held {
		refused := s.Stats().RequestsRefused
		c.Get("/hold")
		Await(t, "the handler to run", func() bool {
			select {
			case <-g.Entered:
				held = true
				return true
			default:
				return s.Stats().RequestsRefused > refused
			}
		})
		if !held {
			c.Answer()
		}
	}
}
