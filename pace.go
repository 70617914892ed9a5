package filo

import (
	"math"
	"time"
)

// pace bounds how slowly a peer may send or take bytes: a time of grace, and then an average rate. Only the time spent
// waiting for the peer counts. A time-out between two operations would let a peer that moves one byte now and then
// live for ever.
type pace struct {
	waited time.Duration
	moved  int64
}

// maxPaceSeconds is how much time a transfer can earn by its size.
const maxPaceSeconds = 100 * 365 * 24 * 3600

// deadline returns until when, on the coarse clock's scale, the peer may keep us waiting for size more bytes; 0 is for ever.
func (p *pace) deadline(now int64, grace time.Duration, rate int, size int) int64 {
	if grace < 0 {
		return 0
	}
	if rate <= 0 {
		return addTime(now, grace)
	}
	allowed := time.Duration(addTime(int64(grace), earned(p.moved+int64(size), rate)))
	return addTime(now, max(allowed-p.waited, 1))
}

// late reports whether the peer has used up the grace and what its bytes have earned. There must be a rate.
func (p *pace) late(grace time.Duration, rate int) bool {
	return int64(p.waited) >= addTime(int64(grace), earned(p.moved, rate))
}

// addTime adds two times of which neither is negative; where the sum is more than there is, it is the most.
func addTime(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// earned returns the time that n bytes give.
func earned(n int64, rate int) time.Duration {
	if n < int64(rate) {
		return 0 // less than a second's worth isn't worth a division for each answer
	}
	return time.Duration(min(n/int64(rate), maxPaceSeconds)) * time.Second
}

// add notes that n bytes moved after a wait.
func (p *pace) add(n int, waited int64) {
	p.moved += int64(n)
	p.waited += time.Duration(waited)
}
