package filo

import (
	"io"
	"net"
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
)

// http2StreamConn is a parked stream as the connection of a ParkedConn: what is written is the answer's body, and what is read the rest of
// the request's. The end of the request isn't the end of what is read, since each request of HTTP/2 has ended by then: Read returns io.EOF
// when the client has gone.
type http2StreamConn struct {
	s *http2Stream
	// Guarded by the connection's mu, 0 for none.
	readUntil, writeUntil clock.Time
	ended                 bool
}

// maxParkedUnsent is how much waits in a parked stream for the client's window. More waits in the ParkedConn's queue.
const maxParkedUnsent = 16 << 10

// park answers with the response's head, and parks the stream.
func (s *http2Stream) park(ctx *Ctx, serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	if err := ctx.claimAnswer(); err != nil {
		return nil, err
	}
	h := s.h
	stream := &http2StreamConn{s: s}
	c := newConn(s.server, stream)
	if reason := s.server.conns.add(c); reason != nil {
		return nil, reason
	}
	ctx.endWatch()
	h.mu.Lock()
	h.listLocked(s)
	gone := s.gone
	if !gone {
		h.queue = s.appendHead(h.queue, nil, ctx, noLength, false)
	}
	h.mu.Unlock()
	if gone {
		s.server.conns.remove(c)
		s.lose()
		return nil, errStreamReset
	}
	p := &ParkedConn{conn: c, netConn: stream, serve: serve}
	p.class = s.server.classes.entered.Parked(s.worker.timer.Class())
	p.out.Open((*parkedOwner)(p), nil, stream, false)
	s.count(ctx.Response.status)
	ctx.Request.body.hijacked()
	s.hijacked, s.parked = true, p
	h.flush()
	return p, nil
}

// Read is net.Conn's.
func (c *http2StreamConn) Read(p []byte) (int, error) {
	s, h := c.s, c.s.h
	h.mu.Lock()
	for len(s.body) == s.read && !s.gone && !c.ended {
		if c.passedLocked(c.readUntil) {
			h.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		s.awaitLocked(&s.readable, c.readUntil)
	}
	n, credited := s.takeLocked(p)
	h.mu.Unlock()
	if credited {
		h.flush()
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Write is net.Conn's.
func (c *http2StreamConn) Write(p []byte) (n int, err error) {
	s, h := c.s, c.s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	for n < len(p) {
		switch {
		case s.gone || c.ended:
			return n, net.ErrClosed
		case c.passedLocked(c.writeUntil):
			return n, os.ErrDeadlineExceeded
		case len(s.unsent) >= maxParkedUnsent:
			s.awaitLocked(&s.writable, c.writeUntil)
			continue
		}
		k := min(maxParkedUnsent-len(s.unsent), len(p)-n)
		s.unsent = append(s.unsent, p[n:n+k]...)
		n += k
		h.mayGoOnLocked(s)
		h.flushLocked(nil)
	}
	return n, nil
}

func (c *http2StreamConn) passedLocked(until clock.Time) bool {
	c.s.h.mu.AssertHeld()
	return until != 0 && c.s.server.clock.exact() >= until
}

// CloseWrite ends the answer's body.
func (c *http2StreamConn) CloseWrite() error {
	s, h := c.s, c.s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.gone || c.ended {
		return net.ErrClosed
	}
	s.complete = true
	h.mayGoOnLocked(s)
	c.endLocked()
	return nil
}

// Close is net.Conn's: it resets the stream, unless the answer's body has ended.
func (c *http2StreamConn) Close() error {
	s, h := c.s, c.s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	if !s.gone {
		h.queue = http2.AppendReset(h.queue, s.id, http2.Cancel)
		h.ids.Reset(s.id)
		h.endStreamLocked(s, http2.Reset)
	}
	c.endLocked()
	return nil
}

// endLocked notes that nobody reads or writes the stream any more.
func (c *http2StreamConn) endLocked() {
	c.s.h.mu.AssertHeld()
	c.ended = true
	c.s.h.handlerEndedLocked(c.s)
	c.s.wakeLocked()
	c.s.h.flushLocked(nil)
}

// LocalAddr is net.Conn's.
func (c *http2StreamConn) LocalAddr() net.Addr { return c.s.localAddr() }

// RemoteAddr is net.Conn's.
func (c *http2StreamConn) RemoteAddr() net.Addr { return c.s.remoteAddr() }

// SetDeadline is net.Conn's.
func (c *http2StreamConn) SetDeadline(t time.Time) error {
	c.setDeadlines(t, &c.readUntil, &c.writeUntil)
	return nil
}

// SetReadDeadline is net.Conn's.
func (c *http2StreamConn) SetReadDeadline(t time.Time) error {
	c.setDeadlines(t, &c.readUntil)
	return nil
}

// SetWriteDeadline is net.Conn's.
func (c *http2StreamConn) SetWriteDeadline(t time.Time) error {
	c.setDeadlines(t, &c.writeUntil)
	return nil
}

func (c *http2StreamConn) setDeadlines(t time.Time, deadlines ...*clock.Time) {
	until := c.s.server.clock.at(t)
	c.s.h.mu.Lock()
	defer c.s.h.mu.Unlock()
	for _, deadline := range deadlines {
		*deadline = until
	}
	c.s.wakeLocked()
}
