package filo

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/running"
)

// inlineClass and offloadClass are the classes of the handlers that Inline and Offload make.
var inlineClass, offloadClass = newFixedClasses()

func newFixedClasses() (inline, offload *class.Class) {
	inline, offload = &class.Class{Name: "inline"}, &class.Class{Name: "offload"}
	inline.SetInline()
	offload.SetOffload()
	return inline, offload
}

// Inline returns a handler that the loop driver always runs directly in the loop, without measuring it. The handler must not block, or take
// more than about 10 µs: the other connections of its loop wait until it returns. Use Inline for handlers without a router; a route has a
// method Inline, which also covers the middleware around its handler. If a route uses this function instead of the method, a call may leave
// the loop until filo knows that the route's middleware is quick. Either way, requests for the route are answered even when
// Server.Concurrency is reached, as with Route.Always.
//
//go:noinline
func Inline(h Handler) Handler { // package router recognises the returned handler by its code, which inlining would copy
	return func(c *Ctx) error {
		if err := c.enter(inlineClass, ""); err != nil {
			return err
		}
		return h(c)
	}
}

// Offload returns a handler that never runs in a loop, for a handler that mostly waits. Use it for handlers without a router; a route has a
// method Offload, which also covers the middleware around its handler.
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
	handler class.Class // the class of Server.Handler, until the handler enters another class; trusted once a call has entered another class
	entered class.Set   // the classes that handlers have entered
}

// stats describes the handler's class, followed by the entered classes, sorted by name.
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
		c.timeout.keepFields(&c.Response.Header.list) // the fields that the middleware around the router has set
	}
	s, w := c.exchange.server, c.exchange.scratch
	if !class.In(&s.classes.entered) {
		s.classes.entered.Add(class)
	}
	w.timer.Trust(&s.classes.handler)
	w.endOuter()
	w.timer.Switch(class)
	c.always = c.always || class.IsAlways()
	if err := w.admit(class, class.MayRunInline(), c.always, c.exchange.wire); err != nil {
		return err
	}
	inline := w.leads()
	c.exchange.recordEntered(class)
	w.timer.Start(inline)
	return nil
}

// enterServer admits a request to the server's handler, based on what is known about that handler.
func (x *exchange) enterServer() error {
	class, w := &x.server.classes.handler, x.scratch
	trusted := class.Trusted.Load()
	if w.worker == nil || trusted && class.MayRunInline() && !w.crowded() {
		return nil
	}
	err := w.admit(class, trusted, false, x.wire) // a trusted class's handler may enter a quick class
	return x.notAdmitted(err)
}

// notAdmitted returns the error of a handler that wasn't admitted.
func (x *exchange) notAdmitted(err error) error {
	if err != nil {
		x.scratch.timer.Switch(&x.server.classes.handler)
	}
	if err == ErrClientGone {
		return ErrAbort // the client has left, so there is no answer, and the handler isn't at fault
	}
	return err
}

// admitter makes sure that no other request waits for a handler, before the handler runs.
type admitter interface {
	// giveWay gives the loop or the connection away, and enters a place of one of these kinds. The error is errBusy if none is free. Any other
	// error says why nobody wants the answer any more.
	giveWay(class *class.Class, places admit.Kinds) error
	// queueUp does the same as giveWay, but waits for an ordinary place. The error is errBusy if requests can't wait here. Any other error
	// says why the wait has ended.
	queueUp() error
}

// admit alone decides where a handler of the class runs, or the rest of a handler that enters the class:
//
//  1. without giving the loop or the HTTP/2 connection away, if the class is quick and the loop's leader has the time; or if the handler
//     computes briefly and no other connection is ready (staysAlone, which giveWay calls for HTTP/1.1 and parked connections);
//  2. in an ordinary place, which counts against Concurrency;
//  3. in a place for quick handlers, if this handler may be quick and its loop is crowded (see Worker.Crowded);
//  4. in the reserve, if the request must always be answered;
//  5. without giving the loop or the connection away after all, if item 1 failed only because the leader lacked the time;
//  6. in an ordinary place, after a wait in Server.Queue.
//
// If none of these is possible, the error becomes a 503.
func (w *scratch) admit(class *class.Class, mayBeQuick, always bool, from admitter) error {
	stays, must := w.mayStay(class)
	if stays {
		return nil
	}
	err := from.giveWay(class, placesFor(must && mayBeQuick, always))
	switch {
	case err != errBusy:
		return err
	case !must:
		if w.leads() {
			w.worker.BeginClass(class)
		}
		return nil
	}
	return from.queueUp()
}

