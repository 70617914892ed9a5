package http2conn

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/race"
)

// StreamConn is a parked stream as a net.Conn, and as the socket of its outbox: writes send the answer's body, and reads return the rest of
// the request's body. For an extended CONNECT request, Read returns io.EOF at the end of the request. Any other request has ended before its
// stream is parked: then Read returns io.EOF when the client is gone.
//
// While nothing happens, the stream rests: no goroutine serves it. The goroutine that notices an event starts a goroutine that serves the
// stream (wakeParkedLocked). The outbox keeps the bytes that the client's window doesn't allow yet; frameLocked notices when the stream can
// accept more of them.
type StreamConn Stream

var _ net.Conn = (*StreamConn)(nil)

var _ outbox.Socket = (*StreamConn)(nil)

// maxParkedUnsent is how many bytes a parked stream itself holds until the client's window allows them. Further bytes wait in its outbox.
const maxParkedUnsent = 16 << 10

// Parked is the owner of a parked stream's outbox.
type Parked interface {
	outbox.Owner
	// Serve serves the stream, on a goroutine of its own, until it rests or ends.
	Serve()
}

// Park parks the stream, and makes out its outbox. The handler's goroutine owns the stream until EndHandler.
func (s *Stream) Park(out *outbox.Outbox) error {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.sending == sendingLost {
		return ErrReset
	}
	h.listLocked(s)
	s.parked, s.readUntil = out, 0
	wake(s.readable) // a BodyReader that waits fails, since the stream's function reads the rest
	return nil
}

// wakeParkedLocked makes a goroutine serve a parked stream.
func (s *Stream) wakeParkedLocked() {
	s.h.mu.AssertHeld()
	switch s.phase {
	case parkBusy:
		race.Enter(&s.phase, parkAgain)
	case parkResting, parkSending:
		race.Enter(&s.phase, parkBusy)
		go s.parked.Owner().(Parked).Serve()
	}
}

// wakeParkedLocked wakes the parked streams that rest, so that their functions learn that the server is shutting down.
func (h *Conn) wakeParkedLocked() {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		if s.parked != nil && s.phase == parkResting {
			s.wakeParkedLocked()
		}
	}
}

// parkedGoneLocked makes writes to a parked stream fail, since its client can't be reached any more.
func (s *Stream) parkedGoneLocked() {
	s.h.mu.AssertHeld()
	switch s.phase {
	case parkBusy, parkAgain, parkClosed:
		go s.parked.Fail(net.ErrClosed) // on another goroutine, since the outbox's lock comes before mu; the program's function may be waiting in Write
	case parkResting, parkSending:
		// the goroutine that wakeLocked starts for the stream will fail the outbox
	}
}

// Rest ends the calling goroutine's ownership of the stream: the goroutine that notices the next event wakes the stream. sends says that the
// stream waits only until its outbox has sent everything. Rest returns false if there is an event already, and the caller must go on.
func (c *StreamConn) Rest(sends bool) (left bool) {
	s, h := (*Stream)(c), c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	next := parkResting
	switch {
	case s.phase == parkAgain:
		next = parkBusy
	case s.phase == parkClosed, !sends && (h.shared.Draining.Load() || s.readableLocked()):
		return false
	case sends:
		next = parkSending
	}
	race.Enter(&s.phase, next)
	return next != parkBusy
}

// Wake makes a goroutine serve the stream.
func (c *StreamConn) Wake() {
	s := (*Stream)(c)
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.wakeParkedLocked()
}

// State reports whether the stream was closed, whether its client is gone, and whether Read would return at once.
func (c *StreamConn) State() (closed, gone, came bool) {
	s := (*Stream)(c)
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.phase >= parkClosed, s.sending == sendingLost, s.readableLocked()
}

// readableLocked reports whether a Read of a parked stream would return at once.
func (s *Stream) readableLocked() bool {
	s.h.mu.AssertHeld()
	return s.body.Len() > 0 || s.sending == sendingLost || s.Extended && s.endOfTunnelLocked() != nil
}

// restsLocked reports whether the stream is parked and no goroutine owns it.
func (s *Stream) restsLocked() bool {
	s.h.mu.AssertHeld()
	return s.phase == parkResting || s.phase == parkSending
}

// EndParked ends a parked stream, after the caller has called Fail on its outbox. whole says that all of the body was sent before: then EndParked
// completes the answer, and otherwise it resets the stream.
func (c *StreamConn) EndParked(whole bool) {
	s, h := (*Stream)(c), c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	race.Enter(&s.phase, parkOver)
	if whole && s.sending < sendingRest {
		race.Enter(&s.sending, sendingRest)
		h.mayGoOnLocked(s)
	}
	s.resetParkedLocked()
	h.handlerEndedLocked(s)
	h.flushLocked(nil)
}

// resetParkedLocked resets a parked stream, unless the answer's body has ended. An extended CONNECT request has no body that the client
// could mistake for a complete one. So its stream ends like a closed TCP connection, after the bytes that wait.
func (s *Stream) resetParkedLocked() {
	s.h.mu.AssertHeld()
	h := s.h
	switch {
	case s.sending >= sendingRest:
	case s.Extended:
		s.completeLocked()
	default:
		h.breakOffLocked(s, http2.Cancel)
	}
}

