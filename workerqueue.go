package filo

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// placeQueue lets workers without a place wait for one, each with the request that it is to handle.
//
// The oldest request is served first, as long as the queue becomes empty now and then. A queue that has been standing for longer than
// maxWait is one in which every request would wait for about as long, and the oldest would be served when their clients are about to give
// up. So from then on the newest is served first: most of those that are served hardly wait, and the others are refused at their deadline.
type placeQueue struct {
	most    int64         // how many may wait; immutable
	maxWait time.Duration // immutable

	waiting atomic.Int64 // how many wait, or are about to

	mu       race.Mutex
	waiters  []*placeWaiter // the oldest first; guarded by mu
	standing clock.Time     // since when the queue hasn't been empty; guarded by mu
}

type placeWaiter struct {
	woken  chan struct{} // capacity 1; whoever takes the waiter out of the queue to wake it sends
	newest bool          // where it joins, or joins again: as the newest or the oldest; guarded by mu
}

// joinQueue makes w one of those that wait. The error is errQueueFull, or errBusy if there is no queue. Otherwise w gives away its loop and
// its reserved place, and the caller must call awaitPlace.
func (w *workerChan) joinQueue() error {
	q := &w.pool.queue
	switch {
	case q.most == 0:
		return errBusy
	case !takeBelow(&q.waiting, q.most):
		return errQueueFull
	}
	w.LeaveWithoutPlace()
	w.EndKept()
	return nil
}

// awaitPlace waits for a place, and leaves the queue. The error is errQueueTimeout if the wait takes too long: then w has no place.
func (w *workerChan) awaitPlace() error {
	wp, q := w.pool, &w.pool.queue
	defer q.waiting.Add(-1)
	timer := time.NewTimer(q.maxWait)
	defer timer.Stop()
	self := &placeWaiter{woken: make(chan struct{}, 1), newest: true}
	q.arrive(wp.clock.now())
	for {
		q.join(self)
		if w.occupy() { // a place that became free before join woke nobody
			if !q.leave(self) {
				wp.placeFreed() // somebody has woken w for another one
			}
			return nil
		}
		select {
		case <-self.woken:
		case <-timer.C:
			if q.leave(self) || !w.occupy() {
				return errQueueTimeout
			}
			return nil
		}
	}
}

// arrive is called for each waiter before it joins for the first time.
func (q *placeQueue) arrive(now clock.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiters) == 0 {
		q.standing = now
	}
}

func (q *placeQueue) join(w *placeWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := 0
	if w.newest {
		at = len(q.waiters)
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
	if now.Sub(q.standing) > q.maxWait {
		i = len(q.waiters) - 1
	}
	w := q.waiters[i]
	q.waiters = slices.Delete(q.waiters, i, i+1)
	w.newest = i > 0
	w.woken <- struct{}{}
}

// placeFreed is called, with or without the pool's lock, when a worker has given up its place.
func (wp *workerPool) placeFreed() {
	if wp.queue.waiting.Load() > 0 {
		wp.queue.wake(wp.clock.now())
	}
}
