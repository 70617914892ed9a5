package filo

import (
	"io"

	"github.com/filohttp/filo/internal/http2"
)

// This file has how a handler reads its request's body, and what the client may send of that.

// readBody implements wire.
func (s *http2Stream) readBody(b *body, p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.limit >= 0 && !b.chunked && b.received+b.remaining > b.limit:
		return 0, b.fail(errTooLarge)
	case s.worker.ctx.timedOut():
		return 0, b.fail(ErrHandlerTimeout)
	}
	n, err := s.receive(b, p)
	if n > 0 && !b.chunked && int64(n) >= b.remaining {
		// These are the last bytes of the announced length. More would make the request malformed, so its end is waited for.
		_, err = s.receive(b, make([]byte, 1))
	}
	switch {
	case err == io.EOF && n == 0:
		return 0, s.bodyEnded(b)
	case err != nil && err != io.EOF:
		return 0, b.fail(bodyError(err))
	}
	if err := b.took(n); err != nil {
		return 0, err
	}
	if b.done {
		s.takeTrailer()
	}
	return n, nil
}

// receive copies what has come of the body, or waits for some. The error is io.EOF at the end.
func (s *http2Stream) receive(b *body, p []byte) (n int, err error) {
	h, config := s.h, &s.server.config
	start := s.server.clock.now()
	h.mu.Lock()
	for s.body.Len() == 0 && !s.gone && !s.overrun && !s.hasEndedLocked() {
		h.mu.Unlock()
		if err := s.beforeWait(b); err != nil {
			return 0, err
		}
		h.mu.Lock()
		if s.body.Len() > 0 || s.gone || s.overrun || s.hasEndedLocked() {
			break
		}
		deadline := s.worker.ctx.readUntil
		if deadline == 0 {
			deadline = s.readPace.Deadline(start, config.reading, 0)
		}
		if !s.awaitLocked(&s.readable, deadline) {
			h.mu.Unlock()
			s.server.counts.timeouts.body.Add(1)
			return 0, errDeadline
		}
	}
	n, credited := s.takeLocked(p)
	switch {
	case n == 0 && s.gone:
		err = errStreamReset
	case n == 0 && s.overrun:
		err = errBodiesFull
	case n == 0:
		err = io.EOF
	}
	h.mu.Unlock()
	if n > 0 {
		s.readPace.Add(n, s.server.clock.now().Sub(start))
	}
	if credited {
		h.flush()
	}
	return n, err
}

// takeLocked copies what has come of the body. It reports whether the client's window is to be increased by what is in the queue now.
func (s *http2Stream) takeLocked(p []byte) (n int, credited bool) {
	s.h.mu.AssertHeld()
	if n = s.body.Read(p); n > 0 {
		s.hasRead = true
		s.h.chargeLocked(s, s.body.Size())
	}
	if n == 0 || s.hasEndedLocked() || s.gone {
		return n, false
	}
	credit := s.drainLocked(n)
	if credit > 0 {
		s.h.queue = http2.AppendWindowUpdate(s.h.queue, s.id, credit)
	}
	return n, credit > 0
}

// drainLocked takes note that n received bytes take up no memory any more. It returns by how much the client's window is to be increased.
// A window grows by at most half of what the windows of all streams may still grow by, so that later streams find some.
func (s *http2Stream) drainLocked(n int) (credit uint32) {
	s.h.mu.AssertHeld()
	h, config, before := s.h, &s.h.conn.server.config.http2, s.recv.Size()
	credit = s.recv.Drain(n, min(config.streamWindow, before+(config.connWindow-h.grown)/2))
	h.grown += s.recv.Size() - before
	return credit
}

// beforeWait prepares a wait for the body: nobody else may wait for this goroutine, and the client may wait for a 100.
func (s *http2Stream) beforeWait(b *body) error {
	if err := s.leave(); err != nil {
		return err
	}
	ctx := s.worker.ctx
	if err := ctx.holdAnswer(); err != nil {
		return err
	}
	defer ctx.releaseAnswer()
	if b.expect {
		b.expect = false
		if b.received == 0 && !ctx.stream.sent {
			return s.inform(100, nil)
		}
	}
	return nil
}

// bodyEnded notes that the handler has read all of the body.
func (s *http2Stream) bodyEnded(b *body) error {
	s.takeTrailer()
	b.reachEnd()
	return io.EOF
}

// takeTrailer gives the request the fields behind its body.
func (s *http2Stream) takeTrailer() {
	s.h.mu.Lock()
	trailer := s.trailer
	s.h.mu.Unlock()
	if trailer != nil {
		list := &s.worker.ctx.Request.Trailer.list
		for i := range trailer.fields.Len() {
			list.AddBytes(string(trailer.fields.Name(i)), trailer.fields.Value(i))
		}
	}
}

// lendBody implements wire: it lends a body that has come as a whole.
func (s *http2Stream) lendBody(b *body) (whole []byte, ok bool, err error) {
	s.h.mu.Lock()
	if !s.hasEndedLocked() || s.overrun {
		s.h.mu.Unlock()
		return nil, false, nil
	}
	whole, ok = s.body.Whole()
	s.h.mu.Unlock()
	if !ok {
		return nil, false, nil
	}
	if err := b.took(len(whole)); err != nil {
		return nil, true, err
	}
	b.reachEnd()
	s.takeTrailer()
	return whole, true, nil
}
