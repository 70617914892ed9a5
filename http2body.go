package filo

import (
	"errors"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/pace"
)

// This file has the bodies of requests: what becomes of DATA, which the owner takes, how a handler reads it, and what the client may send of it.

// takeData takes DATA, or a part of it.
func (h *http2Conn) takeData(t *http2Turn, f *http2.Frame) http2Step {
	event, _ := http2.EventOf(f)
	h.mu.Lock()
	if h.lacksRoomLocked(f) {
		h.mu.Unlock()
		h.conn.server.bodies.CutSilent(h.conn.server.clock.Exact()) // it takes locks that come before mu
		h.mu.Lock()
	}
	if !h.recv.Receive(f.Size) {
		h.mu.Unlock()
		return h.fail(t, http2.FaultConnectionOverrun)
	}
	// The connection's window must not depend on a body that nobody reads.
	credit := h.recv.Drain(f.Size, h.conn.server.config.http2.connWindow)
	var ended *requestContext
	step := http2Next
	s, state := h.stateLocked(f.Stream)
	v := state.Step(event)
	fault := v.Fault
	if s != nil && fault == http2.NoFault && !v.Late {
		if fault, ended = s.takeDataLocked(t, f); fault == http2.NoFault && f.EndStream() {
			step = h.arrivedLocked(t, s)
		}
	}
	if s != nil && fault != http2.NoFault && v.Next.Over() {
		h.receivedLocked(s) // a client whose answer is complete needs no RST_STREAM
	}
	h.mu.Unlock()
	ended.clientGone()
	if credit > 0 {
		t.out = http2.AppendWindowUpdate(t.out, 0, credit)
	}
	return h.judge(t, f, v, fault, step)
}

// takeDataLocked takes DATA of a stream that may still receive some. ended is the context of a request that ends by it.
func (s *http2Stream) takeDataLocked(t *http2Turn, f *http2.Frame) (fault http2.Fault, ended *requestContext) {
	s.h.mu.AssertHeld()
	h := s.h
	if !s.recv.Receive(f.Size) {
		return http2.FaultOverrun, nil
	}
	if fault := s.content.Receive(len(f.Payload), f.EndStream()); fault != http2.NoFault {
		return fault, nil
	}
	filled := s.fillLocked(f.Payload)
	kept := h.keepLocked(s, f.Payload[filled:])
	if !kept {
		ended = h.overrunLocked(s)
	}
	switch {
	case s.gone:
	case f.EndStream():
		h.receivedLocked(s)
	case s.isRestLocked():
		s.takeRestLocked()
	case s.state == http2.HalfClosedLocal && !s.takenLocked(), s.taken != nil && s.taken.ended: // nobody reads it, and the window ends it
	case kept:
		if credit := s.drainLocked(f.Size - len(f.Payload) + filled); credit > 0 {
			h.queue = http2.AppendWindowUpdate(h.queue, s.id, credit) // before a RST_STREAM
		}
		s.cameLocked(len(f.Payload))
		h.wakeLaterLocked(t, s)
	}
	return http2.NoFault, ended
}

// cameLocked records that n bytes have come of a body that is awaited before the handler runs, and that more will come.
func (s *http2Stream) cameLocked(n int) {
	s.h.mu.AssertHeld()
	if s.awaits != awaitsBody {
		return
	}
	now := s.h.conn.server.clock.Now()
	s.readPace.Add(s.h.conn.server.config.reading, n, s.h.conn.server.waited(s.awaitsSince, s.awaitsUntil(), now))
	if !s.readPace.UsedUp(s.h.conn.server.config.reading) { // or look finds that the time is over
		s.awaitsSince = now
	}
}

// wakeLaterLocked lets the reader of a stream's body be woken, but not before the input is used up: the next frames are most likely of the same
// body. A handler that wants the whole body is woken only when its buffer is full.
func (h *http2Conn) wakeLaterLocked(t *http2Turn, s *http2Stream) {
	h.mu.AssertHeld()
	switch f := s.into; {
	case !s.reading && s.parked == nil || f != nil && f.gathers && !f.isFull():
		return
	case f != nil && f.isFull() || s.body.Len() > maxAwaitedBody: // there is enough to do
		s.wakeLocked()
		return
	}
	if id := t.toWake; id != s.id {
		h.wakeStreamLocked(id)
	}
	t.toWake = s.id
}

// wakePutOff wakes the reader that wakeLaterLocked has put off. Its stream may be over, and serve another connection.
func (h *http2Conn) wakePutOff(t *http2Turn) {
	if t.toWake == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeStreamLocked(t.toWake)
	t.toWake = 0
}

