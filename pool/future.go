package pool

import (
	"context"
	"errors"
	"runtime/debug"
)

// ErrGoexit is the error that a [Future], a [Group] or [Map] returns for a function that called runtime.Goexit.
var ErrGoexit = errors.New("pool: task called runtime.Goexit")

// Future holds the result of a function that a pool calls, once the function has ended.
type Future[T any] struct {
	done  chan struct{}
	value T // value and err are stored before done is closed
	err   error
}

// Async submits f to p, and returns its future result. It waits for room as p.SubmitContext does. The pool calls f with ctx. If
// ctx is done before f starts, f isn't called, and the result's error is ctx.Err().
func Async[T any](ctx context.Context, p *Pool, f func(context.Context) (T, error)) (*Future[T], error) {
	if f == nil {
		return nil, p.refuseNil()
	}
	future := &Future[T]{done: make(chan struct{})}
	err := p.SubmitContext(ctx, func() {
		defer close(future.done)
		settle(&future.err, func() (err error) {
			if err = ctx.Err(); err == nil {
				future.value, err = f(ctx)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return future, nil
}

// Done returns a channel that is closed when the result is available.
func (f *Future[T]) Done() <-chan struct{} { return f.done }

// Wait waits for the result and returns it: the values that the function returned, or a *PanicError if it panicked. If ctx is
// done first, Wait returns ctx.Err(); the function goes on, and Wait can be called again.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	if err := waitFor(ctx, f.done); err != nil {
		var none T
		return none, err
	}
	return f.value, f.err
}

// settle calls f and stores its error: the one that f returned, a *PanicError, or ErrGoexit. It stops a panic, but not runtime.Goexit.
func settle(err *error, f func() error) {
	*err = ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			*err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	*err = f()
}
