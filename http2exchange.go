package filo

import (
	"errors"
	"io"
	"net"
	"os"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/race"
)

// This file joins requests by HTTP/2 to what handlers see: a worker's exchange runs the handler of a stream, and is the handler's wire.

// http2Exchange is the exchange of a request by HTTP/2, with its stream. A worker has one, for the request whose handler it runs: the stream
// itself knows neither the worker nor the Ctx. It is the handler's goroutine's.
type http2Exchange struct {
	exchange
	*http2Stream // nil between requests
	conn         *conn
	driver       http2Runner
	apart        bool // others may have the connection
}

// http2Runner is what a worker that runs a handler needs of the connection's driver.
type http2Runner interface {
	// watch makes sure that the connection is taken from w, which runs a handler inline from now on, if that takes long. It is called when the
	// monitor can find w.
	watch(w *scratch)
	// giveAway gives the connection to another worker than w, which leads no loop any more, and runs a handler.
	giveAway(w *scratch)
	// clientLeft reports whether the client is known to send nothing more. Bytes that it has sent before may be unread.
	clientLeft() bool
}

var _ wire = (*http2Exchange)(nil)

var _ watchWire = (*http2Exchange)(nil)

var _ windowWire = (*http2Exchange)(nil)

// begin makes s the exchange of the stream of w's turn.
func (s *http2Exchange) begin(w *scratch, c *conn, driver http2Runner) {
	s.exchange = exchange{server: c.server, tlsState: c.tlsState, wire: s, scratch: w, answered: c.answered}
	s.http2Stream, s.conn, s.driver, s.apart = w.http2.stream, c, driver, false
}

// refuse answers a request that isn't valid without calling a handler.
func (s *http2Exchange) refuse(w *scratch, c *conn, driver http2Runner) {
	reason := faultErrors[w.http2.refused]
	s.begin(w, c, driver)
	s.logRefused(reason)
	s.count(reason.Status)
	s.http2Stream.refuse(reason, string(w.http2.head.Method()) == "HEAD")
	s.http2Stream = nil
}

// own begins a part of the handler in which the connection isn't taken from it. It reports false if others have the connection.
func (s *http2Exchange) own() bool {
	if s.apart {
		return false
	}
	t := &s.scratch.http2.http2Turn
	if s.h.own(t) {
		return true
	}
	s.h.wasTaken(t)
	s.apart = true
	return false
}

// disown ends what own has begun. The monitor may have looked for the stream meanwhile, and in vain.
func (s *http2Exchange) disown() {
	s.h.disown(&s.scratch.http2.http2Turn)
	s.driver.watch(s.scratch)
}

// giveWay implements wire: it gives the connection away as well, which other streams wait for. If the client has left, a handler that waits
// serves nobody, and many requests may still be unread: then the error is ErrClientGone.
func (s *http2Exchange) giveWay(class *class.Class, places admit.Kinds) error {
	if !s.own() {
		return s.scratch.giveWay(class, places)
	}
	if s.driver.clientLeft() {
		s.disown()
		s.lose()
		return ErrClientGone
	}
	led := s.scratch.leads()
	if err := s.scratch.giveWay(class, places); err != nil {
		s.disown()
		return err
	}
	if !led {
		class.Handoffs.Add(1) // in the blocking driver only the connection is given away
	}
	s.driver.giveAway(s.scratch)
	s.apart = true
	return nil
}

// queueUp implements wire.
func (s *http2Exchange) queueUp() error {
	if s.scratch.worker == nil {
		return errBusy
	}
	if err := s.server.joinQueue(); err != nil {
		return err
	}
	owned := s.own()
	s.scratch.worker.LeaveFor(nil, admit.None.Only())
	if owned {
		s.driver.giveAway(s.scratch)
		s.apart = true
	}
	return s.awaitPlace(s.scratch.occupy)
}

// leave is giveWay for a handler that waits, of whatever class.
func (s *http2Exchange) leave() error {
	if s.apart {
		return nil
	}
	class := s.scratch.timer.Class()
	return s.giveWay(class, placesFor(class.MayRunInline(), s.scratch.ctx.always))
}

// http2Progress says how far run has come.
type http2Progress uint8

const (
	progressHandler  http2Progress = iota // the handler runs, or the ErrorHandler
	progressAnswer                        // run knows whether the connection is the caller's
	progressAnswered                      // the answer is on its way
	progressEnded
)

