package http2conn

import (
	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/http2"
)

// This file determines which memory of HTTP/2 counts against Server.MaxBufferedBodies and Server.MaxBufferedAnswers: request bodies that
// their handlers haven't read, and answers that wait for their clients after their handlers have returned or gone on. Package budget keeps
// the counts.
//
// Bodies that arrive over HTTP/2 wait for their handlers in memory. The window of a stream bounds one body, but a client may have many
// streams and connections. If there is no room for a body, the body is discarded, and its bytes are credited to the connection's window. So
// a refused body doesn't hold up the connection's other streams, and a handler that waits for its body never depends on other bodies being
// read.

// mayBufferLocked reports whether there is room for n more bytes of a body.
func (h *Conn) mayBufferLocked(n int) bool {
	h.mu.AssertHeld()
	return h.shared.Bodies.MayQueue(h.bodies, n)
}

// chargeLocked charges the budget for the buffer of a stream's body, which now has the given size.
func (h *Conn) chargeLocked(s *Stream, size int) {
	h.mu.AssertHeld()
	if delta := int64(size) - int64(s.charged); delta != 0 {
		s.charged = int32(size)
		h.shared.Bodies.Queue(h.bodies, delta)
	}
}

// keepsUpLocked reports whether n more bytes of a stream's body are accepted even if the budget is full: a goroutine waits for them, or will
// be started for them, or the handler reads the body and isn't far behind.
func (s *Stream) keepsUpLocked(n int) bool {
	s.h.mu.AssertHeld()
	return s.reader != readerAway || s.restsLocked() || s.hasRead && s.body.Len()+n <= s.h.shared.AwaitedBody
}

// wantsBodyLocked reports whether a handler or a tunnel may still read arriving bytes of the body.
func (s *Stream) wantsBodyLocked() bool {
	s.h.mu.AssertHeld()
	return s.cut == bodyGoesOn && (s.running || s.awaits == awaitsBody) && (s.taken == nil || s.takenLocked())
}

// lacksRoomLocked reports whether the body of a silent client should be cut off, to make room for the content of a DATA frame.
func (h *Conn) lacksRoomLocked(f *http2.Frame) bool {
	h.mu.AssertHeld()
	n := len(f.Payload)
	if !h.shared.Bodies.IsFull(n) {
		return false
	}
	s := h.streams.Find(f.Stream)
	return s != nil && s.wantsBodyLocked() && !s.keepsUpLocked(n)
}

// keepLocked stores a part of a request's body for its handler. It returns false if there is no room for p.
func (h *Conn) keepLocked(s *Stream, p []byte) bool {
	h.mu.AssertHeld()
	if len(p) == 0 || !s.wantsBodyLocked() {
		return true
	}
	if !h.mayBufferLocked(len(p)) && !s.keepsUpLocked(len(p)) {
		return false
	}
	s.body.Append(p)
	h.chargeLocked(s, s.body.Size())
	return true
}

// QueuedBody returns how many bytes the unread body counts against the budget.
func (s *Stream) QueuedBody() int64 {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return int64(s.charged)
}

// OverrunBody discards the body because there is no room for it, both what was received and what will arrive. It returns false if the body
// is being discarded already.
func (s *Stream) OverrunBody() bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.cut == bodyNoRoom {
		return false
	}
	s.cut = bodyNoRoom
	s.body.Drop()
	s.h.chargeLocked(s, 0)
	return true
}

// CutBody implements budget.Silent. It ends the read that waits for the body, as if the client were late, so that another body has room.
func (s *Stream) CutBody(room *budget.Room) bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.reader == readerAway || !s.mayComeLocked() || s.fills && s.filling.n > 0 {
		return false
	}
	s.h.shared.Bodies.Pass(room)
	s.endLateLocked()
	s.wakeLocked()
	return true
}

// overrunLocked ends a body for which there is no room. If the handler runs, its read fails, which leads to a 503. Otherwise the stream is
// reset. If the handler hasn't begun, the error code tells the client that it may try again.
func (h *Conn) overrunLocked(s *Stream) (ended Watcher) {
	h.mu.AssertHeld()
	h.shared.Counts.Overloads.Add(1)
	h.shared.Counts.RefusedBodies.Add(1)
	go h.driver.BodyRefused() // on another goroutine, since mu is held: BodyRefused uses the net.Conn and the logger, which may run user code
	if s.running && s.parked == nil && s.taken == nil {
		s.cut = bodyNoRoom
		s.body.Drop()
		h.chargeLocked(s, 0)
		s.wakeLocked()
		return nil
	}
	code := http2.RefusedStream
	if s.parked != nil || s.taken != nil {
		code = http2.EnhanceYourCalm
	}
	return h.breakOffLocked(s, code)
}

