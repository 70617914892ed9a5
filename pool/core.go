package pool

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// unlimited is the capacity of a pool that has no limit. Adding a QueueSize to it doesn't overflow.
const unlimited = math.MaxInt / 4

// core is the common part of all kinds of pools. It runs fn for tasks of type T.
//
// An accepted task goes into the run queue. At most one worker is searching, which means that it is on its way to the queue's head. A
// submitter wakes a worker only if none is searching. The woken worker wakes the next one if it leaves tasks in the queue. So a queue
// that isn't empty always has a worker on its way, unless the maximum number of workers is busy.
type core[T any] struct {
	// fn, opts, lobby and grows don't change once the pool is made.
	fn    func(T)
	opts  Options
	lobby *lobby[T] // where the submitters of a MultiPool wait; nil in a pool outside of one
	grows bool      // opts.Growth is set

	// mu guards the fields below, up to the free lists. The fields that every task uses come first.
	mu sync.Mutex

	closed    bool // released
	searching bool // a worker is searching
	ticking   bool // timer runs
	over      bool // drained is closed
	// accepted counts the tasks that have a place: in the queue, running, or not queued yet. It is at most limit, unless Tune has
	// lowered limit.
	accepted  int
	limit     int // how many tasks may be accepted: capacity plus QueueSize
	busy      int // running tasks
	target    int // how many workers there may be: capacity, or less in a pool that grows
	queue     queue[T]
	submitted uint64      // tasks queued, or run without being queued
	probe     uint64      // the value of submitted for the task whose wait is measured, 0 for none
	waiters   waitList[T] // empty while accepted < limit
	parked    []*worker   // a stack: the last was parked last
	low       int         // the minimum length of parked in the current expiry period
	workers   int         // workers that are searching, busy or parked

	turns      int           // how many submitters a worker admits before it yields: from minTurns (from 1 with longTasks) to maxTurns
	longTasks  bool          // the last measured task took longTask or longer
	yieldedAt  clock.Nanos   // when a worker yielded; 0 once a searching worker has reached the queue
	capacity   int           // how many tasks may run at once
	goroutines int           // workers whose goroutines haven't ended, including those that the field workers no longer counts
	period     uint64        // the number of the last expiry period that tickLocked began
	timer      *time.Timer   // ends the period; nil before the first period
	drained    chan struct{} // closed when the pool is closed and all tasks and workers have ended; replaced by Reboot

	panicked uint64
	refused  uint64
	waits    uint64 // submitters that have waited
	spawned  uint64
	probeAt  clock.Nanos // when the wait of the measured task began
	waited   [waitBuckets]uint64

	freeWaiters sync.Pool // of *waiter[T]
	freeWorkers sync.Pool // of *worker
}

// newCore makes a pool with the capacity size, or without a limit if size isn't positive.
func newCore[T any](size int, fn func(T), options []Option) (*core[T], error) {
	p := &core[T]{fn: fn, capacity: size, drained: make(chan struct{})}
	for _, option := range options {
		option(&p.opts)
	}
	if err := p.opts.complete(size); err != nil {
		return nil, err
	}
	if size <= 0 {
		p.capacity = unlimited
	}
	p.capacity = min(p.capacity, unlimited)
	p.limit = p.capacity + p.opts.QueueSize
	p.target = p.capacity
	p.turns = minTurns
	if p.grows = p.opts.Growth.Step > 0; p.grows {
		p.target = min(p.opts.Growth.Step, p.capacity)
	}
	if p.opts.PreAlloc {
		p.parked = make([]*worker, 0, p.capacity)
		p.queue.reserve(p.capacity)
	}
	return p, nil
}

// submit submits a task. If there is no room, it waits or fails, as the options say.
func (p *core[T]) submit(task T) error {
	p.mu.Lock()
	if p.closed || p.accepted >= p.limit {
		return p.submitSlowly(context.Background(), task, false)
	}
	p.accepted++
	p.pushLocked(task)
	if p.searching {
		p.mu.Unlock()
		return nil
	}
	w := p.callLocked()
	p.mu.Unlock()
	p.wake(w)
	return nil
}

// submitContext is like submit, but stops waiting when ctx is done.
func (p *core[T]) submitContext(ctx context.Context, task T) error {
	p.mu.Lock()
	if err := ctx.Err(); err != nil && !p.closed {
		defer p.mu.Unlock()
		return p.refuseLocked(err)
	}
	return p.submitSlowly(ctx, task, false)
}

// submitAtOnce is like submit, but returns ErrPoolOverload where submit would wait.
func (p *core[T]) submitAtOnce(task T) error {
	p.mu.Lock()
	switch {
	case p.closed:
		defer p.mu.Unlock()
		return p.refuseLocked(ErrPoolClosed)
	case p.accepted >= p.limit:
		defer p.mu.Unlock()
		return p.refuseLocked(ErrPoolOverload)
	}
	p.accepted++
	p.pushLocked(task)
	w := p.callLocked()
	p.mu.Unlock()
	p.wake(w)
	return nil
}