// run runs the handler on the stream's request. It reports false if others have the connection now.
func (s *http2Exchange) run(w *scratch, c *conn, driver http2Runner) (mine bool) {
	s.begin(w, c, driver)
	h, ctx := s.h, w.ctx
	s.running = true
	ctx.exchange = &s.exchange
	ctx.begin(&s.request, s.text, s.framing)
	ctx.Request.http2, ctx.Request.extended = true, s.extended
	progress := progressHandler
	defer func() {
		if progress != progressEnded {
			s.abandon(ctx, progress, mine) // the program's code ends its goroutine, or a panic of the server's own
		}
	}()
	s.disown()
	e := s.finish(ctx, s.answer(ctx))
	if e == endingWhole {
		e = s.makeRoom(ctx)
	}
	mine, progress = s.own(), progressAnswer
	s.conclude(ctx, e, mine)
	progress = progressAnswered
	s.endHandler(ctx)
	progress = progressEnded
	if mine {
		return true
	}
	w.yieldPlace()
	h.flushSoon()
	return false
}

// answer runs the handler, or returns the error to answer with instead.
func (s *http2Exchange) answer(ctx *Ctx) error {
	if err := s.enterServer(); err != nil {
		return err
	}
	if ctx.Request.head[ctx.Request.line.TargetStart] == '*' {
		return ctx.NoContent() // RFC 9110, section 9.3.7: OPTIONS * asks about the server
	}
	return s.invoke(ctx)
}

// yieldPlace gives up the worker's place before the answer leaves: a client that has its answer and sends again at once must find the
// place free.
func (w *scratch) yieldPlace() {
	if w.place != nil {
		w.place.Leave()
	}
}

// abandon ends a stream whose handler, or other code of the program, ends its goroutine. That code may do so once more: all that the server
// must do is deferred.
func (s *http2Exchange) abandon(ctx *Ctx, progress http2Progress, mine bool) {
	h := s.h
	defer h.flush()
	defer s.endHandler(ctx)
	if progress == progressAnswered {
		return
	}
	e := endingAborted
	defer func() {
		ctx.Response.close = false // the connection goes on
		if progress == progressHandler {
			mine = s.own()
		}
		s.conclude(ctx, e, mine)
	}()
	if progress == progressHandler {
		e = s.exited(ctx)
	}
}

// endHandler releases what the request holds. Its answer is on its way.
func (s *http2Exchange) endHandler(ctx *Ctx) {
	h, w := s.h, s.scratch
	ctx.end()
	if race.Enabled {
		lend.Poison(s.text)
		ctx.poison()
		w.ctx = new(Ctx)
		*ctx = Ctx{}
	}
	w.ctx.exchange = nil
	h.mu.Lock()
	parked, taken := s.parked != nil, s.taken != nil
	if taken {
		s.taken.returned = true
	}
	if !parked && !s.takenLocked() {
		h.handlerEndedLocked(s.http2Stream)
	}
	listed := s.listed
	if waits := listed && !s.lent; waits || parked || taken {
		s.http2Request = nil // the stream may wait long for its client
	}
	h.mu.Unlock()
	stream := s.http2Stream
	s.http2Stream = nil
	if parked || taken {
		if parked && !(*http2StreamConn)(stream).wait() {
			go stream.serveParked()
		}
		return
	}
	if !listed && !stream.lent && w.http2.spare == nil && cap(stream.text) <= maxKeptHeader {
		stream.body.Reset()
		w.http2.spare = stream
	}
}

// conclude renders or aborts an answer whose handler has returned. mine says that the caller owns the connection.
func (s *http2Exchange) conclude(ctx *Ctx, e ending, mine bool) {
	switch e {
	case endingWhole:
		s.render(ctx, mine)
	case endingAborted:
		s.abort(ctx)
	}
	if ctx.Response.wantsClose() {
		s.h.closeSoon()
	}
}

// abort resets a stream whose answer isn't completed.
func (s *http2Exchange) abort(ctx *Ctx) {
	ctx.Response.resetBody()
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if s.state.Over() {
		return
	}
	h.breakOffLocked(s.http2Stream, http2.InternalError)
}

