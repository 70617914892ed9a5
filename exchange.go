package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/filepart"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/sock"
	"github.com/filohttp/filo/internal/syntax"
)

// exchange is one request and its answer, in any protocol: the server, the worker, the wire to the client, and the progress of the
// answer. A Ctx points to one.
//
// The fields belong to the goroutine that runs the handler.
type exchange struct {
	server   *Server              // immutable
	tlsState *tls.ConnectionState // the result of the TLS handshake, nil without TLS
	wire     wire                 // the protocol, for calls that a running handler makes
	scratch  *scratch             // the buffers of the worker that runs the handler
	// answered counts the answers by status class, together with other exchanges: see connSet.answered.
	answered *answerCounts

	hijacked bool // a handler has taken the connection over: nothing is answered
	failed   bool // a write has failed: nothing more is written
	lost     bool // the client of the current request can't be reached any more
}

// wire is the interface through which a running handler uses the protocol: to read the body, and to send before the handler returns. A
// whole answer doesn't go through wire: the protocol renders it when the handler has returned.
//
// Unless said otherwise, the methods are called on the handler's goroutine, and keep no slice that they are given.
type wire interface {
	// localAddr and remoteAddr return the addresses of the connection's ends.
	localAddr() net.Addr
	remoteAddr() net.Addr
	// remote returns the client's address, invalid if the connection isn't an IP connection.
	remote() netip.AddrPort
	// proxyHeader returns the connection's header of the PROXY protocol, nil if it has none.
	proxyHeader() *proxyproto.Header
	// outerContext returns the parent of the requests' contexts, or nil: their values come from it, and they end with it. The result carried
	// says that another server received the request; that server ends the context when the client leaves.
	outerContext() (outer context.Context, carried bool)
	// deadlineSet is called when the handler has set a deadline: see Ctx.readUntil and writeUntil.
	deadlineSet(t time.Time, write bool) error

	// readBody is io.Reader's Read for the request's body. Before it waits for the client, it gives the loop away.
	readBody(b *body, p []byte) (int, error)
	// lendBody returns the whole body, borrowed until the handler returns. No part of it may have been read before. ok is false if
	// the caller has to read the body into a buffer.
	lendBody(b *body) (whole []byte, ok bool, err error)
	// queuedBody returns how many bytes of the body wait for the handler, and count against MaxBufferedBodies.
	queuedBody() int64
	// overrunBody is called when there is no room for the body. It reports false if this refusal has already been counted.
	overrunBody() bool

	// giveWay and queueUp first send the answers to earlier requests. If sending fails, they return its error.
	admitter
	// inform sends an interim answer.
	inform(status int, h *Header) error
	// head begins a streamed answer whose body has this length, or noLength if the length is unknown. It need not send anything yet.
	head(ctx *Ctx, length int64)
	// data sends a part of the body, which may be empty. If flush is false, it may copy up to copiedBody bytes and send them later.
	data(p []byte, flush bool) error
	// endStream completes a streamed answer.
	endStream(trailer *Header)

	// prepareHijack makes sure that the method hijack can take the connection over. If it fails, the request can still be answered. The caller
	// passes the result, which may be nil, to hijack, or closes it. The argument switches says that switchProtocols will be called before
	// hijack.
	prepareHijack(switches bool) (prepared net.Conn, err error)
	// switchProtocols renders a 101 with these fields, or the protocol's equivalent, to be sent by hijack.
	switchProtocols(h *Header)
	// hijack gives the caller the connection and the bytes received after the request, and sets hijacked.
	hijack(prepared net.Conn) (taken net.Conn, buffered []byte, err error)

	// answerApart sends the time-out's answer instead of the handler's: nothing else is sent for the request. It may be called on a timer's
	// goroutine. At the same time the handler may read, but it doesn't write. The fields are borrowed. The result size is the size of the
	// body.
	answerApart(e *HTTPError, fields *field.List, head bool) (size int64, err error)
}

// fileWire is a wire that can send files by sendfile.
type fileWire interface {
	// fileSender returns a sender for the part, or nil if the connection can't send it. If stays is set, the worker keeps its loop, and the
	// head must not be flushed. Otherwise, unless the head was sent before, fileSender has given the loop away, since the system may have to
	// read the file from a disk.
	fileSender(p filepart.Part, size int64, headSent bool) (sender sock.FileSender, stays bool, err error)
	// sendFile sends size bytes from the offset on, after the head. The result sent includes bytes that were sent before an error. The
	// argument stream is the response's body if the handler has returned, and nil if not. The result kept says that the protocol sends the
	// rest later, and closes the stream afterwards.
	sendFile(sender sock.FileSender, offset, size int64, stream io.Reader) (sent int64, kept bool, err error)
}

