package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// LoadBalancingStrategy is the way in which a MultiPool chooses the pool that it tries first.
type LoadBalancingStrategy int

const (
	// RoundRobin takes the pools in turn.
	RoundRobin LoadBalancingStrategy = 1 << (iota + 1)

	// LeastTasks takes the pool with the fewest tasks, counting accepted and waiting tasks.
	LeastTasks
)

// multi is the common part of all kinds of MultiPool. No other code uses its pools.
type multi[T any] struct {
	// pools and strategy don't change.
	pools    []*core[T]
	strategy LoadBalancingStrategy
	lobby    lobby[T]

	last   atomic.Uint32 // the last choice of RoundRobin, modulo the number of pools
	closed atomic.Bool
	reboot sync.Mutex // one Reboot at a time
}

func newMulti[T any](
	size, sizePerPool int, fn func(T), strategy LoadBalancingStrategy, options []Option,
) (*multi[T], error) {
	if size <= 0 {
		return nil, ErrInvalidMultiPoolSize
	}
	if strategy != RoundRobin && strategy != LeastTasks {
		return nil, ErrInvalidLoadBalancingStrategy
	}
	m := &multi[T]{pools: make([]*core[T], size), strategy: strategy}
	m.lobby.byHome = make([]int, size)
	for i := range m.pools {
		p, err := newCore(sizePerPool, fn, options)
		if err != nil {
			return nil, err
		}
		p.lobby = &m.lobby
		m.pools[i] = p
	}
	m.last.Store(^uint32(0))
	return m, nil
}

// choose returns the index of the pool to try first.
func (m *multi[T]) choose() int {
	if m.strategy == RoundRobin {
		return int(m.last.Add(1) % uint32(len(m.pools)))
	}
	least, index := math.MaxInt, 0
	for i, p := range m.pools {
		n := p.tasks()
		if m.lobby.n.Load() > 0 {
			n += m.lobby.waitingWith(i)
		}
		if n < least {
			least, index = n, i
		}
	}
	return index
}

