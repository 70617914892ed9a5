package http2conn

import (
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file implements the life cycle of streams, from the request until the answer is complete and the handler has returned.

// listLocked makes a stream known to goroutines other than the owner. It does nothing if the stream has ended: the handler's
// time-out may have answered, or the client may have reset the stream.
func (h *Conn) listLocked(s *Stream) {
	h.mu.AssertHeld()
	if !s.listed && !s.state.Over() {
		s.listed = true
		s.send += http2.SendWindow(h.peer.InitialWindow)
		h.streams.Add(s.id, s)
	}
}

// windowLocked returns the client's window for the stream's answer. Until the stream is listed, s.send doesn't include the initial
// window.
func (s *Stream) windowLocked() http2.SendWindow {
	s.h.mu.AssertHeld()
	if s.listed {
		return s.send
	}
	return s.send + http2.SendWindow(s.h.peer.InitialWindow)
}

// endStreamLocked ends a stream early: neither side sends on it any more. The caller must notify the returned watcher after it has released
// mu.
func (h *Conn) endStreamLocked(s *Stream, state http2.State) (ended Watcher) {
	h.mu.AssertHeld()
	s.state = state
	race.Enter(&s.sending, sendingLost)
	h.overLocked(s)
	if s.parked != nil {
		s.parkedGoneLocked()
	}
	s.wakeLocked()
	ended, s.watcher = s.watcher, nil
	return ended
}

// breakOffLocked resets a stream. The caller must notify the returned watcher, as after endStreamLocked.
func (h *Conn) breakOffLocked(s *Stream, code http2.ErrCode) (ended Watcher) {
	h.mu.AssertHeld()
	h.queue = http2.AppendReset(h.queue, s.id, code)
	h.ids.Reset(s.id)
	return h.endStreamLocked(s, http2.Reset)
}

// handlerEndedLocked records that a stream's handler, or the function of a parked stream, has ended.
func (h *Conn) handlerEndedLocked(s *Stream) {
	h.mu.AssertHeld()
	s.returnedLocked()
	h.chargeLocked(s, 0)
	if s.listed || s.lent { // a BodyReader may still read
		s.body.Drop()
	}
	s.wakeLocked()
	if !s.state.Over() && len(s.unsent) > 0 {
		h.setAwaitsLocked(s, awaitsWindow)
	}
	s.beginRestLocked()
}

// returnedLocked records that the handler has returned or has completed its answer. From then on the stream counts against MaxStreams only
// until it has ended. returnedLocked must be called before the end of the answer can reach the client, which may then open another stream.
func (s *Stream) returnedLocked() {
	s.h.mu.AssertHeld()
	if s.running {
		if s.running = false; s.state.Over() {
			s.h.freePlaceLocked()
		}
	}
}

// freePlaceLocked records that a stream that has ended doesn't count against MaxStreams any more.
func (h *Conn) freePlaceLocked() {
	h.mu.AssertHeld()
	h.counts.Leave()
	h.used = h.shared.Clock.Now()
	if h.wakeEmpty && h.counts.Streams() == 0 {
		h.wakeEmpty = false
		go h.WakeOwner() // WakeOwner takes locks that come before mu
	}
}

// sentLocked records that the answer's end is in the queue.
func (h *Conn) sentLocked(s *Stream) {
	h.mu.AssertHeld()
	s.state = s.state.Step(http2.SendDataEnd).Next
	race.Enter(&s.sending, sendingDone)
	h.earned.Answer(int(h.peer.InitialWindow) - int(s.windowLocked()))
	switch {
	case s.state.Over():
		h.overLocked(s)
	case s.takenLocked():
		// The program reads the rest of the request until it calls Close.
	default:
		h.setAwaitsLocked(s, awaitsEnd)
		s.beginRestLocked()
	}
}

// isRestLocked reports whether nothing reads the rest of the request: the answer is complete, and the handler has returned.
func (s *Stream) isRestLocked() bool {
	s.h.mu.AssertHeld()
	return s.awaits == awaitsEnd && !s.running && s.taken == nil && s.parked == nil
}

// beginRestLocked begins to discard the rest of a request, unless something still reads it: see isRestLocked.
func (s *Stream) beginRestLocked() {
	s.h.mu.AssertHeld()
	if s.isRestLocked() {
		s.readUntil = s.awaitsSince.Add(longestRestTime)
		s.recv.Recount()
		s.takeRestLocked()
	}
}

// takeRestLocked credits the discarded bytes to the client's window, and gives more time to a client that goes on sending. Some clients read
// their answer only when they have sent everything, as Java's did until version 21.
func (s *Stream) takeRestLocked() {
	s.h.mu.AssertHeld()
	h := s.h
	if s.recv.Drained() >= maxRest {
		return
	}
	credit := s.recv.Drain(s.recv.Undrained(), s.recv.Size())
	if credit == 0 {
		return
	}
	h.queue = http2.AppendWindowUpdate(h.queue, s.id, credit)
	if now := h.shared.Clock.Now(); now < s.readUntil && h.life == lifeServing {
		s.awaitsSince = now
	}
}

// receivedLocked records that the request was received completely.
func (h *Conn) receivedLocked(s *Stream) {
	h.mu.AssertHeld()
	if s.state = s.state.Step(http2.ReceiveDataEnd).Next; s.state.Over() {
		h.overLocked(s)
	}
	s.wakeLocked()
}

// overLocked removes a stream that has ended. The stream counts against MaxStreams until its handler has returned.
func (h *Conn) overLocked(s *Stream) {
	h.mu.AssertHeld()
	h.setAwaitsLocked(s, awaitsNothing)
	h.grown -= max(0, s.recv.Size()-firstWindow)
	s.recv = http2.ReceiveWindow{}
	if s.listed {
		s.dropUnsentLocked()
		s.tail = nil
		h.schedule.Remove(&s.sender)
		s.listed = false
		h.streams.Remove(s.id)
	}
	if !s.running {
		h.chargeLocked(s, 0)
		h.freePlaceLocked()
	}
}
