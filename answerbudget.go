package filo

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/pace"
)

// This file bounds the memory of answers that wait for their clients after their handlers have written them, by whatever protocol they go:
// see Server.MaxBufferedAnswers.

// DefaultMaxBufferedAnswers is the default of Server.MaxBufferedAnswers.
const DefaultMaxBufferedAnswers = 128 << 20

// errAnswersFull is the refusal of an answer for which there is no room.
var errAnswersFull = &HTTPError{Status: 503, Detail: "too many answers wait for their clients", Err: ErrBusy}

// answerBudget counts the bytes of all answers that wait for their clients without a handler.
type answerBudget struct {
	limit int64 // negative: none; immutable
	used  atomic.Int64
	// waiting is how many handlers wait for a window of HTTP/2. They take no room, since Concurrency bounds them.
	waiting atomic.Int64
}

// waiterCost is about how many bytes a handler that waits for a window holds, with its goroutine and its request.
const waiterCost = 32 << 10

// take takes n bytes, and reports false if they have no room.
func (b *answerBudget) take(n int64) bool {
	if used := b.used.Add(n); b.limit >= 0 && used > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// crowded reports whether so much waits that clients are given less time.
func (b *answerBudget) crowded() bool {
	return b.limit >= 0 && b.used.Load()+b.waiting.Load()*waiterCost > b.limit/2
}

const (
	// crowdedShare is which part of WriteTimeout a client has to open a window while the budget is crowded, but at least crowdedTime.
	crowdedShare = 10
	crowdedTime  = time.Second
)

// windowLimits returns how slowly a client may open its windows, as things are.
func (s *Server) windowLimits() pace.Limits {
	limits := s.config.writing
	if s.answers.crowded() {
		limits.Grace = s.crowdedGrace()
	}
	return limits
}

// crowdedGrace returns the grace of windowLimits while the budget is crowded.
func (s *Server) crowdedGrace() time.Duration {
	grace := s.config.writing.Grace
	return min(grace, max(grace/crowdedShare, crowdedTime))
}

// answerShare is which part of Server.MaxBufferedAnswers one connection of HTTP/2 may use once half of it is used.
const answerShare = 32

// mayHoldLocked reports whether n more bytes of answers on the connection have room.
func (h *http2Conn) mayHoldLocked(n int) bool {
	h.mu.AssertHeld()
	budget := &h.conn.server.answers
	if budget.limit < 0 {
		return true
	}
	used := budget.used.Load() + int64(n)
	return used <= budget.limit/2 || used <= budget.limit && h.holdsLocked()+int64(n) <= budget.limit/answerShare
}

// holdsLocked returns how many bytes of answers wait on the connection.
func (h *http2Conn) holdsLocked() (n int64) {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		n += s.unsentCostLocked()
	}
	return n
}

// unsentCostLocked returns how much of the budget the stream has.
func (s *http2Stream) unsentCostLocked() int64 {
	s.h.mu.AssertHeld()
	switch {
	case s.borrowed:
		return 0
	case s.buffer != nil:
		return int64(len(s.buffer))
	}
	return int64(len(s.unsent))
}

// setUnsentLocked changes what waits for a window, and the buffer that it is in. borrowed says that it is the buffer of a handler that waits.
func (s *http2Stream) setUnsentLocked(b []byte, buffer *unsentBuffer, borrowed bool) {
	s.h.mu.AssertHeld()
	before := s.unsentCostLocked()
	s.unsent, s.buffer, s.borrowed = b, buffer, borrowed
	if n := s.unsentCostLocked() - before; n != 0 {
		s.h.conn.server.answers.used.Add(n)
	}
}

// aheadLocked returns how many bytes of a streamed answer may wait without the handler: at most most, and, so that nothing is made ahead of
// a closed window, no more than the client's windows let through, or least.
func (s *http2Stream) aheadLocked(most, least int) int {
	s.h.mu.AssertHeld()
	return min(most, max(int(min(s.h.sendWindow, s.send)), least))
}

// keepsLocked returns aheadLocked for a stream whose handler can wait instead: as far as there is room.
func (s *http2Stream) keepsLocked() int {
	s.h.mu.AssertHeld()
	switch n := s.aheadLocked(maxStreamUnsent, maxShutUnsent); {
	case n <= len(s.unsent) && !s.borrowed:
		return n
	case n > maxSmallUnsent && (s.buffer != nil || s.h.mayHoldLocked(maxStreamUnsent)):
		return n
	case s.h.mayHoldLocked(min(n, maxSmallUnsent)):
		return min(n, maxSmallUnsent)
	}
	return 0
}

// hasRoomLocked reports whether a whole answer of that size has room. What the client's windows let through at once always has: that bounds it
// by one answer for each connection.
func (s *http2Stream) hasRoomLocked(size int) bool {
	s.h.mu.AssertHeld()
	h := s.h
	if h.schedule.Empty() && len(h.queue)+h.out.Size() < maxFilled && size <= int(min(h.sendWindow, s.windowLocked())) {
		return true
	}
	return h.mayHoldLocked(size)
}

// makeRoom decides what becomes of a whole answer whose handler has returned. If there is no room for it, the worker waits until the client has
// taken it, and keeps its place. That isn't for an answer that was made for this client alone: with a 503 its memory is free at once.
func (s *http2Stream) makeRoom(ctx *Ctx) ending {
	h, r := s.h, &ctx.Response
	size := r.size()
	if size == 0 || size <= maxInlineBody && !s.server.answers.crowded() || ctx.Request.isHead() || !http1.BodyAllowed(r.status) {
		return endingWhole
	}
	h.mu.Lock()
	room := s.state.Over() || s.hasRoomLocked(size)
	h.mu.Unlock()
	if room {
		return endingWhole
	}
	if r.source != bodyBuffer {
		switch err := s.leave(); {
		case err == ErrClientGone:
			return endingAborted
		case err == nil:
			length, _ := r.wholeLength(ctx)
			s.head(ctx, length)
			if s.data(r.bodyBytes(), true) != nil {
				return endingAborted
			}
			s.endStream(&r.Trailer)
			return endingStreamed
		}
	}
	s.server.refusedRequest(refusedUnsentAnswers, s.remote())
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.state.Over() {
		s.refuseLocked(errAnswersFull, r.refusalFields(errAnswersFull), false)
	}
	return endingStreamed
}

var _ windowWire = (*http2Stream)(nil)

// window implements windowWire.
func (s *http2Stream) window() int {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.openLocked()
}

// openLocked returns how many more bytes of content the client's windows let through; 0 if they are closed.
func (s *http2Stream) openLocked() int {
	s.h.mu.AssertHeld()
	return max(0, int(min(s.h.sendWindow, s.windowLocked()))-len(s.unsent))
}

// awaitWindow implements windowWire.
func (s *http2Stream) awaitWindow() (n int, err error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listLocked(s)
	err = s.awaitClientLocked(func() bool {
		n = s.openLocked()
		s.starved = n == 0
		return n > 0
	})
	s.starved = false
	if err == nil {
		err = s.reachedLocked()
	}
	return n, err
}

// windowOpenedLocked wakes the writers that wait for the connection's window, which was closed.
func (h *http2Conn) windowOpenedLocked() {
	h.mu.AssertHeld()
	for s := range h.streams.All {
		if s.starved {
			s.roomLocked()
		}
	}
}
