package filo

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
)

const (
	// writeBufferFull is how much may gather in out before it is written, though more pipelined requests are there.
	writeBufferFull = 16 << 10
	// maxKeptWriteBuffer is how large a write buffer a worker keeps between connections.
	maxKeptWriteBuffer = 64 << 10
	// copiedBody is up to which size a body is copied behind its head; larger ones are written from where they are.
	copiedBody = 8 << 10
)

// handle runs the handler on the current request and leaves its answer in out. When that is written as far as it must
// be, afterAnswer goes on.
func (c *conn) handle() {
	ctx := c.worker.ctx
	c.before = len(c.out)
	if ctx.Request.head[ctx.Request.targetStart] == '*' {
		// RFC 9110, section 9.3.7: OPTIONS * asks about the server and not about what a handler has.
		c.finish(ctx, ctx.NoContent())
		return
	}
	err := c.invoke(ctx)
	if c.hijacked {
		c.logDropped(ctx, err)
		return
	}
	c.finish(ctx, err)
}

// invoke calls the handler and turns a panic into an error. A handler that ends its goroutine (runtime.Goexit, as
// testing's FailNow does) is answered with 500 in the deferred function; then the goroutine, and so the connection, ends.
func (c *conn) invoke(ctx *Ctx) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		c.server.logger().Error("the handler ended its goroutine", "method", ctx.Request.Method(), "path", ctx.Request.URI().Path())
		if !c.hijacked {
			ctx.Response.close = true
			c.finish(ctx, errGoexit)
			if c.failed || c.flush() == nil {
				c.afterAnswer()
			}
		}
	}()
	panicked, err := protect(func() error { return c.call(ctx) })
	returned = true
	if panicked != nil {
		return c.panicked(panicked)
	}
	return err
}

// errGoexit is the error of a handler that ended its goroutine.
var errGoexit = errors.New("filo: the handler ended its goroutine")

func (c *conn) panicked(err *PanicError) error {
	if errors.Is(err, ErrAbort) {
		return ErrAbort
	}
	request := &c.worker.ctx.Request
	c.server.logger().Error("panic in handler", "value", fmt.Sprint(err.Value), "method", request.Method(),
		"path", request.URI().Path(), "remote", fmt.Sprint(c.netConn.RemoteAddr()), "stack", string(err.Stack))
	return err
}

// finish completes the answer after the handler has returned with err.
func (c *conn) finish(ctx *Ctx, err error) {
	ctx.claimed = true
	ctx.readUntil, ctx.writeUntil = 0, 0
	if err != nil || ctx.Response.source != bodyStream {
		ctx.stopWatch() // what is left to be read for the answer may depend on the context
	}
	if ctx.timeout != nil && c.endTimeout(ctx, err) {
		ctx.stopWatch()
		c.finishTimedOut(ctx, err)
		return
	}
	c.finishAnswer(ctx, err)
	ctx.stopWatch() // what the user's code did meanwhile may have asked for the context once more
}

func (c *conn) finishAnswer(ctx *Ctx, err error) {
	if err != nil && (errors.Is(err, ErrAbort) || !ctx.rendered && !c.renderError(ctx, err)) {
		c.abortNow(ctx)
		return
	}
	err = c.complete(ctx)
	ctx.stopWatch()
	if err != nil && c.renderError(ctx, err) {
		err = c.complete(ctx) // of the ErrorHandler's answer
	}
	if err != nil {
		c.abortNow(ctx)
		return
	}
	c.count(ctx.Response.status)
}

// complete renders the answer, or what is left of a streamed one. An error means that it can't be completed.
func (c *conn) complete(ctx *Ctx) error {
	if !ctx.stream.open && ctx.Response.source != bodyStream {
		if len(ctx.Response.wraps) > 0 {
			if err := c.guard(ctx.Response.wrapWhole); err != nil {
				return err
			}
		}
		c.render(ctx)
		return nil
	}
	err := c.guard(ctx.finishStream)
	ctx.Response.closeStream()
	return err
}

// skipReceived throws away what has been received of a body that its handler didn't read: what is behind it decides
// whether the connection goes on.
func (c *conn) skipReceived(b *body) {
	if b.err != nil || b.endsConnection() || b.isMuch() {
		return
	}
	b.limit = -1
	for piece := []byte{0}; piece != nil; {
		piece, _ = c.take(b, c.in.Len())
	}
}

// abortNow drops what is left of the answer and closes, when the answers before it are written. If only the end of the
// connection tells the client where the body ends, that end must be a reset.
func (c *conn) abortNow(ctx *Ctx) {
	c.out, c.outBody = c.out[:c.before], nil
	c.reading, c.linger, c.aborted = readingNothing, false, true
	c.broken = ctx.stream.sent && ctx.stream.toEnd
	ctx.Response.resetBody()
}

// renderError lets the ErrorHandler turn err into a response. It reports false if that can't be, because a head is
// already on its way, or mustn't be.
func (c *conn) renderError(ctx *Ctx, err error) bool {
	if errors.Is(err, ErrAbort) {
		return false
	}
	if ctx.stream.sent {
		c.logError(ctx, err, statusOf(err).Status)
		return false
	}
	ctx.stream.reset()
	ctx.Response.Header.list.DelID(field.ContentEncoding) // that of a body which isn't sent
	if errors.Is(err, errBusy) {
		// The connection goes on: to come again over a new one would cost both sides more than the answer does.
		c.server.overloads.Add(1)
		ctx.Response.Header.Set("Retry-After", retryAfterSeconds)
	}
	ok := c.server.renderError(ctx, err)
	// Only the ErrorHandler knows what an error of the program's own means.
	c.logError(ctx, err, ctx.Response.status)
	return ok
}

