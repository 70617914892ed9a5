// Package clock has the server's two time scales. Time is a moment on a server's coarse clock (Coarse), for deadlines and moments that
// are compared with them. Nanos is an exact moment, for measuring durations. Moments on different scales can't be compared.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// Time is a moment on a server's coarse clock, in nanoseconds since shortly before that clock was first used. Every moment is greater than 0. The
// zero Time is no moment: as a deadline it means that there is none.
type Time int64

// Last is the end of the scale, 292 years after the clock's origin.
const Last Time = math.MaxInt64

// Earliest is the smallest moment to which a time from the past is converted. A connection stores its state in the lowest four bits of a moment. Even
// without these bits, Earliest and all later moments are greater than 0.
const Earliest Time = 1 << 4

// Add returns the moment d after t, or Last if that moment is beyond the scale. d must not be negative.
func (t Time) Add(d time.Duration) Time {
	if t > Last-Time(d) {
		return Last
	}
	return t + Time(d)
}

// Sub returns t minus u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Deadline returns the moment at which a wait that begins at t has lasted for timeout. It returns 0, no deadline, if the timeout is
// negative, which means unlimited.
func (t Time) Deadline(timeout time.Duration) Time {
	if timeout < 0 {
		return 0
	}
	return t.Add(timeout)
}

// Earlier returns the earlier of two deadlines; 0 is no deadline.
func Earlier(a, b Time) Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Waited returns how long the server has waited for a client. If now exceeds the deadline by more than the duration pause, the process was paused.
// Then only the time before the deadline counts. A deadline of 0 means that there is none.
func Waited(since, deadline, now Time, pause time.Duration) time.Duration {
	if deadline != 0 && now.Sub(deadline) > pause {
		now = deadline
	}
	return max(now.Sub(since), 0)
}

// Past is a deadline for a net.Conn that wakes the goroutines waiting in its Read or Write.
var Past = time.Unix(1, 0)

// Atomic is a moment that several goroutines load and store. The zero value holds no moment.
type Atomic[T Time | Nanos] struct{ nanoseconds atomic.Int64 }

// Load returns the moment.
func (a *Atomic[T]) Load() T { return T(a.nanoseconds.Load()) }

// Store sets the moment.
func (a *Atomic[T]) Store(t T) { a.nanoseconds.Store(int64(t)) }
