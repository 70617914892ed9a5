package filo

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/race"
)

// This file joins requests by HTTP/2 to what handlers see: a worker's exchange runs the handler of a stream, and is the handler's wire.

// http2Exchange is the exchange of a request by HTTP/2, with its stream. A worker has one, for the request whose handler it runs: the stream
// itself knows neither the worker nor the Ctx. It is the handler's goroutine's.
type http2Exchange struct {
	exchange
	*http2conn.Stream // nil between requests
	conn              *conn
	h                 *http2conn.Conn // conn's
	driver            http2Runner
	apart             bool // others may have the connection
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
	s.Stream, s.conn, s.h, s.driver, s.apart = w.http2.Stream, c, c.http2.Load(), driver, false
}

// refuse answers a request that isn't valid without calling a handler.
func (s *http2Exchange) refuse(w *scratch, c *conn, driver http2Runner) {
	reason := faultErrors[w.http2.Refused]
	s.begin(w, c, driver)
	s.logRefused(reason)
	s.count(reason.Status)
	a := s.refusal(reason, &refusalFields)
	s.Refuse(&a, w.http2.IsHead())
	s.Stream = nil
}

// own begins a part of the handler in which the connection isn't taken from it. It reports false if others have the connection.
func (s *http2Exchange) own() bool {
	if s.apart {
		return false
	}
	t := &s.scratch.http2.Turn
	if s.h.Own(t) {
		return true
	}
	s.h.WasTaken(t)
	s.apart = true
	return false
}

// disown ends what own has begun. The monitor may have looked for the stream meanwhile, and in vain.
func (s *http2Exchange) disown() {
	s.h.Disown(&s.scratch.http2.Turn)
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
	ctx.exchange = &s.exchange
	ctx.begin(&s.Head, s.Text, s.Framing)
	ctx.Request.http2, ctx.Request.extended = true, s.Extended
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
	h.FlushSoon()
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
	defer h.Flush()
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
	w := s.scratch
	ctx.end()
	if race.Enabled {
		lend.Poison(s.Text)
		ctx.poison()
		w.ctx = new(Ctx)
		*ctx = Ctx{}
	}
	w.ctx.exchange = nil
	stream := s.Stream
	s.Stream = nil
	if out := stream.EndHandler(&w.http2.Turn); out != nil {
		p := (*ParkedConn)(out.Owner().(*parkedOwner))
		if !(parkedStream{p}).wait() {
			go p.serveBy(parkedStream{p})
		}
	}
}

// conclude renders or aborts an answer whose handler has returned. mine says that the caller owns the connection.
func (s *http2Exchange) conclude(ctx *Ctx, e ending, mine bool) {
	switch e {
	case endingWhole:
		s.render(ctx, mine)
	case endingAborted:
		ctx.Response.resetBody()
		s.Abort()
	}
	if ctx.Response.wantsClose() {
		s.h.CloseSoon()
	}
}

// render renders a whole answer.
func (s *http2Exchange) render(ctx *Ctx, mine bool) {
	r := &ctx.Response
	length, size := r.wholeLength(ctx)
	a := s.answerHead(r, length)
	if size > 0 {
		a.Body, a.Reused = r.bodyBytes(), r.source == bodyBuffer && size <= maxKeptBody
	}
	if ctx.Request.isHead() || !http1.BodyAllowed(r.status) {
		a.Trailer = nil
	}
	var t *http2conn.Turn
	if mine {
		t = &s.scratch.http2.Turn
	}
	s.Answer(t, &a)
}

// answerHead returns the head of the response as an answer of the stream.
func (s *http2Exchange) answerHead(r *Response, length int64) http2conn.Answer {
	a := http2conn.Answer{Status: r.status, Fields: &r.Header.list, Length: length, Date: s.server.clock.dateLiteral()}
	if r.Trailer.Len() > 0 && !r.tunnels() {
		a.Trailer = &r.Trailer.list
	}
	return a
}

// refusal returns an answer that the server gives instead of the handler's.
func (s *http2Exchange) refusal(reason *HTTPError, fields *field.List) http2conn.Answer {
	body := []byte(refusalText(reason))
	return http2conn.Answer{Status: reason.Status, Fields: fields, Length: int64(len(body)), Body: body, Date: s.server.clock.dateLiteral()}
}

