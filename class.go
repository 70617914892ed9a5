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
	conn := c.conn
	s, w := conn.server, conn.worker
	if !class.In(&s.classes) {
		s.classes.Add(class)
	}
	w.timer.Trust(&s.class)
	w.endOuter()
	w.timer.Switch(class)
	inline := class.MayRunInline()
	if conn.looped != nil {
		var err error
		if inline, err = conn.looped.enter(class); err != nil {
			return err
		}
	} else if !inline && !w.mayRun() {
		return errBusy
	}
	// Earlier answers wait for a quick handler, but not for one that may be slow.
	if !inline && !class.IsQuick() && !c.stream.sent {
		if err := c.flushBefore(); err != nil {
			return err
		}
	}
	w.timer.Start(w.leads())
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

// leads reports whether the worker leads a loop, so that what it runs is run where its request was read.
func (w *scratch) leads() bool { return w.worker != nil && w.worker.loop != nil }

// call runs the handler, in the server's class until it enters another one.
func (c *conn) call(ctx *Ctx) error {
	s, w := c.server, c.worker
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