func (h *http2Conn) wakeStreamLocked(id uint32) {
	h.mu.AssertHeld()
	if s, _ := h.stateLocked(id); s != nil {
		s.wakeLocked()
	}
}

// http2Reading says how a stream's body is read: by the handler, beside it, or as that of a connection.
type http2Reading struct {
	until *clock.Time // the deadline that the program has set, 0 for none; read with mu held
	pace  *pace.Pace  // the client's account of time; nil: it has time for ever, and the deadline ends no more than this read
	fills bool        // what comes goes to the reader's buffer at once; only a handler reads so
	// gathers is set if the wait may last until the buffer is full, as long as the client has time to spare. So is fills then.
	gathers bool
	// beforeWait is called, without mu, before the wait that begins at start, and once more when it gathers no longer. May be nil.
	beforeWait func(start clock.Time) error
	// end returns why nothing more comes, nil if something may. It is called with mu held, and not again after an error.
	end func() error
}

// deadline returns until when a read may wait that began at start; 0 for ever. mu is held.
func (r *http2Reading) deadline(start clock.Time, limits pace.Limits) clock.Time {
	if *r.until != 0 || r.pace == nil {
		return *r.until
	}
	return r.pace.Deadline(start, limits)
}

// read copies what has come of the request's body into p, or waits for some; if p is empty it only waits.
func (s *http2Stream) read(p []byte, r *http2Reading) (n int, err error) {
	h, server := s.h, s.h.conn.server
	start, limits := server.clock.Now(), server.config.reading
	look := start.Add(limits.Look()) // see conn.gatherUntil
	h.mu.Lock()
	deadline := r.deadline(start, limits)
	r.gathers = r.gathers && (deadline == 0 || look < deadline)
	for prepared := r.beforeWait == nil; n == 0 && s.body.Len() == 0; {
		if err = r.end(); err != nil {
			break
		}
		if !prepared {
			h.mu.Unlock()
			err = r.beforeWait(start)
			h.mu.Lock()
			if prepared = true; err != nil {
				break
			}
			continue
		}
		if deadline = r.deadline(start, limits); r.gathers {
			n, r.gathers = s.awaitBodyLocked(p, r, look)
			prepared = r.gathers // otherwise the next byte counts
			continue
		}
		if r.pace == nil && s.passedLocked(deadline) {
			err = os.ErrDeadlineExceeded
			break
		}
		var inTime bool
		if n, inTime = s.awaitBodyLocked(p, r, deadline); !inTime && r.pace != nil && n == 0 && s.mayComeLocked() {
			s.late = true
		}
	}
	credited := false
	if n == 0 && err == nil {
		n, credited = s.takeLocked(p)
	}
	h.mu.Unlock()
	if err == nil && r.pace != nil {
		r.pace.Add(limits, n, server.waited(start, deadline, server.clock.Now()))
	}
	if credited {
		h.flush()
	}
	return n, err
}

// endOfBodyLocked returns why nothing more comes of the body, nil if something may.
func (s *http2Stream) endOfBodyLocked() error {
	s.h.mu.AssertHeld()
	switch {
	case s.gone:
		return errStreamReset
	case s.overrun:
		return errBodiesFull
	case s.late:
		return s.overdueLocked()
	case s.hasEndedLocked():
		return io.EOF
	}
	return nil
}

// mayComeLocked reports whether nothing has come of the body, and something may.
func (s *http2Stream) mayComeLocked() bool {
	s.h.mu.AssertHeld()
	return s.body.Len() == 0 && !s.gone && !s.overrun && !s.late && !s.hasEndedLocked()
}

// overdueLocked returns the error of a body that is late: since its client is slow, or since the handler's time-out has answered.
func (s *http2Stream) overdueLocked() error {
	s.h.mu.AssertHeld()
	if s.complete || s.state != http2.Open { // an answer to HEAD has no content that waits
		return ErrHandlerTimeout
	}
	s.h.conn.server.counts.timeouts.body.Add(1)
	return errDeadline
}

// awaitBodyLocked waits for what comes of the body. It returns how much of that was put into p. Where the client has an account of time, and the
// read doesn't gather, a deadline that passes ends that.
func (s *http2Stream) awaitBodyLocked(p []byte, r *http2Reading, deadline clock.Time) (n int, inTime bool) {
	s.h.mu.AssertHeld()
	select {
	case <-s.readable: // from before the last read
	default:
	}
	if r.fills {
		s.filling = http2Filling{buffer: p, gathers: r.gathers}
		s.into = &s.filling
	}
	if r.gathers || r.pace == nil {
		inTime = s.awaitLocked(&s.readable, deadline)
	} else {
		inTime = s.awaitReadLocked(deadline)
	}
	if r.fills {
		n = s.filling.n
		s.into, s.filling = nil, http2Filling{}
	}
	return n, inTime
}