// makeRoom decides what becomes of a whole answer whose handler has returned. If there is no room for it, the worker waits until the client has
// taken it, and keeps its place. That isn't for an answer that was made for this client alone: with a 503 its memory is free at once.
func (s *http2Exchange) makeRoom(ctx *Ctx) ending {
	r := &ctx.Response
	size := r.size()
	if size == 0 || size <= http2conn.MaxInlineBody && !s.server.answers.Crowded() || ctx.Request.isHead() || !http1.BodyAllowed(r.status) {
		return endingWhole
	}
	if s.HasRoom(size) {
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
	a := s.refusal(errAnswersFull, r.refusalFields(errAnswersFull))
	s.Replace(&a)
	return endingStreamed
}

// queuedBody implements wire.
func (s *http2Exchange) queuedBody() int64 { return s.QueuedBody() }

// overrunBody implements wire.
func (s *http2Exchange) overrunBody() bool { return s.OverrunBody() }

// localAddr implements wire.
func (s *http2Exchange) localAddr() net.Addr { return s.conn.localAddr() }

// remoteAddr implements wire.
func (s *http2Exchange) remoteAddr() net.Addr { return s.conn.remoteAddr() }

// remote implements wire.
func (s *http2Exchange) remote() netip.AddrPort { return s.conn.remote() }

// proxyHeader implements wire.
func (s *http2Exchange) proxyHeader() *proxyproto.Header { return s.conn.proxyHeader() }

// outerContext implements wire. The context of ConnContext is made once, or again if that has panicked.
func (s *http2Exchange) outerContext() (outer context.Context, carried bool) {
	if s.server.ConnContext != nil {
		s.h.Alone(func() { outer, _ = s.conn.outerContext() })
	}
	return outer, false
}

// deadlineSet implements wire. Most waits read the deadlines from the Ctx.
func (s *http2Exchange) deadlineSet(t time.Time, write bool) error {
	if !write {
		s.SetReadDeadline(s.server.clock.At(t))
	}
	return nil
}

// mayWatch implements watchWire: the connection is read whatever the handler does.
func (s *http2Exchange) mayWatch(*body) bool { return true }

// startWatch implements watchWire.
func (s *http2Exchange) startWatch(r *requestContext) (half, gone bool) { return false, s.Watch(r) }

// endWatch implements watchWire.
func (s *http2Exchange) endWatch() { s.Unwatch() }

// ClientGone implements http2conn.Watcher.
func (r *requestContext) ClientGone() { r.cancel(ErrClientGone) }

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
	r := http2conn.Reading{Until: &ctx.readUntil, Pace: &s.ReadPace, Fills: true, Gathers: s.gathers(b)}
	r.BeforeWait = func(start clock.Time) error {
		if err := s.beforeWait(b); err != nil {
			return err
		}
		if !r.Gathers {
			s.server.bodies.BeginSilence(&ctx.room, s.Stream, start) // it has a lock that comes before mu
		}
		s.scratch.running.is(RunningReading)
		waits = true
		return nil
	}
	n, err = s.Read(p, &r)
	if waits {
		s.scratch.running.is(ctx.runningState())
	}
	s.server.bodies.EndSilence(&ctx.room)
	return n, http2BodyError(err)
}

// http2BodyError returns what an error of a stream is for the reader of its body.
func http2BodyError(err error) error {
	switch err {
	case http2conn.ErrNoRoom:
		return errBodiesFull
	case http2conn.ErrAnswered:
		return ErrHandlerTimeout
	case http2conn.ErrLate:
		return errDeadline
	}
	return err
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
			return s.Inform(100, nil)
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
	if trailer := s.Trailer(); trailer != nil {
		list := &s.scratch.ctx.Request.Trailer.list
		for i := range trailer.Len() {
			list.AddBytes(string(trailer.Name(i)), trailer.Value(i))
		}
	}
}