// windowWire is a wire with flow control: the client announces how much content it takes. While the window is closed, the server doesn't
// read or produce content.
type windowWire interface {
	// window returns how many more bytes of content the client takes now.
	window() int
	// awaitWindow waits until the client takes more, and returns how much. The handler holds no buffer during the wait.
	awaitWindow() (n int, err error)
}

// watchWire is a wire whose client can be watched while a handler runs.
type watchWire interface {
	// mayWatch reports whether the client can be watched from now until EndWatch: nothing else reads the connection.
	mayWatch(b *body) bool
	requestctx.Watcher
}

// ending is how a handler's run has ended.
type ending uint8

const (
	endingWhole    ending = iota // the answer is in Ctx.Response, to be rendered
	endingStreamed               // the answer was streamed, up to its end
	endingAborted                // there is no answer, or only a part that the client must not take for the whole
	endingTimedOut               // the handler's timeout has answered
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

// count counts an answer.
func (x *exchange) count(status int) {
	x.answered[status/100].Add(1)
}

// invoke calls the handler and turns a panic into an error. If the handler ends its goroutine (runtime.Goexit, as testing's FailNow
// does), invoke doesn't return, and a deferred function of the caller calls exited.
func (x *exchange) invoke(ctx *Ctx) error {
	panicked, err := protect(func() error { return x.call(ctx) })
	if panicked != nil {
		return x.panicked(panicked)
	}
	return err
}

// exited does the work of finish for a handler that is ending its goroutine.
func (x *exchange) exited(ctx *Ctx) ending {
	x.server.logger().Error("the handler ended its goroutine", "method", ctx.loggedMethod(), "path", ctx.loggedPath())
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
	ctx := x.scratch.ctx
	logPanic(x.server.logger(), "panic in handler", err.Value, err.Stack, "method", ctx.loggedMethod(),
		"path", ctx.loggedPath(), "remote", fmt.Sprint(x.wire.remoteAddr()))
	return err
}

// finish completes the answer after the handler has returned err. It doesn't render a whole answer: the protocol does. After finish, no
// user code runs for the answer, except the Close methods that Ctx.end calls.
func (x *exchange) finish(ctx *Ctx, err error) (e ending) {
	if x.hijacked {
		x.logDropped(ctx, err)
		return endingTaken
	}
	ctx.claimed, ctx.returned = true, true
	ctx.readUntil, ctx.writeUntil = 0, 0
	if err != nil || ctx.Response.source != bodyStream {
		ctx.stopWatch() // not if a body stream is still to be sent, since its reader may depend on the context
	}
	if ctx.timeout != nil && x.endTimeout(ctx, err) {
		ctx.stopWatch()
		x.finishTimedOut(ctx, err)
		return endingTimedOut
	}
	if e = x.finishAnswer(ctx, err); e == endingWhole {
		ctx.endBodyEarly()
	}
	ctx.stopWatch() // user code may have asked for the context once more
	return e
}

// abandonedError is a handler's error that isn't sent, since the client has left.
type abandonedError struct {
	error
	clients bool // the error only says that the client has left
}

// Unwrap returns the handler's error, ErrAbort, and ErrClientGone if clients is set.
func (e *abandonedError) Unwrap() []error {
	if e.clients {
		return []error{e.error, ErrAbort, ErrClientGone}
	}
	return []error{e.error, ErrAbort}
}

// abandon checks whether the client left before a head was sent. If so, it returns an error that wraps the handler's error and ErrAbort.
// Most errors of such handlers only say that the context has ended; abandon logs all other errors. An error with a status below 500 is still
// sent: a client that has closed only its sending side in the middle of a body can still read that answer.
func (x *exchange) abandon(ctx *Ctx, err error) error {
	if err == nil || ctx.rendered || ctx.stream.sent || errors.Is(err, ErrAbort) || !x.hasLeft(ctx, err) {
		return err
	}
	left, status := errors.Is(err, context.Canceled) || errors.Is(err, ErrClientGone), statusOf(err).Status
	if !left && status < 500 {
		return err
	}
	ctx.clientGone, ctx.abandoned = true, true
	x.logError(ctx, err, status)
	return &abandonedError{err, left}
}

// hasLeft reports whether the context of a request whose handler returns err has ended because the client left. Without a context, err
// decides.
func (x *exchange) hasLeft(ctx *Ctx, err error) bool {
	if r := ctx.context; r != nil && r.EndedBy() == ErrClientGone {
		return true
	}
	return ctx.clientGone || x.lost && errors.Is(err, ErrClientGone)
}

func (x *exchange) finishAnswer(ctx *Ctx, err error) ending {
	err = x.abandon(ctx, err)
	if err != nil && (errors.Is(err, ErrAbort) || !ctx.rendered && !x.renderError(ctx, err)) {
		return endingAborted
	}
	e, err := x.complete(ctx)
	ctx.stopWatch()
	if err != nil && x.renderError(ctx, err) {
		e, err = x.complete(ctx) // now the ErrorHandler's answer
	}
	if err != nil {
		return endingAborted
	}
	x.count(ctx.Response.status)
	return e
}

// complete prepares a whole answer for rendering, or sends the rest of a streamed one. An error means that the answer can't be
// completed.
func (x *exchange) complete(ctx *Ctx) (e ending, err error) {
	if !ctx.stream.sent {
		if err := ctx.maySucceed(); err != nil {
			return endingAborted, err
		}
	}
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

// renderError makes the ErrorHandler turn err into a response. It reports false if a head was sent, so that no response is possible, or if
// err is ErrAbort.
func (x *exchange) renderError(ctx *Ctx, err error) bool {
	if errors.Is(err, ErrAbort) {
		return false
	}
	status := statusOf(err).Status
	if ctx.stream.sent {
		x.logError(ctx, err, status)
		return false
	}
	ctx.stream.reset()
	ctx.Response.Header.dropContent(status)
	ctx.Response.Trailer.dropContent(status)
	if x.refusedBusy(err) {
		// The connection stays open: reconnecting would cost both sides more than this answer does.
		ctx.Response.Header.Set("Retry-After", retryAfterSeconds)
	} else if errors.Is(err, errBodiesFull) {
		ctx.Response.Header.Set("Retry-After", retryAfterSeconds) // the refusal was counted when there was no room
	}
	ok := x.server.renderError(ctx, err)
	// The record has the status of the response: only the ErrorHandler knows what the program's own errors mean.
	x.logError(ctx, err, ctx.Response.status)
	return ok
}

// logError logs a handler's error that was answered with status, unless the client has caused it. The record of an abandoned error has the
// status 0. Panics and handlers that ended their goroutine have been logged before.
func (x *exchange) logError(ctx *Ctx, err error, status int) {
	var panicError *PanicError
	clients := status < 500 || errors.Is(err, ErrClientGone) || x.failed || ctx.stream.err != nil && !ctx.stream.ours ||
		ctx.clientGone && errors.Is(err, context.Canceled)
	clients = clients || errors.Is(err, errNotSwitched)
	busy := errors.Is(err, ErrBusy) // Stats counts the server's own refusals; logging each one would add to the overload
	if errors.As(err, &panicError) || err == errGoexit || (clients || busy) && !x.server.LogAllErrors {
		return
	}
	if ctx.abandoned {
		status = 0
	}
	var httpError *HTTPError
	if errors.As(err, &httpError) && (httpError.Status < 400 || httpError.Status > 599) {
		err = fmt.Errorf("filo: an HTTPError must have a status of 400 to 599, and is answered with %d: %w", status, err)
	}
	x.server.logger().Error("handler failed", "error", syntax.LoggedError(err), "status", status, "head sent", ctx.stream.sent,
		"method", ctx.loggedMethod(), "path", ctx.loggedPath(), "remote", fmt.Sprint(x.wire.remoteAddr()))
}

// logRefused logs a request that was refused without calling its handler, since the request isn't valid.
func (x *exchange) logRefused(err *HTTPError) {
	if x.server.LogAllErrors {
		x.server.logger().Warn("request refused", "error", err, "remote", fmt.Sprint(x.wire.remoteAddr()))
	}
}

// logDropped logs the error of a handler that has taken the connection over, since no answer can report it. Unless LogAllErrors is set,
// only ErrHijacked is logged, since it is a mistake of the program; most other errors only say that the client has left.
func (x *exchange) logDropped(ctx *Ctx, err error) {
	if err == nil {
		return
	}
	var panicError *PanicError
	if errors.As(err, &panicError) || !errors.Is(err, ErrHijacked) && !x.server.LogAllErrors {
		return
	}
	x.server.logger().Error("handler failed after it had taken the connection over", "error", syntax.LoggedError(err), "method", ctx.loggedMethod(),
		"path", ctx.loggedPath(), "remote", fmt.Sprint(x.wire.remoteAddr()))
}

// renderError calls the ErrorHandler. If the ErrorHandler panics, DefaultErrorHandler takes its place, so that the connection's worker
// survives. renderError reports false if the ErrorHandler panicked after it had sent a head.
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
