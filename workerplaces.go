package filo

import (
	"math"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// workerPlaces counts a pool's workers.
type workerPlaces struct {
	kept atomic.Int64 // workers in places reserved for quick handlers

	always atomic.Int64 // workers in the reserve of alwaysPlaces

	ready     atomic.Int64               // len of workerPool.ready, for who doesn't hold its mu
	taken     atomic.Int64               // places of workers that are ready or serving; only retakes exceed MaxWorkersCount
	appointed atomic.Pointer[workerChan] // the last worker appointed to lead, which may have started by now
}

// keptPlaces is how many workers a server may have beyond Concurrency, to find out whether a handler is quick. Quick handlers, such as
// a health check's, are called whatever the load.
const keptPlaces = 32

// keptConns is that limit for connections of the blocking driver. They hold such a place from when they are accepted, until their request has
// come and is refused or answered, and clients of an overloaded machine take their time. With keptPlaces a probe would rarely find one.
const keptConns = 8 * keptPlaces

// alwaysPlaces is how many workers a server may have beyond Concurrency and the kept places for handlers that are always answered, such as
// those of probes that wait for checks, and of operators' pages. The limit bounds what such a route costs when everybody calls it.
const alwaysPlaces = 16

// takeBelow adds one to a count, unless that has reached most.
func takeBelow(count *atomic.Int64, most int64) bool {
	for {
		n := count.Load()
		if n >= most {
			return false
		}
		if count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// serveKept is Serve by a new worker in a reserved place. The worker runs quick handlers, and others only if it gets an ordinary place:
// see MayRun.
func (wp *workerPool) serveKept(c net.Conn) bool {
	wp.mu.Lock()
	ok := wp.started && !wp.stopped && takeBelow(&wp.places.kept, keptConns)
	if ok {
		wp.countSpawnLocked()
		wp.closing++
	}
	wp.mu.Unlock()
	if ok {
		w := wp.spawn()
		w.kept = true
		w.send(c)
	}
	return ok
}

// handOverKept is handOver, but w gets a reserved place and not an ordinary one.
func (wp *workerPool) handOverKept(w *workerChan, l *leadership) bool {
	if !takeBelow(&wp.places.kept, keptPlaces) {
		return false
	}
	wp.mu.Lock()
	wp.countSpawnLocked()
	wp.closing++
	wp.mu.Unlock()
	next := wp.spawn()
	w.place, w.kept = placeClosing, true
	next.appoint(l)
	return true
}

// ExchangeForKept implements loop.Owner: a serving worker gives up its place for a reserved one. It returns false if none is free.
func (w *workerChan) ExchangeForKept() bool {
	if !takeBelow(&w.pool.places.kept, keptPlaces) {
		return false
	}
	w.vacate(math.MaxInt)
	w.kept = true
	return true
}

// leaveAlways gives away w's loop, its place and its kept place, and makes w one of those in the reserve. It returns false, and changes
// nothing, if the reserve is full.
func (w *workerChan) leaveAlways() bool {
	if !takeBelow(&w.pool.places.always, alwaysPlaces) {
		return false
	}
	w.LeaveWithoutPlace()
	w.EndKept()
	w.always = true
	return true
}

// EndKept gives back w's place among those kept for quick handlers or in the reserve, if w has one.
func (w *workerChan) EndKept() {
	if w.kept {
		w.kept = false
		w.pool.places.kept.Add(-1)
	}
	if w.always {
		w.always = false
		w.pool.places.always.Add(-1)
	}
}

// HasKept reports whether w has a reserved place.
func (w *workerChan) HasKept() bool { return w.kept }

// MayRun reports whether w may run a handler that may take long. In a reserved place w must get an ordinary place first.
func (w *workerChan) MayRun() bool { return !w.kept || w.occupy() }

// Vacate implements loop.Owner.
func (w *workerChan) Vacate() { w.vacate(math.MaxInt) }

// heldPlace is the place of a request that no worker handles, since another server has received it and runs the handler on a goroutine of
// its own. The handler's goroutine has it.
type heldPlace struct {
	pool *workerPool
	kind heldKind
}

// heldKind says which place a request has.
type heldKind uint8

const (
	heldNone     heldKind = iota
	heldOrdinary          // it counts against Concurrency
	heldKept              // see keptConns
	heldAlways            // see alwaysPlaces
)

// keep takes one of the places that are reserved for quick handlers. It returns false if none is free.
func (p *heldPlace) keep() bool { return p.reserve(heldKept, &p.pool.places.kept, keptPlaces) }

// join takes a place in the reserve of handlers that are always answered. It returns false if none is free.
func (p *heldPlace) join() bool { return p.reserve(heldAlways, &p.pool.places.always, alwaysPlaces) }

func (p *heldPlace) reserve(kind heldKind, count *atomic.Int64, most int64) bool {
	if !takeBelow(count, most) {
		return false
	}
	p.leave()
	p.kind = kind
	return true
}

// occupy makes sure that the place is an ordinary one. It returns false if none is free.
func (p *heldPlace) occupy() bool {
	if p.kind == heldOrdinary {
		return true
	}
	if !p.pool.takePlace() && !p.pool.takeSpare() {
		return false
	}
	p.leave()
	p.kind = heldOrdinary
	return true
}

// takeOver takes a place of that kind, ordinary or in the reserve, whether or not one is free: somebody is about to leave one for it.
func (p *heldPlace) takeOver(kind heldKind) {
	switch p.kind = kind; kind {
	case heldOrdinary:
		p.pool.places.taken.Add(1)
	case heldAlways:
		p.pool.places.always.Add(1)
	}
}

// leave gives the place back.
func (p *heldPlace) leave() {
	places := &p.pool.places
	switch p.kind {
	case heldOrdinary:
		places.taken.Add(-1)
		p.pool.placeFreed()
	case heldKept:
		places.kept.Add(-1)
	case heldAlways:
		places.always.Add(-1)
	}
	p.kind = heldNone
}

// placeQueue lets goroutines without a place wait for one, each with the request that it is to handle.
//
// The oldest request is served first, as long as it comes to its turn well before maxWait: then the queue refuses nobody. If the oldest
// has waited for nearly as long as that, more requests come than can be served, and each would be served when its client is about to give
// up. Then the newest is served first: most of those that are served hardly wait, and the others are refused at their deadline.
type placeQueue struct {
	most    int64         // how many may wait; immutable
	maxWait time.Duration // immutable

	waiting atomic.Int64 // how many wait, or are about to

	mu      race.Mutex
	waiters []*placeWaiter // the oldest first; guarded by mu
}

type placeWaiter struct {
	woken chan struct{} // capacity 1; whoever takes the waiter out of the queue to wake it sends
	since clock.Time    // when it began to wait, exactly: the coarse clock's tick may be as long as maxWait; immutable
}

// joinQueue makes w one of those that wait. The error is errQueueFull, or errBusy if there is no queue. Otherwise w gives away its loop and
// its reserved place, and the caller must call awaitPlace.
func (w *workerChan) joinQueue() error {
	if err := w.pool.queue.enter(); err != nil {
		return err
	}
	w.LeaveWithoutPlace()
	w.EndKept()
	return nil
}

// enter makes room for one that waits. The error is errQueueFull, or errBusy if there is no queue. Otherwise the caller must call awaitPlace.
func (q *placeQueue) enter() error {
	switch {
	case q.most == 0:
		return errBusy
	case !takeBelow(&q.waiting, q.most):
		return errQueueFull
	}
	return nil
}

// awaitPlace waits until occupy gets a place, left is closed or the given time has come, the zero time for none. The error is
// errQueueTimeout if the wait ends without a place.
func (wp *workerPool) awaitPlace(occupy func() bool, left <-chan struct{}, until time.Time) error {
	q := &wp.queue
	longest := q.maxWait
	if !until.IsZero() {
		longest = min(longest, time.Until(until))
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	self := &placeWaiter{woken: make(chan struct{}, 1), since: wp.clock.exact()}
	for {
		q.join(self)
		if occupy() { // a place that became free before join woke nobody
			if !q.leave(self) {
				wp.placeFreed() // somebody has woken this one for another place
			}
			return nil
		}
		select {
		case <-self.woken:
		case <-left:
			if !q.leave(self) {
				wp.placeFreed() // somebody has woken this one for a place
			}
			return errQueueTimeout
		case <-timer.C:
			if q.leave(self) || !occupy() {
				return errQueueTimeout
			}
			return nil
		}
	}
}

// join puts a waiter where it belongs by the beginning of its wait, also if it was woken in vain and joins again.
func (q *placeQueue) join(w *placeWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.waiters)
	for at > 0 && q.waiters[at-1].since > w.since {
		at--
	}
	q.waiters = slices.Insert(q.waiters, at, w)
}

// leave takes a waiter out of the queue. It reports false if that was done to wake it.
func (q *placeQueue) leave(w *placeWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiters, w)
	if i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	return i >= 0
}

// holdsUp reports whether a worker that leads no loop would keep a place from those that wait, if it served its connection any longer. One
// client that goes on sending would hold the place for ever.
func (w *workerChan) holdsUp() bool { return !w.Leads() && w.pool.queue.waiting.Load() > 0 }

func (q *placeQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiters)
}

// wake wakes a waiter for a place that has become free.
func (q *placeQueue) wake(now clock.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiters) == 0 {
		return
	}
	i := 0
	if now.Sub(q.waiters[0].since) > q.maxWait-q.maxWait/8 {
		i = len(q.waiters) - 1
	}
	w := q.waiters[i]
	q.waiters = slices.Delete(q.waiters, i, i+1)
	w.woken <- struct{}{}
}

// placeFreed is called, with or without the pool's lock, when a worker has given up its place.
func (wp *workerPool) placeFreed() {
	if wp.queue.waiting.Load() > 0 {
		wp.queue.wake(wp.clock.exact())
	}
}