// render renders a whole answer: in the owner's turn if the handler has run inline, otherwise into the queue.
func (s *http2Exchange) render(ctx *Ctx, mine bool) {
	h, t, r := s.h, &s.scratch.http2.http2Turn, &ctx.Response
	length, size := r.wholeLength(ctx)
	trailer := r.Trailer.Len() > 0 && http1.BodyAllowed(r.status) && !ctx.Request.isHead() && !r.tunnels()
	whole := size == 0 && !trailer
	if !mine {
		h.mu.Lock()
		defer h.mu.Unlock()
		s.returnedLocked()
		if !s.state.Over() {
			h.queue = s.appendHead(h.queue, nil, ctx, length, whole)
			s.sendWholeLocked(ctx, size, trailer)
		}
		return
	}
	if h.mayUpdate {
		h.mu.Lock()
		if h.updateDue {
			s.returnedLocked()
			h.pushLocked(t)
			h.queue = s.appendHead(h.queue, nil, ctx, length, whole)
			s.sendWholeLocked(ctx, size, trailer)
			h.mu.Unlock()
			return
		}
		h.mayUpdate = false
		h.mu.Unlock()
	}
	out := s.appendHead(t.out, &h.encoder, ctx, length, whole)
	t.out = out
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if trailer || size > 0 && (size > maxInlineBody || size > int(min(h.sendWindow, s.windowLocked()))) {
		h.pushLocked(t)
		s.sendWholeLocked(ctx, size, trailer)
		return
	}
	if size > 0 {
		s.sentDataLocked(size, true)
		t.out = http2.AppendData(t.out, s.id, r.bodyBytes(), true)
	}
	if s.state == http2.Open {
		h.pushLocked(t) // RST_STREAM will follow
	}
	h.sentLocked(s.http2Stream)
}