// tasks returns how many tasks are accepted and not finished.
func (p *core[T]) tasks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// submit submits a task to the first pool that has room. If no pool has room, it waits if mayWait is set.
func (m *multi[T]) submit(ctx context.Context, task T, mayWait bool) error {
	if m.closed.Load() {
		return ErrPoolClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	home := m.choose()
	if m.lobby.n.Load() == 0 {
		if err := m.submitAtOnce(home, task); err != ErrPoolOverload {
			return err
		}
	}
	opts := &m.pools[0].opts
	if opts.Nonblocking || !mayWait {
		return ErrPoolOverload
	}
	w := m.pools[home].newWaiter(task)
	w.home = home
	if err := m.lobby.enter(w, opts.MaxBlockingTasks*len(m.pools)); err != nil {
		m.pools[home].freeWaiter(w)
		return err
	}
	// From now on, a pool admits the waiter when one of the pool's tasks ends. A pool whose task ended just before may have missed the
	// waiter, so check all pools for room once more.
	for i := range m.pools {
		p := m.pools[(home+i)%len(m.pools)]
		p.mu.Lock()
		p.admitAll()
	}
	w.await(ctx, &m.lobby)
	return m.pools[home].freeWaiter(w)
}

// submitAtOnce tries the pools one after another, beginning with the pool whose index is the argument from.
func (m *multi[T]) submitAtOnce(from int, task T) error {
	for i := range m.pools {
		if err := m.pools[(from+i)%len(m.pools)].submitAtOnce(task); err != ErrPoolOverload {
			return err
		}
	}
	return ErrPoolOverload
}

func (m *multi[T]) byIndex(i int, count func(*core[T]) int) (int, error) {
	if i < 0 || i >= len(m.pools) {
		return -1, ErrInvalidPoolIndex
	}
	return count(m.pools[i]), nil
}

// sum adds up the pools' counts. It returns -1 if a count is -1, which means that the pools have no limit.
func (m *multi[T]) sum(count func(*core[T]) int) (n int) {
	for _, p := range m.pools {
		one := count(p)
		if one < 0 {
			return -1
		}
		n += one
	}
	return n
}

// Running returns the sum of the pools' Running.
func (m *multi[T]) Running() int { return m.sum((*core[T]).Running) }

// RunningByIndex returns Running of the pool with index i; the error is ErrInvalidPoolIndex.
func (m *multi[T]) RunningByIndex(i int) (int, error) { return m.byIndex(i, (*core[T]).Running) }

// Free returns the sum of the pools' Free, or -1 if they have no limit.
func (m *multi[T]) Free() int { return m.sum((*core[T]).Free) }

// FreeByIndex returns Free of the pool with index i; the error is ErrInvalidPoolIndex.
func (m *multi[T]) FreeByIndex(i int) (int, error) { return m.byIndex(i, (*core[T]).Free) }

// Waiting returns the number of submitters that wait for room.
func (m *multi[T]) Waiting() int { return int(m.lobby.n.Load()) }

// WaitingByIndex returns the number of waiting submitters for which the strategy chose the pool with index i; the error is
// ErrInvalidPoolIndex.
func (m *multi[T]) WaitingByIndex(i int) (int, error) {
	return m.byIndex(i, func(*core[T]) int { return m.lobby.waitingWith(i) })
}

// Cap returns the sum of the pools' capacities, or -1 if they have no limit.
func (m *multi[T]) Cap() int { return m.sum((*core[T]).Cap) }

// Tune changes the capacity of each pool.
func (m *multi[T]) Tune(size int) {
	for _, p := range m.pools {
		p.Tune(size)
	}
}

// IsClosed reports whether the pools were released.
func (m *multi[T]) IsClosed() bool { return m.closed.Load() }

// Release closes the pools. Waiting and new submitters get ErrPoolClosed. Accepted tasks still run, but Release doesn't wait for
// them.
func (m *multi[T]) Release() { m.close() }

// close closes the pools and reports whether they were open.
func (m *multi[T]) close() (wasOpen bool) {
	if !m.closed.CompareAndSwap(false, true) {
		return false
	}
	m.lobby.close()
	for _, p := range m.pools {
		p.close()
	}
	return true
}

// ReleaseTimeout closes the pools as Release does, and waits until all accepted tasks have ended. If the timeout passes first,
// it returns ErrTimeout, wrapped for each pool that has not ended. If the pools were closed before, it returns ErrPoolClosed at
// once.
func (m *multi[T]) ReleaseTimeout(timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, ErrTimeout)
	defer cancel()
	return m.release(ctx, func() error { return ErrTimeout })
}

// ReleaseContext closes the pools as Release does, and waits until all accepted tasks have ended. If ctx is done first, it
// returns ctx.Err(), wrapped for each pool that has not ended. It doesn't wait if ctx is nil. If the pools were closed before,
// it returns ErrPoolClosed at once.
func (m *multi[T]) ReleaseContext(ctx context.Context) error {
	if ctx == nil {
		if !m.close() {
			return ErrPoolClosed
		}
		return nil
	}
	return m.release(ctx, ctx.Err)
}

func (m *multi[T]) release(ctx context.Context, reason func() error) error {
	if !m.close() {
		return ErrPoolClosed
	}
	var errs []error
	for i, p := range m.pools {
		if p.Wait(ctx) != nil {
			errs = append(errs, fmt.Errorf("pool %d: %w", i, reason()))
		}
	}
	return errors.Join(errs...)
}

