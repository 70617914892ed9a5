package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/sock"
)

// exchange is one request and its answer, by any protocol: the server, the worker, the wire to the client, and how far the answer has
// come. A Ctx points to one.
//
// A field belongs to the goroutine that runs the handler.
type exchange struct {
	server   *Server              // immutable
	tlsState *tls.ConnectionState // what the TLS handshake settled, nil without TLS
	wire     wire                 // the protocol, for what happens inside a handler
	worker   *scratch             // whose goroutine runs the handler, and whose buffers are in use
	// answered counts the answers by status class: one of its server's in the blocking driver, its loop's in the other.
	answered *answerCounts

	hijacked bool // a handler has taken the connection over: nothing is answered
	failed   bool // a write has failed: nothing more is written
	lost     bool // the client of the current request can't be reached any more
}

// wire is a protocol, as a running handler needs it: reading the body, and sending an answer while the handler runs. A whole answer
// doesn't cross it: the protocol renders that itself when the handler has returned.
//
// The methods are called on the handler's goroutine, and keep no slice that they are given, except where it says otherwise.
type wire interface {
	// localAddr and remoteAddr return the addresses of the connection's ends.
	localAddr() net.Addr
	remoteAddr() net.Addr
	// remote returns the address of the client, not valid if it has none of IP.
	remote() netip.AddrPort
	// outerContext returns the context that those of the requests have their values from, and end with; nil is none. It is carried
	// if the request came to another server, which ends the context when the client leaves.
	outerContext() (outer context.Context, carried bool)
	// deadlineSet tells of a deadline that the handler has set: see Ctx.readUntil and writeUntil.
	deadlineSet(t time.Time, write bool) error

	// readBody is io.Reader's Read for the request's body. It may wait for the client, and gives the loop away before.
	readBody(b *body, p []byte) (int, error)
	// lendBody returns the whole body, of which nothing was read, borrowed until the handler returns. It reports false if the caller
	// has to read the body into a buffer.
	lendBody(b *body) (whole []byte, ok bool, err error)

	// giveWay gives away what other requests wait for, before a handler of the class that may take long: the loop, and the answers
	// to earlier requests. The error is errBusy if there is no place for that, or what sending the answers has failed with.
	giveWay(class *class.Class) error
	// inform sends an interim answer.
	inform(status int, h *Header) error
	// head begins a streamed answer with a body of that length, noLength if unknown. It sends nothing yet.
	head(ctx *Ctx, length int64)
	// data sends a part of the body, which may be empty. Without flush a part of at most copiedBody bytes may be kept back, as a copy.
	data(p []byte, flush bool) error
	// endStream completes a streamed answer.
	endStream(trailer *Header)

	// prepareHijack makes sure that hijack can take the connection over. If it fails, the request can still be answered. Its result may
	// be nil, and is given to hijack, or closed.
	prepareHijack() (prepared net.Conn, err error)
	// switchProtocols renders a 101 with these fields, to be sent by hijack.
	switchProtocols(h *Header)
	// hijack gives the connection to the caller, with what was received behind the request, and sets hijacked.
	hijack(prepared net.Conn) (taken net.Conn, buffered []byte, err error)

	// answerApart answers in the handler's place: nothing else is sent for the request. It is called on a timer's goroutine or the
	// handler's, which may be reading meanwhile but doesn't write. It returns the size of the answer's body.
	answerApart(e *HTTPError, head bool) (size int64, err error)
}

// fileWire is a wire that sends files by itself.
type fileWire interface {
	// fileSender returns what sends the part, nil if nothing can. With it the loop is given away if no head was sent, since the file may
	// have to be read from a disk.
	fileSender(p filePart, headSent bool) (sock.FileSender, error)
	// sendFile sends size bytes from the offset on. What was sent before the error is counted.
	sendFile(sender sock.FileSender, offset, size int64) (sent int64, err error)
}

