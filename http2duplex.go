package filo

import (
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/pace"
)

// http2Duplex reads a request's body while another goroutine sends the answer, and so touches nothing that is the handler's.
type http2Duplex struct {
	s *http2Stream

	mu       sync.Mutex // one Read at a time; taken before the connection's mu
	pace     pace.Pace
	limit    int64 // of the body; negative: none
	received int64
	expect   bool // 100 is due before the first wait
	err      error

	closed bool // guarded by the connection's mu
}

// duplex returns a reader of the body for package adaptor: see hooks.Duplex. The Ctx can't read the body any more.
func (c *Ctx) duplex() (hooks.Duplex, bool) {
	c.check()
	b := &c.Request.body
	s, ok := c.exchange.wire.(*http2Stream)
	if !ok || s.extended || b.err != nil || b.received > 0 || b.wholeRead || b.formRead || c.Request.replaced != nil || s.leave() != nil {
		return nil, false
	}
	s.lent = true
	d := &http2Duplex{s: s, limit: b.limit, expect: b.expect}
	if b.limit >= 0 && b.remaining > b.limit {
		d.err = errTooLarge
	}
	b.fail(errBodyLent)
	s.lent = true
	return d, true
}

// Read implements io.Reader.
func (d *http2Duplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	s, h, start := d.s, d.s.h, d.s.server.clock.now()
	h.mu.Lock()
	n, credited := 0, false
	for {
		if n, credited = s.takeLocked(p); n > 0 {
			break
		}
		if d.err = d.endLocked(); d.err != nil {
			break
		}
		if d.expect {
			d.expect = false
			if !s.headSent && !s.complete && s.state == http2.Open { // nothing interim follows the head
				s.informLocked(100, nil)
				h.flushLocked(nil)
				continue
			}
		}
		if !s.awaitLocked(&s.readable, d.deadlineLocked(start)) {
			s.server.counts.timeouts.body.Add(1)
			d.err = errSlowBody
		}
	}
	h.mu.Unlock()
	if credited {
		h.flush()
	}
	d.pace.Add(n, s.server.clock.now().Sub(start))
	if d.received += int64(n); d.limit >= 0 && d.received > d.limit {
		n, d.err = 0, errTooLarge
	}
	return n, d.err
}

// Close implements hooks.Duplex.
func (d *http2Duplex) Close() {
	d.s.h.mu.Lock()
	defer d.s.h.mu.Unlock()
	d.closed = true
	d.s.wakeLocked()
}

// errBodyClosed is the error of a Read that Close has ended.
var errBodyClosed = errors.New("filo: the body was closed")

// errBodyLent is the error of a Ctx whose body is read otherwise.
var errBodyLent = errors.New("filo: the body is read by the handler of net/http")

// endLocked returns why nothing more comes, nil if something may.
func (d *http2Duplex) endLocked() error {
	d.s.h.mu.AssertHeld()
	switch s := d.s; {
	case d.err != nil:
		return d.err
	case d.closed:
		return errBodyClosed
	case s.gone:
		return bodyError(errStreamReset)
	case s.overrun:
		return errBodiesFull
	case s.hasEndedLocked():
		return io.EOF
	case !s.running:
		return errStreamOver
	}
	return nil
}

func (d *http2Duplex) deadlineLocked(start clock.Time) clock.Time {
	d.s.h.mu.AssertHeld()
	if until := d.s.readUntil; until != 0 {
		return until
	}
	return d.pace.Deadline(start, d.s.server.config.reading, 0)
}

// Trailer implements hooks.Duplex.
func (d *http2Duplex) Trailer() iter.Seq2[[]byte, []byte] {
	d.s.h.mu.Lock()
	defer d.s.h.mu.Unlock()
	if d.s.trailer == nil {
		return func(func(name, value []byte) bool) {}
	}
	return d.s.trailer.fields.All()
}
