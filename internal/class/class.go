// Package class records how long handlers take. The server uses that to decide where to run them.
package class

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/clock"
)

const (
	// Quick is the longest time for which a handler counts as quick.
	Quick = 10 * time.Microsecond
	// Brief is the longest median duration with which a computing handler may run in the worker that has read its request. It runs there only
	// while nothing else is ready.
	Brief = 400 * time.Microsecond
	// TimedCalls is the sampling interval for quick handlers: a worker times one in TimedCalls of their calls.
	TimedCalls = 64
	// SampledCalls is the sampling interval for handlers between Quick and Brief: a worker samples one in SampledCalls of their calls, to
	// find out whether they compute or wait. The number is odd, since with an even number, clients that request two or four such handlers
	// in turn could have the same handler sampled each time.
	SampledCalls = 7

	// A class counts as computing once the balance of its samples is minComputed: a sample that computed adds 1, and a sample that waited
	// subtracts waitWeight. The balance is at most maxComputed. So a few wrong samples are tolerated, since on a busy machine a handler
	// that computes sometimes seems to wait.
	minComputed = 8
	maxComputed = 16
	waitWeight  = 4

	// slowRetakes retakes (see Retaken) within slowWindow inline calls make a class slow for a while. A single retake proves nothing: on a busy
	// machine hundreds of a quick handler's calls take a thousand times as long as usual.
	slowRetakes = 3
	slowWindow  = 1000
	// minBackOff is how long a class counts as slow the first time. The time doubles with each repetition, up to maxBackOff. It begins with
	// minBackOff again if the class has been quick in between for more than forgiven times the previous back-off.
	minBackOff = 10 * time.Millisecond
	maxBackOff = 10 * time.Second
	forgiven   = 10
)

// Class records how long the calls of one handler take, usually the handler of a route. In the loop driver, the leader that has read a
// request runs a quick handler itself. It also runs a brief handler that computes, if no other request is ready. Before any other handler it
// gives its loop to another worker. The zero Class is ready for use. It must not be copied.
type Class struct {
	// Name is the name in Stats, such as a route's pattern. It must not be changed once the class is in use.
	Name string

	// Each call reads some of the fields down to parked. They are seldom written, so they have cache lines of their own.

	// Median is the estimated median duration of the calls in nanoseconds; 0: unknown.
	Median atomic.Int64
	// Trusted says that the class is a server's own and that its calls soon enter another class. Such a class counts as quick until it has
	// been timed.
	Trusted atomic.Bool
	// computed is the balance of the samples: see minComputed.
	computed atomic.Int32

	fixed  fixed
	always bool // see SetAlways; immutable once the class is in use
	// slowUntil is the time until which the class is slow because its calls have held up loops; 0: never.
	slowUntil clock.Atomic[clock.Nanos]
	// set is the Set that has added the class most recently.
	set atomic.Pointer[Set]
	// parked is the class of the functions that serve the connections that the handler has parked.
	parked atomic.Pointer[Class]

	_  apart.Lines
	mu sync.Mutex
	// Inlined counts one in TimedCalls of the inline calls. Handoffs counts the calls before or during which a leader has given its loop
	// away or, in the blocking driver, a worker has given its HTTP/2 connection away.
	Inlined, Handoffs atomic.Uint64
	trend             atomic.Int32 // see drifts
	retakes           atomic.Uint64
	blocks            atomic.Bool // TakeBlocks has returned true

	since   uint64        // the value of Inlined at the first recent retake; guarded by mu
	recent  int           // the number of recent retakes; guarded by mu
	backOff time.Duration // how long the class last counted as slow; guarded by mu
	_       apart.Lines
}

// fixed says whether measurements or the program decides where the calls of a class run.
type fixed uint8

const (
	learned fixed = iota
	inline
	offload
)

// SetInline makes the calls of the class run in the worker that has read the request, whatever the measurements are. SetInline and SetOffload
// must be called before the class is in use.
func (k *Class) SetInline() { k.fixed = inline }

// SetOffload prevents the calls of the class from running inline.
func (k *Class) SetOffload() { k.fixed = offload }

// SetAlways allows the calls of the class to run in a reserved place when no ordinary place is free. It must be called before the class is
// in use.
func (k *Class) SetAlways() { k.always = true }

// IsAlways reports whether the calls of the class may run in a reserved place. Calls of inline classes may, too, since some of them turn out
// to wait.
func (k *Class) IsAlways() bool { return k.always || k.fixed == inline }

// Learns reports whether measurements decide where the calls of the class run.
func (k *Class) Learns() bool { return k.fixed == learned }

// IsQuick reports whether the handler is known, or trusted, to be quick.
func (k *Class) IsQuick() bool {
	if k.fixed != learned {
		return k.fixed == inline
	}
	median := k.Median.Load()
	return median <= int64(Quick) && (median > 0 || k.Trusted.Load())
}

