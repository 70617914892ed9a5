package filo

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

// requestContext is a request's context. Most handlers only hand it on to calls that look for values in it, or never wait: so
// nothing that could end it is set up before somebody asks for its end, by Done, by Err or by making a context of it that ends.
// That arms it.
//
// Any goroutine may arm it, at any time, while the connection belongs to the one that runs the handler, its owner:
//
//   - The owner sets wire while nothing but a watch for the client may read the connection: from when the whole body has come
//     (Ctx.watch) until the owner reads the connection itself, gives it away or ends the request (Ctx.endWatch).
//   - Who arms the context holds mu, and starts the watch if wire is set. If it isn't, the owner starts the watch as soon as it
//     sets wire. A watch touches only what is safe beside a handler that writes.
//   - The owner takes wire back under mu, and then stops a watch that was started. So the connection and its descriptor outlive
//     whatever is done under mu while wire is set.
//   - A request that has ended leaves a cause. A context that is armed after that has ended, for this cause.
type requestContext struct {
	server *Server // immutable
	// outer is the context whose values this one has, and that this one ends with: of Server.ConnContext or, if carried is set, of
	// a Transport. Nil is none. Immutable.
	outer         context.Context
	outerDeadline time.Time // of outer; the zero time is none; immutable
	carried       bool      // immutable
	// end is nil until the context is armed. It is set under mu.
	end atomic.Pointer[contextEnd]
	// writes counts the beginnings and the ends of writes to the client, so it is odd during one: see clientEnded.
	writes atomic.Uint32

	mu race.Mutex
	// wire is set while the client may be watched. It is changed by the owner alone, who may so read it without mu.
	wire     watchWire
	deadline time.Time   // the zero time is none; guarded by mu, and fixed when the context is armed
	cause    error       // why the context ends though it wasn't armed by then, context.Canceled with the request; guarded by mu
	watched  bool        // the client is watched; guarded by mu
	leaving  *time.Timer // ends the context of a client that ended its side early; nil if it hasn't; guarded by mu
	// leaveOuter lets go of outer, if that can end; guarded by mu.
	leaveOuter func() bool
	// watchedSince is when the connection's loop began to watch the client. Set before the loop knows of the context.
	watchedSince clock.Nanos
}

// contextEnd holds the functions that end an armed context. It is immutable.
type contextEnd struct {
	context.Context
	cancel    context.CancelCauseFunc
	stopTimer context.CancelFunc // releases the deadline's timer, if there is one
}

// Context returns the request's context. Any goroutine may use it, also after the request. It is done when:
//
//   - the client has closed the connection (the cause is ErrClientGone),
//   - the deadline of SetDeadline has passed,
//   - Close ended the server, or Shutdown gave up waiting (ErrServerClosed),
//   - the handler has returned and the stream of Response.SetBodyStream has been sent.
//
// The context costs one small allocation until someone asks for its end: by Done, Err, or a derived context that can end
// (WithCancel, WithTimeout, AfterFunc). From then on the server watches the client, once the body has arrived; a body of
// unknown length must have been read. Value, Deadline and WithValue don't start the watch. A handler that checks Err only now
// and then should call Done once at its start.
//
// A client that closes its sending side after its request, as printf | nc -N does, looks like a client that leaves. If it has
// done so before the watch began, or soon after, its context lasts 5 more seconds, and longer if the client takes a part of the
// answer meanwhile. The answer is sent in any case.
func (c *Ctx) Context() context.Context {
	c.check()
	if c.override == nil && c.context == nil {
		c.context = c.newContext()
	}
	c.watch()
	if c.override != nil {
		return c.override
	}
	return c.context
}

// Deadline implements context.Context.
func (r *requestContext) Deadline() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deadline, !r.deadline.IsZero()
}

// Done implements context.Context.
func (r *requestContext) Done() <-chan struct{} { return r.arm().Done() }

// Err implements context.Context.
func (r *requestContext) Err() error { return r.arm().Err() }

// Value implements context.Context. Package context asks by causeKey for what ends the context, which outer mustn't answer.
func (r *requestContext) Value(key any) any {
	if key == causeKey {
		return r.arm().Value(key)
	}
	if r.outer != nil {
		return r.outer.Value(key)
	}
	return nil
}

