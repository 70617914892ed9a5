package http2conn

import (
	"errors"
	"os"
	"sync"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file sends streamed answers, while their handlers run.

// Writing says how a handler waits until the client takes more of the answer.
type Writing struct {
	Until *clock.Time // the deadline that the program has set, 0 for none
	// BeforeWait is called, without mu, before the first wait.
	BeforeWait func() error
	// Apart says that the handler doesn't run inline, so other handlers of the connection may be about to write as well.
	Apart bool
}

// Begin queues the head of a streamed answer. bare says that no content follows, and returned that the handler has returned. The client of a
// bare answer needn't wait for a handler that hasn't.
func (s *Stream) Begin(a *Answer, bare, returned bool) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.state.Over() {
		return
	}
	whole := bare && s.hasEndedLocked() // if the request hasn't ended, a BodyReader may still need the stream
	if whole && returned {
		s.returnedLocked()
	}
	h.queue = s.appendHead(h.queue, nil, a, whole)
	if whole {
		h.sentLocked(s)
	} else {
		race.Enter(&s.sending, sendingParts)
	}
}

// Write sends a part of a streamed answer, which may be empty. Without flush it may keep a copy of p, as far as there is room, and return
// before p is sent.
func (s *Stream) Write(p []byte, flush bool, w *Writing) error {
	h := s.h
	if until := *w.Until; until != 0 && h.shared.Clock.Exact() >= until {
		h.shared.Counts.Write.Add(1)
		return ErrLate
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 && !s.state.Over() {
		h.listLocked(s)
		if flush && s.frameNowLocked(p) {
			break
		}
		room := s.keepsLocked() - len(s.unsent)
		if len(s.unsent) == 0 && (room < len(p) || flush && !(w.Apart && len(p) <= maxGathered && h.hasManyLocked())) {
			return s.lendLocked(p, w)
		}
		if room <= 0 {
			if err := s.awaitRoomLocked(w); err != nil {
				return err
			}
			continue
		}
		n := min(room, len(p))
		s.keepLocked(p[:n])
		p = p[n:]
		h.mayGoOnLocked(s)
		if len(p) > 0 {
			h.flushLocked(nil)
		}
	}
	switch {
	case !flush || s.sending == sendingLost:
	case w.Apart:
		h.flushSoonLocked()
	default:
		h.flushLocked(nil)
	}
	return s.reachedLocked()
}

// maxGathered is the largest part of an answer that is copied in order to be sent together with the output of other streams.
const maxGathered = 4 << 10

// frameNowLocked frames a small part of an answer into the queue, if it can be sent at once: no other content waits, and the client's
// windows are open. Otherwise it returns false.
func (s *Stream) frameNowLocked(p []byte) bool {
	s.h.mu.AssertHeld()
	h := s.h
	if len(p) > min(maxGathered, s.openLocked()) || len(s.unsent) > 0 || !h.schedule.Empty() || len(h.queue) >= fillSize || h.Out.Size() >= maxFilled {
		return false
	}
	h.growQueueLocked()
	h.queue = http2.AppendData(h.queue, s.id, p, false)
	s.sentDataLocked(len(p), true)
	h.used = h.shared.Clock.Now()
	return true
}

// lendLocked is Write for a stream without unsent bytes. It frames the part that the client takes at once from p itself. It copies the rest
// as soon as the rest is small enough to wait without the handler.
func (s *Stream) lendLocked(p []byte, w *Writing) error {
	s.h.mu.AssertHeld()
	h := s.h
	s.setUnsentLocked(p[:len(p):len(p)], nil, true)
	h.mayGoOnLocked(s)
	h.flushLocked(nil)
	if len(s.unsent) > s.keepsLocked() {
		if err := s.awaitRoomLocked(w); err != nil {
			s.dropUnsentLocked()
			h.schedule.Remove(&s.sender)
			return err
		}
	}
	rest := s.unsent
	s.dropUnsentLocked()
	if !s.state.Over() {
		s.keepLocked(rest)
	}
	return s.reachedLocked()
}

// reachedLocked returns an error if the client can't be reached any more.
func (s *Stream) reachedLocked() error {
	s.h.mu.AssertHeld()
	switch {
	case s.sending != sendingLost:
		return nil
	case errors.Is(s.h.Out.Err(), os.ErrDeadlineExceeded):
		return ErrGivenUp
	}
	return ErrReset
}

// awaitRoomLocked waits until the answer has at most half as many unsent bytes as may wait while the handler goes on.
func (s *Stream) awaitRoomLocked(w *Writing) error {
	s.h.mu.AssertHeld()
	return s.awaitClientLocked(w, func() bool { return len(s.unsent) <= s.keepsLocked()/2 })
}

// awaitClientLocked waits until ready returns true, because the client has taken bytes or opened its windows.
func (s *Stream) awaitClientLocked(w *Writing, ready func() bool) error {
	s.h.mu.AssertHeld()
	h, shared := s.h, s.h.shared
	h.flushLocked(nil)
	if s.sending == sendingLost || ready() {
		return nil
	}
	h.mu.Unlock()
	err := w.BeforeWait()
	h.mu.Lock()
	if err != nil {
		return err
	}
	shared.Answers.Wait(1)
	defer shared.Answers.Wait(-1)
	// The coarse clock would be up to a tick behind, and each of many short waits would be charged for it.
	for start, before := shared.Clock.Exact(), len(s.unsent); s.sending != sendingLost && !ready(); {
		until := func() clock.Time {
			if own := *w.Until; own != 0 {
				return own
			}
			return s.windowDeadline(start)
		}
		// During the wait the budget may become crowded, which makes the deadline earlier.
		ok := s.awaitLocked(&s.writable, clock.Earlier(until(), shared.Clock.Exact().Deadline(budget.CrowdedGrace(shared.Writing.Grace))))
		now, moved := shared.Clock.Exact(), before-len(s.unsent)
		if !ok && moved == 0 {
			switch deadline := until(); {
			case deadline == 0 || now < deadline:
				continue
			case *w.Until != 0 || !s.isExcusedLocked(now):
				s.writePace.Add(shared.Writing, 0, now.Sub(start))
				shared.Counts.Write.Add(1)
				return ErrLate
			}
		} else {
			s.writePace.Add(shared.Writing, moved, now.Sub(start))
		}
		start, before = now, len(s.unsent)
	}
	return nil
}

// Finish completes a streamed answer. The trailer is nil for none.
func (s *Stream) Finish(trailer *field.List) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if s.sending >= sendingDone {
		return
	}
	h.listLocked(s)
	race.Enter(&s.sending, sendingRest)
	if trailer != nil {
		s.tail = newTail(trailer)
	}
	h.mayGoOnLocked(s)
}

