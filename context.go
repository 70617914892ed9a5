package filo

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/requestlog"
	"github.com/filohttp/filo/internal/tasks"
	"github.com/filohttp/filo/pool"
)

// Context returns the request's context. Any goroutine may use it, even after the request. It is done when:
//
//   - the client has closed the connection (the cause is ErrClientGone),
//   - the deadline of SetDeadline has passed,
//   - Close ended the server, or Shutdown gave up waiting (ErrServerClosed),
//   - the handler has returned and the stream of Response.SetBodyStream has been sent.
//
// The context costs one small allocation until someone asks for its end: by Done, Err, or a derived context that can end (WithCancel,
// WithTimeout, AfterFunc). From then on the server watches the client, as soon as the body has arrived. A body of unknown length must have
// been read to its end before the server can watch. Value, Deadline and WithValue don't start the watch. A handler that checks Err only
// rarely should call Done once at its start.
//
// A client that closes its sending side after its request, as printf | nc -N does, looks like a client that leaves. If it closes that side
// before the watch begins, or soon after, the context lasts 5 more seconds, and longer if the client takes a part of the answer in that
// time. The answer is sent in any case, except for an error with a status of 500 or more after the context has ended. A client isn't
// watched if its net.Conn is a type of the program's own that doesn't support deadlines.
func (c *Ctx) Context() context.Context {
	c.check()
	if c.override == nil && c.context == nil {
		c.context = c.newContext()
	}
	c.watch()
	if c.context != nil && requestlog.IsUsed() {
		c.context.SetLog(c.requestLog(c.context.Log()))
	}
	if c.override != nil {
		return c.override
	}
	return c.context
}

// valuesOnly returns a context that has the values of the request's context and never ends.
func (c *Ctx) valuesOnly() context.Context {
	if !requestlog.IsUsed() {
		return c.outerValues()
	}
	return context.WithValue(c.outerValues(), requestlog.Key{}, c.requestLog(nil))
}

// outerValues is like valuesOnly, but without the values that a LogHandler adds.
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

func (c *Ctx) newContext() *requestctx.Context {
	outer, carried := c.exchange.wire.outerContext()
	r := requestctx.New(c.exchange.server.life.Base, outer, carried)
	r.SetDeadline(c.earliestDeadline())
	if c.exchange.lost {
		r.Cancel(ErrClientGone)
	}
	return r
}

// earliestDeadline returns the earliest of the deadlines that were set for the request; the zero time means none.
func (c *Ctx) earliestDeadline() time.Time {
	if t := c.timeout; t != nil {
		return requestctx.Earlier(c.deadline, t.deadline)
	}
	return c.deadline
}

// moveDeadline updates the deadline of the request's context. It reports false if the context is armed, since its deadline is then
// fixed.
func (c *Ctx) moveDeadline() bool {
	r := c.context
	return r == nil || r.SetDeadline(c.earliestDeadline())
}

// SetDeadline sets the time at which the request's context is done. It has no effect once someone has asked for the context's
// end: see Context.
func (c *Ctx) SetDeadline(t time.Time) {
	c.check()
	c.deadline = t
	c.moveDeadline()
}

// SetContext makes Context return ctx, for middleware that adds values or a deadline to the request's context. The caller must
// derive ctx from the context that Context returned, or make sure that ctx ends when that context does.
func (c *Ctx) SetContext(ctx context.Context) {
	c.check()
	if ctx == nil {
		panic("filo: SetContext with a nil context")
	}
	c.override = ctx
}

// watch starts the watch of the client if the whole body has arrived, since nothing else reads the connection then.
func (c *Ctx) watch() {
	r, x := c.context, c.exchange
	if r == nil || r.IsWatchable() || x.hijacked || x.lost {
		return
	}
	if wire, ok := x.wire.(watchWire); ok && wire.mayWatch(&c.Request.body) {
		r.Watch(wire)
	}
}

// mayWatch implements watchWire: the client can be watched once the whole body has arrived.
func (c *conn) mayWatch(b *body) bool {
	return c.hasWhole(b) && c.driver.canWatch()
}

// StartWatch implements watchWire.
func (c *conn) StartWatch(r *requestctx.Context) (half, gone bool) { return c.driver.watch(r) }

// EndWatch implements watchWire.
func (c *conn) EndWatch() { c.driver.unwatch() }

// hasWhole reports whether the whole body has arrived, even if the handler hasn't read it yet.
func (c *conn) hasWhole(b *body) bool {
	return b.complete() || b.err == nil && !b.chunked && b.remaining <= int64(c.in.Len())
}

// loseClient records that the client can't be reached any more, since a read or a write has failed, and ends the context.
func (c *conn) loseClient() {
	c.lost = true
	if r := c.scratch.ctx.context; r != nil {
		r.Cancel(ErrClientGone)
	}
}

// countWrite counts the beginning or the end of a write to the client, if there is a context.
func (c *Ctx) countWrite() {
	if r := c.context; r != nil {
		r.CountWrite()
	}
}

// stopWatch ends the request's context, if there is one, and its watch.
func (c *Ctx) stopWatch() {
	if r := c.context; r != nil {
		c.endWatch()
		c.clientGone = r.Finish() == ErrClientGone
		c.context = nil
	}
}

// endWatch ends the watch, so that the owner can read the connection again. The context doesn't end.
func (c *Ctx) endWatch() {
	if r := c.context; r != nil {
		r.Unwatch()
	}
}

// DefaultMaxTasks limits the tasks started by Ctx.Go in a server whose Tasks field is nil, waiting tasks included.
const DefaultMaxTasks = 10_000

var (
	errTooManyTasks = Error(503, "too many tasks at once")
	errTasksOver    = Error(503, "the server is shutting down")
)

// Go passes task to the server's task pool (Server.Tasks), which runs it on another goroutine, possibly after the handler has returned. The
// task's context has the values that the request's context has at the time of the call. That context doesn't end when the request ends or
// the client leaves, but only when Close is called or Shutdown gives up waiting (ErrServerClosed). Shutdown waits for the task. The task
// must not use the Ctx, or anything borrowed from it.
//
// If there are too many tasks, or the server has been shut down, Go returns a 503 error for the handler to return.
func (c *Ctx) Go(task func(context.Context)) error {
	c.check()
	if task == nil {
		return pool.ErrNilTask
	}
	err := c.exchange.server.startTask(c.valuesOnly(), task)
	if err != nil {
		c.Response.Header.Set("Retry-After", retryAfterSeconds)
	}
	return err
}

// startTask starts a task. The task's context takes its values from the argument values.
func (s *Server) startTask(values context.Context, task func(context.Context)) error {
	err := s.tasks.Start(values, task)
	if err == tasks.ErrOver {
		return errTasksOver
	}
	if full, ok := err.(*tasks.Full); ok {
		s.counts.refusals[refusedTasks].Add(1)
		overload := *errTooManyTasks
		overload.Err = full.Err
		return &overload
	}
	return err
}

// initTasks makes the server's tasks ready for use.
func (s *Server) initTasks() {
	var shared tasks.Pool
	if s.Tasks != nil {
		shared = s.Tasks
	}
	s.tasks.Init(shared, func() (tasks.Pool, error) {
		return pool.NewPool(DefaultMaxTasks, pool.WithPanicHandler(func(value any) {
			logPanic(s.logger(), "panic in a task", value, debug.Stack())
		}))
	})
}