// valuesOnly returns a context with the values of the request's, which never ends.
func (c *Ctx) valuesOnly() context.Context {
	if c.override != nil {
		return context.WithoutCancel(c.override)
	}
	if outer, _ := c.exchange.wire.outerContext(); outer != nil {
		return context.WithoutCancel(outer)
	}
	return context.Background()
}

// outerContext implements wire. The context is that of Server.ConnContext.
func (c *conn) outerContext() (outer context.Context, carried bool) {
	if c.context == nil && c.server.ConnContext != nil {
		if c.context = c.server.ConnContext((*observedConn)(c)); c.context == nil {
			panic("filo: Server.ConnContext has returned nil")
		}
	}
	return c.context, false
}

func (c *Ctx) newContext() *requestContext {
	r := &requestContext{server: c.exchange.server}
	r.outer, r.carried = c.exchange.wire.outerContext()
	if r.outer != nil {
		r.outerDeadline, _ = r.outer.Deadline()
	}
	r.deadline = c.earliestDeadline(r.outerDeadline)
	if c.exchange.lost {
		r.cause = ErrClientGone
	}
	return r
}

// earliestDeadline returns the earliest of the deadline given and those that were set for the request; the zero time is none.
func (c *Ctx) earliestDeadline(deadline time.Time) time.Time {
	if deadline.IsZero() || !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	if t := c.timeout; t != nil && !t.deadline.IsZero() && (deadline.IsZero() || t.deadline.Before(deadline)) {
		deadline = t.deadline
	}
	return deadline
}

// moveDeadline gives the request's context the deadline that it has by now, and reports false if that is too late: the context
// is armed.
func (c *Ctx) moveDeadline() bool {
	r := c.context
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end.Load() != nil {
		return false
	}
	r.deadline = c.earliestDeadline(r.outerDeadline)
	return true
}

// SetDeadline sets the time at which the request's context is done. It has no effect once someone has asked for the context's
// end: see Context.
func (c *Ctx) SetDeadline(t time.Time) {
	c.check()
	c.deadline = t
	c.moveDeadline()
}

// SetContext makes Context return ctx, for middleware that adds values or a deadline to the request's context. The caller must
// derive ctx from the context that Context returned, or make sure that it ends when that one does.
func (c *Ctx) SetContext(ctx context.Context) {
	c.check()
	if ctx == nil {
		panic("filo: SetContext with a nil context")
	}
	c.override = ctx
}

// causeKey is the key by which package context finds what ends a context and why, in any context that it is given: a context of
// another package isn't told the key otherwise.
var causeKey = func() any {
	var asked keyRecorder
	context.Cause(&asked)
	return asked.key
}()

// keyRecorder is a context that has ended, and remembers what value it was asked for.
type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Err() error { return context.Canceled }

func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

// arm sets up what ends the context, unless that has been done.
func (r *requestContext) arm() *contextEnd {
	if e := r.end.Load(); e != nil {
		return e
	}
	r.mu.Lock()
	e, first := r.end.Load(), false
	var half, gone bool
	if e == nil {
		e, first = r.newEndLocked(), r.cause == nil
		r.end.Store(e)
		if first && r.wire != nil {
			r.watched = true
			half, gone = r.wire.startWatch(r)
		}
	}
	r.mu.Unlock()
	if first {
		r.clientFound(half, gone)
		r.followOuter(e)
	}
	return e
}

// newEndLocked returns what the context ends by.
func (r *requestContext) newEndLocked() *contextEnd {
	r.mu.AssertHeld()
	e, parent := new(contextEnd), context.Background()
	if r.cause != context.Canceled { // the request isn't over
		parent = r.server.life.base
		if !r.deadline.IsZero() {
			parent, e.stopTimer = context.WithDeadline(parent, r.deadline)
		}
	}
	if e.Context, e.cancel = context.WithCancelCause(parent); r.cause != nil {
		e.cancel(r.cause)
	}
	return e
}

// followOuter makes the context end with outer. That may be the user's code, so the caller doesn't hold mu.
func (r *requestContext) followOuter(e *contextEnd) {
	outer := r.outer
	if outer == nil || outer.Done() == nil {
		return
	}
	end := func() {
		switch {
		case errors.Is(outer.Err(), context.DeadlineExceeded): // of that the context knows by itself
		case r.carried:
			e.cancel(ErrClientGone)
		default:
			e.cancel(context.Cause(outer))
		}
	}
	leave := context.AfterFunc(outer, end)
	if outer.Err() != nil {
		end() // by now, and not when the goroutine of AfterFunc gets its turn
	}
	r.mu.Lock()
	over := r.cause != nil
	if !over {
		r.leaveOuter = leave
	}
	r.mu.Unlock()
	if over {
		leave()
	}
}