// mayHoldLocked reports whether there is room for n more bytes of the connection's answers.
func (h *Conn) mayHoldLocked(n int) bool {
	h.mu.AssertHeld()
	return h.shared.Answers.MayHold(n, h.holdsLocked)
}

// holdsLocked returns how many bytes of answers wait on the connection.
func (h *Conn) holdsLocked() (n int64) {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		n += s.unsentCostLocked()
	}
	return n
}

// unsentCostLocked returns how much of the budget the stream's unsent bytes use.
func (s *Stream) unsentCostLocked() int64 {
	s.h.mu.AssertHeld()
	switch {
	case s.borrowed:
		return 0
	case s.buffer != nil:
		return int64(len(s.buffer))
	case len(s.unsent) > 0 && s.whole > 0:
		return int64(s.whole)
	}
	return int64(len(s.unsent))
}

// setUnsentLocked sets the bytes that wait for a window, and the buffer that holds them. borrowed says that b is part of the buffer of a
// handler that waits in Write.
func (s *Stream) setUnsentLocked(b []byte, buffer *unsentBuffer, borrowed bool) {
	s.h.mu.AssertHeld()
	before := s.unsentCostLocked()
	if buffer != s.buffer {
		s.h.buffered = buffer != nil
	}
	if s.unsent, s.buffer, s.borrowed = b, buffer, borrowed; len(b) == 0 {
		s.whole = 0
	}
	if n := s.unsentCostLocked() - before; n != 0 {
		s.h.shared.Answers.Add(n)
	}
}

// aheadLocked returns how many bytes of a streamed answer may wait while its handler goes on: as many as the client's windows allow, limited to
// the range from low to high. So a handler doesn't run far ahead of a closed window.
func (s *Stream) aheadLocked(high, low int) int {
	s.h.mu.AssertHeld()
	return min(high, max(int(min(s.h.sendWindow, s.send)), low))
}

// keepsLocked is like aheadLocked, but returns no more bytes than there is room for in the budget. It is for streams whose handlers can wait
// in Write.
func (s *Stream) keepsLocked() int {
	s.h.mu.AssertHeld()
	n := s.aheadLocked(maxStreamUnsent, maxShutUnsent)
	if s.buffer == nil && s.h.buffered {
		n = min(n, maxQueuedUnsent)
	}
	switch {
	case n <= len(s.unsent) && !s.borrowed:
		return n
	case n > maxSmallUnsent && (s.buffer != nil || s.h.mayHoldLocked(maxStreamUnsent)):
		return n
	case s.h.mayHoldLocked(min(n, maxSmallUnsent)):
		return min(n, maxSmallUnsent)
	}
	return 0
}

// HasRoom reports whether there is room for a whole answer of the given size. It also returns true if the stream has ended, since the answer
// is dropped then.
func (s *Stream) HasRoom(size int) bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.state.Over() || s.hasRoomLocked(size)
}

// hasRoomLocked reports whether there is room for a whole answer of the given size. An answer that the client's windows allow at once needs
// no room in the budget if no other content waits. At most one answer of each connection is such an exception.
func (s *Stream) hasRoomLocked(size int) bool {
	s.h.mu.AssertHeld()
	h := s.h
	if h.schedule.Empty() && len(h.queue)+h.Out.Size() < maxFilled && size <= int(min(h.sendWindow, s.windowLocked())) {
		return true
	}
	return h.mayHoldLocked(size)
}

// openLocked returns how many more bytes of content the client's windows allow; 0 if they are closed.
func (s *Stream) openLocked() int {
	s.h.mu.AssertHeld()
	return max(0, int(min(s.h.sendWindow, s.windowLocked()))-len(s.unsent))
}

// windowOpenedLocked wakes the writers that wait for the connection's window, which has just opened.
func (h *Conn) windowOpenedLocked() {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		if s.starved {
			s.roomLocked()
		}
	}
}
