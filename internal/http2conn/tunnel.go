package http2conn

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// This file implements extended CONNECT requests (RFC 8441). A handler switches the stream of such a request to another protocol, as it switches an
// HTTP/1.1 connection. For the handler, package http2 has turned the request into a GET with Upgrade. The answer that switches the protocol
// has the status 200 in place of 101. After that, DATA frames carry the bytes of the other protocol in both directions. Take returns the
// stream as a net.Conn, and Park parks it: see parked.go.

// Tunnel is the stream of an extended CONNECT request as a net.Conn: writes send the answer's body, and reads return the rest of the
// request's body.
type Tunnel struct {
	s *Stream
	h *Conn

	reading, writing sync.Mutex // they allow one Read and one Write at a time; locked before the connection's mu

	// Guarded by the connection's mu.
	readUntil, writeUntil clock.Time // 0 for none
	side                  tunnelSide
	returned              bool // the handler has returned
}

// Take makes the stream a tunnel. The caller has sent the head of the answer before.
func (s *Stream) Take() (*Tunnel, error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.sending == sendingLost {
		return nil, ErrReset
	}
	h.listLocked(s)
	s.taken = &Tunnel{s: s, h: h}
	return s.taken, nil
}

// takenLocked reports whether the stream is a tunnel that isn't closed.
func (s *Stream) takenLocked() bool {
	s.h.mu.AssertHeld()
	return s.taken != nil && s.taken.side != tunnelClosed
}

// endOfTunnelLocked returns why no more bytes of an extended CONNECT request will arrive, or nil if more may arrive.
func (s *Stream) endOfTunnelLocked() error {
	s.h.mu.AssertHeld()
	switch {
	case s.sending == sendingLost:
		return ErrReset
	case s.hasEndedLocked(), s.state.Over():
		return io.EOF
	}
	return nil
}

func (t *Tunnel) endLocked() error {
	t.h.mu.AssertHeld()
	if t.side == tunnelClosed {
		return net.ErrClosed
	}
	return t.s.endOfTunnelLocked()
}

// Read implements net.Conn.
func (t *Tunnel) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	return t.s.Read(p, &Reading{Until: &t.readUntil, end: t.endLocked})
}

// Write implements net.Conn.
func (t *Tunnel) Write(p []byte) (n int, err error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	s, h := t.s, t.h
	h.mu.Lock()
	defer h.mu.Unlock()
	for n < len(p) {
		switch {
		case t.side != tunnelOpen:
			return n, net.ErrClosed
		case s.sending == sendingLost:
			return n, ErrReset
		case s.passedLocked(t.writeUntil):
			return n, os.ErrDeadlineExceeded
		case len(s.unsent) >= s.aheadLocked(maxParkedUnsent, maxShutUnsent):
			s.awaitLocked(&s.writable, t.writeUntil)
			continue
		}
		k := min(s.aheadLocked(maxParkedUnsent, maxShutUnsent)-len(s.unsent), len(p)-n)
		s.setUnsentLocked(append(s.unsent[:len(s.unsent):len(s.unsent)], p[n:n+k]...), nil, false)
		n += k
		h.mayGoOnLocked(s)
		h.flushLocked(nil)
	}
	return n, nil
}

// CloseWrite ends the answer's body. Bytes from the client can still be read.
func (t *Tunnel) CloseWrite() error {
	s, h := t.s, t.h
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.side != tunnelOpen:
		return net.ErrClosed
	case s.sending == sendingLost:
		return ErrReset
	}
	race.Enter(&t.side, tunnelHalf)
	s.completeLocked()
	h.flushLocked(nil)
	return nil
}

// completeLocked ends the answer's body after its unsent bytes.
func (s *Stream) completeLocked() {
	s.h.mu.AssertHeld()
	race.Enter(&s.sending, sendingRest)
	wake(s.writable) // a Write that waits must fail
	s.h.mayGoOnLocked(s)
}

// Close implements net.Conn. Bytes that were written before are still sent, as over TCP.
func (t *Tunnel) Close() error {
	s, h := t.s, t.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.side == tunnelClosed {
		return net.ErrClosed
	}
	race.Enter(&t.side, tunnelClosed)
	s.body.Drop()
	h.chargeLocked(s, 0)
	switch {
	case s.state.Over():
	case s.sending == sendingDone:
		h.setAwaitsLocked(s, awaitsEnd)
	case s.sending != sendingRest:
		s.completeLocked()
	}
	if t.returned {
		h.handlerEndedLocked(s)
	}
	s.wakeLocked()
	h.flushLocked(nil)
	return nil
}

// LocalAddr implements net.Conn.
func (t *Tunnel) LocalAddr() net.Addr { return t.h.driver.LocalEnd() }

// RemoteAddr implements net.Conn.
func (t *Tunnel) RemoteAddr() net.Addr { return t.h.driver.RemoteEnd() }

// SetDeadline implements net.Conn.
func (t *Tunnel) SetDeadline(until time.Time) error {
	return t.setDeadlines(until, &t.readUntil, &t.writeUntil)
}

// SetReadDeadline implements net.Conn.
func (t *Tunnel) SetReadDeadline(until time.Time) error {
	return t.setDeadlines(until, &t.readUntil)
}

// SetWriteDeadline implements net.Conn.
func (t *Tunnel) SetWriteDeadline(until time.Time) error {
	return t.setDeadlines(until, &t.writeUntil)
}

func (t *Tunnel) setDeadlines(until time.Time, deadlines ...*clock.Time) error {
	at := t.h.shared.Clock.At(until)
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	for _, deadline := range deadlines {
		*deadline = at
	}
	t.s.wakeLocked()
	return nil
}
