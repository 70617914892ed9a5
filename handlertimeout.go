package filo

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/filohttp/filo/internal/race"
)

// handlerTimeout answers in the place of a handler that takes too long: see Ctx.SetTimeout. Its timer is the only goroutine
// beside the handler's own that touches a connection whose handler runs, and does so once: whoever of the two comes first
// with an answer, under mu, has it.
type handlerTimeout struct {
	timer *time.Timer

	mu race.Mutex
	// armed is changed by the handler's goroutine alone, which so may read it without mu.
	armed  bool
	fired  bool
	failed bool // the answer couldn't be sent
	// bodyBytes is the size of the answer's body, once it has fired.
	bodyBytes int64
	// contextOnly says that the answer is the handler's, and the timer ends the context all the same.
	contextOnly bool
	exchange    *exchange // nil unless it is armed, or contextOnly
	// deadline is the zero time if there is none for the request. As armed it is changed by the handler's goroutine alone.
	deadline time.Time
	answer   *HTTPError
	head     bool            // it is one to HEAD
	context  *requestContext // armed before the time-out was set; nil if it wasn't
}

// SetTimeout gives the handler d from now. After that the context of the request is done. Unless the head of the answer has
// been sent, the client gets e as the answer, in plain text and with Connection: close; if e is nil, a 503. Later answers of
// the handler are dropped, and its writes to a stream return ErrHandlerTimeout.
//
// The handler itself isn't stopped: it keeps its Ctx and its worker, and counts against Concurrency, until it returns. So it
// should watch its context. A further call replaces d and e, but can't extend a context whose end someone has asked for. A d of
// 0 or less cancels the time-out. SetTimeout does nothing once the head has been sent.
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
	t.exchange, t.answer, t.head, t.context = c.exchange, e, c.Request.isHead(), nil
	if t.deadline = time.Now().Add(d); !c.moveDeadline() {
		t.context = c.context
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.fire)
	} else {
		t.timer.Reset(d)
	}
}

// disarmLocked stops the timer. A call of fire that is under way finds nothing to do.
func (t *handlerTimeout) disarmLocked() {
	t.mu.AssertHeld()
	t.timer.Stop()
	t.armed, t.contextOnly, t.exchange, t.context = false, false, nil, nil
}

// forget ends what is left of a request's time-out.
func (t *handlerTimeout) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed || t.contextOnly {
		t.disarmLocked()
	}
	t.deadline = time.Time{}
}

var errHandlerTimeout = &HTTPError{Status: 503, Detail: "the handler took too long", Err: ErrHandlerTimeout}

// fire is called by the timer, perhaps late: for a request that is over.
func (t *handlerTimeout) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.armed && !t.contextOnly || !t.isOverLocked():
	case t.contextOnly:
		t.context.cancel(context.DeadlineExceeded)
	default:
		t.answerNowLocked()
	}
}

// isOverLocked reports whether the time is over and nobody has answered.
func (t *handlerTimeout) isOverLocked() bool {
	t.mu.AssertHeld()
	return !t.fired && !time.Now().Before(t.deadline)
}

// answerNowLocked answers in the handler's place.
func (t *handlerTimeout) answerNowLocked() {
	t.mu.AssertHeld()
	t.fired = true
	var err error
	t.bodyBytes, err = t.exchange.wire.answerApart(t.answer, t.head)
	t.failed = err != nil
	if t.context != nil {
		t.context.cancel(context.DeadlineExceeded)
	}
}

// answerApart implements wire. The answers to earlier requests that wait in out are sent as well.
func (c *conn) answerApart(e *HTTPError, head bool) (size int64, err error) {
	earlier := len(c.out)
	c.out = c.server.appendRefusal(c.out, e, &refusalFields, head)
	answer := c.out[earlier:]
	size = int64(len(answer) - bytes.Index(answer, []byte("\r\n\r\n")) - 4)
	if c.looped != nil {
		err = c.looped.sendApart(c.out)
	} else {
		c.netConn.SetWriteDeadline(time.Now().Add(apartTime))
		_, err = c.netConn.Write(c.out)
		c.netConn.SetWriteDeadline(time.Time{})
	}
	c.out, c.before = c.out[:0], 0
	return size, err
}

// apartTime is how long a client may take to take the answer of a time-out in the blocking driver. It is so small an answer
// that one which doesn't at once has a full buffer.
const apartTime = time.Second

// timedOut reports whether the time-out has answered. If the time is over it does so now: a handler may hear of it from its
// context before the timer fires.
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

// claimAnswer makes the answer the handler's: no time-out comes any more. The error is ErrHandlerTimeout if one has come.
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
	case t.context == nil:
		t.disarmLocked()
		return nil
	}
	t.armed, t.contextOnly = false, true
	return nil
}

// holdAnswer keeps the time-out from answering until releaseAnswer, so that something can be sent before the answer. If it has
// come, the error is ErrHandlerTimeout, and there is nothing to release.
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

// endTimeout ends the time-out of a handler that has returned, and reports whether it has answered. An error that is returned
// when the time is over is that of the time-out, whether or not the timer has fired.
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

// finishTimedOut ends a request that its time-out has answered. The error is the handler's, which nobody else gets to see.
func (x *exchange) finishTimedOut(ctx *Ctx, err error) {
	ended := errors.Is(err, ErrHandlerTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if err != nil && !ended && !errors.Is(err, ErrAbort) {
		x.logError(ctx, err, statusOf(err).Status)
	}
	x.count(ctx.Response.status)
}