// watch lets the client be watched, once nothing else reads the connection: when the whole body has come.
func (c *Ctx) watch() {
	r, x := c.context, c.exchange
	if r == nil || r.wire != nil || x.hijacked || x.lost {
		return
	}
	wire, ok := x.wire.(watchWire)
	if !ok || !wire.mayWatch(&c.Request.body) {
		return
	}
	var half, gone bool
	r.mu.Lock()
	r.wire = wire
	if r.end.Load() != nil {
		r.watched = true
		half, gone = r.wire.startWatch(r)
	}
	r.mu.Unlock()
	r.clientFound(half, gone)
}

// mayWatch implements watchWire: the client can be watched once the whole body has come.
func (c *conn) mayWatch(b *body) bool {
	if !c.hasWhole(b) {
		return false
	}
	// What a goroutine that watches receives is the beginning of the next request. It reads no more than fits here.
	if c.looped == nil && c.in.Len() < http1.ReadBufferSize {
		c.in.Pin()
		c.worker.watchSpace = c.in.Space()
	}
	return true
}

// startWatch implements watchWire.
func (c *conn) startWatch(r *requestContext) (half, gone bool) {
	if c.looped != nil {
		return c.looped.watch(r)
	}
	w := &clientWatch{context: r, netConn: c.netConn, space: c.worker.watchSpace}
	if socket := &c.worker.socket; socket.Attached() {
		if w.halfClosed, gone = socket.Ended(); gone {
			return false, true
		}
	}
	w.ended, w.stopping = make(chan struct{}), make(chan struct{})
	c.worker.watcher = w
	go w.run()
	return false, false // the goroutine reports a half-close when it has read as far as that
}

// endWatch implements watchWire.
func (c *conn) endWatch() {
	if c.looped != nil {
		c.looped.unwatch()
		return
	}
	watcher := c.worker.watcher
	c.worker.watcher, c.worker.watchSpace = nil, nil
	if watcher != nil {
		watcher.end(c)
	}
}

// clientFound ends the context as far as startWatch has found a reason.
func (r *requestContext) clientFound(half, gone bool) {
	switch {
	case gone:
		r.cancel(ErrClientGone)
	case half:
		r.clientEnded(true)
	}
}

// cancel ends the context.
func (r *requestContext) cancel(cause error) {
	r.mu.Lock()
	e := r.end.Load()
	if e == nil && r.cause == nil {
		r.cause = cause
	}
	r.mu.Unlock()
	if e != nil {
		e.cancel(cause)
	}
}

// finish ends the context with its request, and returns why it has ended: for that, if for nothing before.
func (r *requestContext) finish() (cause error) {
	r.mu.Lock()
	e, leave := r.end.Load(), r.leaveOuter
	if r.cause == nil {
		r.cause = context.Canceled
	}
	cause = r.cause
	r.leaveOuter = nil
	r.mu.Unlock()
	if e == nil {
		return cause
	}
	e.cancel(context.Canceled)
	if e.stopTimer != nil {
		e.stopTimer()
	}
	if leave != nil {
		leave()
	}
	return context.Cause(e)
}

// hasWhole reports whether the whole body has come, though the handler may still have to read it.
func (c *conn) hasWhole(b *body) bool {
	return b.complete() || b.err == nil && !b.chunked && b.remaining <= int64(c.in.Len())
}

// loseClient takes note that the client can't be reached any more, since a read or a write has failed.
func (c *conn) loseClient() {
	c.lost = true
	if r := c.worker.ctx.context; r != nil {
		r.cancel(ErrClientGone)
	}
}

const (
	// halfCloseTime is how soon after the watch began an end of input counts as one that came with the request, though in
	// a packet of its own.
	halfCloseTime = 20 * time.Millisecond
	// halfCloseGrace is how long the context goes on after such an end. A client that waits for its answer sends nothing else, and
	// neither does one that has left: the two differ only when something is sent to them.
	halfCloseGrace = 5 * time.Second
)

