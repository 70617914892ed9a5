package filo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/answerconn"
	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/running"
)

var errNoParking = &HTTPError{Status: 501, Err: errors.New("filo: net/http middleware keeps the connection from being taken over")}

// carried is the wire of a request that another server has received. That server owns the connection and frames the messages. The
// filo.Server, which may also serve connections of its own, counts the request, and Shutdown waits for it. If a net/http middleware stands
// between a request of the filo.Server and its handler, the handler's request is a part (isPart) of the request around the middleware.
type carried struct {
	exchange
	transport hooks.Transport
	place     admit.Place   // if isPart is set, guarded by nested's lock, and of the kind None while the part uses the place of the request around it
	cut       chan struct{} // closed when CutBody has ended the Read; nil before CutBody; guarded by budget.Bodies' mu during a Read
	parked    *ParkedConn   // set once, by park or parkStream, unless the parked connection is one of filo's own
	counts    answerCounts  // a part counts its answer here; the server ignores these counts
	isHead    bool          // the method is HEAD
	isPart    bool          // the request is a part of one that the filo.Server already counts
	joined    bool          // a shutdown waits for the request; set by detach or before the handler runs
	streams   bool          // a body of unknown length is being sent
	nests     bool          // the request came over a connection of filo's own: see nested
	reads     atomic.Bool   // the handler is in readBody
	switches  bool          // a 101 must be sent when the connection is taken over
}

// nested is the Transport of a request that came over one of filo's connections and through a net/http middleware. Its answer may be
// written to the Ctx of the request around the middleware.
type nested interface {
	// Join makes the request a part of a request that the server already handles, and reports false if there is no such request. If the
	// middleware gives up waiting for the part, the part goes on by itself: detach is called, unless Leave was called before. detach gets the
	// Ctx of the request around the part, or nil if that request has ended.
	Join(s *Server, detach func(*Ctx)) bool
	Leave()
	// Around calls f with the Ctx of the request around the part, or with nil if the middleware has given up, or if another part uses that Ctx
	// exclusively. No two of detach, Leave and f run at once.
	Around(f func(*Ctx) error) error
	// Outer calls f with the Ctx of the request around the part, if that Ctx may still take its connection over and the middleware allows it.
	// Otherwise ok is false.
	Outer(f func(*Ctx) error) (ok bool, err error)
	// TakeOver tells the middleware that the connection is being taken over, and calls take, which takes it over. A head that was written
	// before becomes the head of the outer Ctx's answer. If the middleware encodes the body, so that the body can't bypass it, TakeOver
	// doesn't call take, and ok is false.
	TakeOver(take func(*Ctx) (net.Conn, error)) (ok bool, err error)
}

// carriedScratch pools buffers for carried requests, which have no worker.
var carriedScratch = sync.Pool{New: func() any { return &scratch{running: new(running.Record[conn])} }}

// serveCarried answers a request that another server has received as if it had come over one of this server's own connections: see
// inside.Serve.
func (s *Server) serveCarried(t hooks.Transport) error {
	return s.carry(t, func(ctx *Ctx) error { return ctx.exchange.answerCarried(ctx) })
}

// answerCarried runs the server's Handler as on the server's own connections: it answers OPTIONS *, recovers from panics, and checks the
// request's host (directed).
func (x *exchange) answerCarried(ctx *Ctx) error {
	if ctx.Request.isForServer() {
		return ctx.NoContent() // RFC 9110, section 9.3.7: OPTIONS * asks about the server
	}
	return x.guard(func() error {
		if err := x.directed(&ctx.Request); err != nil {
			return err
		}
		return x.server.Handler(ctx)
	})
}

