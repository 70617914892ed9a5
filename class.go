package filo

import (
	"slices"
	"strings"
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

// serverClasses are the classes of the handlers that a server has run.
type serverClasses struct {
	handler class.Class // of Server.Handler, until it enters another one; trusted when it has done so once
	entered class.Set   // the others
}

// stats describes the handler's class, and then the others by their names.
func (k *serverClasses) stats() []ClassStats {
	all := []ClassStats{classStats(&k.handler)}
	k.entered.Each(func(each *class.Class) { all = append(all, classStats(each)) })
	slices.SortStableFunc(all[1:], func(a, b ClassStats) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// enter says which class the rest of the handler belongs to, and which route that is, "" for the one that it was: see inside.Enter.
func (c *Ctx) enter(class *class.Class, route string) error {
	c.check()
	if route != "" {
		c.match.Route = route
	}
	s, w := c.exchange.server, c.exchange.worker
	if !class.In(&s.classes.entered) {
		s.classes.entered.Add(class)
	}
	w.timer.Trust(&s.classes.handler)
	w.endOuter()
	w.timer.Switch(class)
	if stays, must := w.stays(class); !stays {
		switch err := c.exchange.wire.giveWay(class); {
		case err == nil:
		case must && err == errBusy && class.MayRunInline() && w.worker.LeaveKept(): // it is quick, as the places that are kept are for
		case must || err != errBusy:
			return err
		default:
			w.runInline(class)
		}
	}
	w.timer.Start(w.leads())
	return nil
}

// stays decides whether a handler of the class runs where its request was read. If not, it gives way before, and must do so unless it
// may run here after all when that fails.
func (w *scratch) stays(class *class.Class) (stays, must bool) {
	switch {
	case !class.MayRunInline():
		return false, true
	case !w.leads():
		return true, false
	case w.worker.Crowded():
		return false, true // in a crowded loop even a quick handler needs a place
	case w.worker.IsTired(class):
		return false, false
	}
	w.worker.BeginClass(class)
	return true, false
}

// runInline takes note that a handler of the class runs here, though it would better not.
func (w *scratch) runInline(class *class.Class) {
	if w.leads() {
		w.worker.BeginClass(class)
	}
}

// enter lets a handler of the class run by this worker: as the leader of its loop (inline), or as an ordinary one.
func (w *scratch) enter(class *class.Class) (inline bool, err error) {
	stays, must := w.stays(class)
	if stays {
		return w.leads(), nil
	}
	if err = w.giveWay(class); err == errBusy && !must {
		w.runInline(class)
		return w.leads(), nil
	}
	return false, err
}

// giveWay makes the worker an ordinary one, with a place, before a handler of the class that may take long. The error is errBusy.
func (w *scratch) giveWay(class *class.Class) error {
	led := w.leads()
	if err := w.leave(class); err != nil {
		return err
	}
	if led && !w.worker.occupy() {
		return errBusy // the loop was taken away before, though there was no place
	}
	return nil
}

// giveWay implements wire. The time-out has to wait for the answers to earlier requests, and go on though a connection of the user's
// panics.
func (c *conn) giveWay(class *class.Class) error {
	w := c.worker
	if err := w.giveWay(class); err != nil || class.IsQuick() || w.ctx.stream.sent {
		return err
	}
	if err := w.ctx.holdAnswer(); err != nil {
		return err
	}
	defer w.ctx.releaseAnswer()
	if c.before == 0 {
		return nil
	}
	return c.flush()
}

// leave gives the loop that the worker leads, if it leads one, to another worker. The error is errBusy.
func (w *scratch) leave(class *class.Class) error {
	if w.worker == nil {
		return nil
	}
	if !w.worker.Leave(class) {
		return errBusy
	}
	return nil
}

// leads reports whether the worker leads a loop, so that what it runs is run where its request was read.
func (w *scratch) leads() bool { return w.worker != nil && w.worker.Leads() }

// call runs the handler, in the server's class until it enters another one.
func (x *exchange) call(ctx *Ctx) error {
	s, w := x.server, x.worker
	// A class that the monitor knows of is blamed by that.
	w.outer = w.worker != nil && w.worker.HoldsLoop() && w.worker.Running() != &s.classes.handler
	w.timer.Begin(&s.classes.handler, w.leads())
	err := s.Handler(ctx)
	w.endOuter()
	return err
}

// mayRun reports whether a handler that may take its time may be run. What isn't a worker's, or in its place, may.
func (w *scratch) mayRun() bool { return w.worker == nil || w.worker.MayRun() }

// kept reports whether the worker has one of the places that are kept for quick handlers.
func (w *scratch) kept() bool { return w != nil && w.worker != nil && w.worker.kept }

// endOuter ends what belongs to a class when the handler enters another one, or returns. What runs in the server's own class is
// so short mostly that to say so to the monitor would take as long: it is found out here whether it has cost the loop its leader.
func (w *scratch) endOuter() {
	w.timer.End()
	if w.outer {
		w.outer = false
		if w.worker.Overtaken() {
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