// logError logs a handler's error that was answered with status, if it isn't the client's. A panic, or the end of its
// goroutine, has been logged.
func (c *conn) logError(ctx *Ctx, err error, status int) {
	var panicError *PanicError
	clients := status < 500 || errors.Is(err, ErrClientGone) || c.failed || ctx.stream.err != nil && !ctx.stream.ours ||
		ctx.clientGone && errors.Is(err, context.Canceled)
	busy := errors.Is(err, ErrBusy) // Stats counts the server's own; under overload a line for each is the last thing to write
	if errors.As(err, &panicError) || err == errGoexit || (clients || busy) && !c.server.LogAllErrors {
		return
	}
	var httpError *HTTPError
	if errors.As(err, &httpError) && (httpError.Status < 400 || httpError.Status > 599) {
		err = fmt.Errorf("filo: an HTTPError must have a status of 400 to 599, and is answered with %d: %w", status, err)
	}
	c.server.logger().Error("handler failed", "error", err, "status", status, "head sent", ctx.stream.sent,
		"method", ctx.Request.Method(), "path", ctx.Request.URI().Path(), "remote", fmt.Sprint(c.netConn.RemoteAddr()))
}

// logDropped logs the error of a handler that has taken the connection over: nothing answers it. Most such errors are those of a
// client that left. ErrHijacked is the program's own.
func (c *conn) logDropped(ctx *Ctx, err error) {
	var panicError *PanicError
	if err == nil || errors.As(err, &panicError) || !errors.Is(err, ErrHijacked) && !c.server.LogAllErrors {
		return
	}
	c.server.logger().Error("handler failed after it had taken the connection over", "error", err, "method", ctx.Request.Method(),
		"path", ctx.Request.URI().Path(), "remote", fmt.Sprint(c.netConn.RemoteAddr()))
}

// renderError calls the ErrorHandler; one that panics must not take the connection's worker with it. It reports false if
// it has panicked behind a head that it sent.
func (s *Server) renderError(ctx *Ctx, err error) (ok bool) {
	defer func() {
		if value := recover(); value != nil {
			s.logger().Error("panic in ErrorHandler", "value", fmt.Sprint(value), "stack", string(debug.Stack()))
			if ok = !ctx.stream.sent; ok {
				ctx.stream.reset()
				DefaultErrorHandler(ctx, Error(500, ""))
			}
		}
	}()
	if s.ErrorHandler != nil {
		s.ErrorHandler(ctx, err)
	} else {
		DefaultErrorHandler(ctx, err)
	}
	return true
}

// render puts the answer into out, but for a body that is too large to be copied, which goes to outBody.
func (c *conn) render(ctx *Ctx) {
	c.skipReceived(&ctx.Request.body)
	r := &ctx.Response
	size := r.size()
	f := headFraming{length: int64(size)}
	declared := r.declaredLength()
	switch {
	case !http1.BodyAllowed(r.status):
		// RFC 9110, section 8.6: no Content-Length with 204; with 304 it describes the answer to a GET.
		f.length, size = noLength, 0
		if r.status == 304 {
			f.length = declared
		}
	case ctx.Request.isHead():
		if size == 0 && declared >= 0 {
			f.length = declared
		}
		size = 0
	case declared >= 0 && declared != int64(size):
		c.server.logger().Error("the handler's Content-Length isn't that of its body, which is sent as it is",
			"declared", declared, "length", size, "path", ctx.Request.URI().Path())
	}
	c.settle(ctx, &f)
	c.out = r.appendHead(c.out, c.server, f)
	switch {
	case size == 0:
	case size <= copiedBody:
		c.out = append(c.out, r.bodyBytes()...)
	default:
		c.outBody = r.bodyBytes()
	}
}

// settle decides whether the connection goes on after the answer, and says so in f.
func (c *conn) settle(ctx *Ctx, f *headFraming) {
	request, b := &ctx.Request, &ctx.Request.body
	switch {
	case !b.complete() && (b.endsConnection() || b.isMuch() && !ctx.stream.open): // who streams may still read
		f.close = true
	case request.framing.Close, ctx.Response.wantsClose():
		f.close = true
	case c.server.config.maxRequests > 0 && c.requests >= c.server.config.maxRequests:
		f.close = true
	case c.in.Len() == 0 && c.server.draining.Load():
		f.close = true
	case c.looped == nil && c.worker.kept():
		f.close = true // others want the place
	}
	f.keepAlive = !f.close && request.minor == 0
	if f.close {
		c.reading = readingNothing
	}
}

// endsConnection reports whether nothing can be understood behind the body.
func (b *body) endsConnection() bool { return b.closeEnd || b.expect }

// isMuch reports whether so much of the body is known to be left that the connection isn't worth it.
func (b *body) isMuch() bool {
	return !b.chunked && b.remaining > maxDrain || b.chunked && b.decoder.Remaining() > maxDrain
}

// afterAnswer goes on to the next request, or to the rest of this one's body.
func (c *conn) afterAnswer() {
	b := &c.worker.ctx.Request.body
	c.pipelined = c.pipelined || c.in.Len() > 0
	switch {
	case c.hijacked || c.failed || c.aborted:
	case !b.complete() && (c.reading == readingNothing || b.endsConnection()):
		c.reading, c.linger = readingNothing, true
	case c.reading == readingNothing:
		c.linger = c.pipelined
	case !b.complete():
		// Much more than an answer that announces the end leaves unread: the client has been told that the connection goes on,
		// and might have sent the next request by the time that it is closed.
		c.reading, c.rest = readingRest, b
		b.limit = b.received + maxSkip
		// The bytes lent to the handler aren't needed any more, so skipping needs no more room than there is.
		if lend.RaceEnabled {
			c.poisonRequest()
		}
		c.in.Unpin()
	default:
		c.end()
	}
}
