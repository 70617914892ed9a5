package pool

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// unlimited is the capacity of a pool that has no limit. Sums of it with a queue's size don't overflow.
const unlimited = math.MaxInt / 4

// core is the common part of all kinds of pools. It runs fn for tasks of type T.
//
// A task that is accepted goes into the run queue. At most one worker is searching, which is on its way to the queue's
// head: who queues a task wakes a worker only if none is searching, and the one that was woken wakes the next if it has
// left tasks in the queue. So a queue that isn't empty always has a worker on its way, unless as many run as may.
type core[T any] struct {
	// fn, opts, lobby and grows aren't changed once the pool is made.
	fn    func(T)
	opts  Options
	lobby *lobby[T] // where the submitters of a MultiPool wait; nil in a pool of its own
	grows bool      // opts.Growth is set

	// mu guards what follows, up to the free lists. What each task needs comes first.
	mu sync.Mutex

	closed    bool // released
	searching bool // a worker is searching
	ticking   bool // timer runs
	over      bool // drained is closed
	// accepted is how many tasks count: in the queue, running, or given a place and not queued yet. It is at most limit,
	// unless Tune has lowered that.
	accepted  int
	limit     int // how many tasks are accepted: capacity and the queue's size
	busy      int // tasks that run
	target    int // how many workers there may be: capacity, or less in a pool that grows
	queue     queue[T]
	submitted uint64      // tasks queued, or run without
	probe     uint64      // the value of submitted for the task whose wait is measured, 0 for none
	waiters   waitList[T] // empty while accepted < limit
	parked    []*worker   // the one that was parked last is the last
	low       int         // the least length of parked since the period of expiry began
	workers   int         // that count: searching, busy or parked

	turns      int           // how many submitters a worker lets in before it lets them run: minTurns to maxTurns
	yieldedAt  clock.Nanos   // since when one lets them run, 0 if none does
	capacity   int           // how many tasks may run at once
	goroutines int           // workers until they have ended, so also those that have stopped counting
	period     uint64        // changes with each period of expiry that is begun anew
	timer      *time.Timer   // ends the period; nil until there was one
	drained    chan struct{} // closed when the pool is closed and everything has ended; another after each Reboot

	panicked uint64
	refused  uint64
	waits    uint64 // submitters that have waited
	spawned  uint64
	probeAt  clock.Nanos // since when the measured task waits
	waited   [waitBuckets]uint64

	freeWaiters sync.Pool // of *waiter[T]
	freeWorkers sync.Pool // of *worker
}

// newCore makes a pool for size tasks at once; any number if size isn't positive.
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

// submit has a task accepted. If there is no room it waits, unless it mayn't.
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

// submitContext is submit until ctx is done.
func (p *core[T]) submitContext(ctx context.Context, task T) error {
	p.mu.Lock()
	if err := ctx.Err(); err != nil && !p.closed {
		defer p.mu.Unlock()
		return p.refuseLocked(err)
	}
	return p.submitSlowly(ctx, task, false)
}

// submitAtOnce is submit without the wait: ErrPoolOverload says that there would be one.
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

// submitSlowly is submit where there may be no room. It is called with the lock held, and unlocks. A bare submission
// gets its task a place, and the caller queues it.
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

// leave takes a waiter out that gives up. It reports false if another has taken it out already.
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

// freeWaiter takes back a waiter whose wait is over, and returns how it has ended.
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

// pushLocked queues a task that was accepted. callLocked is to follow.
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

// popLocked takes the queue's head to run it.
func (p *core[T]) popLocked() T {
	if p.probe != 0 && p.probe == p.submitted-uint64(p.queue.n)+1 {
		p.measureLocked(p.probeAt)
		p.probe = 0
	}
	p.busy++
	return p.queue.pop()
}

// callLocked makes a worker search for the queue's head, if that is needed and may be. The caller is to wake it.
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

// endLocked ends a task's count. It returns the waiter that gets its place, if one does: to be sent to after the
// unlock.
func (p *core[T]) endLocked() *waiter[T] {
	p.accepted--
	return p.admitLocked()
}

// admitLocked gives a place to who has waited longest, if there is one and a place. The caller sees to the task.
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

// queueWaiterLocked queues the task of a waiter that was admitted.
func (p *core[T]) queueWaiterLocked(w *waiter[T]) {
	if w.bare {
		return
	}
	p.pushLocked(w.task)
	if w.since != 0 && p.probe == 0 {
		p.probe, p.probeAt = p.submitted, w.since
	}
}

// admitAll gives all free places to waiters. It is called with the lock held, and unlocks.
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

// queueReserved queues a task that has its place already.
func (p *core[T]) queueReserved(task T) {
	p.mu.Lock()
	p.pushLocked(task)
	w := p.callLocked()
	p.mu.Unlock()
	p.wake(w)
}

// Running returns the number of workers, including idle ones, or the number of accepted tasks if those are more. It never
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

// Cap returns how many tasks may be accepted and not finished at once, without the places of QueueSize. It is -1 if the pool
// has no limit.
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
