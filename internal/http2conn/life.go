package http2conn

import (
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file has the lives of the streams of a connection of HTTP/2: from the request to the end of its answer, and of its handler.

// listLocked makes a stream known to goroutines other than the owner, unless it is over: its time-out may have answered, or its client has
// reset it.
func (h *Conn) listLocked(s *Stream) {
	h.mu.AssertHeld()
	if !s.listed && !s.state.Over() {
		s.listed = true
		s.send += http2.SendWindow(h.peer.InitialWindow)
		h.streams.Add(s.id, s)
	}
}

// windowLocked returns the client's window for the stream's answer. Until the stream is listed, send is relative to the window of a new
// stream.
func (s *Stream) windowLocked() http2.SendWindow {
	s.h.mu.AssertHeld()
	if s.listed {
		return s.send
	}
	return s.send + http2.SendWindow(s.h.peer.InitialWindow)
}

// endStreamLocked ends a stream before its time: neither side sends on it any more. The caller tells the watcher, without mu.
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

// breakOffLocked resets a stream: see endStreamLocked.
func (h *Conn) breakOffLocked(s *Stream, code http2.ErrCode) (ended Watcher) {
	h.mu.AssertHeld()
	h.queue = http2.AppendReset(h.queue, s.id, code)
	h.ids.Reset(s.id)
	return h.endStreamLocked(s, http2.Reset)
}

// handlerEndedLocked records that a stream has no handler any more.
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

// returnedLocked records that the handler has returned: from now on its stream keeps its place only until the stream is over. That must be
// known before the answer's end can reach the client, which may open another stream then.
func (s *Stream) returnedLocked() {
	s.h.mu.AssertHeld()
	if s.running {
		if s.running = false; s.state.Over() {
			s.h.freePlaceLocked()
		}
	}
}

// freePlaceLocked gives back the place of a stream that has ended.
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
		// The rest of the request is read until Close.
	default:
		h.setAwaitsLocked(s, awaitsEnd)
		s.beginRestLocked()
	}
}

// isRestLocked reports whether nobody reads the rest of the request: the answer is complete, and the handler has returned.
func (s *Stream) isRestLocked() bool {
	s.h.mu.AssertHeld()
	return s.awaits == awaitsEnd && !s.running && s.taken == nil && s.parked == nil
}

// beginRestLocked begins to discard the rest of a request, if nobody will read it.
func (s *Stream) beginRestLocked() {
	s.h.mu.AssertHeld()
	if s.isRestLocked() {
		s.readUntil = s.awaitsSince.Add(longestRestTime)
		s.recv.Recount()
		s.takeRestLocked()
	}
}

// takeRestLocked credits the client's window with the discarded bytes, and gives more time to a client that goes on sending. Some clients
// look at their answer only when they have sent everything, as Java's did until version 21.
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

// receivedLocked records that the request has come as a whole.
func (h *Conn) receivedLocked(s *Stream) {
	h.mu.AssertHeld()
	if s.state = s.state.Step(http2.ReceiveDataEnd).Next; s.state.Over() {
		h.overLocked(s)
	}
	s.wakeLocked()
}

// overLocked forgets a stream that is over. It keeps its place until its handler has returned.
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
