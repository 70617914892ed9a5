// Package answerconn turns the answer to a request that another server has received into a net.Conn. It uses only that server's Transport.
package answerconn

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/race"
)

// Conn is a connection over the answer to one request. Write sends a part of the answer's body. Read never returns data: it waits until the client
// leaves.
type Conn struct {
	transport hooks.Transport
	Whole     bool       // the answer is complete; only the goroutine that serves the request accesses it
	writing   sync.Mutex // held during a Write

	mu        race.Mutex[race.OfLeaf]
	closed    bool          // guarded by mu
	left      bool          // the transport must not be used any more; guarded by mu
	readUntil time.Time     // guarded by mu
	changed   chan struct{} // closed when closed or readUntil changes; guarded by mu
}

var _ net.Conn = (*Conn)(nil)

// New returns a connection. The caller must call Leave when the request ends.
func New(t hooks.Transport) *Conn {
	// The other server set its deadlines for a short request. The outbox sets its own.
	t.SetReadDeadline(time.Time{})
	t.SetWriteDeadline(time.Time{})
	return &Conn{transport: t, changed: make(chan struct{})}
}

// Read implements net.Conn. It waits until the client has left.
func (c *Conn) Read([]byte) (int, error) {
	for {
		c.mu.Lock()
		closed, until, changed := c.closed, c.readUntil, c.changed
		c.mu.Unlock()
		if closed {
			return 0, net.ErrClosed
		}
		var late <-chan time.Time // the garbage collector frees the timer once this call has returned
		if !until.IsZero() {
			left := time.Until(until)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			late = time.After(left)
		}
		select {
		case <-c.transport.Context().Done():
			return 0, io.EOF
		case <-late:
		case <-changed:
		}
	}
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	n, err := c.transport.Write(p)
	if err == nil {
		err = c.transport.Flush()
	}
	if err != nil && c.isClosed() {
		err = net.ErrClosed // Close ended the call by setting a deadline in the past
	}
	return n, err
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close implements net.Conn. It ends a Write that waits.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.changeLocked()
	if c.writing.TryLock() {
		c.writing.Unlock()
		return nil
	}
	return c.transport.SetWriteDeadline(clock.Past)
}

// Leave closes the connection, and waits until no Write uses the transport any more. Then the other server may reuse the transport.
func (c *Conn) Leave() {
	c.Close()
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
	c.writing.Lock()
	//lint:ignore SA2001 the lock itself is the wait
	c.writing.Unlock()
}

func (c *Conn) changeLocked() {
	c.mu.AssertHeld()
	close(c.changed)
	c.changed = make(chan struct{})
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.transport.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.transport.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readUntil = t
	c.changeLocked()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.left {
		return net.ErrClosed
	}
	return c.transport.SetWriteDeadline(t)
}