// submitSlowly does the work of submit for a pool that may be closed or full. The caller holds the lock, and submitSlowly releases it. If bare
// is set, submitSlowly only acquires a place for the task, and the caller queues the task.
func (p *core[T]) submitSlowly(ctx context.Context, task T, bare bool) error {
	switch {
	case p.closed:
		defer p.mu.Unlock()
		return p.refuseLocked(ErrPoolClosed)
	case p.accepted < p.limit:
		p.accepted++
		var w *worker
		if !bare {
			p.pushLocked(task)
			w = p.callLocked()
		}
		p.mu.Unlock()
		p.wake(w)
		return nil
	case p.opts.Nonblocking, p.opts.MaxBlockingTasks > 0 && p.waiters.n >= p.opts.MaxBlockingTasks:
		defer p.mu.Unlock()
		return p.refuseLocked(ErrPoolOverload)
	}
	w := p.newWaiter(task)
	w.bare = bare
	p.waiters.push(w)
	if p.waits++; p.waits%measured == 0 {
		w.since = clock.Nanotime()
	}
	p.mu.Unlock()
	w.await(ctx, p)
	return p.freeWaiter(w)
}

// leave removes a waiter that gives up. It returns false if another goroutine has already removed it.
func (p *core[T]) leave(w *waiter[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.listed {
		return false
	}
	p.waiters.remove(w)
	p.refused++
	return true
}

func (p *core[T]) newWaiter(task T) *waiter[T] {
	w, _ := p.freeWaiters.Get().(*waiter[T])
	if w == nil {
		w = &waiter[T]{ready: make(chan struct{}, 1)}
	}
	w.task = task
	return w
}

// freeWaiter recycles a waiter whose wait has ended, and returns the waiter's error.
func (p *core[T]) freeWaiter(w *waiter[T]) error {
	err := w.err
	ready := w.ready
	*w = waiter[T]{ready: ready}
	p.freeWaiters.Put(w)
	return err
}

func (p *core[T]) refuseLocked(err error) error {
	p.refused++
	return err
}

// pushLocked queues an accepted task. The caller must call callLocked next.
func (p *core[T]) pushLocked(task T) {
	p.submitted++
	if p.submitted%measured == 0 && p.probe == 0 {
		p.probe, p.probeAt = p.submitted, clock.Nanotime()
	}
	p.queue.push(task)
	if p.grows {
		p.growLocked()
	}
}

// popLocked removes the task at the queue's head and counts it as running. The caller runs it.
func (p *core[T]) popLocked() T {
	if p.probe != 0 && p.probe == p.submitted-uint64(p.queue.n)+1 {
		p.measureLocked(p.probeAt)
		p.probe = 0
	}
	p.busy++
	return p.queue.pop()
}

// callLocked makes a worker search, if there are tasks that no worker searches for and another worker may run. The caller must pass
// the worker, or nil, to wake.
func (p *core[T]) callLocked() *worker {
	if p.searching || p.queue.n == 0 || p.busy >= p.target {
		return nil
	}
	if top := len(p.parked) - 1; top >= 0 {
		w := p.parked[top]
		p.parked[top] = nil
		p.parked = p.parked[:top]
		p.low = min(p.low, top)
		p.searching = true
		return w
	}
	if p.workers < p.target {
		p.searching = true
		return p.newWorkerLocked()
	}
	return nil
}

// endLocked stops counting a task as accepted. It returns the waiter to which it has given the task's place, nil if none waits. The caller
// wakes the waiter after unlocking.
func (p *core[T]) endLocked() *waiter[T] {
	p.accepted--
	return p.admitLocked()
}

// admitLocked gives a free place to the waiter that has waited longest, and returns it. It returns nil if there is no place or no
// waiter. The caller queues or runs the waiter's task.
func (p *core[T]) admitLocked() *waiter[T] {
	if p.accepted >= p.limit {
		return nil
	}
	w := p.waiters.pop()
	if w == nil {
		if p.lobby == nil {
			return nil
		}
		if w = p.lobby.pop(); w == nil {
			return nil
		}
	}
	p.accepted++
	return w
}

// queueWaiterLocked queues the task of an admitted waiter, unless the waiter is bare.
func (p *core[T]) queueWaiterLocked(w *waiter[T]) {
	if w.bare {
		return
	}
	p.pushLocked(w.task)
	if w.since != 0 && p.probe == 0 {
		p.probe, p.probeAt = p.submitted, w.since
	}
}

// admitAll gives all free places to waiters. The caller holds the lock, and admitAll releases it.
func (p *core[T]) admitAll() {
	var admitted []*waiter[T]
	for w := p.admitLocked(); w != nil; w = p.admitLocked() {
		p.queueWaiterLocked(w)
		admitted = append(admitted, w)
	}
	called := p.callLocked()
	p.mu.Unlock()
	p.wake(called)
	for _, w := range admitted {
		w.ready <- struct{}{}
	}
}

// queueReserved queues a task that already has a place.
func (p *core[T]) queueReserved(task T) {
	p.mu.Lock()
	p.pushLocked(task)
	w := p.callLocked()
	p.mu.Unlock()
	p.wake(w)
}

// Running returns the number of workers, including idle ones, or the number of accepted tasks if that is larger. The result never
// exceeds Cap.
func (p *core[T]) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runningLocked()
}

func (p *core[T]) runningLocked() int { return min(max(p.workers, p.accepted), p.capacity) }

// Free returns Cap minus Running, or -1 if the pool has no limit.
func (p *core[T]) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.capacity == unlimited {
		return -1
	}
	return p.capacity - p.runningLocked()
}

// Waiting returns the number of submitters that wait for room.
func (p *core[T]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiters.n
}

// Cap returns the capacity: how many accepted tasks may be unfinished at once, not counting the places of QueueSize. It is -1 if
// the pool has no limit.
func (p *core[T]) Cap() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.capacity == unlimited {
		return -1
	}
	return p.capacity
}

// IsClosed reports whether the pool was released.
func (p *core[T]) IsClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