// Known reports whether the handler is known to be quick, so that only one in TimedCalls calls must be measured.
func (k *Class) Known() bool {
	if k.fixed != learned {
		return k.fixed == inline
	}
	median := k.Median.Load()
	return 0 < median && median < int64(Quick)
}

// MayRunInline reports whether the handler may run in the worker that has read its request.
func (k *Class) MayRunInline() bool { return k.IsQuick() && !k.isHeldBack() }

// isHeldBack reports whether the class is slow for a while because its calls have held up loops.
func (k *Class) isHeldBack() bool {
	until := k.slowUntil.Load()
	return until != 0 && clock.Nanotime() < until
}

// IsBrief reports whether the handler isn't quick, but takes no longer than Brief. For such a handler it matters whether it computes or
// waits.
func (k *Class) IsBrief() bool {
	median := k.Median.Load()
	return k.fixed == learned && int64(Quick) < median && median <= int64(Brief)
}

// Computes reports whether the handler is known to be brief, and to spend its time on the processor. Such a handler may run in
// the worker that has read its request, if no other request is ready there: it delays no client for long, and saves waking another worker to
// lead the loop.
func (k *Class) Computes() bool {
	return k.IsBrief() && k.computed.Load() >= minComputed && !k.isHeldBack()
}

// AddSample records whether a call of a brief handler computed or waited. Concurrent calls may lose an update, which doesn't matter.
func (k *Class) AddSample(computed bool) {
	balance := k.computed.Load()
	next := max(balance-waitWeight, 0)
	if computed {
		next = min(balance+1, maxComputed)
	}
	if next != balance {
		k.computed.Store(next)
	}
}

// Retaken records that a call has held up its loop for so long that the loop was given to another worker.
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

// A class that the program has made inline counts as blocking once at least minBlocked of its calls, and at least one in blockedShare, have
// lost their loop. On a busy machine calls of quick handlers lose their loops, too, but fewer of them.
const (
	minBlocked   = 16
	blockedShare = 16
)

// TakeBlocks reports whether the program has made the class inline although its calls block. It returns true only once.
func (k *Class) TakeBlocks() bool {
	retakes := k.retakes.Load()
	return k.fixed == inline && retakes >= minBlocked && retakes*blockedShare >= k.Inlined.Load()*TimedCalls && !k.blocks.Swap(true)
}

// Add moves the estimated median one step towards a measured duration. So the estimate approaches the value at which steps up and down are
// equally frequent, which is the median. Unlike a mean, it isn't distorted by a single slow call.
func (k *Class) Add(took time.Duration) {
	median := k.Median.Load()
	if isFar(median) && !k.drifts(int64(took) > median) {
		return
	}
	step := max(median/8, 50)
	switch {
	case median == 0:
		median = max(int64(took), 1)
		if k.Trusted.Load() {
			median = min(median, int64(Quick)) // a single call, perhaps on a busy machine, doesn't make a trusted class slow
		}
	case int64(took) > median:
		median += step
	default:
		median = max(median-step, 1)
	}
	k.Median.Store(median)
}

// isFar reports whether an estimate is so far from Quick that its exact value doesn't matter.
func isFar(median int64) bool {
	return 0 < median && median < int64(Quick)/2 || median > 2*int64(Quick)
}

// steady is for estimates that are far from Quick. Such an estimate moves only when the calls on one side of it outnumber those on the other
// side by more than steady.
const steady = 8

// drifts records whether a call was above or below the estimate, and reports whether the estimate must move. If the estimate moved with
// every timed call, the processors that run the handler would compete for its cache line. Concurrent calls may lose an update, which doesn't
// matter.
func (k *Class) drifts(above bool) bool {
	trend, step := k.trend.Load(), int32(-1)
	if above {
		step = 1
	}
	if trend == steady*step {
		return true
	}
	k.trend.Store(trend + step)
	return false
}

// Kind returns "inline" or "offload" if the program has set the kind, and otherwise "quick", "slow" or "unknown", according to the
// measurements.
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

// Retakes returns the number of calls that have lost their loop.
func (k *Class) Retakes() uint64 { return k.retakes.Load() }

// Set holds the classes that a server's handlers have entered, for the server's Stats. The zero Set is ready for use.
type Set struct {
	mu  sync.Mutex
	all map[*Class]bool // guarded by mu
}

// In reports whether s is the set that has added the class most recently.
func (k *Class) In(s *Set) bool { return k.set.Load() == s }

// Add puts the class into the set.
func (s *Set) Add(k *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*Class]bool)
	}
	s.all[k] = true
	k.set.Store(s)
}

// Each calls f with each class of the set.
func (s *Set) Each(f func(*Class)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.all {
		f(k)
	}
}

// Parked returns the class of the functions that serve the connections that handlers of class k have parked.
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