// carry runs h on a request that another server has received: see inside.Carry.
func (s *Server) carry(t hooks.Transport, h Handler) error {
	s.configure()
	w := carriedScratch.Get().(*scratch)
	c := &carried{transport: t, place: s.pool.places.NewPlace()}
	c.exchange = exchange{server: s, tlsState: t.TLS(), wire: c, scratch: w, answered: &c.counts}
	refused := c.join()
	if w.place = nil; !c.isPart { // a part uses the place of the request around it, and that request is already listed
		w.place = &c.place
		s.running.Add(w.running)
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	ctx := w.ctx
	ctx.exchange = &c.exchange
	returned := false
	defer func() {
		if !returned {
			c.abandon(ctx) // h has panicked
			if c.parked != nil {
				c.abandonParked(c.parked)
			}
		}
	}()
	err := c.run(ctx, h, refused)
	c.end(ctx)
	returned = true
	// Not deferred: after a panic the buffers may be in any state.
	w.place = nil
	carriedScratch.Put(w)
	if c.parked != nil {
		return c.serveParked(c.parked)
	}
	return err
}

// join makes the server count the request, and a shutdown wait for it. If the server accepts no more requests, join returns the refusal.
func (c *carried) join() (refused *HTTPError) {
	s := c.server
	if n, ok := c.transport.(nested); ok && n.Join(s, c.detach) {
		c.isPart = true
		return nil
	}
	c.answered = &s.counts.refusalAnswers
	if s.life.Draining.Load() {
		return errEnding
	}
	counts, refused := s.conns.addCarried()
	if refused == nil {
		c.answered, c.joined = counts, true
	}
	return refused
}

// detach makes a part independent when the middleware around it has given up. A shutdown then waits for the part, Server.Running lists it,
// and it enters a place of the same kind as the request around it, even if none is free.
func (c *carried) detach(outer *Ctx) {
	c.joined = true
	c.server.conns.keepCarried()
	c.server.running.Add(c.scratch.running)
	if outer != nil && c.place.Kind() == admit.None {
		c.place.EnterBeyond(outer.exchange.placeKind())
	}
}

// placeKind returns the kind of the handler's place, if the handler may keep it for long. It returns admit.None if the handler's worker
// leads a loop, or has a place for quick handlers.
func (x *exchange) placeKind() (kind admit.Kind) {
	if c, ok := x.wire.(*carried); ok && c.isPart {
		c.transport.(nested).Around(func(outer *Ctx) error {
			if kind = c.place.Kind(); kind == admit.None && outer != nil {
				kind = outer.exchange.placeKind()
			}
			return nil
		})
		return kind
	}
	if p := x.scratch.place; p != nil && (p.Kind() == admit.Ordinary || p.Kind() == admit.Always) {
		return p.Kind()
	}
	return admit.None
}

// leave undoes join, once the handler has returned or has taken the connection over. By then, the server counts a parked connection among
// its own.
func (c *carried) leave() {
	c.leaveAround()
	if c.joined {
		c.joined = false
		c.server.conns.removeCarried()
	}
}

// leaveAround ends a part's use of the request around it. If the request isn't a part, it does nothing.
func (c *carried) leaveAround() {
	if c.isPart {
		c.transport.(nested).Leave()
	}
}

// abandon ends the request after its handler has panicked.
func (c *carried) abandon(ctx *Ctx) {
	defer c.end(ctx)
	if ctx.timeout != nil {
		c.endTimeout(ctx, nil)
	}
}

// end ends the request. Even if the program's Logger panics in release, the request leaves its place, and no shutdown waits for it.
func (c *carried) end(ctx *Ctx) {
	defer c.leave()
	defer c.place.Leave()
	defer c.server.running.Remove(c.scratch.running)
	defer c.leaveAround()
	c.release(ctx)
}

// release gives back the parts of the scratch that the request uses.
func (c *carried) release(ctx *Ctx) {
	ctx.end()
	if race.Enabled {
		lend.Poison(ctx.Request.head)
		ctx.poison()
		c.scratch.ctx = nil
	}
	ctx.Response.reset()
	ctx.exchange = nil
}

func (c *carried) run(ctx *Ctx, h Handler, refused *HTTPError) error {
	fields := &overloadFields
	if err := c.receive(ctx); err != nil {
		refused, fields = err, &refusalFields
	}
	if refused != nil {
		c.logRefused(refused)
		c.count(refused.Status)
		_, failed := c.answerApart(refused, fields, c.isHead)
		return failed
	}
	err := c.call(ctx, h)
	switch c.finish(ctx, err) {
	case endingWhole:
		c.render(ctx)
	case endingAborted:
		return ErrAbort
	}
	if c.failed {
		return ErrClientGone
	}
	return nil
}

// call runs the handler once the request has a place. A part (isPart) gets no place and no measurement of its own, since the request around
// the middleware has both.
func (c *carried) call(ctx *Ctx, h Handler) error {
	w, own := c.scratch, &c.server.classes.handler
	w.timer.Switch(own)
	if c.isPart {
		c.recordRunning(own, running.Handler)
		return h(ctx)
	}
	if err := c.enterServer(own); err != nil {
		return err
	}
	c.recordRunning(own, running.Handler)
	w.timer.Begin(own, false)
	err := h(ctx)
	w.endOuter()
	return err
}

// enterServer gives the request a place: an ordinary place, which counts against Concurrency, or a reserved place if the server's handler
// is quick or may enter a quick class.
func (c *carried) enterServer(own *class.Class) error {
	err := c.giveWay(own, placesFor(own.MayRunInline() || own.Trusted.Load(), false))
	if err == errBusy {
		err = c.queueUp()
	}
	return c.notAdmitted(err)
}

// receive begins the request. If the head is invalid or exceeds a limit, receive returns the refusal.
func (c *carried) receive(ctx *Ctx) *HTTPError {
	h := &c.scratch.parser.RequestHead
	b, length, fault := c.transport.Head(h, &c.server.config.head)
	c.isHead = string(h.Method(b)) == "HEAD"
	var f http1.Framing
	if fault == http1.NoFault {
		f, fault = h.Frame(b)
	}
	if fault != http1.NoFault {
		return faultErrors[fault]
	}
	f.Length = length
	ctx.begin(h, b, f)
	if major := c.transport.Major(); major > 1 {
		ctx.Request.major = major
	}
	return nil
}

// render sends a whole answer.
func (c *carried) render(ctx *Ctx) {
	r := &ctx.Response
	c.scratch.running.Is(running.Answering)
	length, size := r.wholeLength(ctx)
	if size <= copiedBody && !c.isPart {
		c.place.Leave() // a client that has its answer and sends again at once must find the place free
	}
	c.writeHead(ctx, length, false)
	if size > 0 && c.write(r.bodyBytes()) != nil {
		return
	}
	c.endStream(&r.Trailer)
}

// writeHead sends the head of a final answer.
func (c *carried) writeHead(ctx *Ctx, length int64, streams bool) {
	r := &ctx.Response
	head := hooks.Head{Status: r.status, Length: length, Streams: streams}
	head.Close = ctx.Request.framing.Close || r.wantsClose() || c.endsWithAnswer() && r.tunnels() || !c.isPart && c.server.life.EndsConns()
	head.Fields = c.server.finalFields(&r.Header.list)
	if ctx.mayTrail(streams) {
		head.Trailer = &r.Trailer.list
	}
	c.transport.WriteHead(head)
}

// mayTrail reports whether trailer fields can follow the body: in HTTP/1.1 only a body of unknown length, in later versions any body.
func (c *Ctx) mayTrail(streams bool) bool {
	return c.Request.line.Minor > 0 && (streams || c.Request.major > 1 && !c.Request.isHead() && http1.BodyAllowed(c.Response.status))
}

// endsWithAnswer reports whether the end of an answer without a length is the end of the connection, which carries one request at a time.
func (c *carried) endsWithAnswer() bool { return c.transport.Major() == 1 }

func (c *carried) write(p []byte) error {
	if _, err := c.transport.Write(p); err != nil {
		c.failed = true
		return err
	}
	return nil
}

// finalFields returns the fields of a final answer. They include the server's own fields (Server, Date), but not those that describe the
// framing.
func (s *Server) finalFields(h *field.List) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) { s.yieldFields(h, yield) }
}

