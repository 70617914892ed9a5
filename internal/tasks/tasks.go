// Package tasks runs the work that handlers leave behind when they return, in a pool that it is given or makes. It counts the tasks, and ends
// them with their server.
package tasks

import (
	"context"
	"errors"
	"sync"
)

// ErrOver is the error of a task that comes when no more are accepted.
var ErrOver = errors.New("no more tasks are accepted")

// Full is the error of a task that the pool has refused.
type Full struct{ Err error }

// Error implements error.
func (f *Full) Error() string { return f.Err.Error() }

// Pool runs tasks: see pool.Pool.
type Pool interface {
	TrySubmit(task func()) error
	Release()
	Wait(ctx context.Context) error
}

// Tasks are the tasks of a server.
type Tasks struct {
	mu      sync.Mutex
	pool    Pool                 // nil until the first task, unless it is shared; guarded by mu
	newPool func() (Pool, error) // immutable
	own     bool                 // pool is newPool's; guarded by mu
	over    bool                 // nothing more is accepted; guarded by mu
	running int                  // number of this server's tasks, waiting ones included; guarded by mu
	// idle is closed when no task is left; nil while nobody waits for that. Guarded by mu.
	idle chan struct{}
	// ctx ends the tasks' contexts. Set by Init, and immutable then.
	ctx context.Context
	// Cancel ends the tasks' contexts for a reason. Set by Init, and immutable then.
	Cancel context.CancelCauseFunc
}

// Init makes t ready for use. shared is the user's pool; without one newPool makes a pool when the first task needs it.
func (t *Tasks) Init(shared Pool, newPool func() (Pool, error)) {
	t.pool, t.newPool = shared, newPool
	t.ctx, t.Cancel = context.WithCancelCause(context.Background())
}

// Start submits a task, whose context gets these values.
func (t *Tasks) Start(values context.Context, task func(context.Context)) error {
	tasks, parent, err := t.begin()
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
	return &Full{err}
}

// begin counts a task. It returns the pool to submit the task to, and the context that ends the task's.
func (t *Tasks) begin() (Pool, context.Context, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil, nil, ErrOver
	}
	if t.pool == nil {
		made, err := t.newPool()
		if err != nil {
			return nil, nil, err
		}
		t.pool, t.own = made, true
	}
	t.running++
	return t.pool, t.ctx, nil
}

// end takes a task that has ended, or was never accepted, out of the count.
func (t *Tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		t.over = true
		close(t.idle)
		t.idle = nil
	}
}

// Wait waits until no task is left. From then on none is accepted, and a pool of the server's own has no goroutine.
func (t *Tasks) Wait(ctx context.Context) error {
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
func (t *Tasks) release() Pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if !t.own {
		return nil
	}
	t.pool.Release()
	return t.pool
}

// Close cancels the tasks' contexts and accepts no more.
func (t *Tasks) Close(cause error) {
	t.Cancel(cause)
	t.release()
}

// Count returns how many tasks there are.
func (t *Tasks) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
