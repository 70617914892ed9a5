package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// steps is how many buckets there are from one power of two to the next: a bucket is at most 1/64, 1.6 %, wide.
const steps = 64

// waits is a histogram of durations. It may be added to concurrently, allocates nothing, and has no limit on how many.
type waits struct {
	buckets [steps * 60]atomic.Int64
	longest atomic.Int64
}

func (w *waits) add(d time.Duration) {
	n := max(0, int64(d))
	w.buckets[bucketOf(n)].Add(1)
	for {
		longest := w.longest.Load()
		if n <= longest || w.longest.CompareAndSwap(longest, n) {
			return
		}
	}
}

// bucketOf returns n itself below 2 × steps. Above that a bucket is what the highest 7 bits of n and their place are.
func bucketOf(n int64) int {
	shift := max(0, bits.Len64(uint64(n))-bits.Len(steps))
	return shift*steps + int(n>>shift)
}

// topOf returns the largest number that bucket b holds.
func topOf(b int) int64 {
	if b < 2*steps {
		return int64(b)
	}
	shift := b/steps - 1
	return int64(b-shift*steps+1)<<shift - 1
}

// quantile returns a duration that the fraction q of all don't exceed; 0 if there are none.
func (w *waits) quantile(q float64) time.Duration {
	var total int64
	for i := range w.buckets {
		total += w.buckets[i].Load()
	}
	rank := max(1, int64(q*float64(total)+0.5))
	var seen int64
	for i := range w.buckets {
		if seen += w.buckets[i].Load(); seen >= rank {
			return min(time.Duration(topOf(i)), w.max())
		}
	}
	return w.max()
}

// max is exact.
func (w *waits) max() time.Duration { return time.Duration(w.longest.Load()) }
