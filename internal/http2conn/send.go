package http2conn

import (
	"runtime"
	"sync"

	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file sends the output of an HTTP/2 connection. Content moves from the streams into the queue, by priority and as far as the client's
// windows allow. From the queue it moves into the outbox.

// mayGoOnLocked schedules a stream that has unsent bytes and an open window, and wakes a handler that waits for the window. It queues the
// end of an answer at once, since that needs no window.
func (h *Conn) mayGoOnLocked(s *Stream) {
	h.mu.AssertHeld()
	if s.sending >= sendingDone {
		return
	}
	switch {
	case len(s.unsent) > 0 && s.send > 0:
		h.schedule.Add(&s.sender)
	case len(s.unsent) == 0 && s.sending == sendingRest:
		if s.tail == nil {
			h.queue = http2.AppendData(h.queue, s.id, nil, true)
		}
		h.endAnswerLocked(s)
	case len(s.unsent) == 0 && s.starved && s.send > 0:
		s.roomLocked()
	}
}

// sentDataLocked records that n bytes of content were framed. all says that no byte of the answer is left unsent.
func (s *Stream) sentDataLocked(n int, all bool) {
	s.h.mu.AssertHeld()
	h := s.h
	http2.Sent(&h.sendWindow, &s.send, n)
	h.earned.Data(n, all)
}

// endAnswerLocked ends an answer whose content is in the queue. It queues the trailer section, if there is one.
func (h *Conn) endAnswerLocked(s *Stream) {
	h.mu.AssertHeld()
	if s.tail != nil {
		start := len(h.queue)
		h.queue = s.beginBlock(http2.BeginHeaders(h.queue), nil)
		h.queue = http2.EndHeaders(append(h.queue, *s.tail...), start, s.id, true)
	}
	s.dropUnsentLocked()
	s.tail = nil
	h.schedule.Remove(&s.sender)
	h.sentLocked(s)
}

// pushLocked moves the output that the owner has rendered in this turn into the queue.
func (h *Conn) pushLocked(t *Turn) {
	h.mu.AssertHeld()
	h.queue = append(h.queue, t.out...)
	t.out = t.out[:0]
}

// frameLocked frames the content of streams into the queue.
func (h *Conn) frameLocked() {
	h.mu.AssertHeld()
	if h.schedule.Empty() {
		return
	}
	h.growQueueLocked()
	for !h.schedule.Empty() && len(h.queue) < fillSize {
		s := h.schedule.Next()
		n := http2.Sendable(h.sendWindow, s.send, len(s.unsent))
		if n == 0 {
			if h.sendWindow <= 0 {
				return // no stream can send: the connection's window is closed
			}
			h.schedule.Remove(&s.sender)
			continue
		}
		last := n == len(s.unsent) && s.sending == sendingRest
		h.queue = http2.AppendData(h.queue, s.id, s.unsent[:n], last && s.tail == nil)
		s.sentDataLocked(n, n == len(s.unsent))
		h.used = h.shared.Clock.Now()
		if s.awaits == awaitsWindow {
			s.writePace.Add(h.shared.Writing, n, h.used.Sub(s.awaitsSince))
			if !s.writePace.UsedUp(h.shared.Writing) { // once the client's time is used up, Look must find that the stream's deadline has passed
				s.awaitsSince = h.used
			}
		}
		s.setUnsentLocked(s.unsent[n:], s.buffer, s.borrowed)
		h.schedule.Sent(&s.sender)
		if len(s.unsent) == 0 || s.send <= 0 {
			h.schedule.Remove(&s.sender)
		}
		switch {
		case last:
			h.endAnswerLocked(s)
		case len(s.unsent) == 0:
			s.dropUnsentLocked()
			s.roomLocked()
		case len(s.unsent) <= lowStreamUnsent:
			s.roomLocked()
		}
	}
}

// growQueueLocked makes room in the queue for content.
func (h *Conn) growQueueLocked() {
	h.mu.AssertHeld()
	if cap(h.queue) < sendBufferSize {
		h.queue = append(newSendBuffer(), h.queue...)
	}
}

// sendBufferSize is the size of a buffer that frameLocked frames content into: fillSize, and room for control frames and for the last DATA
// frame, which may exceed fillSize.
const sendBufferSize = fillSize + 32<<10

var sendBuffers = sync.Pool{New: func() any { return new([sendBufferSize]byte) }}

func newSendBuffer() []byte { return sendBuffers.Get().(*[sendBufferSize]byte)[:0] }

// ReleaseBuffer returns a buffer to the pool, if it came from newSendBuffer.
func ReleaseBuffer(b []byte) {
	if cap(b) == sendBufferSize {
		sendBuffers.Put((*[sendBufferSize]byte)(b[:sendBufferSize]))
	}
}

// Flush sends as much of the queue and of the streams' content as the client takes. Any goroutine may call it.
func (h *Conn) Flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushLocked(nil)
}

