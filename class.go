package filo

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/class"
)

// inlineClass and offloadClass are the classes of the handlers that Inline and Offload make.
var inlineClass, offloadClass = newFixedClasses()

func newFixedClasses() (inline, offload *class.Class) {
	inline, offload = &class.Class{Name: "inline"}, &class.Class{Name: "offload"}
	inline.SetInline()
	offload.SetOffload()
	return inline, offload
}

// Inline returns a handler that the loop driver always runs where it reads the request, whatever it has measured. The handler
// must not block, or take more than about 10 µs: the other connections of its loop wait meanwhile. Use Inline for handlers
// without a router; a route has a method Inline, which also covers the middleware around its handler. If a route uses this
// function instead of the method, the first call may go to another worker, until filo knows that the middleware is quick. Such a route is
// answered even when Server.Concurrency is reached, as one with Route.Always.
//
//go:noinline
func Inline(h Handler) Handler { // package router knows what it returns by its code, which the compiler would copy
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
	handler class.Class // Server.Handler's, until the handler enters another class; trusted once a call has done so
	entered class.Set   // the others
}

// stats describes the handler's class, and then the others, sorted by name.
func (k *serverClasses) stats() []ClassStats {
	all := []ClassStats{classStats(&k.handler)}
	k.entered.Each(func(each *class.Class) { all = append(all, classStats(each)) })
	slices.SortStableFunc(all[1:], func(a, b ClassStats) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// enter makes the rest of the handler belong to class, and sets the route unless it is "": see inside.Enter.
func (c *Ctx) enter(class *class.Class, route string) error {
	c.check()
	if route != "" {
		c.match.Route = route
	}
	if c.timeout != nil {
		c.timeout.keepFields(&c.Response.Header.list) // of what ran around the router
	}
	s, w := c.exchange.server, c.exchange.worker
	if !class.In(&s.classes.entered) {
		s.classes.entered.Add(class)
	}
	w.timer.Trust(&s.classes.handler)
	w.endOuter()
	w.timer.Switch(class)
	c.always = c.always || class.IsAlways()
	if stays, must := w.stays(class); !stays {
		switch err := c.exchange.wire.giveWay(class); {
		case err == nil:
		case must && err == errBusy && class.MayRunInline() && w.worker != nil && w.worker.LeaveKept(): // it is quick, as the places that are kept are for
		case must && err == errBusy:
			if err := c.exchange.wire.queueUp(); err != nil {
				return err
			}
		case err != errBusy:
			return err
		default:
			w.runInline(class)
		}
	}
	inline := w.leads()
	if !inline {
		c.exchange.recordRunning(class, RunningHandler)
	}
	w.timer.Start(inline)
	return nil
}

// stays decides whether a handler of the class runs where its request was read. If not, the worker gives way first. If that fails for
// lack of a place, the handler runs here after all, unless must is true.
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

// staysAlone decides whether a handler of a class that isn't quick runs where its request was read all the same, since it computes, takes
// no longer than class.Brief, and nothing else is ready there. A place must be free, in case the handler waits after all. If the call's turn
// has come, it is sampled, wherever it runs.
func (w *scratch) staysAlone(class *class.Class) bool {
	if !w.leads() || !class.IsBrief() || w.worker.Crowded() || w.worker.IsTired(class) {
		return false
	}
	computes, sampled := class.Computes(), w.timer.SampleTurn()
	if !computes && !sampled || !w.worker.IsAlone() {
		return false
	}
	if sampled {
		w.timer.SampleNext(class)
	}
	if !computes || w.worker.pool.isFull() {
		return false
	}
	w.worker.Stay(class)
	return true
}

// runInline records that a handler of the class runs here after all.
func (w *scratch) runInline(class *class.Class) {
	if w.leads() {
		w.worker.BeginClass(class)
	}
}

// enter prepares the worker to run a handler of the class: as the leader of its loop (inline), or as an ordinary worker.
func (w *scratch) enter(class *class.Class) (inline bool, err error) {
	stays, must := w.stays(class)
	if stays || w.staysAlone(class) {
		return w.leads(), nil
	}
	if err = w.giveWay(class); err == errBusy && !must {
		w.runInline(class)
		return w.leads(), nil
	}
	return false, err
}

// giveWay makes the worker an ordinary one with a place, before a handler of the class that may take long. The error is errBusy.
func (w *scratch) giveWay(class *class.Class) error {
	led := w.leads()
	err := w.leave(class)
	if err == nil && led && !w.worker.occupy() {
		err = errBusy // the monitor has taken the loop away, and no place is free
	}
	if err != nil && w.leaveAlways() {
		return nil
	}
	if err != nil {
		w.timer.DropSample() // if the handler runs later, much else may be to do
	}
	return err
}

// leaveAlways lets the handler continue in the reserve, with neither a loop nor a place, if it has entered a class that may use it.
func (w *scratch) leaveAlways() bool {
	return w.worker != nil && w.ctx.always && w.worker.leaveAlways()
}

// giveWay implements wire. No handler stays while earlier answers wait, since its worker would need a place if their client doesn't take
// them. giveWay holds the timeout while it sends earlier answers. The release is deferred, since a user's net.Conn may panic.
func (c *conn) giveWay(class *class.Class) error {
	w := c.worker
	if class.IsBrief() && w.leads() {
		if earlier, err := c.hasEarlier(); err != nil || !earlier && w.staysAlone(class) {
			return err
		}
	}
	if err := w.giveWay(class); err != nil || class.IsQuick() || w.ctx.stream.sent {
		return err
	}
	return c.flushEarlier()
}

// hasEarlier reports whether answers of earlier requests haven't been sent yet.
func (c *conn) hasEarlier() (bool, error) {
	ctx := c.worker.ctx
	if err := ctx.holdAnswer(); err != nil {
		return false, err
	}
	defer ctx.releaseAnswer()
	return c.before > 0, nil
}

func (c *conn) flushEarlier() error {
	w := c.worker
	if err := w.ctx.holdAnswer(); err != nil {
		return err
	}
	defer w.ctx.releaseAnswer()
	if c.before == 0 {
		return nil
	}
	return c.flush()
}

// queueUp implements wire. In the blocking driver a connection that has no place can't go on, so nothing waits for one there.
func (c *conn) queueUp() error {
	w := c.worker
	if c.looped == nil || w.ctx.stream.sent {
		return errBusy
	}
	if err := w.worker.joinQueue(); err != nil {
		return err
	}
	err := c.flushEarlier()
	if late := c.awaitPlace(); late != nil {
		return late
	}
	return err
}

// awaitPlace is exchange.awaitPlace. A client that has only ended its side may still read, so it is told that nothing was done.
func (c *conn) awaitPlace() error {
	err := c.exchange.awaitPlace(c.worker.worker.occupy)
	switch broken := c.looped.IsBroken(); {
	case broken && err == nil:
		c.lost = true
		return ErrClientGone
	case !broken && err == ErrClientGone:
		return errQueueTimeout
	}
	return err
}

// awaitPlace waits in Server.Queue for a place, after joinQueue, as long as somebody wants the answer, and leaves the queue. The error is
// ErrClientGone if the client has left or the server was closed, ErrHandlerTimeout if the handler's timeout has answered, and otherwise
// errQueueTimeout. occupy takes the place.
func (x *exchange) awaitPlace(occupy func() bool) error {
	defer x.server.pool.queue.waiting.Add(-1)
	x.recordRunning(x.worker.timer.Class(), RunningQueued)
	ctx, until := x.worker.ctx, time.Time{}
	if t := ctx.timeout; t != nil && t.armed {
		until = t.deadline
	}
	// The client is watched by a context of the wait's own: if the request's were asked for its end, its deadline would be fixed.
	own := ctx.context
	watched := own != nil && own.wire != nil
	ctx.endWatch()
	wait := &requestContext{server: x.server}
	if c, ok := x.wire.(*carried); ok {
		outer := c.transport.Context()
		wait.outer, wait.carried = outer, true // the other server watches its client
		if deadline, ok := outer.Deadline(); ok && (until.IsZero() || deadline.Before(until)) {
			until = deadline
		}
	}
	ctx.context = wait
	ctx.watch()
	err := x.server.pool.awaitPlace(occupy, wait.Done(), until)
	ctx.endWatch()
	ctx.context = own
	switch cause := wait.finish(); {
	case cause != context.Canceled:
		if err = ErrClientGone; own != nil {
			own.cancel(cause)
		}
	case ctx.timedOut():
		err = ErrHandlerTimeout
	}
	if watched {
		ctx.watch()
	}
	return err
}

// leave gives the loop that the worker leads, if it leads one, to another worker. The error is errBusy.
func (w *scratch) leave(class *class.Class) error {
	if w.worker == nil {
		return nil
	}
	led := w.leads()
	if !w.worker.Leave(class) {
		return errBusy
	}
	if led {
		w.recordLeft(class)
	}
	return nil
}

// leads reports whether the worker leads a loop, so that handlers that it runs run inline.
func (w *scratch) leads() bool { return w.worker != nil && w.worker.Leads() }

// call runs the handler, in the server's class until it enters another one.
func (x *exchange) call(ctx *Ctx) error {
	s, w := x.server, x.worker
	inline := w.leads()
	if !inline {
		x.recordRunning(&s.classes.handler, RunningHandler)
	}
	// If the monitor knows the class, the monitor itself counts retakes against it.
	w.outer = w.worker != nil && w.worker.HoldsLoop() && w.worker.Running() != &s.classes.handler
	w.timer.Begin(&s.classes.handler, inline)
	err := x.directed(&ctx.Request)
	if err == nil {
		err = s.Handler(ctx)
	}
	w.endOuter()
	return err
}

// mayRun reports whether a handler that may take long may run here. A worker in a kept place must get an ordinary place for that.
func (w *scratch) mayRun() bool { return w.worker == nil || w.worker.MayRun() }

// kept reports whether the worker has one of the places that are kept for quick handlers (see keptPlaces).
func (w *scratch) kept() bool { return w != nil && w.worker != nil && w.worker.kept }

// lacksPlace reports whether the worker serves without any place, as one that has read a connection of HTTP/2 in the blocking driver until
// the monitor took that away.
func (w *scratch) lacksPlace() bool {
	return !w.borrowed() && w.worker != nil && w.worker.place == placeClosing
}

// borrowed reports whether the worker serves without an ordinary place: in a kept place, or in the reserve.
func (w *scratch) borrowed() bool { return w.kept() || w != nil && w.worker != nil && w.worker.always }

// endOuter ends the timing of a class when the handler enters another one, or returns. The part in the server's own class is mostly so
// short that telling the monitor about it would take as long. So endOuter checks whether that part has cost the loop its leader.
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
	// Kind is "quick", "slow" or "unknown" if filo measures the class, or "inline" or "offload" if the program has set it. A slow handler
	// that computes for at most 400 µs runs where its request was read while nothing else is ready there.
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
