package filo

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// requestContext is a request's context, and the goroutine that watches the client for it.
type requestContext struct {
	context.Context
	cancel context.CancelCauseFunc
	// stopTimer releases the deadline's timer, if there is one.
	stopTimer context.CancelFunc
	// leaveConn lets go of the context of Server.ConnContext, if that can end.
	leaveConn func() bool
	// watching is closed when the goroutine has ended; nil if there is none.
	watching chan struct{}
	stopping chan struct{}
	// received and err are what the goroutine read. They belong to it until watching is closed.
	received int
	err      error

	// halfClosed says that the client had ended its side before the goroutine began. Immutable since then.
	halfClosed bool
	// watchedSince is when the connection's loop began to watch the client, in nanotime. Immutable since then.
	watchedSince int64

	// writes counts what was sent while the context was watched: see clientEnded.
	writes atomic.Uint32

	mu      sync.Mutex
	watched bool        // the client is watched; guarded by mu
	leaving *time.Timer // ends the context of a client that ended its side early; nil if it hasn't; guarded by mu
}

// Context returns the request's context. It is done when the client has closed the connection (the cause is
// ErrClientGone), when the deadline of SetDeadline has passed, when Close ended the server or Shutdown gave up waiting
// (ErrServerClosed), and when the handler has returned and what Response.SetBodyStream was given has been sent. It is made
// when first asked for, and from then on the connection is watched, from when the body has come; one of unknown length must
// have been read.
//
// A client that ends its sending side behind its request, as printf | nc -N does, can't be told from one that leaves: so the
// context of a client that has done so by the time that it was asked for, or soon after, goes on for 5 seconds more, and
// longer if the client takes a part of the answer meanwhile. What the handler answers is sent in any case.
func (c *Ctx) Context() context.Context {
	c.check()
	if c.context == nil {
		c.context = c.newContext()
	}
	c.watch()
	if c.override == nil && c.carried != nil {
		c.override = valuesContext{c.context, c.carried}
	}
	if c.override != nil {
		return c.override
	}
	return c.context
}

// ContextValues returns a context with the values that the request's has, which never ends: to add to them by SetContextValues.
// Unlike Context it starts no watch for the client.
func (c *Ctx) ContextValues() context.Context {
	c.check()
	switch {
	case c.override != nil:
		return context.WithoutCancel(c.override)
	case c.carried != nil:
		return c.carried
	}
	return c.conn.contextValues()
}

// contextValues returns a context with the values of the connection's requests, which never ends.
func (c *conn) contextValues() context.Context {
	if carried, ok := c.looped.(*transportConn); ok {
		return carried.values()
	}
	if outer := c.outerContext(); outer != nil {
		return context.WithoutCancel(outer)
	}
	return context.Background()
}

// outerContext returns what Server.ConnContext does; nil if there is none.
func (c *conn) outerContext() context.Context {
	if c.context == nil && c.server.ConnContext != nil {
		if _, carried := c.looped.(*transportConn); carried {
			return nil
		}
		if c.context = c.server.ConnContext((*observedConn)(c)); c.context == nil {
			panic("filo: Server.ConnContext has returned nil")
		}
	}
	return c.context
}

// SetContextValues makes the values of ctx, which is made from what ContextValues returned, those of the context that Context
// returns. That ends as it would without. It is for middleware that adds values: with SetContext it would have to ask for the
// request's context first, whether a handler needs that or not.
func (c *Ctx) SetContextValues(ctx context.Context) {
	c.check()
	if ctx == nil {
		panic("filo: SetContextValues with a nil context")
	}
	c.carried = ctx
	switch override := c.override.(type) {
	case nil:
	case valuesContext:
		c.override = valuesContext{override.Context, ctx} // ctx has the older values, too
	default:
		c.override = valuesContext{override, ctx}
	}
}

// valuesContext is a context that has another one's values besides.
type valuesContext struct {
	context.Context
	values context.Context
}

