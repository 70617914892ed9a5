// Package pace limits how slowly a peer may send or take bytes: a grace period, then a minimum average rate. Only the time spent
// waiting for the peer counts. With a timeout for each operation a peer could go on for ever by moving one byte now and then.
package pace

import (
	"math"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Limits says how slow a peer may be.
type Limits struct {
	Grace time.Duration // how long any peer may keep the server waiting; negative: for ever
	Rate  int           // bytes that earn another second; 0 or less: no rate, and each single wait may last as long as Grace
}

// Pace is the progress of a transfer. The zero value is a transfer that begins.
type Pace struct {
	waited time.Duration
	moved  int64
}

// maxEarned limits the time that a transfer can earn by its size.
const maxEarned = 100 * 365 * 24 * time.Hour

// Add records that n bytes moved after a wait.
func (p *Pace) Add(n int, waited time.Duration) {
	p.moved += int64(n)
	p.waited += waited
}

// Moved returns how many bytes have moved.
func (p *Pace) Moved() int64 { return p.moved }

// Deadline returns the moment until which the peer may keep the server waiting for size more bytes, or 0 if there is no limit.
func (p *Pace) Deadline(now clock.Time, limits Limits, size int) clock.Time {
	if limits.Grace < 0 || limits.Rate <= 0 {
		return now.Deadline(limits.Grace)
	}
	return now.Add(max(limits.allowed(p.moved+int64(size))-p.waited, 1))
}

// Late reports, once the deadline of a wait has passed, whether the peer is too slow: whether it has used up the grace period and the
// time that its bytes have earned. Without a rate, it is too slow if n, the number of bytes that moved in that wait, is 0.
func (p *Pace) Late(limits Limits, n int64) bool {
	if limits.Rate <= 0 {
		return n == 0
	}
	return p.waited >= limits.allowed(p.moved)
}

// allowed returns how long a peer that moves n bytes may keep the server waiting in all. A sum that overflows is the longest duration.
func (l Limits) allowed(n int64) time.Duration {
	earned := l.earned(n)
	if l.Grace > math.MaxInt64-earned {
		return math.MaxInt64
	}
	return l.Grace + earned
}

// earned returns the time that n bytes earn.
func (l Limits) earned(n int64) time.Duration {
	if n < int64(l.Rate) {
		return 0 // most answers earn less than a second, and need no division
	}
	return time.Duration(min(n/int64(l.Rate), int64(maxEarned/time.Second))) * time.Second
}
