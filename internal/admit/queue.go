package admit

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// queue lets goroutines wait for an ordinary place.
//
// The oldest waiter is served first as long as that happens well before maxWait. Then no waiter is refused. If the oldest waiter has waited
// for nearly maxWait, more requests arrive than can be served. In the order of arrival, each request would get its place just when its
// client is about to give up. So in this case the newest waiter is served first: most of the served requests hardly wait, and the others are
// refused at their deadline.
type queue struct {
	most    int64             // the maximum number of waiters; immutable
	maxWait time.Duration     // immutable
	now     func() clock.Time // immutable

	waiting atomic.Int64 // how many goroutines have called JoinQueue and not LeaveQueue

	mu      race.Mutex[race.OfLeaf]
	waiters []*waiter // the oldest waiter first; guarded by mu
}

type waiter struct {
	woken chan struct{} // capacity 1; a goroutine that wakes the waiter removes it from the queue, and then sends
	since clock.Time    // when it began to wait, by the exact clock, since the coarse clock's tick may be as long as maxWait; immutable
}

// HasQueue reports whether requests may wait.
func (a *Admission) HasQueue() bool { return a.queue.most > 0 }

// MaxWait returns the maximum time that a request waits.
func (a *Admission) MaxWait() time.Duration { return a.maxWait }

// IsAwaited reports whether a goroutine has joined the queue and not left it yet.
func (a *Admission) IsAwaited() bool { return a.waiting.Load() > 0 }

// Waiting returns how many goroutines wait in the queue.
func (a *Admission) Waiting() int {
	a.queue.mu.Lock()
	defer a.queue.mu.Unlock()
	return len(a.waiters)
}

// Oldest returns when the oldest waiter began to wait, or 0 if there is no waiter.
func (a *Admission) Oldest() clock.Time {
	a.queue.mu.Lock()
	defer a.queue.mu.Unlock()
	if len(a.waiters) == 0 {
		return 0
	}
	return a.waiters[0].since
}

// Joined returns how many goroutines have joined the queue and not left it yet.
func (a *Admission) Joined() int { return int(a.waiting.Load()) }

// JoinQueue reserves room for one more waiter. It returns false if the queue is full. Otherwise the caller may call AwaitPlace, and must
// finally call LeaveQueue.
func (a *Admission) JoinQueue() bool { return addBelow(&a.waiting, a.queue.most) }

// LeaveQueue undoes JoinQueue.
func (a *Admission) LeaveQueue() { a.waiting.Add(-1) }

// AwaitPlace is called after JoinQueue. It waits until the function occupy has taken an ordinary place and returned true, until the channel left
// is closed, or until maxWait or the deadline has passed; the zero time is no deadline. It returns false if the wait ends without a place.
func (a *Admission) AwaitPlace(occupy func() bool, left <-chan struct{}, deadline time.Time) bool {
	q := &a.queue
	longest := q.maxWait
	if !deadline.IsZero() {
		longest = min(longest, time.Until(deadline))
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	self := &waiter{woken: make(chan struct{}, 1), since: q.now()}
	for {
		q.join(self)
		if occupy() { // a place that became free before join has woken no waiter, so try it here
			if !q.leave(self) {
				a.freed() // this waiter was also woken for another place: pass the wake-up on
			}
			return true
		}
		select {
		case <-self.woken:
		case <-left:
			if !q.leave(self) {
				a.freed() // this waiter was woken for a place that it doesn't need: pass the wake-up on
			}
			return false
		case <-timer.C:
			return !q.leave(self) && occupy()
		}
	}
}

// join inserts a waiter in the order in which the waits began. So a waiter that was woken but found no free place gets its old position when
// it joins again.
func (q *queue) join(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.waiters)
	for at > 0 && q.waiters[at-1].since > w.since {
		at--
	}
	q.waiters = slices.Insert(q.waiters, at, w)
}

// leave removes a waiter from the queue. It returns false if another goroutine has removed the waiter in order to wake it.
func (q *queue) leave(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiters, w)
	if i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	return i >= 0
}

// wake wakes a waiter, if there is one, since a place has become free.
func (q *queue) wake(now clock.Time) {
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
