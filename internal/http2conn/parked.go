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
// the request's body. By extended CONNECT, Read returns io.EOF at the end of the request. Other requests have ended before the stream was
// parked: then Read returns io.EOF when the client has gone.
//
// While nothing happens no goroutine has the stream. It rests, and the goroutine that notices an event starts another one that serves it
// (wakeParkedLocked). The outbox keeps the bytes that the client's window doesn't allow yet; frameLocked notices when the stream has room
// for more.
type StreamConn Stream

var _ net.Conn = (*StreamConn)(nil)

var _ outbox.Socket = (*StreamConn)(nil)

// maxParkedUnsent is how many bytes may wait in a parked stream for the client's window. More waits in its outbox.
const maxParkedUnsent = 16 << 10

// Parked is the owner of a parked stream's outbox.
type Parked interface {
	outbox.Owner
	// Serve serves the stream, on a goroutine of its own, until it rests or ends.
	Serve()
}

// Park parks the stream. out is its outbox. Until EndHandler the handler's goroutine has the stream.
func (s *Stream) Park(out *outbox.Outbox) error {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.sending == sendingLost {
		return ErrReset
	}
	h.listLocked(s)
	s.parked, s.readUntil = out, 0
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

// wakeParkedLocked wakes the parked streams that rest: their functions learn that the server shuts down.
func (h *Conn) wakeParkedLocked() {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		if s.parked != nil && s.phase == parkResting {
			s.wakeParkedLocked()
		}
	}
}

// parkedGoneLocked records that the client of a parked stream can't be reached any more: writes fail.
func (s *Stream) parkedGoneLocked() {
	s.h.mu.AssertHeld()
	switch s.phase {
	case parkBusy, parkAgain, parkClosed:
		go s.parked.Fail(net.ErrClosed) // its lock comes before mu, and the function may be waiting in Write
	case parkResting, parkSending:
		// the goroutine that serves the stream fails its outbox
	}
}

// Rest leaves the stream to the goroutine that notices the next event. sends says that the stream waits only until its outbox has sent
// everything. Rest reports false if there is an event already.
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

// State reports whether the stream was closed, whether its client is gone, and whether there is something to read, or the end of it.
func (c *StreamConn) State() (closed, gone, came bool) {
	s := (*Stream)(c)
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.phase >= parkClosed, s.sending == sendingLost, s.readableLocked()
}

// readableLocked reports whether there is something for the reader of a parked stream.
func (s *Stream) readableLocked() bool {
	s.h.mu.AssertHeld()
	return s.body.Len() > 0 || s.sending == sendingLost || s.Extended && s.endOfTunnelLocked() != nil
}

// restsLocked reports whether the stream is parked and no goroutine has it.
func (s *Stream) restsLocked() bool {
	s.h.mu.AssertHeld()
	return s.phase == parkResting || s.phase == parkSending
}

// EndParked ends a parked stream whose outbox has failed. If all of the body was sent (whole), EndParked completes the answer; otherwise it
// resets the stream.
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

// resetParkedLocked resets a parked stream, unless the answer's body has ended. By extended CONNECT there is no body that could be taken for
// a whole one, so the stream ends as a closed connection of TCP does.
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

// WriteNow implements outbox.Socket. It leaves as many bytes to the connection as the windows allow, and keeps a copy of a few more.
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

// If no other content waits for the client's windows, sendNowLocked frames as much of b as they allow. Otherwise it keeps a copy of as much
// of b as there is room for. It returns how many bytes it has framed or kept.
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

// roomLocked records that less of a stream's answer waits than before.
func (s *Stream) roomLocked() {
	s.h.mu.AssertHeld()
	wake(s.writable)
	if s.starved && s.parked != nil && !s.feeding {
		s.starving, s.h.starving, s.feeding = s.h.starving, s, true
	}
	s.starved = false
}

// feedLocked makes outboxes give more bytes to the streams that have sent all they had got. mu isn't held meanwhile.
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
			s.wakeParkedLocked() // the end of the stream may wait for this
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

// LeaveTurn implements outbox.Socket. The caller waits until the client has taken the caller's bytes in the queue.
func (c *StreamConn) LeaveTurn() { c.h.Flush() }

// Buffered implements outbox.Socket. It reports false: the bytes wait for the client's windows, and not in the system's buffer.
func (c *StreamConn) Buffered() (n int, ok bool) { return 0, false }

// WakeOwner implements outbox.Socket.
func (c *StreamConn) WakeOwner() { c.Wake() }

// Read is net.Conn's.
func (c *StreamConn) Read(p []byte) (int, error) {
	s := (*Stream)(c)
	return s.Read(p, &Reading{Until: &s.readUntil, end: s.endOfParkedLocked})
}

// endOfParkedLocked returns why nothing more is read from a parked stream, nil if something may come. Unless it is by extended CONNECT, its
// request has ended before.
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

// Write is net.Conn's. The stream's outbox is written to instead.
func (c *StreamConn) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close is net.Conn's: it resets the stream, unless the answer's body has ended.
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

// LocalAddr is net.Conn's.
func (c *StreamConn) LocalAddr() net.Addr { return c.h.driver.LocalEnd() }

// RemoteAddr is net.Conn's.
func (c *StreamConn) RemoteAddr() net.Addr { return c.h.driver.RemoteEnd() }

// SetDeadline is net.Conn's.
func (c *StreamConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline is net.Conn's.
func (c *StreamConn) SetReadDeadline(t time.Time) error {
	s := (*Stream)(c)
	s.SetReadDeadline(s.h.shared.Clock.At(t))
	return nil
}

// SetWriteDeadline is net.Conn's. The deadline for writes is the outbox's.
func (c *StreamConn) SetWriteDeadline(time.Time) error { return nil }