// placesFor returns the kinds of places that a handler may take.
func placesFor(mayBeQuick, always bool) admit.Kinds {
	return admit.Ordinary.Only().Or(admit.Quick, mayBeQuick).Or(admit.Always, always)
}

// mayStay decides whether a handler of the class runs without giving the loop or the connection away (stays). If not, the worker gives way
// first. If no place is free for that, the handler runs without giving way after all, unless must is true.
func (w *scratch) mayStay(class *class.Class) (stays, must bool) {
	switch {
	case !class.MayRunInline():
		return false, true
	case w.crowded():
		return false, true // even a quick handler needs a place
	case !w.leads():
		return true, false
	case w.worker.IsTired(class):
		return false, false
	}
	w.worker.BeginClass(class)
	return true, false
}

// crowded reports whether there are more workers than the cap allows, and the worker may cost one more by running a handler: as a leader
// that could lose its loop, or in the blocking driver as the owner of a connection of HTTP/2 that another worker would have to read.
func (w *scratch) crowded() bool {
	switch {
	case w.worker == nil:
		return false
	case w.leads():
		return w.worker.Crowded()
	}
	return w.place.Kind() == admit.None && w.worker.pool.places.Beyond() > 0
}

// staysAlone decides whether a handler runs while its worker leads the loop, although the handler's class isn't quick. It returns true if the
// handler computes for no longer than class.Brief, and if no other connection of the loop is ready. A place must be free, in case the handler
// waits after all. When it is time to sample the class, the call is sampled wherever it runs.
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
	if !computes || w.worker.pool.places.IsFull() {
		return false
	}
	w.worker.Stay(class)
	return true
}

// giveWay makes the worker an ordinary one, which leads no loop and has a place of one of these kinds, before a handler of the class runs.
// The error is errBusy if no such place is free.
func (w *scratch) giveWay(class *class.Class, places admit.Kinds) error {
	led, entered := w.leads(), true
	switch {
	case w.worker != nil:
		entered = w.worker.LeaveFor(class, places)
	case w.place != nil:
		entered = w.place.Enter(places)
	}
	if !entered {
		w.timer.DropSample() // the handler may run later, while much other work is done
		return errBusy
	}
	if led {
		w.recordLeft(class)
	}
	return nil
}

// giveWay implements wire. No handler stays in the loop while answers to earlier requests are unsent, since the worker would need a place
// if the client doesn't take them. The handler's timeout can't send its answer while giveWay sends earlier answers. The release is
// deferred, since a user's net.Conn may panic.
func (c *conn) giveWay(class *class.Class, places admit.Kinds) error {
	w := c.scratch
	if class.IsBrief() && w.leads() {
		if earlier, err := c.hasEarlier(); err != nil || !earlier && w.staysAlone(class) {
			return err
		}
	}
	if err := w.giveWay(class, places); err != nil || class.IsQuick() || w.ctx.stream.sent {
		return err
	}
	return c.flushEarlier()
}

// hasEarlier reports whether answers of earlier requests haven't been sent yet.
func (c *conn) hasEarlier() (bool, error) {
	ctx := c.scratch.ctx
	if err := ctx.holdAnswer(); err != nil {
		return false, err
	}
	defer ctx.releaseAnswer()
	return c.before > 0, nil
}

func (c *conn) flushEarlier() error {
	w := c.scratch
	if err := w.ctx.holdAnswer(); err != nil {
		return err
	}
	defer w.ctx.releaseAnswer()
	if c.before == 0 {
		return nil
	}
	return c.flush()
}

// queueUp implements wire. Requests of a connection that keeps its worker never wait in the queue, since such a connection can't go on
// without a place.
func (c *conn) queueUp() error {
	w := c.scratch
	if c.driver.keepsWorker() || w.ctx.stream.sent {
		return errBusy
	}
	if err := c.server.joinQueue(); err != nil {
		return err
	}
	w.worker.LeaveFor(nil, admit.None.Only())
	if err := c.flushBeforeQueue(); err != nil {
		c.server.pool.places.LeaveQueue()
		return err
	}
	return c.awaitPlace()
}

// flushBeforeQueue sends the earlier answers of a request that has joined the queue. It takes no longer than a request may wait in the queue:
// a client that doesn't read must not keep others out of the queue.
func (c *conn) flushBeforeQueue() error {
	until := &c.scratch.ctx.writeUntil
	own := *until
	*until = clock.Earlier(own, c.server.clock.Exact().Add(c.server.pool.places.MaxWait()))
	defer func() { *until = own }()
	return c.flushEarlier()
}