// awaitReadLocked is awaitLocked for the body. Before it reports false the connection's owner looks once more: what came while the process was
// paused came in time.
func (s *http2Stream) awaitReadLocked(deadline clock.Time) (inTime bool) {
	s.h.mu.AssertHeld()
	h := s.h
	if s.awaitLocked(&s.readable, deadline) {
		return true
	}
	s.asksLook = true
	h.asksLook.Store(true)
	h.mu.Unlock()
	h.wakeOwner() // it takes locks that come before mu
	h.mu.Lock()
	until := h.conn.server.clock.Exact().Add(time.Second) // an owner that is busy for longer isn't waited for
	for s.asksLook && !s.hasComeLocked() && s.awaitLocked(&s.readable, until) {
	}
	s.asksLook = false
	return s.hasComeLocked()
}

// hasComeLocked reports whether there is something for the body's reader.
func (s *http2Stream) hasComeLocked() bool {
	s.h.mu.AssertHeld()
	return !s.mayComeLocked() || s.into != nil && s.into.n > 0
}

// hasLooked tells the streams' readers who have asked for it that the owner has looked: nothing more has come.
func (h *http2Conn) hasLooked() {
	if !h.asksLook.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asksLook.Store(false)
	for s := range h.streams.All {
		if s.asksLook {
			s.asksLook = false
			s.wakeLocked()
		}
	}
}

// fillLocked copies bytes of the body that come to a reader that waits. It returns how many: they are read then, and take up no memory.
func (s *http2Stream) fillLocked(p []byte) (n int) {
	s.h.mu.AssertHeld()
	f := s.into
	if f == nil || s.late {
		return 0
	}
	n = copy(f.buffer[f.n:], p)
	if f.n += n; n > 0 {
		s.hasRead = true
	}
	return n
}

// takeLocked copies what has come of the body. It reports whether a frame that is in the queue now increases the client's window.
func (s *http2Stream) takeLocked(p []byte) (n int, credited bool) {
	s.h.mu.AssertHeld()
	if n = s.body.Read(p); n > 0 {
		s.hasRead = true
		s.h.chargeLocked(s, s.body.Size())
	}
	if n == 0 || s.hasEndedLocked() || s.gone || s.state.Over() {
		return n, false
	}
	credit := s.drainLocked(n)
	if credit > 0 {
		s.h.queue = http2.AppendWindowUpdate(s.h.queue, s.id, credit)
	}
	return n, credit > 0
}

// drainLocked records that n received bytes take up no memory any more. It returns by how much the client's window must be increased.
// A window grows by at most half of what the windows of all streams may still grow by, so that later streams find some.
func (s *http2Stream) drainLocked(n int) (credit uint32) {
	s.h.mu.AssertHeld()
	h, config, before := s.h, &s.h.conn.server.config.http2, s.recv.Size()
	credit = s.recv.Drain(n, min(config.streamWindow, before+(config.connWindow-h.grown)/2))
	h.grown += s.recv.Size() - before
	return credit
}

// http2Duplex reads a request's body while another goroutine sends the answer, and so touches nothing that is the handler's.
type http2Duplex struct {
	s *http2Stream

	mu       sync.Mutex // one Read at a time; taken before the connection's mu
	pace     pace.Pace
	limit    bodyLimit
	received int64
	expect   bool // 100 is due before the first wait
	err      error

	closed bool // guarded by the connection's mu
}

// Read implements io.Reader.
func (d *http2Duplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	n, err := d.s.read(p, &http2Reading{until: &d.s.readUntil, pace: &d.pace, beforeWait: d.beforeWait, end: d.endLocked})
	d.err = err
	if d.received += int64(n); d.limit.isBelow(d.received) {
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

// beforeWait lets a client that waits for a 100 send its body.
func (d *http2Duplex) beforeWait(clock.Time) error {
	if !d.expect {
		return nil
	}
	d.expect = false
	s, h := d.s, d.s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.headSent && !s.complete && s.state == http2.Open { // nothing interim follows the head
		s.informLocked(100, nil)
		h.flushLocked(nil)
	}
	return nil
}

// endLocked returns why nothing more comes, nil if something may.
func (d *http2Duplex) endLocked() error {
	d.s.h.mu.AssertHeld()
	if d.closed {
		return errBodyClosed
	}
	switch err := d.s.endOfBodyLocked(); {
	case err == nil && !d.s.running:
		return errStreamOver
	case err == nil, err == io.EOF:
		return err
	default:
		return bodyError(err)
	}
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