// makeRoom decides what becomes of a whole answer whose handler has returned. If there is no room for it, the worker waits until the client has
// taken it, and keeps its place. That isn't for an answer that was made for this client alone: with a 503 its memory is free at once.
func (s *http2Exchange) makeRoom(ctx *Ctx) ending {
	h, r := s.h, &ctx.Response
	size := r.size()
	if size == 0 || size <= maxInlineBody && !s.server.answers.Crowded() || ctx.Request.isHead() || !http1.BodyAllowed(r.status) {
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

// queuedBody implements wire.
func (s *http2Exchange) queuedBody() int64 { return s.http2Stream.queuedBody() }

// overrunBody implements wire.
func (s *http2Exchange) overrunBody() bool { return s.http2Stream.overrunBody() }

// readBody implements wire.
func (s *http2Exchange) readBody(b *body, p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.isTooLarge():
		return 0, b.fail(errTooLarge)
	case s.scratch.ctx.timedOut():
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

// receive copies what has come of the body, or waits for some; if p is empty it only waits. The error is io.EOF at the end.
func (s *http2Exchange) receive(b *body, p []byte) (n int, err error) {
	ctx, waits := s.scratch.ctx, false
	r := http2Reading{until: &ctx.readUntil, pace: &s.readPace, fills: true, gathers: s.gathers(b), end: s.endOfBodyLocked}
	r.beforeWait = func(start clock.Time) error {
		if err := s.beforeWait(b); err != nil {
			return err
		}
		if !r.gathers {
			s.server.bodies.BeginSilence(&ctx.room, s.http2Stream, start) // it has a lock that comes before mu
		}
		s.scratch.running.is(RunningReading)
		waits = true
		return nil
	}
	n, err = s.read(p, &r)
	if waits {
		s.scratch.running.is(ctx.runningState())
	}
	s.server.bodies.EndSilence(&ctx.room)
	return n, err
}

// beforeWait prepares a wait for the body: nobody else may wait for this goroutine, and the client may wait for a 100.
func (s *http2Exchange) beforeWait(b *body) error {
	if err := s.leave(); err != nil {
		return err
	}
	ctx := s.scratch.ctx
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

// bodyEnded records that the handler has read all of the body.
func (s *http2Exchange) bodyEnded(b *body) error {
	s.takeTrailer()
	b.reachEnd()
	return io.EOF
}

// takeTrailer gives the request the fields behind its body.
func (s *http2Exchange) takeTrailer() {
	s.h.mu.Lock()
	trailer := s.trailer
	s.h.mu.Unlock()
	if trailer != nil {
		list := &s.scratch.ctx.Request.Trailer.list
		for i := range trailer.fields.Len() {
			list.AddBytes(string(trailer.fields.Name(i)), trailer.fields.Value(i))
		}
	}
}

// lendBody implements wire: it lends a body that has come as a whole. It waits for the first byte, so that no handler whose client only
// announces a body has a buffer.
func (s *http2Exchange) lendBody(b *body) (whole []byte, ok bool, err error) {
	s.h.mu.Lock()
	if s.mayComeLocked() {
		s.h.mu.Unlock()
		if s.scratch.ctx.timedOut() {
			return nil, true, b.fail(ErrHandlerTimeout)
		}
		if _, err := s.receive(b, nil); err != nil && err != io.EOF {
			return nil, true, b.fail(bodyError(err))
		}
		s.h.mu.Lock()
	}
	if !s.hasEndedLocked() || s.overrun || s.late {
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

// duplex returns a reader of the body for package adaptor: see hooks.Duplex. The Ctx can't read the body any more.
func (c *Ctx) duplex() (hooks.Duplex, bool) {
	c.check()
	b := &c.Request.body
	s, ok := c.exchange.wire.(*http2Exchange)
	if !ok || s.extended || b.err != nil || b.received > 0 || b.wholeRead || b.formRead || c.Request.replaced != nil || s.leave() != nil {
		return nil, false
	}
	s.lent = true
	d := &http2Duplex{s: s.http2Stream, limit: b.limit, expect: b.expect}
	if b.isTooLarge() {
		d.err = errTooLarge
	}
	b.fail(errBodyLent)
	return d, true
}

// errBodyLent is the error of a Ctx whose body is read otherwise.
var errBodyLent = errors.New("filo: the body is read by the handler of net/http")

// sendWholeLocked leaves the body of a whole answer, of size bytes, and its trailer to the queue.
func (s *http2Exchange) sendWholeLocked(ctx *Ctx, size int, trailer bool) {
	s.h.mu.AssertHeld()
	h, r := s.h, &ctx.Response
	if size == 0 && !trailer {
		h.sentLocked(s.http2Stream)
		return
	}
	h.listLocked(s.http2Stream)
	body := r.bodyBytes()
	if r.source == bodyBuffer && size <= maxKeptBody {
		body = append([]byte(nil), body...) // the buffer will be used again
	}
	s.setUnsentLocked(body, nil, false)
	s.http2Stream.complete = true // nothing is appended, so the body may be the program's
	if trailer {
		s.tail = newTail(&r.Trailer)
	}
	h.mayGoOnLocked(s.http2Stream)
}

// appendHead renders the head of a final answer: by the connection's encoder, or without one into the queue, with mu held.
func (s *http2Exchange) appendHead(dst []byte, e *http2.Encoder, ctx *Ctx, length int64, endStream bool) []byte {
	r := &ctx.Response
	start := len(dst)
	dst = http2.BeginHeaders(dst)
	dst = s.beginBlock(dst, e)
	dst = http2.AppendStatus(dst, r.status)
	dst = s.appendFields(dst, e, &r.Header.list)
	if length >= 0 {
		dst = http2.AppendNumber(dst, field.ContentLength, length)
	}
	if r.Trailer.Len() > 0 && !endStream && !r.tunnels() {
		dst = appendTrailerNames(dst, &r.Trailer)
	}
	return http2.EndHeaders(dst, start, s.id, endStream)
}

// inform implements wire.
func (s *http2Exchange) inform(status int, header *Header) error {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.state.Over() {
		return errStreamReset
	}
	s.informLocked(status, header)
	h.flushLocked(nil)
	return nil
}

// head implements wire.
func (s *http2Exchange) head(ctx *Ctx, length int64) {
	h, r := s.h, &ctx.Response
	switch {
	case !http1.BodyAllowed(r.status):
		length = r.bareLength(length)
	case r.tunnels():
		length = noLength
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.headSent = true
	if s.state.Over() {
		return
	}
	// Nothing follows the head, but a body that is still coming may have a reader.
	whole := ctx.stream.discard && s.hasEndedLocked()
	h.queue = s.appendHead(h.queue, nil, ctx, length, whole)
	if whole {
		h.sentLocked(s.http2Stream)
	}
}

// data implements wire.
func (s *http2Exchange) data(p []byte, flush bool) error {
	h := s.h
	if until := s.scratch.ctx.writeUntil; until != 0 && s.server.clock.Exact() >= until {
		s.failed = true
		s.server.counts.timeouts.write.Add(1)
		return errDeadline
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 && !s.state.Over() {
		h.listLocked(s.http2Stream)
		room := s.keepsLocked() - len(s.unsent)
		if len(s.unsent) == 0 && (flush || room < len(p)) {
			return s.lendLocked(p)
		}
		if room <= 0 {
			if err := s.awaitRoomLocked(); err != nil {
				return err
			}
			continue
		}
		n := min(room, len(p))
		s.keepLocked(p[:n])
		p = p[n:]
		h.mayGoOnLocked(s.http2Stream)
		if len(p) > 0 {
			h.flushLocked(nil)
		}
	}
	if flush && !s.gone {
		h.flushLocked(nil)
	}
	return s.reachedLocked()
}

// lendLocked is data for a stream with nothing that waits: what the client takes at once is framed from p itself. The rest is copied as soon
// as it may wait without the handler.
func (s *http2Exchange) lendLocked(p []byte) error {
	s.h.mu.AssertHeld()
	h := s.h
	s.setUnsentLocked(p[:len(p):len(p)], nil, true)
	h.mayGoOnLocked(s.http2Stream)
	h.flushLocked(nil)
	if len(s.unsent) > s.keepsLocked() {
		if err := s.awaitRoomLocked(); err != nil {
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
func (s *http2Exchange) reachedLocked() error {
	s.h.mu.AssertHeld()
	if !s.gone {
		return nil
	}
	s.lose()
	if errors.Is(s.h.out.Err(), os.ErrDeadlineExceeded) {
		return errDeadline // the connection was given up, since its client has taken too little of what waited
	}
	return errStreamReset
}

// lose records that the client can't be reached.
func (s *http2Exchange) lose() { s.failed, s.lost = true, true }

// awaitRoomLocked waits until half of what may wait of the answer without the handler waits.
func (s *http2Exchange) awaitRoomLocked() error {
	s.h.mu.AssertHeld()
	return s.awaitClientLocked(func() bool { return len(s.unsent) <= s.keepsLocked()/2 })
}

// awaitClientLocked waits until the client has taken so much, or opened its windows so far, that the handler is ready to go on.
func (s *http2Exchange) awaitClientLocked(ready func() bool) error {
	s.h.mu.AssertHeld()
	h := s.h
	h.flushLocked(nil)
	if s.gone || ready() {
		return nil
	}
	h.mu.Unlock()
	err := s.leave()
	h.mu.Lock()
	if err != nil {
		return err
	}
	answers := &s.server.answers
	answers.Wait(1)
	defer answers.Wait(-1)
	for start, before := s.server.clock.Now(), len(s.unsent); !s.gone && !ready(); {
		until := func() clock.Time {
			if own := s.scratch.ctx.writeUntil; own != 0 {
				return own
			}
			return s.windowDeadline(start)
		}
		// The budget may become crowded meanwhile, and the deadline an earlier one.
		ok := s.awaitLocked(&s.writable, earliest(until(), s.server.clock.Exact().Deadline(budget.CrowdedGrace(s.server.config.writing.Grace))))
		now, moved := s.server.clock.Exact(), before-len(s.unsent)
		if !ok && moved == 0 {
			switch deadline := until(); {
			case deadline == 0 || now < deadline:
				continue
			case s.scratch.ctx.writeUntil != 0 || !s.isExcusedLocked(now):
				s.writePace.Add(s.server.config.writing, 0, now.Sub(start))
				s.failed = true
				s.server.counts.timeouts.write.Add(1)
				return errDeadline
			}
		} else {
			s.writePace.Add(s.server.config.writing, moved, now.Sub(start))
		}
		start, before = now, len(s.unsent)
	}
	return nil
}

// endStream implements wire.
func (s *http2Exchange) endStream(trailer *Header) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if s.state.Over() || s.state == http2.HalfClosedLocal {
		return
	}
	h.listLocked(s.http2Stream)
	s.http2Stream.complete = true
	if !s.scratch.ctx.Response.tunnels() { // in a tunnel only DATA may follow (RFC 9113, section 8.5)
		s.tail = newTail(trailer)
	}
	h.mayGoOnLocked(s.http2Stream)
}

// answerApart implements wire.
func (s *http2Exchange) answerApart(e *HTTPError, fields *field.List, head bool) (size int64, err error) {
	h := s.h
	h.mu.Lock()
	if s.state.Over() {
		h.mu.Unlock()
		return 0, errStreamReset
	}
	size = s.refuseLocked(e, fields, head)
	s.late = true // the handler may wait for the body
	s.wakeLocked()
	h.mu.Unlock()
	h.flush()
	return size, nil
}

// awaitWindow implements windowWire.
func (s *http2Exchange) awaitWindow() (n int, err error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listLocked(s.http2Stream)
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

// park answers with the response's head, or switches protocols, and parks the stream.
func (s *http2Exchange) park(ctx *Ctx, serve func(*ParkedConn, Wake) error, switches bool) (*ParkedConn, error) {
	var err error
	if switches {
		_, err = s.prepareHijack(true)
	} else {
		err = ctx.maySucceed()
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.claimAnswer(); err != nil {
		return nil, err
	}
	h := s.h
	if reason := s.server.conns.addStream(); reason != nil {
		return nil, reason
	}
	ctx.endWatch()
	p := &ParkedConn{conn: h.conn, netConn: (*http2StreamConn)(s.http2Stream), serve: serve}
	p.out.Open((*parkedOwner)(p), (*http2StreamConn)(s.http2Stream), nil, false)
	if switches {
		ctx.switchProtocols()
	} else {
		s.head(ctx, noLength)
		s.count(ctx.Response.status)
	}
	h.mu.Lock()
	if s.gone {
		h.mu.Unlock()
		s.server.conns.removeStream()
		s.lose()
		return nil, errStreamReset
	}
	h.listLocked(s.http2Stream)
	s.parked, s.phase, s.readUntil = p, parkBusy, 0
	h.mu.Unlock()
	ctx.Request.body.hijacked()
	s.hijacked = true
	h.flush()
	return p, nil
}

// errNotSwitched refuses what no handler has switched. The client would take any answer of 2xx for the beginning of its protocol.
var errNotSwitched = &HTTPError{Status: 501, Detail: "doesn't switch to the protocol that was asked for",

	Err: errors.New("filo: a request by extended CONNECT has a successful answer only from Ctx.Upgrade or Ctx.Park")}

// errNoHijack is the error for other requests that ask for their connection.
var errNoHijack = &HTTPError{Status: 501, Detail: "needs HTTP/1.1",

	Err: errors.New("filo: a connection of HTTP/2 carries many requests, and can't be taken over for one")}

// maySucceed returns an error if the answer's status would tell the client that the protocol is switched. No head was sent yet.
func (c *Ctx) maySucceed() error {
	if c.Request.extended && c.Response.status/100 == 2 {
		return errNotSwitched
	}
	return nil
}

// prepareHijack implements wire. The handler may wait for the client from now on, so it must not have the connection.
func (s *http2Exchange) prepareHijack(switches bool) (prepared net.Conn, err error) {
	if !switches || !s.extended {
		return nil, errNoHijack
	}
	return nil, s.leave()
}

// switchProtocols implements wire.
func (s *http2Exchange) switchProtocols(header *Header) {
	header.Del("Sec-WebSocket-Accept") // RFC 8441, section 5: it isn't used
	ctx := s.scratch.ctx
	ctx.Response.status = 200
	s.head(ctx, noLength)
}

// hijack implements wire.
func (s *http2Exchange) hijack(net.Conn) (taken net.Conn, buffered []byte, err error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.gone {
		s.lose()
		return nil, nil, errStreamReset
	}
	h.listLocked(s.http2Stream)
	tunnel := &http2Tunnel{s: s.http2Stream, h: h}
	s.taken, s.hijacked = tunnel, true
	s.scratch.running.end()
	h.flushLocked(nil)
	return tunnel, nil, nil
}

// beginHTTP2 begins a turn of the connection with the worker's buffers.
func (w *scratch) beginHTTP2(h *http2Conn) *http2Turn {
	if w.http2 == nil {
		w.http2 = new(http2Scratch)
		w.http2.in, w.http2.lender = &w.in, w
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	h.beginTurn(&w.http2.http2Turn)
	return &w.http2.http2Turn
}

// giveHTTP2Away gives the connection to another worker than w, which runs the handler.
func (c *conn) giveHTTP2Away(w *scratch) {
	c.http2.Load().giveAway(&w.http2.http2Turn)
	w.running.begin(c.server.clock.Now(), w.timer.Class(), c, RunningHandler)
}

// takeHTTP2Away takes the connection from a worker that runs a handler inline, and returns the worker, or nil if there is none.
func (c *conn) takeHTTP2Away() *scratch {
	t := c.http2.Load().takeAway(func(t *http2Turn) {
		w, running := t.lender.(*scratch), (*class.Class)(nil)
		if w.worker != nil {
			running = w.worker.Running()
		}
		w.running.begin(c.server.clock.Exact(), running, c, RunningHandler)
	})
	if t == nil {
		return nil
	}
	return t.lender.(*scratch)
}
