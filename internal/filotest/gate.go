package filotest

import (
	"bytes"
	"sync"
	"testing"

	"github.com/filohttp/filo"
)

// Gate is a handler that blocks in requests for /hold until Open is called.
type Gate struct {
	Entered chan *filo.Ctx // receives the Ctx of each request for /hold; the handler blocks until a test receives it
	release chan struct{}  // closed by Open
	once    sync.Once
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{Entered: make(chan *filo.Ctx), release: make(chan struct{})}
}

// Handle is the gate's filo.Handler.
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

// Open releases all requests, including later ones. Further calls have no effect.
func (g *Gate) Open() { g.once.Do(func() { close(g.release) }) }

// Hold sends a request for /hold, and returns its Ctx when the handler runs.
func (g *Gate) Hold(t testing.TB, c *Client) *filo.Ctx {
	t.Helper()
	c.Get("/hold")
	return Recv(t, g.Entered, "the handler to run")
}

// ServeGated starts a server whose handler is a gate. The gate opens at the end of the test.
func ServeGated(t testing.TB, config *filo.Server) (*Server, *Gate) {
	t.Helper()
	gate := NewGate()
	config.Handler = gate.Handle
	s := Serve(t, config)
	t.Cleanup(gate.Open)
	return s, gate
}

// Begun returns a channel that is closed when the server starts to shut down: the ShuttingDown channel of an additional request for /hold.
func (g *Gate) Begun(t testing.TB, s *Server) <-chan struct{} {
	t.Helper()
	return g.Hold(t, s.Dial(t)).ShuttingDown()
}

// Huge is a body larger than any socket buffers.
var Huge = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 2<<20) }) // 32 MB

// HoldPlace is like Hold, for a server with few places. A leader that has lost its loop may occupy the last place for a moment, so HoldPlace
// repeats a refused request.
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
