package grpcfilo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// call is a call of a method, and the grpc.ServerStream of its handler.
//
// Several goroutines of a handler may use the stream, even after the handler has returned. A Ctx may be used by only one goroutine at a time,
// and only until the handler returns. So mu guards the Ctx.
type call struct {
	*method
	format *format
	codec  codec
	// compressor compresses the messages to the client; nil if they are sent uncompressed. Immutable.
	compressor   encoding.Compressor
	encodingName string // the compression of the client's messages, as grpc-encoding names it; immutable
	own          callContext
	// context is the handler's context: &own, or a context that stats handlers have derived from it. Immutable once the handler runs.
	context context.Context
	in      receiver

	mu       sync.Mutex
	c        *filo.Ctx   // nil once the handler has returned; guarded by mu
	header   metadata.MD // to be sent before the first message; guarded by mu
	trailer  metadata.MD // to be sent with the status; guarded by mu
	headSent bool        // the header was sent, or is at least in the response; guarded by mu
	headTold bool        // the stats handlers were told of the header; guarded by mu
	// stream sends messages while the handler runs. It is nil while messages are collected in the response; guarded by mu.
	stream *filo.StreamWriter
	prefix [prefixSize]byte // of the message that is being sent; guarded by mu
	// flushed is when messages were last sent, except messages sent while answers was set. gathered holds messages that wait until more are
	// written or the timer fires; nil if there are none. Both are guarded by mu.
	flushed  time.Time
	gathered *bufio.Writer
	timer    *time.Timer // calls flushGathered; nil until needed; guarded by mu
	broken   bool        // flushGathered has panicked, so messages are lost; guarded by mu
	// answers says that the handler has received all messages that have arrived, so the client probably waits for the handler's next message.
	answers atomic.Bool
}

// serve is the filo.Handler of the method.
func (m *method) serve(c *filo.Ctx) error {
	f, ok := formatOf(c.Request.Header.GetBytes("Content-Type"))
	switch {
	case !ok || f.web && m.services.options.DisableWeb:
		return filo.Error(415, "a gRPC method needs the content type application/grpc")
	case !f.web && !strings.HasPrefix(c.Request.Proto(), "HTTP/2"):
		return filo.Error(505, "gRPC needs HTTP/2")
	}
	k := &call{method: m, format: f, c: c}
	defer k.detach()
	cancel, err := k.begin(c)
	defer cancel()
	if err != nil {
		k.finish(err)
		return nil
	}
	tell := k.tellBegin()
	if err = k.handle(); errors.Is(err, filo.ErrAbort) {
		tell(err)
		return filo.ErrAbort
	}
	tell(k.finish(err))
	return nil
}

// detach makes further uses of the stream fail, since the Ctx must not be used after the handler has returned.
func (k *call) detach() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c = nil
	k.dropGatheredLocked()
	if k.timer != nil {
		k.timer.Stop()
	}
}

// withCtx calls use with the Ctx. It reports false if the handler has returned.
func (k *call) withCtx(use func(*filo.Ctx)) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return false
	}
	use(k.c)
	return true
}

// begin reads the request's fields. The caller must call cancel when the call has ended.
func (k *call) begin(c *filo.Ctx) (cancel context.CancelFunc, err error) {
	h := &c.Request.Header
	fields, err := fieldsOf(c)
	k.encodingName = h.Get("grpc-encoding")
	ctx, cancel, timeoutErr := requestContext(c, h.GetBytes("grpc-timeout"))
	k.own = callContext{Context: ctx, call: k, fields: fields, remote: c.RemoteAddrPort(), tls: c.TLS()}
	k.context = &k.own
	if k.codec = codecOf(k.format.subtype); k.codec == nil {
		err = status.Errorf(codes.Unimplemented, "grpc: no codec is registered for %q", k.format.subtype)
	}
	if !isIdentity(k.encodingName) {
		if k.compressor = encoding.GetCompressor(k.encodingName); k.compressor == nil {
			err = unknownEncoding(k.encodingName)
			k.trailer = metadata.Pairs("grpc-accept-encoding", acceptedEncodings())
		}
	}
	if timeoutErr != nil {
		err = timeoutErr
	}
	return cancel, err
}

// requestContext returns the request's context, with the deadline that grpc-timeout requests.
func requestContext(c *filo.Ctx, timeout []byte) (ctx context.Context, cancel context.CancelFunc, err error) {
	if len(timeout) == 0 {
		return c.Context(), func() {}, nil
	}
	d, err := parseTimeout(string(timeout))
	if err != nil {
		return c.Context(), func() {}, status.Errorf(codes.Internal, "malformed grpc-timeout: %v", err)
	}
	if d <= 0 {
		err = status.FromContextError(context.DeadlineExceeded).Err()
	}
	deadline := time.Now().Add(d)
	c.SetDeadline(deadline)
	ctx = c.Context()
	if until, ok := ctx.Deadline(); ok && !until.After(deadline) {
		return ctx, func() {}, err
	}
	// SetDeadline had no effect: middleware has already asked for the end of the request's context, or has set another context.
	ctx, cancel = context.WithDeadline(ctx, deadline)
	return ctx, cancel, err
}

// timeoutUnits are the units of grpc-timeout.
var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// maxTimeout is the longest timeout of a call: a year. Longer timeouts are shortened to a year, since grpc-timeout allows eight digits of hours,
// which would overflow a time.Duration.
const maxTimeout = 365 * 24 * time.Hour

// parseTimeout parses the value of grpc-timeout: up to eight digits and a unit.
func parseTimeout(value string) (time.Duration, error) {
	last := len(value) - 1
	unit := timeoutUnits[value[last]]
	n, err := strconv.ParseUint(value[:last], 10, 32)
	if err != nil || unit == 0 || last > 8 {
		return 0, fmt.Errorf("%q isn't up to eight digits and a unit", value)
	}
	if time.Duration(n) > maxTimeout/unit {
		return maxTimeout, nil
	}
	return time.Duration(n) * unit, nil
}

// handle runs the handler with its interceptors, and turns a panic into an error.
func (k *call) handle() (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = k.panicked(value)
		}
	}()
	if k.ClientStreams && k.ServerStreams { // now, since beginReceiving locks mu, which a waiting SendMsg may hold later: see hurry
		if err := k.beginReceiving(); err != nil {
			return k.receiveError(err)
		}
	}
	if intercept := k.services.stream; intercept != nil && (k.ClientStreams || k.ServerStreams) {
		info := grpc.StreamServerInfo{FullMethod: k.name, IsClientStream: k.ClientStreams, IsServerStream: k.ServerStreams}
		return intercept(k.implementation, k, &info, k.Handler)
	}
	return k.Handler(k.implementation, k)
}

// panicked logs a panic of the handler, and returns the call's error.
func (k *call) panicked(value any) error {
	if err, ok := value.(error); ok && errors.Is(err, filo.ErrAbort) {
		return err
	}
	k.withCtx(func(c *filo.Ctx) {
		c.Logger().Error("panic in handler", "value", fmt.Sprint(value), "stack", string(debug.Stack()), "remote", fmt.Sprint(c.RemoteAddr()))
	})
	return status.Error(codes.Internal, "the handler panicked")
}
