// Package pace bounds how slowly a peer may send or take bytes: a grace period, then a minimum average rate. Only the time spent
// waiting for the peer counts. A time-out between two operations would let a peer live for ever that moves one byte now and then.
package pace

import (
	"math"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Limits is how slowly a peer may be.
type Limits struct {
	Grace time.Duration // how long a peer may always keep us waiting; negative: for ever
	Rate  int           // bytes that earn another second; 0 or less: none do, and each single wait may last as long as Grace
}

// Pace is how a transfer has gone so far. The zero value is one that begins.
type Pace struct {
	waited time.Duration
	moved  int64
}

// maxEarned is how much time a transfer can earn by its size.
const maxEarned = 100 * 365 * 24 * time.Hour

// Add takes note that n bytes moved after a wait.
func (p *Pace) Add(n int, waited time.Duration) {
	p.moved += int64(n)
	p.waited += waited
}

// Moved returns how many bytes have moved.
func (p *Pace) Moved() int64 { return p.moved }

// Deadline returns until when the peer may keep us waiting for size more bytes; none if it may for ever.
func (p *Pace) Deadline(now clock.Time, limits Limits, size int) clock.Time {
	if limits.Grace < 0 || limits.Rate <= 0 {
		return now.Deadline(limits.Grace)
	}
	return now.Add(max(limits.allowed(p.moved+int64(size))-p.waited, 1))
}

// Late reports, once the deadline of a wait has passed, whether the peer is too slow: it has used up the grace and what its bytes
// have earned. Without a rate, it is too slow if n, the number of bytes that moved in that wait, is 0.
func (p *Pace) Late(limits Limits, n int64) bool {
	if limits.Rate <= 0 {
		return n == 0
	}
	return p.waited >= limits.allowed(p.moved)
}

// allowed returns how long a peer that moves n bytes may keep us waiting altogether. A sum that is too large is the largest.
func (l Limits) allowed(n int64) time.Duration {
	earned := l.earned(n)
	if l.Grace > math.MaxInt64-earned {
		return math.MaxInt64
	}
	return l.Grace + earned
}

// earned returns the time that n bytes give.
func (l Limits) earned(n int64) time.Duration {
	if n < int64(l.Rate) {
		return 0 // less than a second's worth isn't worth a division for each answer
	}
	return time.Duration(min(n/int64(l.Rate), int64(maxEarned/time.Second))) * time.Second
}
