package filo

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/requestctx"
)

// This file connects HTTP/2 requests with handlers: a worker's http2Exchange runs the handler of a stream, and is the handler's wire.

// http2Exchange is the exchange of an HTTP/2 request, with its stream. Each worker has an http2Exchange, for the request whose handler it
// runs: the stream itself knows neither the worker nor the Ctx. An http2Exchange belongs to the handler's goroutine.
type http2Exchange struct {
	exchange
	*http2conn.Stream // nil between requests
	conn              *conn
	h                 *http2conn.Conn // conn's
	driver            http2Runner
	apart             bool // another worker may own the connection
}

var (
	_ wire       = (*http2Exchange)(nil)
	_ watchWire  = (*http2Exchange)(nil)
	_ windowWire = (*http2Exchange)(nil)
)

// begin makes s the exchange for the stream of w's turn.
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

// own begins a section in which the connection isn't taken from the handler's worker. It reports false if another worker owns the
// connection.
func (s *http2Exchange) own() bool {
	if s.apart {
		return false
	}
	t := &s.scratch.http2.Turn
	if s.h.Own(t) {
		return true
	}
	s.h.WasTaken(t)
	s.driver.noticeLoss(s.scratch)
	s.apart = true
	return false
}

// wasTaken reports whether the monitor has taken the connection while the handler ran. If so, the monitor has recorded the request before
// wasTaken returns. The handler still learns of the loss from the method own, and then needs a place if it waits.
func (s *http2Exchange) wasTaken() bool {
	t := &s.scratch.http2.Turn
	if s.h.IsDisowned(t) {
		return false
	}
	s.h.WasTaken(t)
	return true
}

// disown ends the section that the method own has begun. In that section the monitor may have looked for the stream in vain: see
// http2Runner.watch.
func (s *http2Exchange) disown() {
	s.h.Disown(&s.scratch.http2.Turn)
	s.driver.watch(s.scratch)
}

// giveWay implements wire: it gives the connection away as well, since other streams wait for it. If the client has left, the error is
// ErrClientGone: nobody would read the answer of a handler that waits, and the connection may still have many unread requests.
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
	err := s.awaitPlace(s.scratch.occupy)
	if err == ErrClientGone {
		s.lose()
	}
	return err
}

// leave does what giveWay does, for a handler of any class that is about to wait.
func (s *http2Exchange) leave() error {
	if s.apart {
		return nil
	}
	class := s.scratch.timer.Class()
	return s.giveWay(class, placesFor(class.MayRunInline(), s.scratch.ctx.always))
}

// http2Progress says how far run has progressed.
type http2Progress uint8

const (
	progressHandler  http2Progress = iota // the handler or the ErrorHandler runs
	progressAnswer                        // run knows whether the caller owns the connection
	progressAnswered                      // the answer is on its way
	progressEnded
)

