package filo

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quickHandler is how long a handler may take to count as quick.
	quickHandler = 10 * time.Microsecond
	// timedCalls is how many calls of a worker go by for each quick one that is timed.
	timedCalls = 64

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

// Class is what is known about how long the calls of one handler take, mostly those of a route. The loop driver runs
// quick ones right where their request was read, and gives its loop to another worker before it runs others: see
// Ctx.Enter. The zero Class is ready for use. It must not be copied.
type Class struct {
	// Name is what Stats calls it, such as the pattern of a route. It must not be changed once the class is in use.
	Name string

	fixed  fixedClass
	median atomic.Int64 // in nanoseconds; 0 while nothing is known
	// trusted says that the calls enter another class soon, and count as quick until they have been timed.
	trusted atomic.Bool
	// slowUntil is until when, in nanotime, the class is slow because its calls have held up loops; 0 is never.
	slowUntil atomic.Int64
	inlined   atomic.Uint64 // timed inline calls
	handoffs  atomic.Uint64
	retakes   atomic.Uint64
	// server is the one that knows the class for its Stats.
	server atomic.Pointer[Server]
	// parked is that of the functions of the connections that the handler has parked.
	parked atomic.Pointer[Class]

	mu      sync.Mutex
	since   uint64        // of inlined, when the first of the recent retakes was; guarded by mu
	recent  int           // retakes since then; guarded by mu
	backOff time.Duration // guarded by mu
}

// fixedClass is what a handler was said to be.
type fixedClass uint8

const (
	classLearned fixedClass = iota
	classInline
	classOffload
)

var (
	inlineClass  = Class{Name: "inline", fixed: classInline}
	offloadClass = Class{Name: "offload", fixed: classOffload}
)

// Inline returns a handler that is run where its request was read, whatever was learned about it. It must neither block nor
// take more than some 10 µs: meanwhile the other connections of its loop wait. It is for handlers without a router; a route is
// told by its method Inline, which holds for the middleware around as well. Of a handler in a route that isn't told the first call
// may be handed off to another worker, until filo knows that the middleware is quick.
func Inline(h Handler) Handler {
	return func(c *Ctx) error {
		if err := c.Enter(&inlineClass); err != nil {
			return err
		}
		return h(c)
	}
}

// Offload returns a handler that is never run where its request was read, for one that mostly waits for something. It is for
// handlers without a router; a route is told by its method Offload, which holds for the middleware around as well.
func Offload(h Handler) Handler {
	return func(c *Ctx) error {
		if err := c.Enter(&offloadClass); err != nil {
			return err
		}
		return h(c)
	}
}

// SetInline makes the calls of the class run where their request was read, whatever is learned about them: see Inline. It must be
// called before the class is in use, as SetOffload must.
func (k *Class) SetInline() { k.fixed = classInline }

// SetOffload makes the calls of the class never run where their request was read: see Offload.
func (k *Class) SetOffload() { k.fixed = classOffload }

// Enter says which class the rest of the handler belongs to. If that class may block, and the handler runs where its
// request was read, the loop driver gives the loop to another worker first. A router calls it with the class of the route
// that it has found, before the route's first middleware. What has run before belongs to the class that was entered before, or
// to the server's own: a server whose handler has called Enter once expects it to go on doing so, and to be quick until then
// as long as it is when it is timed.
//
// The error is a 503 for the handler to return: Concurrency has been reached.
func (c *Ctx) Enter(class *Class) error {
	c.check()
	conn := c.conn
	s, w := conn.server, conn.worker
	if class.server.Load() != s {
		s.knowClass(class)
	}
	if !s.class.trusted.Load() {
		s.class.trusted.Store(true)
		w.timedSince = 0 // the first call may have made what the later ones find, such as a router's tables
	}
	w.endOuter()
	w.class = class
	inline := class.inline()
	if conn.looped != nil {
		var err error
		if inline, err = conn.looped.enter(class); err != nil {
			return err
		}
	} else if !inline && !w.mayRun() {
		return errBusy
	}
	// Earlier answers wait for a quick handler, but not for one that may be slow.
	if !inline && !class.quick() && !c.stream.sent {
		if err := c.flushBefore(); err != nil {
			return err
		}
	}
	w.time(class, &w.calls)
	return nil
}

// flushBefore writes the answers to earlier requests. The time-out has to wait for that, and go on though a connection of the
// user's panics.
func (c *Ctx) flushBefore() error {
	if err := c.holdAnswer(); err != nil {
		return err
	}
	defer c.releaseAnswer()
	if c.conn.before == 0 {
		return nil
	}
	return c.conn.flush()
}

// knowClass makes Stats list the class.
func (s *Server) knowClass(class *Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.classes == nil {
		s.classes = make(map[*Class]bool)
	}
	s.classes[class] = true
	class.server.Store(s)
}

// parkedClass returns the class of the functions of the connections that handlers of the class park.
func (s *Server) parkedClass(class *Class) *Class {
	if parked := class.parked.Load(); parked != nil {
		return parked
	}
	parked := &Class{Name: strings.TrimSpace(class.Name + " (parked)")}
	if !class.parked.CompareAndSwap(nil, parked) {
		return class.parked.Load()
	}
	s.knowClass(parked)
	return parked
}