// WriteNow implements outbox.Socket. It queues as many bytes as the windows allow, and keeps a copy of up to maxParkedUnsent more.
func (c *StreamConn) WriteNow(first, second []byte) (n int, err error) {
	s, h := (*Stream)(c), c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.sending == sendingLost || s.phase >= parkClosed {
		return 0, net.ErrClosed
	}
	n = s.sendNowLocked(first)
	if n == len(first) && len(second) > 0 {
		n += s.sendNowLocked(second)
	}
	s.starved = n == 0
	return n, nil
}

// sendNowLocked frames as much of b as the client's windows allow, if no other content waits for them. It then keeps a copy of as much of
// the rest as there is room for. It returns how many bytes it has framed or kept.
func (s *Stream) sendNowLocked(b []byte) (n int) {
	s.h.mu.AssertHeld()
	h := s.h
	if len(s.unsent) == 0 && h.schedule.Empty() && !h.IsCrowded() {
		for n < len(b) && len(h.queue) < fillSize {
			k := http2.Sendable(h.sendWindow, s.send, len(b)-n)
			if k == 0 {
				break
			}
			h.queue = http2.AppendData(h.queue, s.id, b[n:n+k], false)
			s.sentDataLocked(k, k == len(b)-n)
			n += k
		}
	}
	if room := min(s.aheadLocked(maxParkedUnsent, 0)-len(s.unsent), len(b)-n); room > 0 {
		s.setUnsentLocked(append(s.unsent, b[n:n+room]...), nil, false)
		n += room
		h.mayGoOnLocked(s)
	}
	return n
}

// roomLocked wakes the writer of a stream, since fewer bytes of its answer are unsent than before.
func (s *Stream) roomLocked() {
	s.h.mu.AssertHeld()
	wake(s.writable)
	if s.starved && s.parked != nil && !s.feeding {
		s.starving, s.h.starving, s.feeding = s.h.starving, s, true
	}
	s.starved = false
}

// feedLocked makes the outboxes of parked streams write more bytes, if these streams have room again. It releases mu while an outbox writes.
func (h *Conn) feedLocked() {
	h.mu.AssertHeld()
	for h.starving != nil {
		s := h.starving
		h.starving, s.starving, s.feeding = s.starving, nil, false
		h.mu.Unlock()
		s.parked.Pump()
		empty := s.parked.Empty()
		h.mu.Lock()
		if empty && s.phase != parkResting {
			s.wakeParkedLocked() // the stream may end once its outbox is empty
		}
	}
}

// PumpLater implements outbox.Socket.
func (c *StreamConn) PumpLater() {
	s := (*Stream)(c)
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.starved = true
	s.roomLocked()
}

// LeaveTurn implements outbox.Socket. It flushes the queue, since the caller is about to wait until the client has taken bytes that are in
// it.
func (c *StreamConn) LeaveTurn() { c.h.Flush() }

// Buffered implements outbox.Socket. It returns false, since the bytes wait for the client's windows, and not in the system's buffer.
func (c *StreamConn) Buffered() (n int, ok bool) { return 0, false }

// WakeOwner implements outbox.Socket.
func (c *StreamConn) WakeOwner() { c.Wake() }

// Read implements net.Conn.
func (c *StreamConn) Read(p []byte) (int, error) {
	s := (*Stream)(c)
	return s.Read(p, &Reading{Until: &s.readUntil, end: s.endOfParkedLocked})
}

// endOfParkedLocked returns why no more bytes of a parked stream can be read, or nil if more may arrive. Unless the request is an extended
// CONNECT, it has ended before the stream was parked.
func (s *Stream) endOfParkedLocked() error {
	s.h.mu.AssertHeld()
	switch err := s.endOfTunnelLocked(); {
	case s.Extended && err != nil:
		return err
	case s.sending == sendingLost, s.phase >= parkClosed:
		return io.EOF
	}
	return nil
}

func (s *Stream) passedLocked(until clock.Time) bool {
	s.h.mu.AssertHeld()
	return until != 0 && s.h.shared.Clock.Exact() >= until
}

// Write is part of net.Conn. It fails, since writes go to the stream's outbox.
func (c *StreamConn) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close implements net.Conn. It resets the stream, unless the answer's body has ended.
func (c *StreamConn) Close() error {
	s, h := (*Stream)(c), c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.phase >= parkClosed {
		return net.ErrClosed
	}
	s.resetParkedLocked()
	s.wakeLocked()
	race.Enter(&s.phase, parkClosed)
	h.flushLocked(nil)
	return nil
}

// LocalAddr implements net.Conn.
func (c *StreamConn) LocalAddr() net.Addr { return c.h.driver.LocalEnd() }

// RemoteAddr implements net.Conn.
func (c *StreamConn) RemoteAddr() net.Addr { return c.h.driver.RemoteEnd() }

// SetDeadline implements net.Conn. It sets the deadline for reads alone: see SetWriteDeadline.
func (c *StreamConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *StreamConn) SetReadDeadline(t time.Time) error {
	s := (*Stream)(c)
	s.SetReadDeadline(s.h.shared.Clock.At(t))
	return nil
}

// SetWriteDeadline is part of net.Conn. It does nothing, since the outbox has the deadline for writes.
func (c *StreamConn) SetWriteDeadline(time.Time) error { return nil }
