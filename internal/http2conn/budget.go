package http2conn

import (
	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/http2"
)

// This file says which memory of HTTP/2 counts against Server.MaxBufferedBodies and Server.MaxBufferedAnswers: bodies of requests that wait
// for their handlers, and answers that wait for their clients without handlers. Package budget keeps the counts.
//
// Bodies that have arrived by HTTP/2 wait for their handlers in memory. The window of a stream bounds one body, but a client may have many
// streams and connections. A body without room is thrown away, and its bytes are credited to the connection's window. So no body that is
// refused holds up a sibling, and a handler that waits for its body never waits for other bodies to be read.

// mayBufferLocked reports whether n more bytes of a body have room.
func (h *Conn) mayBufferLocked(n int) bool {
	h.mu.AssertHeld()
	return h.shared.Bodies.MayQueue(h.bodies, n)
}

// chargeLocked records how many bytes the buffer of a stream's body takes now.
func (h *Conn) chargeLocked(s *Stream, size int) {
	h.mu.AssertHeld()
	if delta := int64(size) - int64(s.charged); delta != 0 {
		s.charged = int32(size)
		h.shared.Bodies.Queue(h.bodies, delta)
	}
}

// keepsUpLocked reports whether n more bytes of a stream's body have room in any case: a goroutine waits for them, or the handler reads the
// body and isn't far behind.
func (s *Stream) keepsUpLocked(n int) bool {
	s.h.mu.AssertHeld()
	return s.reader != readerAway || s.restsLocked() || s.hasRead && s.body.Len()+n <= s.h.shared.AwaitedBody
}

// wantsBodyLocked reports whether bytes of the body that arrive may still be read.
func (s *Stream) wantsBodyLocked() bool {
	s.h.mu.AssertHeld()
	return s.cut == bodyGoesOn && (s.running || s.awaits == awaitsBody) && (s.taken == nil || s.takenLocked())
}

// lacksRoomLocked reports whether the content of a DATA frame has no room unless the body of a silent client is cut off.
func (h *Conn) lacksRoomLocked(f *http2.Frame) bool {
	h.mu.AssertHeld()
	n := len(f.Payload)
	if !h.shared.Bodies.IsFull(n) {
		return false
	}
	s := h.streams.Find(f.Stream)
	return s != nil && s.wantsBodyLocked() && !s.keepsUpLocked(n)
}

// keepLocked keeps a piece of a request's body for its handler. It reports false if there is no room for it.
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

// QueuedBody returns how many bytes of the body wait for the handler, and count against the budget.
func (s *Stream) QueuedBody() int64 {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return int64(s.charged)
}

// OverrunBody throws the body away, and all of it that still arrives, because there is no room for it. It reports false if that has begun
// before.
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

// CutBody implements budget.Silent: the read that waits for the body ends, since the client is late.
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

// overrunLocked ends a body for which there is no room: by a 503 if its handler runs, and otherwise in a way that lets the client try again.
func (h *Conn) overrunLocked(s *Stream) (ended Watcher) {
	h.mu.AssertHeld()
	h.shared.Counts.Overloads.Add(1)
	h.shared.Counts.RefusedBodies.Add(1)
	go h.driver.BodyRefused() // not here: the connection and the logger may be the user's
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

// mayHoldLocked reports whether n more bytes of answers on the connection have room.
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
	}
	return int64(len(s.unsent))
}

// setUnsentLocked sets the bytes that wait for a window, and the buffer that holds them. borrowed says that they lie in the buffer of a
// handler that waits.
func (s *Stream) setUnsentLocked(b []byte, buffer *unsentBuffer, borrowed bool) {
	s.h.mu.AssertHeld()
	before := s.unsentCostLocked()
	if buffer != s.buffer {
		s.h.buffered = buffer != nil
	}
	s.unsent, s.buffer, s.borrowed = b, buffer, borrowed
	if n := s.unsentCostLocked() - before; n != 0 {
		s.h.shared.Answers.Add(n)
	}
}

// aheadLocked returns how many bytes of a streamed answer may wait without the handler: as many as the client's windows let through, but at
// least low and at most high. So a handler produces little ahead of a closed window.
func (s *Stream) aheadLocked(high, low int) int {
	s.h.mu.AssertHeld()
	return min(high, max(int(min(s.h.sendWindow, s.send)), low))
}

// keepsLocked is aheadLocked for a stream whose handler can wait instead: it returns no more bytes than there is room for.
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

// HasRoom reports whether a whole answer of that size has room, or nobody wants it any more.
func (s *Stream) HasRoom(size int) bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.state.Over() || s.hasRoomLocked(size)
}

// hasRoomLocked reports whether a whole answer of that size has room. An answer that the client's windows let through at once always has
// room if no other content waits, so there is at most one such answer for each connection.
func (s *Stream) hasRoomLocked(size int) bool {
	s.h.mu.AssertHeld()
	h := s.h
	if h.schedule.Empty() && len(h.queue)+h.Out.Size() < maxFilled && size <= int(min(h.sendWindow, s.windowLocked())) {
		return true
	}
	return h.mayHoldLocked(size)
}

// openLocked returns how many more bytes of content the client's windows let through; 0 if they are closed.
func (s *Stream) openLocked() int {
	s.h.mu.AssertHeld()
	return max(0, int(min(s.h.sendWindow, s.windowLocked()))-len(s.unsent))
}

// windowOpenedLocked wakes the writers that wait for the connection's window, which was closed.
func (h *Conn) windowOpenedLocked() {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		if s.starved {
			s.roomLocked()
		}
	}
}