// quick reports whether the handler is known, or trusted, to be quick.
func (k *Class) quick() bool {
	if k.fixed != classLearned {
		return k.fixed == classInline
	}
	median := k.median.Load()
	return median <= int64(quickHandler) && (median > 0 || k.trusted.Load())
}

// known reports whether the handler is quick, and nothing is to be learned about it that can't wait for one of the next calls.
func (k *Class) known() bool {
	if k.fixed != classLearned {
		return k.fixed == classInline
	}
	median := k.median.Load()
	return 0 < median && median < int64(quickHandler)
}

// inline reports whether the handler may be run where its request was read.
func (k *Class) inline() bool {
	if !k.quick() {
		return false
	}
	until := k.slowUntil.Load()
	return until == 0 || nanotime() >= until
}

// retaken takes note that a call has held up its loop for so long that the loop was given to another worker.
func (k *Class) retaken() {
	k.retakes.Add(1)
	if k.fixed != classLearned {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	inlined := k.inlined.Load()
	if k.recent == 0 || (inlined-k.since)*timedCalls > slowWindow {
		k.since, k.recent = inlined, 0
	}
	if k.recent++; k.recent < slowRetakes {
		return
	}
	k.recent = 0
	now := nanotime()
	if k.backOff == 0 || now-k.slowUntil.Load() > int64(forgiven*k.backOff) {
		k.backOff = minBackOff
	} else {
		k.backOff = min(2*k.backOff, maxBackOff)
	}
	k.slowUntil.Store(now + int64(k.backOff))
}

// add moves the estimated median a step towards the measured time: up as often as down is where the median lies. A mean
// would be spoilt by one slow call.
func (k *Class) add(took time.Duration) {
	median := k.median.Load()
	step := max(median/8, 50)
	switch {
	case median == 0:
		median = max(int64(took), 1)
		if k.trusted.Load() {
			median = min(median, int64(quickHandler)) // one call, perhaps on a busy machine, isn't enough to end the trust
		}
	case int64(took) > median:
		median += step
	default:
		median = max(median-step, 1)
	}
	k.median.Store(median)
}

// time begins to time a call, if it is this one's turn. Of a quick class one call in timedCalls is timed, as a counter of the
// worker's says, of others each: what they do otherwise costs more.
func (w *scratch) time(class *Class, calls *uint32) {
	if class.known() {
		if *calls++; *calls%timedCalls != 0 {
			return
		}
		if w.worker != nil && w.worker.loop != nil {
			class.inlined.Add(1)
		}
	}
	w.timedSince = nanotime()
}

// timed ends that.
func (w *scratch) timed() {
	if w.timedSince != 0 {
		w.class.add(time.Duration(nanotime() - w.timedSince))
		w.timedSince = 0
	}
}

// call runs the handler, in the server's class until it enters another one.
func (c *conn) call(ctx *Ctx) error {
	s, w := c.server, c.worker
	w.class, w.timedSince = &s.class, 0
	// A class that the monitor knows of is blamed by that.
	w.outer = w.worker != nil && w.worker.holdsLoop() && w.worker.running.Load() != w.class
	w.time(w.class, &w.begun)
	err := s.Handler(ctx)
	w.timed()
	w.endOuter()
	return err
}

// mayRun reports whether a handler that may take its time may be run. What isn't a worker's, or in its place, may.
func (w *scratch) mayRun() bool { return w.worker == nil || w.worker.mayRun() }

// kept reports whether the worker has one of the places that are kept for quick handlers.
func (w *scratch) kept() bool { return w != nil && w.worker != nil && w.worker.kept }

// endOuter ends what belongs to a class when the handler enters another one, or returns. What runs in the server's own class is
// so short mostly that to say so to the monitor would take as long: it is found out here whether it has cost the loop its leader.
func (w *scratch) endOuter() {
	w.timed()
	if w.outer {
		w.outer = false
		if w.worker.overtaken() {
			w.class.retaken()
		}
	}
}

// processStart is the origin of nanotime.
var processStart = time.Now()

// nanotime returns the monotonic time in nanoseconds. It is never 0.
func nanotime() int64 { return int64(time.Since(processStart)) + 1 }

// ClassStats is what is known about a class of handlers.
type ClassStats struct {
	// Name is the class's. That of the server's handler, which is in force until it calls Ctx.Enter, is "".
	Name string
	// Kind is "quick", "slow" or "unknown" as was learned, or "inline" or "offload" as was said.
	Kind string
	// Median is about how long a call takes, 0 if that is unknown.
	Median time.Duration
	// Inline is about how many calls of the loop driver were run where their request was read, Handoffs how many of them
	// gave their loop away before or meanwhile, and Retakes how many had it taken away because they took too long.
	Inline, Handoffs, Retakes uint64
}

func (k *Class) stats() ClassStats {
	st := ClassStats{
		Name: k.Name, Median: time.Duration(k.median.Load()),
		Inline: k.inlined.Load() * timedCalls, Handoffs: k.handoffs.Load(), Retakes: k.retakes.Load(),
	}
	switch {
	case k.fixed == classInline:
		st.Kind = "inline"
	case k.fixed == classOffload:
		st.Kind = "offload"
	case st.Median == 0:
		st.Kind = "unknown"
	case k.inline():
		st.Kind = "quick"
	default:
		st.Kind = "slow"
	}
	return st
}