func (s *Server) yieldFields(h *field.List, yield func(name, value []byte) bool) {
	server, date := len(s.config.serverLine) == 0, false
	for i := range h.Len() {
		id := h.ID(i)
		if !id.InFinal() {
			continue
		}
		switch id {
		case field.Server:
			server = true
		case field.Date:
			if date = true; len(h.Value(i)) == 0 {
				continue
			}
		}
		if !yield(h.Name(i), h.Value(i)) {
			return
		}
	}
	if !server && !yieldLine(s.config.serverLine, yield) {
		return
	}
	if !date {
		yieldLine(s.clock.dateLine(), yield)
	}
}

// yieldLine yields a rendered field, unless the line is empty.
func yieldLine(line []byte, yield func(name, value []byte) bool) bool {
	if len(line) == 0 {
		return true
	}
	name, value, _ := bytes.Cut(line[:len(line)-len("\r\n")], []byte(": "))
	return yield(name, value)
}

// localAddr implements wire.
func (c *carried) localAddr() net.Addr { return c.transport.LocalAddr() }

// proxyHeader implements wire.
func (c *carried) proxyHeader() *proxyproto.Header { return nil }

// remoteAddr implements wire.
func (c *carried) remoteAddr() net.Addr { return c.transport.RemoteAddr() }

