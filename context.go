package filo

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// requestContext is a request's context. Most handlers only pass it to calls that read its values or never wait. So the server sets up
// nothing that could end the context until code asks for its end: by Done, by Err, or by deriving a context that can end. That arms
// the context.
//
// Any goroutine may arm it at any time, although the connection belongs to the goroutine that runs the handler, its owner:
//
//   - While wire is set, only a watch for the client may read the connection. The owner sets wire when the whole body has arrived
//     (Ctx.watch), and clears it before it reads the connection itself, gives it away or ends the request (Ctx.endWatch).
//   - The goroutine that arms the context holds mu, and starts the watch if wire is set. If wire isn't set, the owner starts the
//     watch when it sets wire. A watch does only what is safe while the handler writes.
//   - The owner clears wire under mu, and then stops the watch if one was started. So while a goroutine holds mu and wire is set,
//     the connection and its descriptor stay open.
//   - A request that ends sets cause. A context that is armed later has ended already, with that cause.
type requestContext struct {
	server *Server // immutable
	// outer provides the values of this context. When outer ends, this context ends. outer comes from Server.ConnContext or, if
	// carried is set, from a Transport; nil if there is none. Immutable.
	outer         context.Context
	outerDeadline time.Time // of outer; the zero time is none; immutable
	carried       bool      // another server received the request; immutable
	// end is nil until the context is armed. It is set under mu.
	end atomic.Pointer[contextEnd]
	// log is what a LogHandler adds to records; nil if there is none.
	log atomic.Pointer[requestLog]
	// writes counts the beginnings and the ends of writes to the client, so it is odd during one: see clientEnded.
	writes atomic.Uint32

	mu race.Mutex[race.OfContext]
	// wire is set while the client may be watched. It is changed only by the owner, which may therefore read it without mu.
	wire     watchWire
	deadline time.Time   // the zero time is none; guarded by mu, and fixed when the context is armed
	cause    error       // why the context ended before it was armed, context.Canceled at the request's end; guarded by mu
	watched  bool        // the client is watched; guarded by mu
	leaving  *time.Timer // the grace period after an early half-close; nil without one; guarded by mu
	// leaveOuter stops following outer; nil if outer can't end; guarded by mu.
	leaveOuter func() bool
	// watchedSince is when the connection's loop began to watch the client.
	watchedSince clock.Atomic[clock.Nanos]
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
// answer meanwhile. The answer is sent in any case, but that of an error with a status of 500 or more after the context has ended. The
// client of a net.Conn of the program's own that has no deadlines isn't watched.
func (c *Ctx) Context() context.Context {
	c.check()
	if c.override == nil && c.context == nil {
		c.context = c.newContext()
	}
	c.watch()
	if c.context != nil && logsRequests.Load() {
		c.context.log.Store(c.requestLog(c.context.log.Load()))
	}
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

// Value implements context.Context. Package context looks up causeKey to find what ends the context: the armed context, not outer.
func (r *requestContext) Value(key any) any {
	if key == causeKey {
		return r.arm().Value(key)
	}
	if _, ok := key.(requestLogKey); ok {
		if log := r.log.Load(); log != nil {
			return log
		}
	}
	if r.outer != nil {
		return r.outer.Value(key)
	}
	return nil
}

// valuesOnly returns a context that has the values of the request's context and never ends.
func (c *Ctx) valuesOnly() context.Context {
	if !logsRequests.Load() {
		return c.outerValues()
	}
	return context.WithValue(c.outerValues(), requestLogKey{}, c.requestLog(nil))
}

// outerValues is valuesOnly without what a LogHandler adds.
func (c *Ctx) outerValues() context.Context {
	if c.override != nil {
		return context.WithoutCancel(c.override)
	}
	if outer, _ := c.exchange.wire.outerContext(); outer != nil {
		return context.WithoutCancel(outer)
	}
	return context.Background()
}

// outerContext implements wire. It returns the context of Server.ConnContext.
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

// moveDeadline updates the deadline of the request's context. It reports false if the context is armed, since its deadline is then
// fixed.
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

// causeKey is the key with which package context looks for what ends a context, and why. Package context doesn't export the key, so
// keyRecorder finds it out.
var causeKey = func() any {
	var asked keyRecorder
	context.Cause(&asked)
	return asked.key
}()

// keyRecorder is a context that has ended, and records the key that it is asked for.
type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Err() error { return context.Canceled }

func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

// arm sets up what can end the context, unless that has been done.
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

// newEndLocked makes the armed context, which has ended already if there is a cause.
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

// followOuter makes the context end when outer ends. outer may be user code, so the caller doesn't hold mu.
func (r *requestContext) followOuter(e *contextEnd) {
	outer := r.outer
	if outer == nil || outer.Done() == nil {
		return
	}
	end := func() {
		switch {
		case errors.Is(outer.Err(), context.DeadlineExceeded): // the context has outer's deadline, too
		case r.carried:
			e.cancel(ErrClientGone)
		default:
			e.cancel(context.Cause(outer))
		}
	}
	leave := context.AfterFunc(outer, end)
	if outer.Err() != nil {
		end() // now: AfterFunc's goroutine may run later
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

// watch lets the client be watched once the whole body has arrived, since then nothing else reads the connection.
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

// mayWatch implements watchWire: the client can be watched once the whole body has arrived.
func (c *conn) mayWatch(b *body) bool {
	return c.hasWhole(b) && c.driver.canWatch()
}

// startWatch implements watchWire.
func (c *conn) startWatch(r *requestContext) (half, gone bool) { return c.driver.watch(r) }

// endWatch implements watchWire.
func (c *conn) endWatch() { c.driver.unwatch() }

// clientFound ends the context if startWatch has found that the client is gone, or begins the grace period of a half-close.
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

// endedBy returns why the context has ended, nil if it hasn't or nobody has asked for its end.
func (r *requestContext) endedBy() error {
	r.mu.Lock()
	e, cause := r.end.Load(), r.cause
	r.mu.Unlock()
	if e != nil {
		return context.Cause(e)
	}
	return cause
}

// finish ends the context with its request. It returns why the context has ended: context.Canceled, unless it ended before.
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

// hasWhole reports whether the whole body has arrived, even if the handler hasn't read it yet.
func (c *conn) hasWhole(b *body) bool {
	return b.complete() || b.err == nil && !b.chunked && b.remaining <= int64(c.in.Len())
}

// loseClient records that the client can't be reached any more, since a read or a write has failed, and ends the context.
func (c *conn) loseClient() {
	c.lost = true
	if r := c.scratch.ctx.context; r != nil {
		r.cancel(ErrClientGone)
	}
}

const (
	// halfCloseTime is how long after the watch's beginning a half-close still counts as early: sent with the request, though in a
	// packet of its own.
	halfCloseTime = 20 * time.Millisecond
	// halfCloseGrace is how long the context lasts after an early half-close. A client that waits for its answer and one that has left
	// look the same until the server sends something.
	halfCloseGrace = 5 * time.Second
)

// clientEnded handles a client that sends nothing more. Normally such a client has left, and the context ends. But after an early
// half-close the client may be waiting for its answer. The context then ends after the grace period, unless a write began meanwhile:
// a client that has left answers such a write with a reset. A write that began before the half-close proves nothing when it completes,
// since the client may have taken its bytes and left.
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
				timer.Reset(halfCloseGrace) // a write that began before is still in progress
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

// stopWatch ends the request's context, if there is one, and its watch.
func (c *Ctx) stopWatch() {
	if r := c.context; r != nil {
		c.endWatch()
		c.clientGone = r.finish() == ErrClientGone
		c.context = nil
	}
}

// endWatch ends the watch, so that the owner can read the connection again. The context doesn't end.
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