// run runs the handler on the stream's request. It reports false if another worker owns the connection now.
func (s *http2Exchange) run(w *scratch, c *conn, driver http2Runner) (mine bool) {
	s.begin(w, c, driver)
	h, ctx := s.h, w.ctx
	ctx.exchange = &s.exchange
	ctx.begin(&s.Head, s.Text, s.Framing)
	ctx.Request.http2, ctx.Request.extended = true, s.Extended
	progress := progressHandler
	defer func() {
		if progress != progressEnded {
			s.abandon(ctx, progress, mine) // the program's code is ending the goroutine, or the server has panicked
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
	h.FlushSoon()
	return false
}

// answer runs the handler, or returns the error to answer with instead.
func (s *http2Exchange) answer(ctx *Ctx) error {
	if err := s.enterServer(); err != nil {
		return err
	}
	if ctx.Request.isForServer() {
		return ctx.NoContent() // RFC 9110, section 9.3.7: OPTIONS * asks about the server
	}
	return s.invoke(ctx)
}

// yieldPlace gives up the place of a worker that no longer owns the connection. It is called before the end of the answer is queued: from
// then on, another goroutine may send it, and a client that has its answer and sends again at once must find the place free.
func (s *http2Exchange) yieldPlace() {
	if place := s.scratch.place; s.apart && place != nil {
		place.Leave()
	}
}

// yieldPlaceEarly is yieldPlace for the time before run knows whether the monitor has taken the connection.
func (s *http2Exchange) yieldPlaceEarly() {
	if s.apart || s.wasTaken() && !s.own() {
		s.yieldPlace()
	}
}

// abandon ends a stream whose handler, or other code of the program, ends its goroutine. Code of the program may call Goexit once more
// during abandon, so everything that the server must do is deferred.
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
	ctx.Response.forgetBody()
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

// conclude renders or aborts an answer whose handler has returned. The argument mine says that the caller owns the connection.
func (s *http2Exchange) conclude(ctx *Ctx, e ending, mine bool) {
	switch e {
	case endingWhole:
		s.yieldPlace()
		s.render(ctx, mine)
	case endingAborted:
		ctx.Response.resetBody()
		s.yieldPlace()
		s.Abort()
	default:
		ctx.Response.closeStream() // closes the response's body stream, if the handler has parked the HTTP/2 stream or taken it over
		s.yieldPlace()
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

// makeRoom decides how a whole answer is sent after its handler has returned. If the budget of answers has no room for it, the worker keeps
// its place and waits until the client has taken the answer. An answer that was rendered for this client alone is replaced by a 503
// instead, which frees its memory at once.
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
	s.yieldPlaceEarly()
	s.Replace(&a)
	return endingStreamed
}

// localAddr implements wire.
func (s *http2Exchange) localAddr() net.Addr { return s.conn.localAddr() }

// remoteAddr implements wire.
func (s *http2Exchange) remoteAddr() net.Addr { return s.conn.remoteAddr() }

// remote implements wire.
func (s *http2Exchange) remote() netip.AddrPort { return s.conn.remote() }

// proxyHeader implements wire.
func (s *http2Exchange) proxyHeader() *proxyproto.Header { return s.conn.proxyHeader() }

// outerContext implements wire. ConnContext is called once for a connection, and again if it has panicked.
func (s *http2Exchange) outerContext() (outer context.Context, carried bool) {
	if s.server.ConnContext != nil {
		s.h.Alone(func() { outer, _ = s.conn.outerContext() })
	}
	return outer, false
}

// deadlineSet implements wire. DuplexReader's waits need the deadline in the stream; all other waits read the deadline from the Ctx.
func (s *http2Exchange) deadlineSet(t time.Time, write bool) error {
	if !write {
		s.SetReadDeadline(s.server.clock.At(t))
	}
	return nil
}

// mayWatch implements watchWire: the driver reads the connection whatever the handler does.
func (s *http2Exchange) mayWatch(*body) bool { return true }

// StartWatch implements watchWire.
func (s *http2Exchange) StartWatch(r *requestctx.Context) (half, gone bool) { return false, s.Watch(r) }

// EndWatch implements watchWire.
func (s *http2Exchange) EndWatch() { s.Unwatch() }

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
	bare := ctx.stream.discard
	if bare && ctx.returned {
		s.yieldPlaceEarly()
	}
	s.Begin(&a, bare, ctx.returned)
}

// data implements wire.
func (s *http2Exchange) data(p []byte, flush bool) error {
	return s.sent(s.Write(p, flush, &http2conn.Writing{Until: &s.scratch.ctx.writeUntil, BeforeWait: s.leave, Apart: s.apart}))
}

// sent turns an error of the stream's answer into the error that the handler gets, and records what the error says about the client.
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
	s.yieldPlaceEarly()
	if s.scratch.ctx.Response.tunnels() { // in a tunnel only DATA may follow (RFC 9113, section 8.5)
		s.Finish(nil)
		return
	}
	s.Finish(&trailer.list)
}

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