// Value asks the values first: they were set later. What they were made of doesn't end, so that contexts made from this one
// still find out when it does.
func (c valuesContext) Value(key any) any {
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

func (c *Ctx) newContext() *requestContext {
	r := &requestContext{}
	parent, deadline := c.conn.server.baseContext(), c.deadline
	if carried, ok := c.conn.looped.(*transportConn); ok {
		parent = carried.values()
		if end, ok := carried.transport.Context().Deadline(); ok && (deadline.IsZero() || end.Before(deadline)) {
			deadline = end
		}
	}
	outer := c.conn.outerContext()
	if outer != nil {
		if end, ok := outer.Deadline(); ok && (deadline.IsZero() || end.Before(deadline)) {
			deadline = end
		}
		parent = valuesContext{parent, context.WithoutCancel(outer)} // its end comes by leaveConn, which says why
	}
	if t := c.timeout; t != nil && !t.deadline.IsZero() && (deadline.IsZero() || t.deadline.Before(deadline)) {
		deadline = t.deadline
	}
	if !deadline.IsZero() {
		parent, r.stopTimer = context.WithDeadline(parent, deadline)
	}
	r.Context, r.cancel = context.WithCancelCause(parent)
	if outer != nil && outer.Done() != nil {
		r.leaveConn = context.AfterFunc(outer, func() {
			if !errors.Is(outer.Err(), context.DeadlineExceeded) { // of that the request's own knows
				r.cancel(context.Cause(outer))
			}
		})
	}
	return r
}

// SetDeadline sets when the request's context is done. Call it before Context.
func (c *Ctx) SetDeadline(t time.Time) {
	c.check()
	c.deadline = t
}

// watch starts to watch the client, once nothing else reads the connection: when the whole body has come.
func (c *Ctx) watch() {
	r, conn := c.context, c.conn
	if r == nil || conn.hijacked || r.isWatched() {
		return
	}
	if conn.lost {
		r.cancel(ErrClientGone)
		return
	}
	_, carried := conn.looped.(*transportConn) // whose other server watches the client
	if !carried && !conn.hasWhole(&c.Request.body) {
		return
	}
	r.setWatched(true)
	if conn.looped != nil {
		conn.looped.watch(r)
		return
	}
	if socket := &conn.worker.socket; socket.attached() {
		gone := false
		if r.halfClosed, gone = socket.ended(); gone {
			r.cancel(ErrClientGone)
			return
		}
	}
	// What the watch receives is the beginning of the next request. It reads no more than fits here.
	var space []byte
	if conn.in.len() < readBufferSize {
		conn.in.pin()
		space = conn.in.space()
	}
	r.watching, r.stopping = make(chan struct{}), make(chan struct{})
	go r.run(conn.netConn, space)
}

// hasWhole reports whether the whole body has come, though the handler may still have to read it.
func (c *conn) hasWhole(b *body) bool {
	return b.complete() || b.err == nil && !b.chunked && b.remaining <= int64(c.in.len())
}

// loseClient takes note that the client can't be reached any more, since a read or a write has failed.
func (c *conn) loseClient() {
	if _, carried := c.looped.(*transportConn); carried {
		return // whose context says so; what has failed may be something around the connection
	}
	c.lost = true
	if r := c.worker.ctx.context; r != nil {
		r.cancel(ErrClientGone)
	}
}

const (
	// halfCloseTime is how soon after the watch began an end of input counts as one that came with the request, though in
	// a packet of its own.
	halfCloseTime = 20 * time.Millisecond
	// halfCloseGrace is how long the context goes on after such an end. Of a client that waits for its answer nothing else
	// is ever heard, and of one that has left neither, until something is sent to it.
	halfCloseGrace = 5 * time.Second
)

// clientEnded takes note that the client sends nothing more: it has left, or, if that is early, it may wait for its answer.
// Then the context ends when the time of grace is over. But if something was sent to the client meanwhile it goes on, since
// a client that has left answers by a reset.
func (r *requestContext) clientEnded(early bool) {
	r.mu.Lock()
	if !r.watched || r.leaving != nil {
		r.mu.Unlock()
		return
	}
	if early {
		written := r.writes.Load()
		var timer *time.Timer
		timer = time.AfterFunc(halfCloseGrace, func() {
			r.mu.Lock()
			left := r.leaving == timer && r.writes.Load() == written
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

func (r *requestContext) isWatched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watched
}

func (r *requestContext) setWatched(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = on
	if !on && r.leaving != nil {
		r.leaving.Stop()
		r.leaving = nil
	}
}

// run is the goroutine that watches the client. It reads what fits into space.
func (r *requestContext) run(netConn net.Conn, space []byte) {
	defer close(r.watching)
	start := time.Now()
	err, stopped := r.await(netConn, func() error {
		for r.received < len(space) {
			n, err := netConn.Read(space[r.received:])
			if r.received += n; err != nil {
				return err
			}
		}
		return nil
	})
	if stopped {
		return
	}
	r.err = err
	if err == nil {
		// The end comes behind what isn't read here.
		if err, stopped = r.await(netConn, func() error { return awaitPeer(netConn, false) }); stopped {
			return
		}
	}
	switch {
	case err == errCannotTell:
		return
	case !isEOF(err):
		r.cancel(ErrClientGone)
		return
	}
	r.clientEnded(r.halfClosed || time.Since(start) <= halfCloseTime)
	if err, stopped = r.await(netConn, func() error { return awaitPeer(netConn, true) }); !stopped && err != errCannotTell {
		r.cancel(ErrClientGone)
	}
}

// errCannotTell is awaitPeer's error for a connection that isn't a socket.
var errCannotTell = errors.New("filo: the connection isn't a socket that can be watched")

// await calls wait again while it ends by a deadline, until the watch is to stop.
func (r *requestContext) await(netConn net.Conn, wait func() error) (err error, stopped bool) {
	for {
		if err = wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err, false
		}
		// Clear the deadline first and look then: a stop that comes in between sets it again.
		netConn.SetReadDeadline(time.Time{})
		select {
		case <-r.stopping:
			return nil, true
		default:
		}
	}
}

// stopWatch ends the context, and the watch, if there is one.
func (c *Ctx) stopWatch() {
	if c.context != nil {
		c.endContext()
	}
}

func (c *Ctx) endContext() {
	r := c.context
	c.endWatch()
	c.clientGone = context.Cause(r) == ErrClientGone
	c.context = nil
	r.cancel(context.Canceled)
	if r.stopTimer != nil {
		r.stopTimer()
	}
	if r.leaveConn != nil {
		r.leaveConn()
	}
}

// endWatch makes the connection's input its owner's again. The context goes on without.
func (c *Ctx) endWatch() {
	r := c.context
	if r == nil || !r.isWatched() {
		return
	}
	if looped := c.conn.looped; looped != nil {
		looped.unwatch()
	}
	if r.watching != nil {
		c.endWatching(r)
	}
	r.setWatched(false)
}

// endWatching ends the goroutine.
func (c *Ctx) endWatching(r *requestContext) {
	close(r.stopping)
	c.conn.netConn.SetReadDeadline(longAgo)
	<-r.watching
	c.conn.netConn.SetReadDeadline(time.Time{})
	c.conn.in.received(r.received)
	c.conn.inputError = r.err
	r.watching, r.received, r.err = nil, 0, nil
}

// longAgo is a deadline that wakes whoever waits.
var longAgo = time.Unix(1, 0)
