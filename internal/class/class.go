// Package class keeps what is known about how long handlers take, by which a server decides where they run.
package class

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

const (
	// Quick is how long a handler may take to count as quick.
	Quick = 10 * time.Microsecond
	// TimedCalls is how many calls of a worker go by for each quick one that is timed.
	TimedCalls = 64

	// slowRetakes within slowWindow inline calls make a class slow for a time. One slow call says nothing: on a busy
	// machine hundreds of a quick handler's calls take a thousand times as long.
	slowRetakes = 3
	slowWindow  = 1000
	// minBackOff is how long a class is slow the first time; that doubles up to maxBackOff, and is forgotten when the class
	// was quick for forgiven times as long.
	minBackOff = 10 * time.Millisecond
	maxBackOff = 10 * time.Second
	forgiven   = 10
)

// Class records how long the calls of one handler take, usually the handler of a route. The loop driver runs
// quick ones right where their request was read, and gives its loop to another worker before it runs others. The zero Class is
// ready for use. It must not be copied.
type Class struct {
	// Name is the name in Stats, such as the pattern of a route. It must not be changed once the class is in use.
	Name string

	// Median is the estimated median of the calls' times in nanoseconds; 0 while nothing is known.
	Median atomic.Int64
	// Trusted says that the calls enter another class soon, and count as quick until they have been timed.
	Trusted atomic.Bool
	// Inlined counts the timed inline calls, Handoffs those that have given their loop away.
	Inlined, Handoffs atomic.Uint64

	fixed   fixed
	retakes atomic.Uint64
	// slowUntil is until when the class is slow because its calls have held up loops; 0 is never.
	slowUntil clock.Atomic[clock.Nanos]
	// set is that of the server that lists the class.
	set atomic.Pointer[Set]
	// parked is that of the functions of the connections that the handler has parked.
	parked atomic.Pointer[Class]

	mu      sync.Mutex
	since   uint64        // of Inlined, when the first of the recent retakes was; guarded by mu
	recent  int           // retakes since then; guarded by mu
	backOff time.Duration // guarded by mu
}

// fixed says whether a class learns, or was told where its calls run.
type fixed uint8

const (
	learned fixed = iota
	inline
	offload
)

// SetInline makes the calls of the class run where their request was read, whatever is learned about them. It must be called before
// the class is in use, as SetOffload must.
func (k *Class) SetInline() { k.fixed = inline }

// SetOffload makes the calls of the class never run where their request was read.
func (k *Class) SetOffload() { k.fixed = offload }

// IsQuick reports whether the handler is known, or trusted, to be quick.
func (k *Class) IsQuick() bool {
	if k.fixed != learned {
		return k.fixed == inline
	}
	median := k.Median.Load()
	return median <= int64(Quick) && (median > 0 || k.Trusted.Load())
}

// Known reports whether the handler is quick, and nothing is to be learned about it that can't wait for one of the next calls.
func (k *Class) Known() bool {
	if k.fixed != learned {
		return k.fixed == inline
	}
	median := k.Median.Load()
	return 0 < median && median < int64(Quick)
}

// MayRunInline reports whether the handler may be run where its request was read.
func (k *Class) MayRunInline() bool {
	if !k.IsQuick() {
		return false
	}
	until := k.slowUntil.Load()
	return until == 0 || clock.Nanotime() >= until
}

// Retaken takes note that a call has held up its loop for so long that the loop was given to another worker.
func (k *Class) Retaken() {
	k.retakes.Add(1)
	if k.fixed != learned {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	inlined := k.Inlined.Load()
	if k.recent == 0 || (inlined-k.since)*TimedCalls > slowWindow {
		k.since, k.recent = inlined, 0
	}
	if k.recent++; k.recent < slowRetakes {
		return
	}
	k.recent = 0
	now := clock.Nanotime()
	if k.backOff == 0 || now.Sub(k.slowUntil.Load()) > forgiven*k.backOff {
		k.backOff = minBackOff
	} else {
		k.backOff = min(2*k.backOff, maxBackOff)
	}
	k.slowUntil.Store(now + clock.Nanos(k.backOff))
}

// Add moves the estimated median a step towards the measured time: up as often as down is where the median lies. A mean
// would be spoilt by one slow call.
func (k *Class) Add(took time.Duration) {
	median := k.Median.Load()
	step := max(median/8, 50)
	switch {
	case median == 0:
		median = max(int64(took), 1)
		if k.Trusted.Load() {
			median = min(median, int64(Quick)) // one call, perhaps on a busy machine, isn't enough to end the trust
		}
	case int64(took) > median:
		median += step
	default:
		median = max(median-step, 1)
	}
	k.Median.Store(median)
}

// Kind returns "quick", "slow" or "unknown" as was learned, or "inline" or "offload" as was told.
func (k *Class) Kind() string {
	switch {
	case k.fixed == inline:
		return "inline"
	case k.fixed == offload:
		return "offload"
	case k.Median.Load() == 0:
		return "unknown"
	case k.MayRunInline():
		return "quick"
	}
	return "slow"
}

// Retakes returns how many calls have had their loop taken away.
func (k *Class) Retakes() uint64 { return k.retakes.Load() }

// Set is the classes that a server has entered, for its Stats. The zero Set is ready for use.
type Set struct {
	mu  sync.Mutex
	all map[*Class]bool // guarded by mu
}

// In reports whether the set has the class, and no other set has got it since.
func (k *Class) In(s *Set) bool { return k.set.Load() == s }

// Add makes the class one of the set.
func (s *Set) Add(k *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*Class]bool)
	}
	s.all[k] = true
	k.set.Store(s)
}

// Each calls f with each class.
func (s *Set) Each(f func(*Class)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.all {
		f(k)
	}
}

// Parked returns the class of the functions of the connections that handlers of the class park.
func (s *Set) Parked(k *Class) *Class {
	if parked := k.parked.Load(); parked != nil {
		return parked
	}
	parked := &Class{Name: strings.TrimSpace(k.Name + " (parked)")}
	if !k.parked.CompareAndSwap(nil, parked) {
		return k.parked.Load()
	}
	s.Add(parked)
	return parked
}
