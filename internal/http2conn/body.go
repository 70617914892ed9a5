package http2conn

import (
	"io"
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// This file handles request bodies: where the owner stores received DATA, how a handler reads a body, and how many more bytes the client may
// send.

// takeData handles a DATA frame, or a part of one.
func (h *Conn) takeData(t *Turn, f *http2.Frame) Step {
	event, _ := http2.EventOf(f)
	h.mu.Lock()
	if h.lacksRoomLocked(f) {
		h.mu.Unlock()
		h.shared.Bodies.CutSilent(h.shared.Clock.Exact()) // CutSilent takes locks that come before mu
		h.mu.Lock()
	}
	if !h.recv.Receive(f.Size) {
		h.mu.Unlock()
		return h.fail(t, http2.FaultConnectionOverrun)
	}
	// A body that nobody reads must not close the connection's window, so all bytes are credited at once.
	credit := h.recv.Drain(f.Size, h.shared.ConnWindow)
	var ended Watcher
	step := StepNext
	s, state := h.stateLocked(f.Stream)
	v := state.Step(event)
	fault := v.Fault
	if s != nil && fault == http2.NoFault && !v.Late {
		if fault, ended = s.takeDataLocked(t, f); fault == http2.NoFault && f.EndStream() {
			step = h.arrivedLocked(t, s)
		}
	}
	if s != nil && fault != http2.NoFault && v.Next.Over() {
		h.receivedLocked(s) // the answer is complete, so no RST_STREAM is needed
	}
	h.mu.Unlock()
	tell(ended)
	if credit > 0 {
		t.out = http2.AppendWindowUpdate(t.out, 0, credit)
	}
	return h.judge(t, f, v, fault, step)
}

// takeDataLocked handles a DATA frame of a stream that may still receive DATA. If there is no room for the body and the stream is reset,
// ended is the stream's watcher.
func (s *Stream) takeDataLocked(t *Turn, f *http2.Frame) (fault http2.Fault, ended Watcher) {
	s.h.mu.AssertHeld()
	h := s.h
	if !s.recv.Receive(f.Size) {
		return http2.FaultOverrun, nil
	}
	if fault := s.content.Receive(int64(len(f.Payload)), f.EndStream()); fault != http2.NoFault {
		return fault, nil
	}
	filled := s.fillLocked(f.Payload)
	kept := h.keepLocked(s, f.Payload[filled:])
	if !kept {
		ended = h.overrunLocked(s)
	}
	switch {
	case s.sending == sendingLost:
	case f.EndStream():
		h.receivedLocked(s)
	case s.isRestLocked():
		s.takeRestLocked()
	case !s.takenLocked() && (s.state == http2.HalfClosedLocal || s.taken != nil): // nobody reads the body: without credit the client stops sending
	case kept:
		if credit := s.drainLocked(f.Size - len(f.Payload) + filled); credit > 0 {
			h.queue = http2.AppendWindowUpdate(h.queue, s.id, credit) // in the queue, so that it is sent before a RST_STREAM
		}
		s.cameLocked(len(f.Payload))
		h.wakeLaterLocked(t, s)
	}
	return http2.NoFault, ended
}

// cameLocked records that n bytes of a body were received, if the stream's handler waits for the whole body. It isn't called for the body's
// last bytes.
func (s *Stream) cameLocked(n int) {
	s.h.mu.AssertHeld()
	if s.awaits != awaitsBody {
		return
	}
	now := s.h.shared.Clock.Now()
	s.ReadPace.Add(s.h.shared.Reading, n, s.h.shared.waited(s.awaitsSince, s.awaitsUntil(), now))
	if !s.ReadPace.UsedUp(s.h.shared.Reading) { // once the client's time is used up, Look must find that the deadline has passed
		s.awaitsSince = now
	}
}

// wakeLaterLocked arranges that the reader of a stream's body is woken once the input is used up, since the next frames are most likely part
// of the same body. A handler that wants the whole body is woken only when its buffer is full.
func (h *Conn) wakeLaterLocked(t *Turn, s *Stream) {
	h.mu.AssertHeld()
	full := s.fills && s.filling.isFull()
	switch {
	case s.reader == readerAway && s.parked == nil || s.fills && s.filling.gathers && !full:
		return
	case full || s.body.Len() > h.shared.AwaitedBody: // the reader has enough to do already
		s.wakeLocked()
		return
	}
	if id := t.toWake; id != s.id {
		h.wakeStreamLocked(id)
	}
	t.toWake = s.id
}

// WakePutOff wakes the reader whose wake-up wakeLaterLocked has put off. It looks up the stream by number, since the Stream may have ended
// and serve another connection now.
func (h *Conn) WakePutOff(t *Turn) {
	if t.toWake == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeStreamLocked(t.toWake)
	t.toWake = 0
}

func (h *Conn) wakeStreamLocked(id uint32) {
	h.mu.AssertHeld()
	if s, _ := h.stateLocked(id); s != nil {
		s.wakeLocked()
	}
}

// Reading says how a stream's body is read: by the handler, by another goroutine while the handler runs, or as the input of a connection.
type Reading struct {
	Until *clock.Time // the deadline that the program has set, 0 for none; read with mu held
	Pace  *pace.Pace  // how much time the client has left; nil: the client may take any time, and the deadline ends only this read
	Fills bool        // arriving bytes are copied directly into the reader's buffer; the stream must have a Request
	// Gathers says that the wait may last until the buffer is full, as long as the client has time to spare. Fills must be set, too.
	Gathers bool
	// BeforeWait is called, without mu, before the wait that begins at start, and again when the read stops gathering. It may be nil.
	BeforeWait func(start clock.Time) error
	// end returns why no more bytes will arrive, or nil if more may arrive. It is called with mu held, and not again after an error. The
	// default is endOfBodyLocked.
	end func() error
}

// deadline returns until when a read that began at start may wait; 0: no limit. mu is held.
func (r *Reading) deadline(start clock.Time, limits pace.Limits) clock.Time {
	if *r.Until != 0 || r.Pace == nil {
		return *r.Until
	}
	return r.Pace.Deadline(start, limits)
}

// Read copies bytes of the request's body that have arrived into p, or waits for some. If p is empty it only waits.
func (s *Stream) Read(p []byte, r *Reading) (n int, err error) {
	h, shared := s.h, s.h.shared
	start, limits := shared.Clock.Now(), shared.Reading
	look := start.Add(limits.Look()) // see conn.gatherUntil
	end := r.end
	if end == nil {
		end = s.endOfBodyLocked
	}
	h.mu.Lock()
	deadline := r.deadline(start, limits)
	r.Gathers = r.Gathers && (deadline == 0 || look < deadline)
	for prepared := r.BeforeWait == nil; n == 0 && s.body.Len() == 0; {
		if err = end(); err != nil {
			break
		}
		if !prepared {
			h.mu.Unlock()
			err = r.BeforeWait(start)
			h.mu.Lock()
			if prepared = true; err != nil {
				break
			}
			continue
		}
		if deadline = r.deadline(start, limits); r.Gathers {
			n, r.Gathers = s.awaitBodyLocked(p, r, look)
			prepared = r.Gathers // after gathering, the next wait ends with any byte, so BeforeWait is called again
			continue
		}
		if r.Pace == nil && s.passedLocked(deadline) {
			err = os.ErrDeadlineExceeded
			break
		}
		var inTime bool
		if n, inTime = s.awaitBodyLocked(p, r, deadline); !inTime && r.Pace != nil && n == 0 && s.mayComeLocked() {
			s.endLateLocked()
		}
	}
	credited := false
	if n == 0 && err == nil {
		n, credited = s.takeLocked(p)
	}
	h.mu.Unlock()
	if err == nil && r.Pace != nil {
		r.Pace.Add(limits, n, shared.waited(start, deadline, shared.Clock.Now()))
	}
	if credited {
		h.Flush()
	}
	return n, err
}

// endOfBodyLocked returns why no more bytes of the body will arrive, or nil if more may arrive.
func (s *Stream) endOfBodyLocked() error {
	s.h.mu.AssertHeld()
	switch {
	case s.sending == sendingLost:
		return ErrReset
	case s.cut == bodyNoRoom:
		return ErrNoRoom
	case s.cut == bodyLate:
		return s.overdueLocked()
	case s.hasEndedLocked():
		return io.EOF
	}
	return nil
}

// mayComeLocked reports whether all received bytes of the body were read, and more may arrive.
func (s *Stream) mayComeLocked() bool {
	s.h.mu.AssertHeld()
	return s.body.Len() == 0 && s.sending != sendingLost && s.cut == bodyGoesOn && !s.hasEndedLocked()
}

// overdueLocked returns the error for a read of a body that was cut off with bodyLate: either the client is too slow, or the handler's
// time-out has answered.
func (s *Stream) overdueLocked() error {
	s.h.mu.AssertHeld()
	if s.sending >= sendingRest || s.state != http2.Open { // state is checked too, since the answer to a HEAD request ends at once
		return ErrAnswered
	}
	s.h.shared.Counts.Body.Add(1)
	return ErrLate
}

// awaitBodyLocked waits for bytes of the body. It returns how many bytes were put into p, and whether they came in time. If r.Pace is set,
// and the read doesn't gather, the owner reads from the socket once more when the deadline has passed: see awaitReadLocked.
func (s *Stream) awaitBodyLocked(p []byte, r *Reading, deadline clock.Time) (n int, inTime bool) {
	s.h.mu.AssertHeld()
	select {
	case <-s.readable: // discard a signal for bytes that were already read
	default:
	}
	if r.Fills {
		s.filling = filling{buffer: p, gathers: r.Gathers}
		s.fills = true
	}
	race.Enter(&s.reader, readerWaits)
	if r.Gathers || r.Pace == nil {
		inTime = s.awaitLocked(&s.readable, deadline)
	} else {
		inTime = s.awaitReadLocked(deadline)
	}
	race.Enter(&s.reader, readerAway)
	if r.Fills {
		n = s.filling.n
		s.fills, s.filling = false, filling{}
	}
	return n, inTime
}

// awaitReadLocked is awaitLocked for the body. Before it returns false, the connection's owner reads from the socket once more, since bytes
// that arrived while the process was paused are in time.
func (s *Stream) awaitReadLocked(deadline clock.Time) (inTime bool) {
	s.h.mu.AssertHeld()
	h := s.h
	if s.awaitLocked(&s.readable, deadline) {
		return true
	}
	race.Enter(&s.reader, readerAsks)
	h.asksLook.Store(true)
	h.mu.Unlock()
	h.WakeOwner() // WakeOwner takes locks that come before mu
	h.mu.Lock()
	until := h.shared.Clock.Exact().Add(time.Second) // awaitReadLocked doesn't wait for an owner that is busy for longer
	for s.reader == readerAsks && !s.hasComeLocked() && s.awaitLocked(&s.readable, until) {
	}
	return s.hasComeLocked()
}

// hasComeLocked reports whether the body's reader needn't wait: there are bytes for it, or no more will arrive.
func (s *Stream) hasComeLocked() bool {
	s.h.mu.AssertHeld()
	return !s.mayComeLocked() || s.fills && s.filling.n > 0
}

// HasLooked wakes the readers that have asked the owner to read from the socket once more. The owner calls it when that read has returned no
// more bytes.
func (h *Conn) HasLooked() {
	if !h.asksLook.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asksLook.Store(false)
	for s := range h.streams.All {
		if s.reader == readerAsks {
			race.Enter(&s.reader, readerWaits)
			s.wakeLocked()
		}
	}
}

// fillLocked copies arriving bytes of the body to the buffer of a reader that waits, and returns their number. These bytes count as read,
// and aren't charged to the budget.
func (s *Stream) fillLocked(p []byte) (n int) {
	s.h.mu.AssertHeld()
	if !s.fills || s.cut == bodyLate {
		return 0
	}
	f := &s.filling
	n = copy(f.buffer[f.n:], p)
	if f.n += n; n > 0 {
		s.hasRead = true
	}
	return n
}

// takeLocked moves received bytes of the body to p, and returns their number. credited reports whether it has queued a WINDOW_UPDATE.
func (s *Stream) takeLocked(p []byte) (n int, credited bool) {
	s.h.mu.AssertHeld()
	if n = s.body.Read(p); n > 0 {
		s.hasRead = true
		s.h.chargeLocked(s, s.body.Size())
	}
	if n == 0 || s.hasEndedLocked() || s.state.Over() {
		return n, false
	}
	credit := s.drainLocked(n)
	if credit > 0 {
		s.h.queue = http2.AppendWindowUpdate(s.h.queue, s.id, credit)
	}
	return n, credit > 0
}

// drainLocked records that n received bytes take up no memory any more. It returns the increment for a WINDOW_UPDATE, 0 for none. The
// growth of all stream windows of a connection has a common limit. One window grows by at most half of the growth that is left, so that the
// windows of later streams can grow, too.
func (s *Stream) drainLocked(n int) (credit uint32) {
	s.h.mu.AssertHeld()
	h, shared, before := s.h, s.h.shared, s.recv.Size()
	credit = s.recv.Drain(n, min(shared.StreamWindow, before+(shared.ConnWindow-h.grown)/2))
	h.grown += s.recv.Size() - before
	return credit
}

// Trailer returns the fields after the request's body. It returns nil until they were received, and if there are none.
func (s *Stream) Trailer() *field.List {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.trailer == nil {
		return nil
	}
	return &s.trailer.fields
}

// Whole returns the body if it was received completely and is contiguous in memory. Otherwise waits reports whether the handler must wait for
// the next byte.
func (s *Stream) Whole() (whole []byte, ok, waits bool) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.mayComeLocked() {
		return nil, false, true
	}
	if !s.hasEndedLocked() || s.cut != bodyGoesOn {
		return nil, false, false
	}
	whole, ok = s.body.Whole()
	return whole, ok, false
}