// Wait waits until the pools are closed and all accepted tasks have ended. If ctx is done first, it returns ctx.Err(). Wait
// doesn't close the pools.
func (m *multi[T]) Wait(ctx context.Context) error {
	for _, p := range m.pools {
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Reboot opens closed pools again, after all accepted tasks have ended.
func (m *multi[T]) Reboot() {
	m.reboot.Lock()
	defer m.reboot.Unlock()
	if !m.closed.Load() {
		return
	}
	for _, p := range m.pools {
		p.Reboot()
	}
	m.last.Store(^uint32(0))
	m.lobby.open()
	m.closed.Store(false)
}

// MultiPool is a set of pools with the same capacity, each with its own lock. A task goes to the pool that the strategy chooses,
// or to another one if that pool is full. A submitter waits only while all pools are full, and then takes the first pool with
// room.
type MultiPool struct {
	*multi[func()]
}

// NewMultiPool makes a MultiPool of size pools. Each pool accepts sizePerPool tasks. MaxBlockingTasks is a limit per pool, so
// size times as many submitters may wait in total.
func NewMultiPool(size, sizePerPool int, strategy LoadBalancingStrategy, options ...Option) (*MultiPool, error) {
	m, err := newMulti(size, sizePerPool, call, strategy, options)
	if err != nil {
		return nil, err
	}
	return &MultiPool{m}, nil
}

// Submit is like Pool.Submit.
func (m *MultiPool) Submit(task func()) error { return m.submitFunc(context.Background(), task, true) }

// SubmitContext is like Pool.SubmitContext.
func (m *MultiPool) SubmitContext(ctx context.Context, task func()) error {
	return m.submitFunc(ctx, task, true)
}

// TrySubmit is like Pool.TrySubmit.
func (m *MultiPool) TrySubmit(task func()) error {
	return m.submitFunc(context.Background(), task, false)
}

func (m *MultiPool) submitFunc(ctx context.Context, task func(), mayWait bool) error {
	if task == nil {
		if m.IsClosed() {
			return ErrPoolClosed
		}
		return ErrNilTask
	}
	return m.submit(ctx, task, mayWait)
}

// MultiPoolWithFuncGeneric is a set of pools that call one function. It is to PoolWithFuncGeneric what MultiPool is to Pool.
type MultiPoolWithFuncGeneric[T any] struct {
	*multi[T]
}

// MultiPoolWithFunc is a MultiPoolWithFuncGeneric whose function takes any argument.
type MultiPoolWithFunc = MultiPoolWithFuncGeneric[any]

// NewMultiPoolWithFuncGeneric makes a MultiPoolWithFuncGeneric of size pools, which call fn. Each pool accepts sizePerPool calls.
func NewMultiPoolWithFuncGeneric[T any](
	size, sizePerPool int, fn func(T), strategy LoadBalancingStrategy, options ...Option,
) (*MultiPoolWithFuncGeneric[T], error) {
	if size > 0 && (strategy == RoundRobin || strategy == LeastTasks) && fn == nil {
		return nil, ErrLackPoolFunc
	}
	m, err := newMulti(size, sizePerPool, fn, strategy, options)
	if err != nil {
		return nil, err
	}
	return &MultiPoolWithFuncGeneric[T]{m}, nil
}

// NewMultiPoolWithFunc is like NewMultiPoolWithFuncGeneric, for a function that takes any argument.
func NewMultiPoolWithFunc(
	size, sizePerPool int, fn func(any), strategy LoadBalancingStrategy, options ...Option,
) (*MultiPoolWithFunc, error) {
	return NewMultiPoolWithFuncGeneric(size, sizePerPool, fn, strategy, options...)
}

// Invoke is like PoolWithFuncGeneric.Invoke.
func (m *MultiPoolWithFuncGeneric[T]) Invoke(arg T) error {
	return m.submit(context.Background(), arg, true)
}

// InvokeContext is like PoolWithFuncGeneric.InvokeContext.
func (m *MultiPoolWithFuncGeneric[T]) InvokeContext(ctx context.Context, arg T) error {
	return m.submit(ctx, arg, true)
}

// TryInvoke is like PoolWithFuncGeneric.TryInvoke.
func (m *MultiPoolWithFuncGeneric[T]) TryInvoke(arg T) error {
	return m.submit(context.Background(), arg, false)
}
