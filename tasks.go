package filo

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/filohttp/filo/pool"
)

// DefaultMaxTasks limits the tasks of Ctx.Go in a server whose Tasks field is nil, waiting tasks included.
const DefaultMaxTasks = 10_000

var (
	errTooManyTasks = Error(503, "too many tasks at once")
	errTasksOver    = Error(503, "the server is shutting down")
)

// serverTasks runs the work that handlers leave behind when they return.
type serverTasks struct {
	mu      sync.Mutex
	pool    *pool.Pool // guarded by mu
	own     bool       // the server has made the pool; guarded by mu
	over    bool       // nothing more is accepted; guarded by mu
	running int        // number of this server's tasks, waiting ones included; guarded by mu
	// idle is closed when no task is left; nil while nobody waits for that. Guarded by mu.
	idle chan struct{}
	// ctx ends the tasks' contexts. Set once, by configure.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// init makes t ready for use. shared is the user's pool, or nil.
func (t *serverTasks) init(shared *pool.Pool) {
	t.pool = shared
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
}

// Go passes task to the server's task pool (Server.Tasks), which runs it on another goroutine, beside the handler or after it.
// The task's context has the values that the request's context has at the time of the call. It doesn't end with the request or
// its client, but only when Close is called or Shutdown gives up waiting (ErrServerClosed). Shutdown waits for the task. The
// task must not use the Ctx, or anything borrowed from it.
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

// startTask submits a task, whose context gets these values.
func (s *Server) startTask(values context.Context, task func(context.Context)) error {
	t := &s.tasks
	tasks, parent, err := t.begin(s)
	if err != nil {
		return err
	}
	err = tasks.TrySubmit(func() {
		defer t.end()
		ctx, cancel := context.WithCancelCause(values)
		defer cancel(nil)
		defer context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })()
		if parent.Err() != nil {
			cancel(context.Cause(parent)) // now: AfterFunc's goroutine may run later
		}
		task(ctx)
	})
	if err == nil {
		return nil
	}
	t.end()
	s.counts.refusals[refusedTasks].Add(1)
	overload := *errTooManyTasks
	overload.Err = err
	return &overload
}

// begin counts a task. It returns the pool to submit the task to, and the context that ends the task's.
func (t *serverTasks) begin(s *Server) (*pool.Pool, context.Context, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil, nil, errTasksOver
	}
	if t.pool == nil {
		made, err := pool.NewPool(DefaultMaxTasks, pool.WithPanicHandler(func(value any) {
			logPanic(s.logger(), "panic in a task", value, debug.Stack())
		}))
		if err != nil {
			return nil, nil, err
		}
		t.pool, t.own = made, true
	}
	t.running++
	return t.pool, t.ctx, nil
}

// end takes a task that has ended, or was never accepted, out of the count.
func (t *serverTasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		t.over = true
		close(t.idle)
		t.idle = nil
	}
}

// wait waits until no task is left. From then on none is accepted, and a pool of the server's own has no goroutine.
func (t *serverTasks) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.running == 0 {
		t.over = true
	} else if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if made := t.release(); made != nil {
		return made.Wait(ctx)
	}
	return nil
}

// release ends accepting tasks. It releases and returns a pool of the server's own, and returns nil for a shared one.
func (t *serverTasks) release() *pool.Pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if !t.own {
		return nil
	}
	t.pool.Release()
	return t.pool
}

// close cancels the tasks' contexts and accepts no more.
func (t *serverTasks) close() {
	t.cancel(ErrServerClosed)
	t.release()
}

// count returns how many tasks there are.
func (t *serverTasks) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
