package filo

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/requestctx"
)

// handlerTimeout answers instead of a handler that takes too long: see Ctx.SetTimeout. While a handler runs, only its own
// goroutine and this timer's can answer. The first of them that claims the answer, under mu, sends it.
type handlerTimeout struct {
	timer *time.Timer

	mu race.Mutex[race.OfTimeout]
	// armed is changed only by the handler's goroutine, which may therefore read it without mu.
	armed  bool
	fired  bool
	failed bool // the answer couldn't be sent
	// bodyBytes is the size of the answer's body, once fired is set.
	bodyBytes int64
	// contextOnly says that the handler has claimed the answer, and the timer only ends the context.
	contextOnly bool
	exchange    *exchange // nil unless armed or contextOnly is set
	// deadline is the zero time if none is set. Like armed, it is changed only by the handler's goroutine.
	deadline time.Time
	answer   *HTTPError
	fields   Header // the response's fields, as keepFields has copied them; guarded by mu
	head     bool   // the request is a HEAD
	// context is the request's context if someone asked for its end before the timeout was set, and nil otherwise. The deadline of such a
	// context is fixed, so the timer must end the context. It is changed under mu.
	context atomic.Pointer[timedContext]
}

// timedContext is a context that the timeout ends. It is immutable.
type timedContext struct {
	*requestctx.Context
	deadline time.Time
}

// SetTimeout gives the handler d from now to answer. When d has passed, the request's context is done. Unless the head of the answer has
// been sent, the client gets e as the answer, or a 503 if e is nil, in plain text and with Connection: close. The handler's own answer is
// then dropped. Its writes to a stream return ErrHandlerTimeout, and so does a read that waits for the request's body.
//
// The timeout's answer has the fields that the response has at the time of this call, and those that middleware of package router has set
// before the route's handler begins. Fields that describe a body, such as Content-Disposition and ETag, are left out. Fields that allow
// caching are left out, too, or replaced by Cache-Control: no-store: see DefaultErrorHandler.
//
// The handler itself isn't stopped: it keeps its Ctx and its worker, and counts against Concurrency, until it returns. So it
// should watch its context. A further call replaces d and e, but can't extend a context whose end someone has asked for. A d of
// 0 or less cancels the timeout. SetTimeout does nothing once the head has been sent.
func (c *Ctx) SetTimeout(d time.Duration, e *HTTPError) {
	c.check()
	if c.exchange.hijacked || c.claimed {
		return
	}
	if c.timeout == nil {
		c.timeout = new(handlerTimeout)
	}
	t := c.timeout
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed && t.fired {
		return
	}
	if t.armed {
		t.disarmLocked()
	}
	t.deadline = time.Time{}
	if d > 0 {
		t.armLocked(c, d, e)
	} else {
		c.moveDeadline()
	}
}

// armLocked starts the timer.
func (t *handlerTimeout) armLocked(c *Ctx, d time.Duration, e *HTTPError) {
	t.mu.AssertHeld()
	if e == nil {
		e = errHandlerTimeout
	}
	if e.Status < 400 || e.Status > 599 {
		e = statusOf(e) // 500, as elsewhere
	}
	t.armed, t.fired, t.failed = true, false, false
	t.exchange, t.answer, t.head = c.exchange, e, c.Request.isHead()
	t.context.Store(nil)
	t.fields.list.CopyFrom(&c.Response.Header.list)
	if t.deadline = time.Now().Add(d); !c.moveDeadline() {
		t.context.Store(&timedContext{c.context, t.deadline})
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.fire)
	} else {
		t.timer.Reset(d)
	}
}

// keepFields is called by the router between the middlewares of a route, and before its handler. So a timeout's answer also has the fields
// of middleware that runs after SetTimeout. The timer can't read the response's own fields, since the handler may be changing them.
func (c *Ctx) keepFields() {
	if c.timeout != nil {
		c.timeout.keepFields(&c.Response.Header.list)
	}
}

// keepFields copies the response's fields for the timeout's answer.
func (t *handlerTimeout) keepFields(h *field.List) {
	if !t.armed {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.fired {
		t.fields.list.CopyFrom(h)
	}
}

// disarmLocked stops the timer. A call of fire that has already begun finds nothing to do.
func (t *handlerTimeout) disarmLocked() {
	t.mu.AssertHeld()
	t.timer.Stop()
	t.armed, t.contextOnly, t.exchange = false, false, nil
	t.context.Store(nil)
}

// forget disarms the timeout when its request ends.
func (t *handlerTimeout) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed || t.contextOnly {
		t.disarmLocked()
	}
	t.deadline = time.Time{}
	t.fields.list.ResetWithin(maxKeptHeader)
}

var errHandlerTimeout = &HTTPError{Status: 503, Detail: "the handler took too long", Err: ErrHandlerTimeout}

