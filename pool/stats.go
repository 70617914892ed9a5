package pool

import (
	"math/bits"
	"time"
)

const (
	// measured is of how many tasks one has its wait measured.
	measured = 64

	// waitBuckets is how many classes of waits are told apart.
	waitBuckets = 32
)

// processStart is the origin of nanotime.
var processStart = time.Now()

// nanotime returns the monotonic time in nanoseconds. It is never 0.
func nanotime() int64 { return int64(time.Since(processStart)) + 1 }

// Stats is what a pool has done since it was made, and what it is doing.
type Stats struct {
	Submitted uint64 // tasks accepted
	Done      uint64 // tasks that have returned
	Panicked  uint64 // tasks that have panicked, or called runtime.Goexit
	Refused   uint64 // submissions that got an error, nil functions aside
	Spawned   uint64 // workers started
	Retired   uint64 // workers ended

	Workers int // workers now: Parked ones, and those that run or look for a task
	Parked  int // workers that wait for a task
	Busy    int // tasks that run
	Queued  int // tasks that are accepted and not started
	Waiting int // submitters that wait for room

	// Waits tells how long tasks have waited from their submission to their start. Of about 64 tasks one is measured.
	Waits WaitHistogram
}

// WaitHistogram counts waits by their length: those of bucket 0 took less than 1.024 µs, those of each further one
// less than twice the bound of the one before. The last has no bound.
type WaitHistogram [waitBuckets]uint64

// Bound returns the time that the waits of bucket i took less than; the last bucket's is twice that of the one before.
func (h *WaitHistogram) Bound(i int) time.Duration { return 1024 << i }

// Count returns how many waits were measured.
func (h *WaitHistogram) Count() (n uint64) {
	for _, waits := range h {
		n += waits
	}
	return n
}

// Quantile returns a bound, at most twice as long, of the time that a part q of the waits took less than. q is from 0
// to 1. It is 0 if none was measured.
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

// measureLocked counts the wait of a task that starts.
func (p *core[T]) measureLocked(since int64) {
	p.waited[min(bits.Len64(uint64(nanotime()-since)>>10), waitBuckets-1)]++
}

// Stats returns what the pool has done and is doing, as of one moment.
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
