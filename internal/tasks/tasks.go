// Package tasks runs work that continues after a handler has returned. It runs the tasks in the program's pool, or in one that it creates. It
// counts the tasks, and ends them when their server ends.
package tasks

import (
	"context"
	"errors"
	"sync"
)

// ErrOver is the error of Start once no more tasks are accepted.
var ErrOver = errors.New("no more tasks are accepted")

// Full is the error of Start for a task that the pool has refused.
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
	own     bool                 // pool was created by newPool; guarded by mu
	over    bool                 // no more tasks are accepted; guarded by mu
	running int                  // number of this server's tasks, running or queued; guarded by mu
	// idle is closed when no task is left. It is nil while no goroutine waits for that. Guarded by mu.
	idle chan struct{}
	// ctx ends the tasks' contexts. Set by Init, and immutable then.
	ctx context.Context
	// Cancel ends the tasks' contexts for a reason. Set by Init, and immutable then.
	Cancel context.CancelCauseFunc
}

// Init makes t ready for use. shared is the program's pool. If it is nil, newPool creates a pool for the first task.
func (t *Tasks) Init(shared Pool, newPool func() (Pool, error)) {
	t.pool, t.newPool = shared, newPool
	t.ctx, t.Cancel = context.WithCancelCause(context.Background())
}

// Start submits a task. The task's context has the same values as the parameter values.
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
			cancel(context.Cause(parent)) // cancel the task's context now, since the goroutine of AfterFunc may run later
		}
		task(ctx)
	})
	if err == nil {
		return nil
	}
	t.end()
	return &Full{err}
}

// begin counts a task. It returns the pool for the task, and the context whose end ends the task's context.
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

// end stops counting a task that has ended, or that the pool has refused.
func (t *Tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		t.over = true
		close(t.idle)
		t.idle = nil
	}
}

// Wait waits until no task is left. From then on no task is accepted, and the goroutines of a pool that newPool created have ended.
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

// release makes Start refuse further tasks. It releases and returns a pool that newPool created, and returns nil for a shared one.
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

// Close cancels the tasks' contexts. From then on no task is accepted.
func (t *Tasks) Close(cause error) {
	t.Cancel(cause)
	t.release()
}

// Count returns how many tasks run or are queued.
func (t *Tasks) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