// clientEnded takes note that the client sends nothing more: it has left, or, if that is early, it may wait for its answer.
// Then the context ends when the time of grace is over. But if a write began meanwhile, the context goes on, since a client
// that has left answers such a write by a reset. A write that had begun before proves nothing by its end: the client may
// have left because of it.
func (r *requestContext) clientEnded(early bool) {
	r.mu.Lock()
	if !r.watched || r.leaving != nil {
		r.mu.Unlock()
		return
	}
	if early {
		begun := r.writesBegun()
		var timer *time.Timer
		timer = time.AfterFunc(halfCloseGrace, func() {
			r.mu.Lock()
			left := r.leaving == timer && r.writesBegun() == begun
			if left && r.writes.Load()%2 != 0 {
				left = false
				timer.Reset(halfCloseGrace) // the client still takes, or delays, what was sent before
			}
			r.mu.Unlock()
			if left {
				r.cancel(ErrClientGone)
			}
		})
		r.leaving = timer
	}
	r.mu.Unlock()
	if !early {
		r.cancel(ErrClientGone)
	}
}

// countWrite counts the beginning or the end of a write to the client, if there is a context.
func (c *Ctx) countWrite() {
	if r := c.context; r != nil {
		r.writes.Add(1)
	}
}

// writesBegun returns how many writes have begun.
func (r *requestContext) writesBegun() uint32 { return (r.writes.Load() + 1) / 2 }

// clientWatch is the goroutine that watches a client in the blocking driver.
type clientWatch struct {
	context *requestContext
	netConn net.Conn
	space   []byte
	// halfClosed says that the client had ended its side before the goroutine began.
	halfClosed bool
	stopping   chan struct{} // closed to end the goroutine
	ended      chan struct{} // closed when it has ended
	// received and err are the result of the goroutine's reads. They belong to the goroutine until it has ended.
	received int
	err      error
}

// run reads what fits into space.
func (w *clientWatch) run() {
	defer close(w.ended)
	r, start := w.context, time.Now()
	err, stopped := w.await(func() error {
		for w.received < len(w.space) {
			n, err := w.netConn.Read(w.space[w.received:])
			if w.received += n; err != nil {
				return err
			}
		}
		return nil
	})
	if stopped {
		return
	}
	w.err = err
	if err == nil {
		// The end comes behind what isn't read here.
		if err, stopped = w.await(func() error { return sock.AwaitEnd(w.netConn, false) }); stopped {
			return
		}
	}
	switch {
	case err == sock.ErrCannotTell:
		return
	case !isEOF(err):
		r.cancel(ErrClientGone)
		return
	}
	r.clientEnded(w.halfClosed || time.Since(start) <= halfCloseTime)
	if err, stopped = w.await(func() error { return sock.AwaitEnd(w.netConn, true) }); !stopped && err != sock.ErrCannotTell {
		r.cancel(ErrClientGone)
	}
}

// await calls wait again while it ends by a deadline, until the watch is to stop.
func (w *clientWatch) await(wait func() error) (err error, stopped bool) {
	for {
		if err = wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err, false
		}
		// Clear the deadline first and look then: a stop that comes in between sets it again.
		w.netConn.SetReadDeadline(time.Time{})
		select {
		case <-w.stopping:
			return nil, true
		default:
		}
	}
}

// end ends the goroutine, and gives the connection what it has read.
func (w *clientWatch) end(c *conn) {
	close(w.stopping)
	w.netConn.SetReadDeadline(clock.Past)
	<-w.ended
	w.netConn.SetReadDeadline(time.Time{})
	c.in.Received(w.received)
	c.inputError = w.err
}

// stopWatch ends the context, and the watch, if there is one.
func (c *Ctx) stopWatch() {
	if r := c.context; r != nil {
		c.endWatch()
		c.clientGone = r.finish() == ErrClientGone
		c.context = nil
	}
}

// endWatch makes the connection's input its owner's again. The context goes on without.
func (c *Ctx) endWatch() {
	r := c.context
	if r == nil || r.wire == nil {
		return
	}
	r.mu.Lock()
	watching := r.wire
	r.wire, r.watched = nil, false
	if r.leaving != nil {
		r.leaving.Stop()
		r.leaving = nil
	}
	r.mu.Unlock()
	watching.endWatch()
}