// awaitPlace calls exchange.awaitPlace, and corrects its result: a broken connection has lost its client, even if there is a place; and a
// client that has only closed its sending side may still read, so it gets a 503 for its request, which wasn't handled.
func (c *conn) awaitPlace() error {
	err := c.exchange.awaitPlace(c.scratch.occupy)
	switch broken := c.driver.IsBroken(); {
	case broken && (err == nil || err == ErrClientGone):
		c.lost = true
		return ErrClientGone
	case !broken && err == ErrClientGone:
		return errQueueTimeout
	}
	return err
}

// occupy takes an ordinary place. It returns false if none is free.
func (w *scratch) occupy() bool { return w.place == nil || w.place.Enter(admit.Ordinary.Only()) }

// joinQueue reserves room in Server.Queue for a request. The error is errQueueFull, or errBusy if there is no queue. Otherwise the caller
// must call awaitPlace.
func (s *Server) joinQueue() error {
	switch places := &s.pool.places; {
	case !places.HasQueue():
		return errBusy
	case !places.JoinQueue():
		return errQueueFull
	}
	return nil
}

// awaitPlace waits in Server.Queue until the function occupy has taken a place, and then leaves the queue. The caller has called joinQueue.
// The error is ErrClientGone if the client has left or the server was closed, ErrHandlerTimeout if the handler's timeout has answered, and
// errQueueTimeout if the wait has ended without a place.
func (x *exchange) awaitPlace(occupy func() bool) error {
	places := &x.server.pool.places
	defer places.LeaveQueue()
	x.recordRunning(x.scratch.timer.Class(), running.Queued)
	ctx, until := x.scratch.ctx, time.Time{}
	if t := ctx.timeout; t != nil && t.armed {
		until = t.deadline
	}
	// A separate context watches the client during the wait: calling Done of the request's context would fix that context's deadline.
	own := ctx.context
	watched := own != nil && own.IsWatchable()
	ctx.endWatch()
	var outer context.Context
	c, isCarried := x.wire.(*carried)
	if isCarried {
		outer = c.transport.Context() // the other server watches its client
		deadline, _ := outer.Deadline()
		until = requestctx.Earlier(until, deadline)
	}
	wait := requestctx.New(x.server.life.Base, outer, isCarried)
	ctx.context = wait
	ctx.watch()
	err := error(nil)
	if !places.AwaitPlace(occupy, wait.Done(), until) {
		err = errQueueTimeout
	}
	ctx.endWatch()
	ctx.context = own
	switch cause := wait.Finish(); {
	case cause != context.Canceled:
		if err = ErrClientGone; own != nil {
			own.Cancel(cause)
		}
	case ctx.timedOut():
		err = ErrHandlerTimeout
	}
	if watched {
		ctx.watch()
	}
	return err
}

// leave gives the worker's loop, if it leads one, to another worker. The error is errBusy if that is impossible.
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

// call runs the handler, in the server's class until it enters another class.
func (x *exchange) call(ctx *Ctx) error {
	s, w := x.server, x.scratch
	inline := w.leads()
	x.recordEntered(&s.classes.handler)
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

// mayRun makes sure that an admitted handler may continue although it turns out to take long: a place for quick handlers must become an
// ordinary one. It returns false if no ordinary place is free.
func (w *scratch) mayRun() bool { return w.place == nil || w.place.MayTakeLong() }

// endOuter ends the timing of a class when the handler enters another class, or returns. The part in the server's own class is mostly so short
// that registering it with the monitor would take as long as the part itself. So endOuter checks afterwards whether the worker has lost its
// loop in that part.
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
	// Kind is "quick", "slow" or "unknown" if filo measures the class, or "inline" or "offload" if the program has set it. A slow handler that
	// computes for at most 400 µs runs directly in the loop if no other connection of the loop is ready.
	Kind string
	// Median is the approximate duration of a call, or 0 if it is unknown.
	Median time.Duration
	// Inline counts, approximately, the calls that the loop driver ran directly in the loop. Handoffs counts the calls whose worker gave
	// its loop away, or for HTTP/2 in the blocking driver its connection, before or during the call. Retakes counts the calls that took so
	// long that filo took the loop away from their worker.
	Inline, Handoffs, Retakes uint64
}

func classStats(k *class.Class) ClassStats {
	return ClassStats{
		Name: k.Name, Kind: k.Kind(), Median: time.Duration(k.Median.Load()),
		Inline: k.Inlined.Load() * class.TimedCalls, Handoffs: k.Handoffs.Load(), Retakes: k.Retakes(),
	}
}
