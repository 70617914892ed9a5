package pool

import "context"

// Pool runs functions on its workers.
type Pool struct {
	*core[func()]

	keys keys
}

// NewPool makes a pool. The pool accepts up to size unfinished tasks at a time, or any number if size isn't positive. No
// goroutine is started before the first task.
func NewPool(size int, options ...Option) (*Pool, error) {
	c, err := newCore(size, call, options)
	if err != nil {
		return nil, err
	}
	return &Pool{core: c}, nil
}

func call(task func()) { task() }

// Submit submits task to the pool, which runs it. If the pool is full, Submit waits for room, unless Nonblocking or
// MaxBlockingTasks forbid that. A task may submit to its own pool. But if all tasks wait for room in their own pool, the pool
// deadlocks.
//
// The error is ErrPoolClosed, ErrNilTask or ErrPoolOverload. If several apply, it is the first in this order.
func (p *Pool) Submit(task func()) error {
	if task == nil {
		return p.refuseNil()
	}
	return p.submit(task)
}

// SubmitContext is like Submit, but stops waiting when ctx is done. It then returns ctx.Err(), and the task is never run. It
// does the same if ctx is done before the call.
func (p *Pool) SubmitContext(ctx context.Context, task func()) error {
	if task == nil {
		return p.refuseNil()
	}
	return p.submitContext(ctx, task)
}

// TrySubmit is like Submit, but never waits: it returns ErrPoolOverload if the pool is full.
func (p *Pool) TrySubmit(task func()) error {
	if task == nil {
		return p.refuseNil()
	}
	return p.submitAtOnce(task)
}

// SubmitBatch has the effect of calling Submit for each task in order, but is faster. It stops at the first refused task, and
// returns how many tasks were accepted.
func (p *Pool) SubmitBatch(tasks []func()) (accepted int, err error) {
	for i, task := range tasks {
		if task == nil {
			tasks = tasks[:i]
			err = ErrNilTask
			break
		}
	}
	accepted, refused := p.submitBatch(tasks)
	if refused != nil {
		return accepted, refused
	}
	if err != nil {
		err = p.refuseNil()
	}
	return accepted, err
}

// refuseNil returns the error for a nil function.
func (p *core[T]) refuseNil() error {
	if p.IsClosed() {
		return ErrPoolClosed
	}
	return ErrNilTask
}

// submitBatch locks the pool once to queue all tasks for which there is room. When the pool is full, it submits a single task,
// which waits for room, and then goes on.
func (p *core[T]) submitBatch(tasks []T) (accepted int, err error) {
	for accepted < len(tasks) {
		p.mu.Lock()
		if p.closed || p.accepted >= p.limit {
			if err := p.submitSlowly(context.Background(), tasks[accepted], false); err != nil {
				return accepted, err
			}
			accepted++
			continue
		}
		n := min(len(tasks)-accepted, p.limit-p.accepted)
		p.accepted += n
		for _, task := range tasks[accepted : accepted+n] {
			p.pushLocked(task)
		}
		w := p.callLocked()
		p.mu.Unlock()
		p.wake(w)
		accepted += n
	}
	return accepted, nil
}
