package filo

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// requestContext is a request's context, and the goroutine that watches the client for it.
type requestContext struct {
	context.Context
	cancel context.CancelCauseFunc
	// stopTimer releases the deadline's timer, if there is one.
	stopTimer context.CancelFunc
	// watching is closed when the goroutine has ended; nil if there is none.
	watching chan struct{}
	stopping chan struct{}
	// received and err are what the goroutine read. They belong to it until watching is closed.
	received int
	err      error

	// looped says that the connection's loop watches the client, since when (in nanotime), and whether that had ended its
	// side by then.
	looped       bool
	watchedSince int64
	halfClosed   bool
}

// Context returns the request's context. It is done when the client has closed the connection (the cause is
// ErrClientGone), when the deadline of SetDeadline has passed, when Close ended the server or Shutdown gave up waiting
// (ErrServerClosed), and when the handler has returned and what Response.SetBodyStream was given has been sent. It is made
// when first asked for, and from then on a goroutine watches the connection, from when the body has been read.
//
// A client that had closed its sending side by the time that it was asked for is not gone: it may wait for the answer.
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
	if carried, ok := c.conn.looped.(*transportConn); ok {
		return carried.values()
	}
	return context.Background()
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
	if t := c.timeout; t != nil && !t.deadline.IsZero() && (deadline.IsZero() || t.deadline.Before(deadline)) {
		deadline = t.deadline
	}
	if !deadline.IsZero() {
		parent, r.stopTimer = context.WithDeadline(parent, deadline)
	}
	r.Context, r.cancel = context.WithCancelCause(parent)
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
	if r != nil && conn.looped != nil {
		if !r.looped && c.Request.body.complete() && !conn.hijacked {
			r.looped = true
			conn.looped.watch(r)
		}
		return
	}
	if r == nil || r.watching != nil || !c.Request.body.complete() || conn.hijacked ||
		conn.in.len() >= readBufferSize {
		return
	}
	if socket := &conn.worker.socket; socket.attached() {
		ended, gone := socket.ended()
		if gone {
			r.cancel(ErrClientGone)
		}
		if ended || gone {
			return
		}
	}
	// What the watch receives is the beginning of the next request. It reads no more than fits here, so a client that
	// pipelines much isn't watched.
	conn.in.pin()
	space := conn.in.space()
	r.watching, r.stopping = make(chan struct{}), make(chan struct{})
	go r.run(conn.netConn, space)
}

// halfCloseTime is how soon after the watch began an end of input counts as one that came with the request, though in a
// packet of its own. A client that leaves within that time isn't noticed by it.
const halfCloseTime = 20 * time.Millisecond

func (r *requestContext) run(netConn net.Conn, space []byte) {
	defer close(r.watching)
	start := time.Now()
	for r.received < len(space) {
		n, err := netConn.Read(space[r.received:])
		r.received += n
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Clear the deadline first and look then: a stop that comes in between sets it again.
			netConn.SetReadDeadline(time.Time{})
			select {
			case <-r.stopping:
				return
			default:
				continue
			}
		}
		r.err = err
		if !isEOF(err) || time.Since(start) > halfCloseTime {
			r.cancel(ErrClientGone)
		}
		return
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
}

// endWatch makes the connection's input its owner's again. The context goes on without.
func (c *Ctx) endWatch() {
	r := c.context
	if r != nil && r.looped {
		c.conn.looped.unwatch()
		r.looped = false
	}
	if r == nil || r.watching == nil {
		return
	}
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