// watchWire is a wire whose client can be watched while a handler runs.
type watchWire interface {
	// mayWatch reports whether the client can be watched from now until endWatch, since nothing else reads from it.
	mayWatch(b *body) bool
	// startWatch cancels the context when the client leaves, until endWatch, and reports what of that has happened: the client has ended
	// its side, or is gone altogether. The caller, who may be any goroutine, holds the context's mu. mayWatch has returned true.
	startWatch(r *requestContext) (half, gone bool)
	// endWatch undoes mayWatch, and startWatch if that was called. Nobody calls startWatch at the same time or afterwards.
	endWatch()
}

// ending is how the run of a handler has ended.
type ending uint8

const (
	endingWhole    ending = iota // the answer is in Ctx.Response, to be rendered
	endingStreamed               // it was sent while the handler ran, to its end
	endingAborted                // there is none, or only a part of it: the client must not take that for the whole
	endingTimedOut               // its time-out has answered
	endingTaken                  // the handler has taken the connection over
)

// answerCounts counts answers by status class.
type answerCounts [6]atomic.Uint64

// addTo adds the counts to those of a Stats.
func (a *answerCounts) addTo(requests *[6]uint64) {
	for class := range a {
		requests[class] += a[class].Load()
	}
}

// count takes note of an answer.
func (x *exchange) count(status int) {
	x.answered[status/100].Add(1)
}

// invoke calls the handler and turns a panic into an error. If the handler ends its goroutine (runtime.Goexit, as testing's FailNow
// does), the caller finds that out in a deferred function, and answers by exited.
func (x *exchange) invoke(ctx *Ctx) error {
	panicked, err := protect(func() error { return x.call(ctx) })
	if panicked != nil {
		return x.panicked(panicked)
	}
	return err
}

// exited is finish for a handler that is ending its goroutine.
func (x *exchange) exited(ctx *Ctx) ending {
	x.server.logger().Error("the handler ended its goroutine", "method", ctx.Request.Method(), "path", ctx.Request.URI().Path())
	if x.hijacked {
		return endingTaken
	}
	ctx.Response.close = true
	return x.finish(ctx, errGoexit)
}

// errGoexit is the error of a handler that ended its goroutine.
var errGoexit = errors.New("filo: the handler ended its goroutine")

func (x *exchange) panicked(err *PanicError) error {
	if errors.Is(err, ErrAbort) {
		return ErrAbort
	}
	request := &x.worker.ctx.Request
	logPanic(x.server.logger(), "panic in handler", err.Value, err.Stack, "method", request.Method(),
		"path", request.URI().Path(), "remote", fmt.Sprint(x.wire.remoteAddr()))
	return err
}

// finish completes the answer after the handler has returned with err, except that it leaves a whole answer to be rendered. No user
// code runs for the answer afterwards, but for what Ctx.end closes.
func (x *exchange) finish(ctx *Ctx, err error) (e ending) {
	if x.hijacked {
		x.logDropped(ctx, err)
		return endingTaken
	}
	ctx.claimed = true
	ctx.readUntil, ctx.writeUntil = 0, 0
	if err != nil || ctx.Response.source != bodyStream {
		ctx.stopWatch() // what is left to be read for the answer may depend on the context
	}
	if ctx.timeout != nil && x.endTimeout(ctx, err) {
		ctx.stopWatch()
		x.finishTimedOut(ctx, err)
		return endingTimedOut
	}
	e = x.finishAnswer(ctx, err)
	ctx.stopWatch() // what the user's code did meanwhile may have asked for the context once more
	return e
}

func (x *exchange) finishAnswer(ctx *Ctx, err error) ending {
	if err != nil && (errors.Is(err, ErrAbort) || !ctx.rendered && !x.renderError(ctx, err)) {
		return endingAborted
	}
	e, err := x.complete(ctx)
	ctx.stopWatch()
	if err != nil && x.renderError(ctx, err) {
		e, err = x.complete(ctx) // of the ErrorHandler's answer
	}
	if err != nil {
		return endingAborted
	}
	x.count(ctx.Response.status)
	return e
}

