package filo

import (
	"github.com/filohttp/filo/internal/http2"
)

// This file bounds the memory of request bodies that have come by HTTP/2 and wait for their handlers. The window of each stream bounds one
// body, but a client may have many streams and connections. So they count against the server's bodyBudget.
//
// What has no room is thrown away, and its windows of the connection are returned. So nothing that is refused holds up a sibling, and a
// handler that waits for its body never waits for other bodies to be read.

// bodyShare is which part of Server.MaxBufferedBodies one client may use once half of it is used.
const bodyShare = 32

// mayBufferLocked reports whether n more bytes of a body have room.
func (h *http2Conn) mayBufferLocked(n int) bool {
	h.mu.AssertHeld()
	budget := &h.conn.server.bodies
	limit := budget.limit
	if limit < 0 {
		return true
	}
	used := budget.used.Load() + int64(n)
	return used <= limit/2 || used <= limit && h.bodies.Load()+int64(n) <= limit/bodyShare
}

// chargeLocked takes note that the buffer of a stream's body takes so many bytes now.
func (h *http2Conn) chargeLocked(s *http2Stream, size int) {
	h.mu.AssertHeld()
	if delta := int64(size) - int64(s.charged); delta != 0 {
		s.charged = int32(size)
		h.bodies.Add(delta)
		h.conn.server.bodies.used.Add(delta)
	}
}

// keepsUpLocked reports whether n more bytes of a stream's body have room in any case: a goroutine waits for them, or the handler reads the
// body and isn't far behind.
func (s *http2Stream) keepsUpLocked(n int) bool {
	s.h.mu.AssertHeld()
	return s.reading || s.phase == parkResting || s.hasRead && s.body.Len()+n <= maxAwaitedBody
}

// keepLocked keeps a piece of a request's body for its handler. It reports false if there is no room for it.
func (h *http2Conn) keepLocked(s *http2Stream, p []byte) bool {
	h.mu.AssertHeld()
	if len(p) == 0 || s.overrun || !s.running && s.awaits != awaitsBody || s.taken != nil && s.taken.ended {
		return true // nobody reads it
	}
	if !h.mayBufferLocked(len(p)) && !s.keepsUpLocked(len(p)) {
		return false
	}
	s.body.Append(p)
	h.chargeLocked(s, s.body.Size())
	return true
}

// overrunLocked ends a body for which there is no room: by a 503 if its handler runs, and otherwise in a way that lets the client try again.
func (h *http2Conn) overrunLocked(s *http2Stream) (ended *requestContext) {
	h.mu.AssertHeld()
	h.conn.server.counts.countFullBodies()
	if s.running && s.parked == nil && s.taken == nil {
		s.overrun = true
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
