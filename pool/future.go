package pool

import (
	"context"
	"errors"
	"runtime/debug"
)

// ErrGoexit is the error of a [Future], a [Group] or [Map] whose function has called runtime.Goexit.
var ErrGoexit = errors.New("pool: task called runtime.Goexit")

// Future is the result to come of a function that a pool calls.
type Future[T any] struct {
	done  chan struct{}
	value T // value and err are stored before done is closed
	err   error
}

// Async has p call f, and returns the result to come. It waits for room as p.SubmitContext does. f is called with ctx;
// if ctx is done when its turn comes, it isn't called, and the result's error is ctx.Err().
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

// Done returns a channel that is closed when there is a result.
func (f *Future[T]) Done() <-chan struct{} { return f.done }

// Wait waits for the result and returns it: what the function has returned, or a *PanicError for its panic. If ctx is
// done first, it returns ctx.Err(); the function goes on, and Wait can be called again.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	if err := waitFor(ctx, f.done); err != nil {
		var none T
		return none, err
	}
	return f.value, f.err
}

// settle calls f and stores its error, or how it has ended else: a panic goes no further, but runtime.Goexit does.
func settle(err *error, f func() error) {
	*err = ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			*err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	*err = f()
}
