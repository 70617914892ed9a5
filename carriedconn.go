package filo

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

// carriedConn is the connection of a ParkedConn whose request came to another server. What is written is the answer's body. What is read
// ends when the client leaves. The goroutine that the other server gave the request serves it until the end, since the answer ends with that.
type carriedConn struct {
	transport hooks.Transport
	whole     bool       // the answer ends as it should; the serving goroutine's
	writing   sync.Mutex // held during a Write

	mu        race.Mutex[race.OfLeaf]
	closed    bool          // guarded by mu
	left      bool          // the transport must not be used any more; guarded by mu
	readUntil time.Time     // guarded by mu
	changed   chan struct{} // closed when closed or readUntil changes; guarded by mu
}

var _ net.Conn = (*carriedConn)(nil)

func newCarriedConn(t hooks.Transport) *carriedConn {
	// The other server's deadlines are for a request that is answered soon. The outbox has its own.
	t.SetReadDeadline(time.Time{})
	t.SetWriteDeadline(time.Time{})
	return &carriedConn{transport: t, changed: make(chan struct{})}
}

// Read implements net.Conn. It waits until the client has left.
func (c *carriedConn) Read([]byte) (int, error) {
	for {
		c.mu.Lock()
		closed, until, changed := c.closed, c.readUntil, c.changed
		c.mu.Unlock()
		if closed {
			return 0, net.ErrClosed
		}
		var late <-chan time.Time // the collector frees the timer when nobody waits for it
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
func (c *carriedConn) Write(p []byte) (int, error) {
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
		err = net.ErrClosed // Close has ended the call, by a deadline
	}
	return n, err
}

func (c *carriedConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close implements net.Conn. It ends a Write that waits.
func (c *carriedConn) Close() error {
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

// leave gives the transport back, when nobody writes any more.
func (c *carriedConn) leave() {
	c.Close()
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
	c.writing.Lock()
	//lint:ignore SA2001 the lock itself is the wait
	c.writing.Unlock()
}

func (c *carriedConn) changeLocked() {
	c.mu.AssertHeld()
	close(c.changed)
	c.changed = make(chan struct{})
}

// LocalAddr implements net.Conn.
func (c *carriedConn) LocalAddr() net.Addr { return c.transport.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *carriedConn) RemoteAddr() net.Addr { return c.transport.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *carriedConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *carriedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readUntil = t
	c.changeLocked()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *carriedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.left {
		return net.ErrClosed
	}
	return c.transport.SetWriteDeadline(t)
}

// adopt parks a connection of a carried request. The server has it like one of its own from now on, except that the other server counts
// it against its limits: Shutdown waits for it.
func (c *carried) adopt(ctx *Ctx, netConn net.Conn, serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	owner := newConn(c.server, netConn)
	owner.setState(stateHandler)
	if reason := c.server.conns.adopt(owner); reason != nil {
		return nil, reason
	}
	p := &ParkedConn{conn: owner, netConn: netConn, serve: serve, carried: true}
	p.class = c.server.classes.entered.Parked(c.scratch.timer.Class())
	p.out.Open((*parkedOwner)(p), nil, netConn, false)
	p.unread = !ctx.Request.body.complete()
	c.parked, owner.parked = p, p
	return c.taken(ctx, p, nil)
}

// serveParked serves a parked connection once the handler has returned: a stream on this goroutine, and one that was hijacked on its own.
func (c *carried) serveParked(p *ParkedConn) error {
	stream, ok := p.netConn.(*carriedConn)
	if !ok {
		go p.run()
		return nil
	}
	defer stream.leave() // also after a Goexit
	p.run()
	if !stream.whole {
		return ErrAbort
	}
	return nil
}

// abandonParked ends the parked connection of a handler that has panicked.
func (c *carried) abandonParked(p *ParkedConn) {
	(&blockingParked{ParkedConn: p}).end()
	if stream, ok := p.netConn.(*carriedConn); ok {
		stream.leave()
	}
}