// SetReadDeadline sets the deadline of readers other than the handler, 0 for none. It also wakes a handler that waits in Read, which then
// checks its own deadline again.
func (s *Stream) SetReadDeadline(until clock.Time) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if !s.running && s.parked == nil && s.taken == nil {
		return // readUntil now limits the rest of the request
	}
	s.readUntil = until
	s.wakeLocked()
}

// BodyReader reads a request's body while another goroutine sends the answer. So it uses no field that belongs to the handler. Only one
// goroutine at a time may call Read.
type BodyReader struct {
	s      *Stream
	pace   pace.Pace
	expect bool // the client waits for a 100, which must be sent before the first wait
	closed bool // guarded by the connection's mu
}

// Lend returns a reader of the body, which may outlive the handler. expect says that the client waits for a 100.
func (s *Stream) Lend(expect bool) BodyReader {
	s.lent = true
	return BodyReader{s: s, expect: expect}
}

// Read implements io.Reader.
func (d *BodyReader) Read(p []byte) (int, error) {
	return d.s.Read(p, &Reading{Until: &d.s.readUntil, Pace: &d.pace, Fills: true, BeforeWait: d.beforeWait, end: d.endLocked})
}

// Trailer returns the fields after the request's body. It returns nil until they were received, and if there are none.
func (d *BodyReader) Trailer() *field.List { return d.s.Trailer() }

// Close ends a Read that waits.
func (d *BodyReader) Close() {
	d.s.h.mu.Lock()
	defer d.s.h.mu.Unlock()
	d.closed = true
	d.s.wakeLocked()
}

// beforeWait sends a 100 if the client waits for one before it sends its body.
func (d *BodyReader) beforeWait(clock.Time) error {
	if !d.expect {
		return nil
	}
	d.expect = false
	s, h := d.s, d.s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.sending == sendingNothing && s.state == http2.Open { // an interim answer must not follow the head of the final one
		s.informLocked(100, nil)
		h.flushLocked(nil)
	}
	return nil
}

// endLocked returns why no more bytes will arrive, or nil if more may arrive.
func (d *BodyReader) endLocked() error {
	d.s.h.mu.AssertHeld()
	if d.closed {
		return ErrBodyClosed
	}
	err := d.s.endOfBodyLocked()
	if err == nil && (!d.s.running || d.s.parked != nil) { // the function of a parked stream reads the rest
		return ErrOver
	}
	return err
}