// remote implements wire.
func (c *carried) remote() netip.AddrPort { return addrPortOf(c.transport.RemoteAddr()) }

// outerContext implements wire.
func (c *carried) outerContext() (outer context.Context, carried bool) {
	return c.transport.Context(), true
}

// deadlineSet implements wire: the other server enforces the deadline.
func (c *carried) deadlineSet(t time.Time, write bool) error {
	if write {
		return c.transport.SetWriteDeadline(t)
	}
	return c.transport.SetReadDeadline(t)
}

// readBody implements wire.
func (c *carried) readBody(b *body, p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.isTooLarge():
		return 0, b.fail(errTooLarge)
	}
	c.reads.Store(true) // set before the check of the time-out: either it has answered already, or it will find that the handler reads
	defer c.reads.Store(false)
	switch {
	case c.scratch.ctx.timedOut():
		return 0, b.fail(ErrHandlerTimeout)
	case !c.scratch.mayRun():
		return 0, b.fail(errBusy)
	case !b.chunked:
		p = p[:min(int64(len(p)), b.remaining)]
	}
	if err := c.expected(b); err != nil {
		return 0, b.fail(err)
	}
	n, err := c.receiveBody(p)
	switch {
	case n == 0 && err != nil && err != io.EOF && c.scratch.ctx.timedOut():
		return 0, b.fail(ErrHandlerTimeout)
	case err == errSlowBody:
	case n > 0:
		if err := b.took(n); err != nil {
			return 0, err
		}
		return n, nil
	case err == nil:
		return 0, nil
	case err == io.EOF && b.chunked:
		for name, value := range c.transport.Trailer() {
			if field.Lookup(name).InTrailer() {
				c.scratch.ctx.Request.Trailer.Add(name, value)
			}
		}
		b.reachEnd()
		return 0, io.EOF
	}
	if !c.isPart && (errors.Is(err, os.ErrDeadlineExceeded) || err == errSlowBody) {
		c.server.counts.timeouts.body.Add(1)
	}
	return 0, b.fail(bodyError(err))
}

// expected sends the 100 (Continue) for which the client may wait.
func (c *carried) expected(b *body) error {
	ctx := c.scratch.ctx
	if !b.expect {
		return nil
	}
	if err := ctx.holdAnswer(); err != nil {
		return err
	}
	defer ctx.releaseAnswer()
	b.expect = false
	if b.received > 0 || ctx.stream.sent {
		return nil
	}
	return c.inform(100, new(Header))
}

// receiveBody reads a part of the body. The error is errSlowBody if CutBody has ended the read because the client was silent.
func (c *carried) receiveBody(p []byte) (n int, err error) {
	room, bodies := &c.scratch.ctx.room, &c.server.bodies
	if room.Bytes() > 0 && c.transport.MayInterrupt() {
		bodies.BeginSilence(room, c, c.server.clock.Exact())
	}
	record := c.scratch.running
	record.Is(running.Reading)
	defer func() { // deferred, since Read may be the program's code and may panic
		record.Is(c.scratch.ctx.runningState())
		bodies.EndSilence(room)
		if c.cut != nil {
			<-c.cut // CutBody's deadline must not affect what the other server does after this request
			n, err = 0, errSlowBody
		}
	}()
	return c.transport.Read(p)
}

// CutBody does for a request of another server what conn.CutBody does for one of this server. It calls SetReadDeadline on another goroutine,
// since the caller holds a lock and SetReadDeadline may be the program's code.
func (c *carried) CutBody(room *budget.Room) bool {
	cut := make(chan struct{})
	c.cut = cut
	c.server.bodies.Pass(room)
	transport := c.guarded()
	go func() {
		defer close(cut)
		transport.SetReadDeadline(clock.Past)
	}()
	return true
}

// guardedTransport is the Transport for goroutines of the server's own. A Transport may call the program's code, such as a ResponseWriter of
// middleware. A panic there would end the process. So it is logged, and becomes an error.
type guardedTransport struct {
	hooks.Transport
	logger *slog.Logger
}

func (c *carried) guarded() guardedTransport { return guardedTransport{c.transport, c.server.logger()} }

