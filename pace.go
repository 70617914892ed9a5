package filo

import (
	"math"
	"time"

	"github.com/filohttp/filo/internal/clock"
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

// deadline returns until when the peer may keep us waiting for size more bytes; 0 is for ever.
func (p *pace) deadline(now clock.Time, grace time.Duration, rate int, size int) clock.Time {
	if grace < 0 || rate <= 0 {
		return now.Deadline(grace)
	}
	return now.Add(max(allowed(grace, p.moved+int64(size), rate)-p.waited, 1))
}

// late reports whether the peer has used up the grace and what its bytes have earned. There must be a rate.
func (p *pace) late(grace time.Duration, rate int) bool {
	return p.waited >= allowed(grace, p.moved, rate)
}

// allowed returns how long a peer that moves n bytes may keep us waiting altogether. A sum that is too large is the largest.
func allowed(grace time.Duration, n int64, rate int) time.Duration {
	earned := earned(n, rate)
	if grace > math.MaxInt64-earned {
		return math.MaxInt64
	}
	return grace + earned
}

// earned returns the time that n bytes give.
func earned(n int64, rate int) time.Duration {
	if n < int64(rate) {
		return 0 // less than a second's worth isn't worth a division for each answer
	}
	return time.Duration(min(n/int64(rate), maxPaceSeconds)) * time.Second
}

// add notes that n bytes moved after a wait.
func (p *pace) add(n int, waited time.Duration) {
	p.moved += int64(n)
	p.waited += waited
}