// fire is called by the timer, possibly after the request has ended.
func (t *handlerTimeout) fire() {
	if !t.mu.TryLock() {
		t.endContext() // before mu is locked, since holdAnswer may hold it for as long as a slow client takes
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	switch {
	case !t.armed && !t.contextOnly || !t.isOverLocked():
	case t.contextOnly:
		t.exchange.server.counts.timeouts.handler.Add(1)
		t.endContext()
	default:
		t.answerNowLocked()
	}
}

// isOverLocked reports whether the deadline has passed and the timeout hasn't answered.
func (t *handlerTimeout) isOverLocked() bool {
	t.mu.AssertHeld()
	return !t.fired && !time.Now().Before(t.deadline)
}

// answerNowLocked answers instead of the handler.
func (t *handlerTimeout) answerNowLocked() {
	t.mu.AssertHeld()
	t.fired = true
	t.exchange.server.counts.timeouts.handler.Add(1)
	t.endContext() // first: a client that has received the answer may leave, and the context would then end with another error
	var err error
	t.fields.prepareRefusal(t.answer)
	t.bodyBytes, err = t.exchange.wire.answerApart(t.answer, &t.fields.list, t.head)
	t.failed = err != nil
}

// endContext cancels t.context, if it is set. It checks the deadline first, since by now t.context may belong to another request.
func (t *handlerTimeout) endContext() {
	if r := t.context.Load(); r != nil && !time.Now().Before(r.deadline) {
		r.Cancel(context.DeadlineExceeded)
	}
}

// answerApart implements wire. It also sends the answers to earlier requests that wait in c.out. Like flush it sends nothing once a write has
// failed.
func (c *conn) answerApart(e *HTTPError, fields *field.List, head bool) (size int64, err error) {
	earlier := len(c.out)
	c.out = c.server.appendRefusal(c.out, e, fields, head)
	answer := c.out[earlier:]
	size = int64(len(answer) - bytes.Index(answer, []byte("\r\n\r\n")) - 4)
	if err = net.ErrClosed; !c.failed {
		err = c.driver.sendApart(c.out)
	}
	c.out, c.before = c.out[:0], 0
	c.netConn.SetReadDeadline(clock.Past) // ends the handler's wait for its body; on a connection without deadlines only the client ends that wait
	return size, err
}

// timedOut reports whether the timeout has answered. If the deadline has passed, timedOut makes the timeout answer now, since the handler
// may learn that from its context before the timer fires.
func (c *Ctx) timedOut() bool {
	t := c.timeout
	if t == nil || !t.armed {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOverLocked() {
		t.answerNowLocked()
	}
	return t.fired
}

// claimAnswer claims the answer for the handler: the timeout can't answer any more. If the timeout has already answered,
// claimAnswer returns ErrHandlerTimeout.
func (c *Ctx) claimAnswer() error {
	c.claimed = true
	t := c.timeout
	if t == nil || !t.armed {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.fired:
		return ErrHandlerTimeout
	case t.context.Load() == nil:
		t.disarmLocked()
		return nil
	}
	t.armed, t.contextOnly = false, true
	return nil
}

// holdAnswer keeps the timeout from answering until releaseAnswer, so that the handler can send something before the answer. If the
// timeout has answered, the error is ErrHandlerTimeout, and releaseAnswer must not be called.
func (c *Ctx) holdAnswer() error {
	t := c.timeout
	if t == nil || !t.armed {
		return nil
	}
	if c.timedOut() {
		return ErrHandlerTimeout
	}
	t.mu.Lock()
	if t.fired {
		t.mu.Unlock()
		return ErrHandlerTimeout
	}
	return nil
}

func (c *Ctx) releaseAnswer() {
	t := c.timeout
	if t == nil || !t.armed {
		return
	}
	t.mu.Unlock()
}

// endTimeout ends the timeout of a handler that has returned err, and reports whether the timeout has answered. If the deadline has passed
// and err isn't nil, the timeout answers even if its timer hasn't fired yet.
func (x *exchange) endTimeout(ctx *Ctx, err error) bool {
	t := ctx.timeout
	if !t.armed && !t.contextOnly {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.contextOnly {
		t.disarmLocked()
		return false
	}
	if err != nil && t.isOverLocked() {
		t.answerNowLocked()
	}
	if t.disarmLocked(); !t.fired {
		return false
	}
	x.failed = x.failed || t.failed
	ctx.Response.resetBody()
	ctx.Response.status = t.answer.Status
	return true
}

// finishTimedOut ends a request that its timeout has answered. It logs the handler's error, which no answer reports.
func (x *exchange) finishTimedOut(ctx *Ctx, err error) {
	ended := errors.Is(err, ErrHandlerTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if err != nil && !ended && !errors.Is(err, ErrAbort) {
		x.logError(ctx, err, statusOf(err).Status)
	}
	x.count(ctx.Response.status)
}
