package pool

import "context"

// PoolWithFuncGeneric calls one function, with another argument each time, on its workers. So no function value needs
// to be made for a task.
type PoolWithFuncGeneric[T any] struct {
	*core[T]
}

// PoolWithFunc is a pool whose function takes any argument.
type PoolWithFunc = PoolWithFuncGeneric[any]

// NewPoolWithFuncGeneric makes a pool that calls fn, and accepts size calls that are not finished; any number if size
// isn't positive. No goroutine is started before the first call.
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

// NewPoolWithFunc is NewPoolWithFuncGeneric for a function that takes any argument.
func NewPoolWithFunc(size int, fn func(any), options ...Option) (*PoolWithFunc, error) {
	return NewPoolWithFuncGeneric(size, fn, options...)
}

// Invoke has the function called with arg, which may be nil. If the pool is full it waits for room, unless Nonblocking
// or MaxBlockingTasks forbid that. The error is ErrPoolClosed or ErrPoolOverload.
func (p *PoolWithFuncGeneric[T]) Invoke(arg T) error { return p.submit(arg) }

// InvokeContext is as Invoke, but stops waiting when ctx is done. The function is never called then, and the error is
// ctx.Err(), as it is if ctx was done before.
func (p *PoolWithFuncGeneric[T]) InvokeContext(ctx context.Context, arg T) error {
	return p.submitContext(ctx, arg)
}

// TryInvoke is as Invoke, but never waits: the error is ErrPoolOverload if the pool is full.
func (p *PoolWithFuncGeneric[T]) TryInvoke(arg T) error { return p.submitAtOnce(arg) }

// InvokeBatch is as Invoke for each of the arguments in turn, but faster. It stops at the first that is refused, and
// returns how many were accepted.
func (p *PoolWithFuncGeneric[T]) InvokeBatch(args []T) (accepted int, err error) {
	return p.submitBatch(args)
}
