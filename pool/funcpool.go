package pool

import "context"

// PoolWithFuncGeneric calls one function on its workers, with a different argument each time. A task is therefore only an argument,
// and needs no closure.
type PoolWithFuncGeneric[T any] struct {
	*core[T]
}

// PoolWithFunc is a pool whose function takes any argument.
type PoolWithFunc = PoolWithFuncGeneric[any]

// NewPoolWithFuncGeneric makes a pool that calls fn. The pool accepts up to size unfinished calls at a time, or any number if
// size isn't positive. No goroutine is started before the first call.
func NewPoolWithFuncGeneric[T any](size int, fn func(T), options ...Option) (*PoolWithFuncGeneric[T], error) {
	if fn == nil {
		return nil, ErrLackPoolFunc
	}
	c, err := newCore(size, fn, options)
	if err != nil {
		return nil, err
	}
	return &PoolWithFuncGeneric[T]{c}, nil
}

// NewPoolWithFunc is like NewPoolWithFuncGeneric, for a function that takes any argument.
func NewPoolWithFunc(size int, fn func(any), options ...Option) (*PoolWithFunc, error) {
	return NewPoolWithFuncGeneric(size, fn, options...)
}

// Invoke submits a call of the function with arg, which may be nil. If the pool is full, Invoke waits for room, unless
// Nonblocking or MaxBlockingTasks forbid that. The error is ErrPoolClosed or ErrPoolOverload.
func (p *PoolWithFuncGeneric[T]) Invoke(arg T) error { return p.submit(arg) }

// InvokeContext is like Invoke, but stops waiting when ctx is done. It then returns ctx.Err(), and the function is never
// called. It does the same if ctx is done before the call.
func (p *PoolWithFuncGeneric[T]) InvokeContext(ctx context.Context, arg T) error {
	return p.submitContext(ctx, arg)
}

// TryInvoke is like Invoke, but never waits: it returns ErrPoolOverload if the pool is full.
func (p *PoolWithFuncGeneric[T]) TryInvoke(arg T) error { return p.submitAtOnce(arg) }

// InvokeBatch has the effect of calling Invoke for each argument in order, but is faster. It stops at the first refused argument,
// and returns how many arguments were accepted.
func (p *PoolWithFuncGeneric[T]) InvokeBatch(args []T) (accepted int, err error) {
	return p.submitBatch(args)
}