// lendBody implements wire: it lends a body that has come as a whole. It waits for the first byte, so that no handler whose client only
// announces a body has a buffer.
func (s *http2Exchange) lendBody(b *body) (whole []byte, ok bool, err error) {
	whole, ok, waits := s.Whole()
	if waits {
		if s.scratch.ctx.timedOut() {
			return nil, true, b.fail(ErrHandlerTimeout)
		}
		if _, err := s.receive(b, nil); err != nil && err != io.EOF {
			return nil, true, b.fail(bodyError(err))
		}
		whole, ok, _ = s.Whole()
	}
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

// http2Duplex reads a request's body for package adaptor, beside the handler: see hooks.Duplex.
type http2Duplex struct {
	http2conn.BodyReader

	mu       sync.Mutex // one Read at a time
	limit    bodyLimit
	received int64
	err      error
}

// Read implements io.Reader.
func (d *http2Duplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	n, err := d.BodyReader.Read(p)
	switch err {
	case nil, io.EOF, http2conn.ErrBodyClosed:
		d.err = err
	case http2conn.ErrOver:
		d.err = errStreamOver
	default:
		d.err = bodyError(http2BodyError(err))
	}
	if d.received += int64(n); d.limit.isBelow(d.received) {
		n, d.err = 0, errTooLarge
	}
	return n, d.err
}

// Trailer implements hooks.Duplex.
func (d *http2Duplex) Trailer() iter.Seq2[[]byte, []byte] {
	if trailer := d.BodyReader.Trailer(); trailer != nil {
		return trailer.All()
	}
	return func(func(name, value []byte) bool) {}
}

// duplex returns a reader of the body for package adaptor: see hooks.Duplex. The Ctx can't read the body any more.
func (c *Ctx) duplex() (hooks.Duplex, bool) {
	c.check()
	b := &c.Request.body
	s, ok := c.exchange.wire.(*http2Exchange)
	if !ok || s.Extended || b.err != nil || b.received > 0 || b.wholeRead || b.formRead || c.Request.replaced != nil || s.leave() != nil {
		return nil, false
	}
	d := &http2Duplex{BodyReader: s.Lend(b.expect), limit: b.limit}
	if b.isTooLarge() {
		d.err = errTooLarge
	}
	b.fail(errBodyLent)
	return d, true
}

// errBodyLent is the error of a Ctx whose body is read otherwise.
var errBodyLent = errors.New("filo: the body is read by the handler of net/http")

// inform implements wire.
func (s *http2Exchange) inform(status int, header *Header) error {
	return s.Inform(status, &header.list)
}

// head implements wire.
func (s *http2Exchange) head(ctx *Ctx, length int64) {
	r := &ctx.Response
	switch {
	case !http1.BodyAllowed(r.status):
		length = r.bareLength(length)
	case r.tunnels():
		length = noLength
	}
	a := s.answerHead(r, length)
	s.Begin(&a, ctx.stream.discard)
}

// data implements wire.
func (s *http2Exchange) data(p []byte, flush bool) error {
	return s.sent(s.Write(p, flush, &http2conn.Writing{Until: &s.scratch.ctx.writeUntil, BeforeWait: s.leave}))
}

// sent returns what an error of the stream's answer is for the handler, and records what it says of the client.
func (s *http2Exchange) sent(err error) error {
	switch err {
	case http2conn.ErrReset:
		s.lose()
	case http2conn.ErrGivenUp:
		s.lose()
		return errDeadline
	case http2conn.ErrLate:
		s.failed = true
		return errDeadline
	}
	return err
}

// lose records that the client can't be reached.
func (s *http2Exchange) lose() { s.failed, s.lost = true, true }

// endStream implements wire.
func (s *http2Exchange) endStream(trailer *Header) {
	if s.scratch.ctx.Response.tunnels() { // in a tunnel only DATA may follow (RFC 9113, section 8.5)
		s.Finish(nil)
		return
	}
	s.Finish(&trailer.list)
}

var _ windowWire = (*http2Exchange)(nil)

// window implements windowWire.
func (s *http2Exchange) window() int { return s.Window() }

// awaitWindow implements windowWire.
func (s *http2Exchange) awaitWindow() (n int, err error) {
	n, err = s.AwaitWindow(&http2conn.Writing{Until: &s.scratch.ctx.writeUntil, BeforeWait: s.leave})
	return n, s.sent(err)
}

// answerApart implements wire.
func (s *http2Exchange) answerApart(e *HTTPError, fields *field.List, head bool) (size int64, err error) {
	a := s.refusal(e, fields)
	return s.AnswerApart(&a, head)
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
	if reason := s.server.conns.addStream(); reason != nil {
		return nil, reason
	}
	ctx.endWatch()
	stream := (*http2conn.StreamConn)(s.Stream)
	p := &ParkedConn{conn: s.conn, netConn: stream, serve: serve}
	p.out.Open((*parkedOwner)(p), stream, nil, false)
	if switches {
		ctx.switchProtocols()
	} else {
		s.head(ctx, noLength)
		s.count(ctx.Response.status)
	}
	if err := s.Park(&p.out); err != nil {
		s.server.conns.removeStream()
		return nil, s.sent(err)
	}
	ctx.Request.body.hijacked()
	s.hijacked = true
	s.h.Flush()
	return p, nil
}

// parkedStream serves a parked stream of HTTP/2: see http2conn.StreamConn.
type parkedStream struct{ *ParkedConn }

func (d parkedStream) stream() *http2conn.StreamConn { return d.netConn.(*http2conn.StreamConn) }

// Serve implements http2conn.Parked.
func (p *parkedOwner) Serve() { (*ParkedConn)(p).serveBy(parkedStream{(*ParkedConn)(p)}) }

// next implements parkable.
func (d parkedStream) next(int) (parkedStep, Wake) {
	closed, gone, came := d.stream().State()
	if gone {
		d.out.Fail(net.ErrClosed)
	}
	why, due := d.reason(came)
	switch {
	case closed:
		return parkedLost, 0
	case due:
		return parkedCall, why
	}
	return parkedWait, 0
}

// reason returns the reason to call the function, or false if there is none. A stream that is ending waits for its outbox alone.
func (d parkedStream) reason(came bool) (why Wake, due bool) {
	s, deadline := d.conn.server, d.ParkedConn.wait
	switch {
	case d.ending:
		return 0, false
	case d.asked.Load(), s.life.draining.Load():
		return WakeShutdown, true
	case came:
		return WakeData, true
	}
	return WakeDeadline, deadline != 0 && s.clock.Exact() >= deadline
}

// enter implements parkable: the goroutine is the stream's own.
func (d parkedStream) enter() bool { return true }

// wait implements parkable: the stream waits without a goroutine.
func (d parkedStream) wait() (left bool) {
	if _, due := d.reason(false); due {
		return false
	}
	if deadline := d.ParkedConn.wait; deadline != 0 {
		wait := max(deadline.Sub(d.conn.server.clock.Exact()), 0)
		if d.timer == nil {
			d.timer = time.AfterFunc(wait, d.stream().Wake)
		} else {
			d.timer.Reset(wait)
		}
	}
	return d.stream().Rest(d.ending)
}

// end implements parkable.
func (d parkedStream) end() {
	whole := d.ending && d.out.AllSent()
	defer d.endStream(whole) // deferred, since the function of OnClose may end the goroutine
	if whole {
		d.over()
	}
}

// endStream ends the stream: properly if all of its body was sent (whole), otherwise by a reset.
func (d parkedStream) endStream(whole bool) {
	defer d.conn.server.conns.removeStream()
	d.out.Fail(net.ErrClosed)
	d.stream().EndParked(whole)
	if d.timer != nil {
		d.timer.Stop()
	}
	d.over()
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
	if !switches || !s.Extended {
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
	tunnel, err := s.Take()
	if err != nil {
		return nil, nil, s.sent(err)
	}
	s.hijacked = true
	s.scratch.running.end()
	s.h.Flush()
	return tunnel, nil, nil
}

// beginHTTP2 begins a turn of the connection with the worker's buffers.
func (w *scratch) beginHTTP2(h *http2conn.Conn) *http2conn.Turn {
	if w.http2 == nil {
		w.http2 = new(http2Scratch)
		w.http2.In, w.http2.Lender = &w.in, w
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	h.BeginTurn(&w.http2.Turn)
	return &w.http2.Turn
}

// giveHTTP2Away gives the connection to another worker than w, which runs the handler.
func (c *conn) giveHTTP2Away(w *scratch) {
	c.http2.Load().GiveAway(&w.http2.Turn)
	w.running.begin(c.server.clock.Now(), w.timer.Class(), c, RunningHandler)
}

// takeHTTP2Away takes the connection from a worker that runs a handler inline, and returns the worker, or nil if there is none.
func (c *conn) takeHTTP2Away() *scratch {
	t := c.http2.Load().TakeAway(func(t *http2conn.Turn) {
		w, running := t.Lender.(*scratch), (*class.Class)(nil)
		if w.worker != nil {
			running = w.worker.Running()
		}
		w.running.begin(c.server.clock.Exact(), running, c, RunningHandler)
	})
	if t == nil {
		return nil
	}
	return t.Lender.(*scratch)
}