func (t guardedTransport) guard(f func() error) error {
	panicked, err := protect(f)
	if panicked == nil {
		return err
	}
	logPanic(t.logger, "panic in another server's transport", panicked.Value, panicked.Stack)
	return panicked
}

// Write implements hooks.Transport.
func (t guardedTransport) Write(p []byte) (n int, err error) {
	err = t.guard(func() (err error) {
		n, err = t.Transport.Write(p)
		return err
	})
	return n, err
}

// Flush implements hooks.Transport.
func (t guardedTransport) Flush() error { return t.guard(t.Transport.Flush) }

// SetReadDeadline implements hooks.Transport.
func (t guardedTransport) SetReadDeadline(at time.Time) error {
	return t.guard(func() error { return t.Transport.SetReadDeadline(at) })
}

// interruptRead ends a read of the body, if that is possible.
func (t guardedTransport) interruptRead() {
	t.guard(func() error {
		if !t.Transport.MayInterrupt() {
			return nil
		}
		return t.Transport.SetReadDeadline(clock.Past)
	})
}

// SetWriteDeadline implements hooks.Transport.
func (t guardedTransport) SetWriteDeadline(at time.Time) error {
	return t.guard(func() error { return t.Transport.SetWriteDeadline(at) })
}

// lendBody implements wire.
func (c *carried) lendBody(*body) (whole []byte, ok bool, err error) { return nil, false, nil }

// giveWay implements wire. There is no loop to give away, but a handler that may take long needs a place.
func (c *carried) giveWay(class *class.Class, places admit.Kinds) error {
	ctx := c.scratch.ctx
	switch {
	case !class.IsQuick() && ctx.timedOut():
		return ErrHandlerTimeout
	case !c.isPart:
		return c.scratch.giveWay(class, places)
	}
	return c.transport.(nested).Around(func(outer *Ctx) error {
		switch {
		case outer != nil:
			outer.always = outer.always || ctx.always
			return outer.exchange.wire.giveWay(class, places.Or(admit.Always, outer.always))
		case !c.place.Enter(places):
			return errBusy
		}
		return nil
	})
}

// queueUp implements wire.
func (c *carried) queueUp() error {
	if c.scratch.ctx.stream.sent {
		return errBusy
	}
	around, occupy := false, func() bool { return c.place.Enter(admit.Ordinary.Only()) }
	if c.isPart {
		n := c.transport.(nested)
		if err := n.Around(func(outer *Ctx) error {
			if around = outer != nil; around {
				return outer.exchange.wire.queueUp()
			}
			return nil
		}); around {
			return err
		}
		enter := occupy
		occupy = func() (ok bool) {
			n.Around(func(*Ctx) error { ok = enter(); return nil })
			return ok
		}
	}
	if err := c.server.joinQueue(); err != nil {
		return err
	}
	if !c.isPart {
		c.place.Leave()
	}
	err := c.awaitPlace(occupy)
	c.lost = c.lost || err == ErrClientGone
	return err
}

// inform implements wire.
func (c *carried) inform(status int, h *Header) error {
	c.transport.WriteHead(hooks.Head{Status: status, Length: noLength, Fields: func(yield func(name, value []byte) bool) {
		for i := range h.list.Len() {
			if http1.InInterim(status, h.list.ID(i)) && !yield(h.list.Name(i), h.list.Value(i)) {
				return
			}
		}
	}})
	return nil
}

// head implements wire.
func (c *carried) head(ctx *Ctx, length int64) {
	r, streams := &ctx.Response, false
	switch {
	case !http1.BodyAllowed(r.status):
		length = r.bareLength(length)
	case r.tunnels():
		length = noLength
	case !ctx.Request.isHead():
		streams = length < 0
	}
	c.streams = streams
	c.writeHead(ctx, length, streams)
}

// data implements wire.
func (c *carried) data(p []byte, flush bool) error {
	if len(p) > 0 {
		if err := c.write(p); err != nil {
			return err
		}
	}
	if !flush && len(p) <= copiedBody {
		return nil
	}
	err := c.transport.Flush()
	c.failed = c.failed || err != nil
	return err
}

// endStream implements wire.
func (c *carried) endStream(trailer *Header) {
	if !c.scratch.ctx.mayTrail(c.streams) {
		return
	}
	c.transport.WriteTrailer(func(yield func(name, value []byte) bool) {
		for i := range trailer.list.Len() {
			if trailer.list.ID(i).InTrailer() && !yield(trailer.list.Name(i), trailer.list.Value(i)) {
				return
			}
		}
	})
}