// manyStreams is how many streams a connection must have for flushSoonLocked to combine answers that are ready at about the same time.
const manyStreams = 8

// hasManyLocked reports whether the connection has many streams.
func (h *Conn) hasManyLocked() bool {
	h.mu.AssertHeld()
	return h.counts.Streams() >= manyStreams
}

// FlushSoon is Flush for the goroutine of a handler that has returned.
func (h *Conn) FlushSoon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushSoonLocked()
}

// flushSoonLocked is Flush for the goroutine of a handler that doesn't run inline. On a connection with many streams, other handlers may be
// about to send as well. So the first goroutine yields to goroutines that are ready to run, and then sends all answers with one write.
func (h *Conn) flushSoonLocked() {
	h.mu.AssertHeld()
	if h.flushDue {
		return
	}
	if h.hasManyLocked() {
		h.flushDue = true
		h.mu.Unlock()
		runtime.Gosched()
		h.mu.Lock()
		h.flushDue = false
	}
	h.flushLocked(nil)
}

// FlushTurn is Flush for the owner. It also sends the bytes that the owner has rendered in the turn.
func (h *Conn) FlushTurn(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 && h.output == outputIdle {
		h.queue, t.out = t.out, nil
	} else {
		h.pushLocked(t)
	}
	spare := t.out
	t.out = nil // the outbox may keep the buffer
	if buffer := h.flushLocked(spare); cap(buffer) <= maxKeptOut {
		t.out = buffer
	}
}

// maxKeptOut is the capacity up to which the output buffer of a turn is kept for the next turn.
const maxKeptOut = 64 << 10

// flushLocked is Flush for a caller that holds mu. Only one goroutine at a time sends the queue, and it releases mu while it does so. It
// also sends the bytes that other goroutines append to the queue before it has finished. flushLocked uses spare as a buffer, and returns a
// buffer that the caller may use again.
func (h *Conn) flushLocked(spare []byte) (buffer []byte) {
	h.mu.AssertHeld()
	if h.output != outputIdle {
		return spare
	}
	race.Enter(&h.output, outputFlushing)
	for sent := 0; h.output != outputClosed; {
		h.feedLocked()
		if h.Out.Size() < maxFilled {
			h.frameLocked()
		}
		if len(h.queue) == 0 && h.starving == nil {
			break
		}
		b := h.queue
		h.queue = spare[:0]
		h.mu.Unlock()
		kept := h.driver.Send(b)
		h.mu.Lock()
		if spare = nil; !kept {
			spare = b[:0]
		}
		if sent += len(b); sent > maxFlush && h.Out.Size() < maxFilled && !h.schedule.Empty() && h.Out.PumpLater() {
			break // let other connections send first
		}
	}
	if len(h.queue) == 0 {
		if spare == nil {
			spare = h.queue
		} else {
			ReleaseBuffer(h.queue)
		}
		h.queue = nil
	}
	switch h.output {
	case outputFlushing:
		race.Enter(&h.output, outputIdle)
	case outputFinishing:
		race.Enter(&h.output, outputIdle)
		h.driver.Flushed()
	}
	if cap(spare) == sendBufferSize {
		ReleaseBuffer(spare)
		return nil
	}
	return spare
}

// maxFlush is how many bytes of the streams' content one call of flushLocked sends.
const maxFlush = 256 << 10

// IsCrowded reports whether so much output waits for the client that the server stops reading from it.
func (h *Conn) IsCrowded() bool { return h.Out.Size() >= MaxControl }

// IsFlushed reports whether no other goroutine is sending the queue. If it returns false, Driver.Flushed is called when that goroutine has
// finished.
func (h *Conn) IsFlushed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.output == outputIdle || h.output == outputClosed {
		return true
	}
	race.Enter(&h.output, outputFinishing)
	return false
}
