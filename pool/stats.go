package pool

import (
	"math/bits"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

const (
	// measured is the sampling interval of waits: the wait of one task in 64 is measured.
	measured = 64

	// waitBuckets is the number of buckets of a WaitHistogram.
	waitBuckets = 32
)

// Stats holds counters, which began when the pool was made, and the pool's current state.
type Stats struct {
	Submitted uint64 // accepted tasks
	Done      uint64 // tasks that returned
	Panicked  uint64 // tasks that panicked or called runtime.Goexit
	Refused   uint64 // submissions that got an error, except for nil functions
	Spawned   uint64 // workers started
	Retired   uint64 // workers ended

	Workers int // current workers: parked, running a task or looking for one
	Parked  int // workers that wait for a task
	Busy    int // running tasks
	Queued  int // accepted tasks that haven't started
	Waiting int // submitters that wait for room

	// Waits is a histogram of the times from the submission of a task to its start. About one task in 64 is measured.
	Waits WaitHistogram
}

// WaitHistogram counts waits by duration. Bucket 0 counts waits under 1.024 µs. The bound of each further bucket is twice the
// bound before it. The last bucket has no bound.
type WaitHistogram [waitBuckets]uint64

// Bound returns the exclusive upper bound of the waits in bucket i. For the last bucket, which has no bound, it is twice the
// bound before it.
func (h *WaitHistogram) Bound(i int) time.Duration { return 1024 << i }

// Count returns the number of measured waits.
func (h *WaitHistogram) Count() (n uint64) {
	for _, waits := range h {
		n += waits
	}
	return n
}

// Quantile returns an upper bound of the quantile q, from 0 to 1, of the waits. The bound is at most twice the quantile. It is
// 0 if no wait was measured.
func (h *WaitHistogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	rank := max(uint64(q*float64(n)+0.5), 1)
	for i, waits := range h {
		if rank <= waits {
			return h.Bound(i)
		}
		rank -= waits
	}
	return h.Bound(len(h) - 1)
}

// measureLocked counts the wait of a task that starts now. The argument since is the time at which the task was submitted.
func (p *core[T]) measureLocked(since clock.Nanos) {
	p.waited[min(bits.Len64(uint64(clock.Nanotime().Sub(since))>>10), waitBuckets-1)]++
}

// Stats returns the counters and the state of the pool, all from the same moment.
func (p *core[T]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Submitted: p.submitted,
		Done:      p.submitted - uint64(p.queue.n) - uint64(p.busy) - p.panicked,
		Panicked:  p.panicked,
		Refused:   p.refused,
		Spawned:   p.spawned,
		Retired:   p.spawned - uint64(p.workers),
		Workers:   p.workers,
		Parked:    len(p.parked),
		Busy:      p.busy,
		Queued:    p.queue.n,
		Waiting:   p.waiters.n,
		Waits:     p.waited,
	}
}