// answerApart implements wire. It also ends the handler's wait for its body, if the other server can do that.
func (c *carried) answerApart(e *HTTPError, fields *field.List, head bool) (size int64, err error) {
	body := refusalText(e)
	length := int64(len(body))
	if head {
		body = ""
	}
	guarded := c.guarded()
	err = guarded.guard(func() error {
		t := c.transport
		t.WriteHead(hooks.Head{Status: e.Status, Length: length, Close: c.endsWithAnswer(), Fields: c.server.finalFields(fields)})
		if !head {
			if _, err := t.Write([]byte(body)); err != nil {
				return err
			}
		}
		return t.Flush()
	})
	if c.reads.Load() {
		guarded.interruptRead()
	}
	return int64(len(body)), err
}

// prepareHijack implements wire.
func (c *carried) prepareHijack(switches bool) (prepared net.Conn, err error) {
	if !c.scratch.mayRun() {
		return nil, errBusy
	}
	c.nests, err = c.prepareOuter(switches, false)
	return nil, err
}

// switchProtocols implements wire.
func (c *carried) switchProtocols(*Header) { c.switches = true }

// hijack implements wire. If the request came over a connection of filo's own, that connection renders the 101, since it may use HTTP/2.
func (c *carried) hijack(net.Conn) (taken net.Conn, buffered []byte, err error) {
	h := &c.scratch.ctx.Response.Header
	if c.nests && c.switches {
		c.inform(101, h)
		err = c.takeOver(func(outer *Ctx) (net.Conn, error) {
			taken, buffered, err = outer.upgrade()
			return taken, err
		})
		if err == nil {
			c.hijacked = true
			c.leave()
		}
		return taken, buffered, err
	}
	if taken, err = c.hijackTransport(h); err == nil {
		c.leave()
	}
	return taken, nil, err
}

// hijackTransport takes the connection over from the other server, and sends a 101 with the fields of h if the protocol is switched.
func (c *carried) hijackTransport(h *Header) (taken net.Conn, err error) {
	if taken, err = c.transport.Hijack(); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			err = &HTTPError{Status: 501, Err: fmt.Errorf("filo: the other server doesn't give its connection away: %w", err)}
		}
		return nil, err
	}
	c.hijacked = true
	if c.switches {
		if _, err := taken.Write(http1.AppendInterim(nil, 101, &h.list)); err != nil {
			taken.Close()
			c.failed = true
			return nil, err
		}
	}
	return taken, nil
}

// prepareOuter makes sure that filo's connection around the middleware can be taken over, before a head announces the takeover. If there is
// no such connection, ok is false.
func (c *carried) prepareOuter(switches, parks bool) (ok bool, err error) {
	n, ok := c.transport.(nested)
	if !ok {
		return false, nil
	}
	return n.Outer(func(outer *Ctx) error {
		switch w := outer.exchange.wire.(type) {
		case *conn:
			if err := w.driver.leaveLoop(); err != nil {
				return err
			}
			if !parks && !w.scratch.mayRun() {
				return errBusy
			}
		case *http2Exchange:
			if switches || !parks {
				_, err := w.prepareHijack(switches)
				return err
			}
		case *carried:
			_, err := w.prepareOuter(switches, parks)
			return err
		}
		return nil
	})
}

// preparePark makes sure that the connection can be parked, and claims the answer. It reports whether the connection is one of filo's own.
func (c *carried) preparePark(ctx *Ctx, switches bool) (nests bool, err error) {
	if nests, err = c.prepareOuter(switches, true); err != nil {
		return false, err
	}
	if !nests && c.server.conns.isClosed() {
		return false, errEnding
	}
	return nests, ctx.claimAnswer()
}

// park parks the connection of a request, after sending a 101 if switches is true.
func (c *carried) park(ctx *Ctx, serve func(*ParkedConn, Wake) error, switches bool) (p *ParkedConn, err error) {
	nests, err := c.preparePark(ctx, switches)
	if err != nil {
		return nil, err
	}
	h := &ctx.Response.Header
	if switches {
		ctx.switchProtocols()
	}
	if !nests {
		taken, err := c.hijackTransport(h)
		if err != nil {
			return nil, err
		}
		if p, err = c.adopt(ctx, taken, serve, switches); err != nil {
			taken.Close()
		}
		return p, err
	}
	if switches {
		c.inform(101, h)
	}
	err = c.takeOver(func(outer *Ctx) (net.Conn, error) {
		p, err = outer.parkSwitched(switches, serve)
		return p, err
	})
	return c.taken(ctx, p, err)
}

