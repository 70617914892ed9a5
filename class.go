package filo

import (
	"time"

	"github.com/filohttp/filo/internal/class"
)

// inlineClass and offloadClass are those of the handlers that Inline and Offload make.
var inlineClass, offloadClass = newFixedClasses()

func newFixedClasses() (inline, offload *class.Class) {
	inline, offload = &class.Class{Name: "inline"}, &class.Class{Name: "offload"}
	inline.SetInline()
	offload.SetOffload()
	return inline, offload
}

// Inline returns a handler that the loop driver always runs where it reads the request, whatever it has measured. The handler
// must not block, or take more than about 10 µs: the other connections of its loop wait meanwhile. Use Inline for handlers
// without a router; a route has a method Inline, which also covers the middleware around its handler. If Inline is used in a
// route without that method, the first call may go to another worker, until filo knows that the middleware is quick.
func Inline(h Handler) Handler {
	return func(c *Ctx) error {
		if err := c.enter(inlineClass, ""); err != nil {
			return err
		}
		return h(c)
	}
}

// Offload returns a handler that never runs where its request is read, for a handler that mostly waits. Use it for handlers
// without a router; a route has a method Offload, which also covers the middleware around its handler.
func Offload(h Handler) Handler {
	return func(c *Ctx) error {
		if err := c.enter(offloadClass, ""); err != nil {
			return err
		}
		return h(c)
	}
}

// enter says which class the rest of the handler belongs to, and which route that is, "" for the one that it was: see inside.Enter.
func (c *Ctx) enter(class *class.Class, route string) error {
	c.check()
	if route != "" {
		c.match.Route = route
	}
	s, w := c.exchange.server, c.exchange.worker
	if !class.In(&s.classes) {
		s.classes.Add(class)
	}
	w.timer.Trust(&s.class)
	w.endOuter()
	w.timer.Switch(class)
	if _, err := w.enter(class); err != nil {
		return err
	}
	// Earlier answers wait for a quick handler, but not for one that may be slow.
	if !class.IsQuick() && !c.stream.sent {
		if err := c.flushBefore(); err != nil {
			return err
		}
	}
	w.timer.Start(w.leads())
	return nil
}

// enter decides whether a handler of the class runs here and now. If not, and this worker leads a loop, another worker does
// so afterwards.
func (w *scratch) enter(class *class.Class) (inline bool, err error) {
	switch {
	case w.worker != nil && w.worker.loop != nil:
		return w.stayOrLeave(class)
	case !class.MayRunInline() && !w.mayRun():
		return false, errBusy
	}
	return false, nil
}

// flushEarlier implements wire.
func (c *conn) flushEarlier() error {
	if c.before == 0 {
		return nil
	}
	return c.flush()
}

// flushBefore writes the answers to earlier requests. The time-out has to wait for that, and go on though a connection of the
// user's panics.
func (c *Ctx) flushBefore() error {
	if err := c.holdAnswer(); err != nil {
		return err
	}
	defer c.releaseAnswer()
	return c.exchange.wire.flushEarlier()
}

// leads reports whether the worker leads a loop, so that what it runs is run where its request was read.
func (w *scratch) leads() bool { return w.worker != nil && w.worker.loop != nil }

// call runs the handler, in the server's class until it enters another one.
func (x *exchange) call(ctx *Ctx) error {
	s, w := x.server, x.worker
	// A class that the monitor knows of is blamed by that.
	w.outer = w.worker != nil && w.worker.holdsLoop() && w.worker.running.Load() != &s.class
	w.timer.Begin(&s.class, w.leads())
	err := s.Handler(ctx)
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
	w.timer.End()
	if w.outer {
		w.outer = false
		if w.worker.overtaken() {
			w.timer.Class().Retaken()
		}
	}
}

// ClassStats describes a class of handlers, usually a route with its middleware.
type ClassStats struct {
	// Name is the pattern of the route, or "inline" or "offload" for handlers made by the functions Inline and Offload. It is
	// "" for the server's handler, whose class applies until a router has found the route.
	Name string
	// Kind is "quick", "slow" or "unknown" if filo measures the class, or "inline" or "offload" if the program has set it.
	Kind string
	// Median is the approximate duration of a call, or 0 if it is unknown.
	Median time.Duration
	// Inline counts, approximately, the calls that the loop driver ran where it read the request. Handoffs counts those that
	// gave their loop away, before or during the call; Retakes counts those that lost it because they took too long.
	Inline, Handoffs, Retakes uint64
}

func classStats(k *class.Class) ClassStats {
	return ClassStats{
		Name: k.Name, Kind: k.Kind(), Median: time.Duration(k.Median.Load()),
		Inline: k.Inlined.Load() * class.TimedCalls, Handoffs: k.Handoffs.Load(), Retakes: k.Retakes(),
	}
}