// complete makes the answer one that only has to be rendered, or sends what is left of a streamed one. An error means that it can't be
// completed.
func (x *exchange) complete(ctx *Ctx) (e ending, err error) {
	if !ctx.stream.open && ctx.Response.source != bodyStream {
		if len(ctx.Response.wraps) > 0 {
			err = x.guard(ctx.Response.wrapWhole)
		}
		return endingWhole, err
	}
	err = x.guard(func() (err error) {
		e, err = ctx.finishStream()
		return err
	})
	ctx.Response.closeStream()
	return e, err
}

// renderError lets the ErrorHandler turn err into a response. It reports false if that can't be, because a head is
// already on its way, or mustn't be.
func (x *exchange) renderError(ctx *Ctx, err error) bool {
	if errors.Is(err, ErrAbort) {
		return false
	}
	if ctx.stream.sent {
		x.logError(ctx, err, statusOf(err).Status)
		return false
	}
	ctx.stream.reset()
	ctx.Response.Header.list.DelID(field.ContentEncoding) // that of a body which isn't sent
	if errors.Is(err, errBusy) {
		// The connection goes on: to come again over a new one would cost both sides more than the answer does.
		x.server.counts.overloads.Add(1)
		ctx.Response.Header.Set("Retry-After", retryAfterSeconds)
	}
	ok := x.server.renderError(ctx, err)
	// Only the ErrorHandler knows what an error of the program's own means.
	x.logError(ctx, err, ctx.Response.status)
	return ok
}

// logError logs a handler's error that was answered with status, if it isn't the client's. A panic, or the end of its
// goroutine, has been logged.
func (x *exchange) logError(ctx *Ctx, err error, status int) {
	var panicError *PanicError
	clients := status < 500 || errors.Is(err, ErrClientGone) || x.failed || ctx.stream.err != nil && !ctx.stream.ours ||
		ctx.clientGone && errors.Is(err, context.Canceled)
	busy := errors.Is(err, ErrBusy) // Stats counts the server's own; under overload a line for each is the last thing to write
	if errors.As(err, &panicError) || err == errGoexit || (clients || busy) && !x.server.LogAllErrors {
		return
	}
	var httpError *HTTPError
	if errors.As(err, &httpError) && (httpError.Status < 400 || httpError.Status > 599) {
		err = fmt.Errorf("filo: an HTTPError must have a status of 400 to 599, and is answered with %d: %w", status, err)
	}
	x.server.logger().Error("handler failed", "error", err, "status", status, "head sent", ctx.stream.sent,
		"method", ctx.Request.Method(), "path", ctx.Request.URI().Path(), "remote", fmt.Sprint(x.wire.remoteAddr()))
}

// logRefused logs a request that was refused before there was a handler to run: it isn't one.
func (x *exchange) logRefused(err *HTTPError) {
	if x.server.LogAllErrors {
		x.server.logger().Warn("request refused", "error", err, "remote", fmt.Sprint(x.wire.remoteAddr()))
	}
}

// logDropped logs the error of a handler that has taken the connection over: nothing answers it. Most such errors are those of a
// client that left. ErrHijacked is the program's own.
func (x *exchange) logDropped(ctx *Ctx, err error) {
	if err == nil {
		return
	}
	var panicError *PanicError
	if errors.As(err, &panicError) || !errors.Is(err, ErrHijacked) && !x.server.LogAllErrors {
		return
	}
	x.server.logger().Error("handler failed after it had taken the connection over", "error", err, "method", ctx.Request.Method(),
		"path", ctx.Request.URI().Path(), "remote", fmt.Sprint(x.wire.remoteAddr()))
}

// renderError calls the ErrorHandler; one that panics must not take the connection's worker with it. It reports false if
// it has panicked behind a head that it sent.
func (s *Server) renderError(ctx *Ctx, err error) (ok bool) {
	defer func() {
		if value := recover(); value != nil {
			logPanic(s.logger(), "panic in ErrorHandler", value, debug.Stack())
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