// takeOver calls take to take over filo's connection around the middleware.
func (c *carried) takeOver(take func(outer *Ctx) (net.Conn, error)) error {
	ok, err := c.transport.(nested).TakeOver(take)
	if !ok {
		return errNoParking
	}
	return err
}

// parkStream begins a streamed answer, and parks the connection. The parked connection is filo's own if the request came over one and no
// middleware encodes the body. Otherwise it belongs to the server that received the request, such as net/http's.
func (c *carried) parkStream(ctx *Ctx, serve func(*ParkedConn, Wake) error) (p *ParkedConn, err error) {
	nests, err := c.preparePark(ctx, false)
	if err != nil {
		return nil, err
	}
	ctx.Response.close = ctx.Response.close || !nests && c.endsWithAnswer()
	c.writeHead(ctx, noLength, true)
	c.count(ctx.Response.status)
	if nests {
		ok, err := c.transport.(nested).TakeOver(func(outer *Ctx) (net.Conn, error) {
			p, err = outer.ParkStream(serve)
			return p, err
		})
		if ok {
			return c.taken(ctx, p, err)
		}
	}
	if err := c.transport.Flush(); err != nil {
		c.failed = true
		return nil, err
	}
	return c.adopt(ctx, answerconn.New(c.guarded()), serve, false)
}

// taken records that the connection was parked, unless that has failed.
func (c *carried) taken(ctx *Ctx, p *ParkedConn, err error) (*ParkedConn, error) {
	if err != nil {
		return nil, err
	}
	ctx.endWatch()
	ctx.Request.body.hijacked()
	c.hijacked = true
	return p, nil
}

// inherit copies another request's route, parameters, values, body limit and log attributes: see inside.Inherit.
func (c *Ctx) inherit(from *Ctx) {
	c.check()
	c.match.Copy(&from.match)
	c.rendered = from.rendered
	c.Request.body.limit = from.Request.body.limit
	clear(c.values)
	c.values = append(c.values[:0], from.values...)
	c.logAttributes, c.logger = append(c.logAttributes[:0], from.logAttributes...), nil
}

// adopt parks a connection of a carried request. A stream is served to its end by the goroutine on which the other server handles the
// request, since the answer ends when that goroutine returns. From now on this server treats the connection like one of its own, and
// Shutdown waits for it, but it counts against the other server's limits. frames is passed to outbox.Open.
func (c *carried) adopt(ctx *Ctx, netConn net.Conn, serve func(*ParkedConn, Wake) error, frames bool) (*ParkedConn, error) {
	owner := newConn(c.server, netConn)
	owner.setState(stateHandler)
	if reason := c.server.conns.adopt(owner); reason != nil {
		return nil, reason
	}
	p := &ParkedConn{conn: owner, netConn: netConn, serve: serve, carried: true}
	p.class = c.server.classes.entered.Parked(c.scratch.timer.Class())
	if _, streams := netConn.(*answerconn.Conn); !streams || !c.isPart { // the request around a part has a place for its stream
		p.place = c.server.pool.places.NewPlace()
	}
	p.out.Open((*parkedOwner)(p), nil, netConn, frames)
	p.unread = !ctx.Request.body.complete()
	c.parked, owner.parked = p, p
	return c.taken(ctx, p, nil)
}

// serveParked serves a parked connection once the handler has returned: a stream on this goroutine, and a hijacked connection on a
// goroutine of its own.
func (c *carried) serveParked(p *ParkedConn) error {
	stream, ok := p.netConn.(*answerconn.Conn)
	if !ok {
		go p.run()
		return nil
	}
	defer stream.Leave() // runs even after a Goexit
	p.run()
	if !stream.Whole {
		return ErrAbort
	}
	return nil
}

// abandonParked ends the parked connection of a handler that has panicked.
func (c *carried) abandonParked(p *ParkedConn) {
	(&blockingParked{ParkedConn: p}).end()
	if stream, ok := p.netConn.(*answerconn.Conn); ok {
		stream.Leave()
	}
}
