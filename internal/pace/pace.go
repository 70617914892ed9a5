// Package pace limits how slowly a peer may send or take bytes. Only the time spent waiting for the peer counts.
//
// A peer has an account of time, which begins with a grace period. Each wait uses up time, and each byte adds time: the peer must keep up a minimum
// rate. Bytes can add at most another grace period, and a single wait can last at most one period. So a peer that has moved many bytes can't be silent for
// long, and a peer that rarely moves a byte has no more time than its bytes earn.
package pace

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Limits says how slow a peer may be.
type Limits struct {
	Grace time.Duration // how long any peer may keep the server waiting; negative: for ever
	Rate  int           // how many bytes earn another second; 0 or less: no minimum rate, and Grace limits only each single wait
}

// Pace is the progress of a transfer. The zero value is a transfer that hasn't begun.
type Pace struct {
	// owed is the time that the peer has used, minus the time earned by the bytes that moved before the last wait; it may be negative.
	owed  time.Duration
	moved int64 // bytes that have moved since the last wait
}

// maxEarned limits the time that a transfer can earn, so that no sum overflows if the grace period is very long.
const maxEarned = 100 * 365 * 24 * time.Hour

// Add records a wait, and then n bytes that have moved.
func (p *Pace) Add(limits Limits, n int, waited time.Duration) {
	if waited != 0 { // most calls record no wait, and so avoid the division in owes
		p.owed, p.moved = p.owes(limits)+waited, 0
	}
	p.moved += int64(n)
}

// Deadline returns the moment until which the peer may keep the server waiting if no more bytes move, or 0 if there is no limit.
func (p *Pace) Deadline(now clock.Time, limits Limits) clock.Time {
	if limits.Grace < 0 || limits.Rate <= 0 || p.owed <= 0 {
		return now.Deadline(limits.Grace)
	}
	return now.Add(max(limits.Grace-max(p.owes(limits), 0), 1))
}

// Late reports whether the peer is too slow. It is called after the deadline of a wait. A peer is too slow if it has moved no bytes since the wait,
// or if its account is empty.
func (p *Pace) Late(limits Limits) bool {
	return p.moved == 0 || p.UsedUp(limits)
}

// UsedUp reports whether a peer's account is empty, even if the peer has just moved some bytes.
func (p *Pace) UsedUp(limits Limits) bool {
	return limits.Rate > 0 && limits.Grace >= 0 && p.owed >= limits.Grace && p.owes(limits) >= limits.Grace
}

// owes returns the time that the peer has used, minus the time that all bytes have earned.
func (p *Pace) owes(limits Limits) time.Duration {
	return max(p.owed-limits.earned(p.moved), -min(limits.Grace, maxEarned))
}

// earned returns the time that n bytes earn.
func (l Limits) earned(n int64) time.Duration {
	if n == 0 || l.Rate <= 0 {
		return 0
	}
	return time.Duration(min(float64(n)/float64(l.Rate), maxEarned.Seconds()) * float64(time.Second))
}

// Look returns the time between two checks of a peer whose bytes wait in the kernel's buffers. The interval is short enough to notice a silent peer
// in time.
func (l Limits) Look() time.Duration {
	if l.Grace < 0 {
		return maxLook
	}
	return max(min(l.Grace/4, maxLook), 1)
}

// maxLook is the longest time between two checks.
const maxLook = time.Second