// Window returns how many more bytes of content the client's windows allow; 0 if they are closed.
func (s *Stream) Window() int {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.openLocked()
}

// AwaitWindow waits until the client's windows are open, and returns how many bytes they allow. These bytes earn the client time, since by
// opening its windows it shows that it has taken as many: what is written next leaves nothing unsent whose later decrease could.
func (s *Stream) AwaitWindow(w *Writing) (n int, err error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listLocked(s)
	err = s.awaitClientLocked(w, func() bool {
		n = s.openLocked()
		s.starved = n == 0
		return n > 0
	})
	s.starved = false
	if err == nil {
		s.writePace.Add(h.shared.Writing, n, 0)
		err = s.reachedLocked()
	}
	return n, err
}

// unsentBuffer holds the unsent bytes of a streamed answer if they are more than maxSmallUnsent.
type unsentBuffer [maxStreamUnsent]byte

const maxSmallUnsent = 32 << 10

var unsentBuffers = sync.Pool{New: func() any { return new(unsentBuffer) }}

// keepLocked appends a copy of p to the unsent bytes. Afterwards at most maxStreamUnsent bytes are unsent. The bytes that frameLocked has framed
// are never read again, so keepLocked may overwrite them at the buffer's beginning.
func (s *Stream) keepLocked(p []byte) {
	s.h.mu.AssertHeld()
	unsent, buffer := s.unsent, s.buffer
	if n := len(unsent) + len(p); n > cap(unsent) && n > maxSmallUnsent {
		if buffer == nil {
			buffer = unsentBuffers.Get().(*unsentBuffer)
		}
		unsent = append(buffer[:0], unsent...)
	}
	s.setUnsentLocked(append(unsent, p...), buffer, false)
}

// dropUnsentLocked discards the unsent bytes, and returns their buffer to the pool.
func (s *Stream) dropUnsentLocked() {
	s.h.mu.AssertHeld()
	if buffer := s.buffer; buffer != nil {
		defer unsentBuffers.Put(buffer)
	}
	s.setUnsentLocked(nil, nil, false)
}
