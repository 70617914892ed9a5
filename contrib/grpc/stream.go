package grpcfilo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// errOver is the error of a stream that is used after its handler has returned.
var errOver = status.Error(codes.Canceled, "grpc: the call is over")

// errBroken is the error of a call that has lost messages.
var errBroken = status.Error(codes.Internal, "grpc: a panic has ended the sending of messages")

// errHeadSent is the error if header metadata is set after the header was sent.
var errHeadSent = status.Error(codes.Internal, "grpc: the header has been sent")

// Context implements grpc.ServerStream.
func (k *call) Context() context.Context { return k.context }

// SetHeader implements grpc.ServerStream.
func (k *call) SetHeader(md metadata.MD) error { return k.setHeader(md, false) }

// SendHeader implements grpc.ServerStream.
func (k *call) SendHeader(md metadata.MD) error {
	defer k.tellHeader()
	return k.setHeader(md, true)
}

func (k *call) setHeader(md metadata.MD, send bool) error {
	if err := validate(md); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.c == nil:
		return errOver
	case k.headSent && (send || len(md) > 0):
		return errHeadSent
	}
	if len(md) > 0 {
		k.header = metadata.Join(k.header, md)
	}
	if !send {
		return nil
	}
	k.headLocked()
	return k.flushLocked()
}

// SetTrailer implements grpc.ServerStream. Metadata that is invalid is dropped.
func (k *call) SetTrailer(md metadata.MD) { k.setTrailer(md) }

func (k *call) setTrailer(md metadata.MD) error {
	if err := validate(md); err != nil || len(md) == 0 {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return errOver
	}
	k.trailer = metadata.Join(k.trailer, md)
	return nil
}

// transportStream is a call as the grpc.ServerTransportStream that functions such as grpc.SetHeader use.
type transportStream call

// Method implements grpc.ServerTransportStream.
func (t *transportStream) Method() string { return t.name }

// SetHeader implements grpc.ServerTransportStream.
func (t *transportStream) SetHeader(md metadata.MD) error { return (*call)(t).SetHeader(md) }

// SendHeader implements grpc.ServerTransportStream.
func (t *transportStream) SendHeader(md metadata.MD) error { return (*call)(t).SendHeader(md) }

// SetTrailer implements grpc.ServerTransportStream.
func (t *transportStream) SetTrailer(md metadata.MD) error { return (*call)(t).setTrailer(md) }

// headLocked sets the response's header fields, unless that was done before.
func (k *call) headLocked() {
	if k.headSent {
		return
	}
	k.headSent = true
	h := &k.c.Response.Header
	k.format.setContentType(h)
	if name := k.sentEncoding(); name != "" {
		h.Set("grpc-encoding", name)
	}
	for name, value := range metadataFields(k.header) {
		h.Add(name, value)
	}
}

// sentEncoding returns the name of the compressor for messages to the client, "" for none.
func (k *call) sentEncoding() string {
	if k.compressor == nil {
		return ""
	}
	return k.encodingName
}

// flushLocked sends the header and all written messages.
func (k *call) flushLocked() error {
	if k.stream == nil {
		k.stream = k.c.Stream()
	}
	if err := k.unloadLocked(); err != nil {
		return err
	}
	return k.stream.Flush()
}

// unloadLocked writes the gathered messages to the stream.
func (k *call) unloadLocked() error {
	if k.gathered == nil {
		return nil
	}
	defer k.dropGatheredLocked()
	return k.gathered.Flush()
}

// dropGatheredLocked returns the buffer of the gathered messages to the pool.
func (k *call) dropGatheredLocked() {
	if w := k.gathered; w != nil {
		k.gathered = nil
		w.Reset(nil)
		gatherers.Put(w)
	}
}

// gatherers is the pool of buffers for gathered messages.
var gatherers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, gatherSize) }}

// gatherSize is how many bytes gather before they are sent.
const gatherSize = 16 << 10

// SendMsg implements grpc.ServerStream.
func (k *call) SendMsg(v any) error {
	m, err := encode(k.codec, v, k.compressor, k.services.options.MaxSendMsgSize)
	if err != nil {
		return err
	}
	defer m.free()
	if err := k.send(&m); err == errOver || err == errBroken {
		return err
	} else if err != nil {
		return status.Errorf(codes.Canceled, "grpc: the client takes no more: %v", err)
	}
	k.tellHeader()
	k.tellSent(v, &m)
	return nil
}

// send writes a message. If the method streams its messages, send sends them at once or gathers them; otherwise they are sent with the status.
func (k *call) send(m *message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return errOver
	}
	if k.broken {
		return errBroken
	}
	k.headLocked()
	if !k.ServerStreams {
		return k.writeLocked(k.bodyLocked(), m)
	}
	if k.stream == nil {
		k.stream = k.c.Stream()
	}
	if k.gathersLocked() {
		return k.gatherLocked(m)
	}
	if err := k.unloadLocked(); err != nil {
		return err
	}
	if err := k.writeLocked(k.stream, m); err != nil {
		return err
	}
	return k.stream.Flush()
}

// gatherTime is how long a message may wait for further messages, to be sent together with them. It is about the time that sending costs both
// sides.
const gatherTime = 200 * time.Microsecond

// gathersLocked reports whether a message should wait for further messages, to be sent together with them. It should if another message was
// sent a moment ago, and the client probably doesn't wait for this message.
func (k *call) gathersLocked() bool {
	if k.answers.Swap(false) {
		return false
	}
	if k.gathered != nil {
		return true
	}
	now := time.Now()
	if now.Sub(k.flushed) < gatherTime {
		return true
	}
	k.flushed = now
	return false
}

// gatherLocked adds a message to the gathered messages. These are sent when gatherTime has passed, when the handler waits for the client, or when
// they reach gatherSize.
func (k *call) gatherLocked(m *message) error {
	before := 0
	if k.gathered == nil {
		k.gathered = gatherers.Get().(*bufio.Writer)
		k.gathered.Reset(k.stream)
	} else {
		before = k.gathered.Buffered()
	}
	if err := k.writeLocked(k.gathered, m); err != nil {
		k.dropGatheredLocked()
		return err
	}
	switch {
	case before > 0 && k.gathered.Buffered() > before:
	case k.timer == nil:
		k.timer = time.AfterFunc(gatherTime, k.flushGathered)
	default:
		k.timer.Reset(gatherTime)
	}
	return nil
}

// flushGathered sends the gathered messages. If that fails, the next SendMsg returns the error. The timer calls flushGathered on a goroutine where
// nobody else recovers a panic, such as one of middleware that changes bodies.
func (k *call) flushGathered() {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() {
		if value := recover(); value != nil {
			if err, ok := value.(error); !ok || !errors.Is(err, filo.ErrAbort) {
				cmp.Or(k.c.Server().Logger, slog.Default()).Error("panic while sending", "value", fmt.Sprint(value), "stack", string(debug.Stack()), "remote", fmt.Sprint(k.c.RemoteAddr()))
			}
			k.broken = true
		}
	}()
	k.flushGatheredLocked()
}

func (k *call) flushGatheredLocked() {
	if k.gathered != nil && k.c != nil {
		k.flushed = time.Now()
		k.flushLocked()
	}
}

// hurry makes the timer's goroutine send the gathered messages at once. RecvMsg must not send them itself: some clients read messages only after
// all of their own messages have been received, so waiting for such a client would be a deadlock. For the same reason RecvMsg must not wait for
// mu, which another goroutine of the handler may hold while its SendMsg waits for the client.
func (k *call) hurry() {
	if !k.mu.TryLock() {
		return // the timer will send messages that the holder of mu gathers
	}
	defer k.mu.Unlock()
	if k.gathered != nil {
		k.timer.Reset(0)
	}
}

// RecvMsg implements grpc.ServerStream.
func (k *call) RecvMsg(v any) error {
	if k.in.source == nil {
		if err := k.beginReceiving(); err != nil {
			return k.receiveError(err)
		}
	}
	if k.ClientStreams && k.ServerStreams && k.in.ahead.Buffered() == 0 {
		k.hurry()
	}
	m, err := k.in.receive()
	if err == io.EOF && !k.ClientStreams && !k.in.received {
		err = status.Error(codes.Unimplemented, "grpc: the request has no message")
	}
	if err != nil {
		return k.receiveError(err)
	}
	defer m.free()
	k.in.received = true
	if err := m.decode(k.codec, v); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	k.tellReceived(v, &m)
	if k.ClientStreams {
		k.answers.Store(k.in.ahead.Buffered() == 0)
		return nil
	}
	switch m, err := k.in.receive(); err {
	case io.EOF:
		return nil
	case nil:
		m.free()
		return status.Error(codes.Unimplemented, "grpc: the request has more than one message")
	default:
		return k.receiveError(err)
	}
}

// receiveError turns an error of reading the request's body into the error of RecvMsg.
func (k *call) receiveError(err error) error {
	var problem *filo.HTTPError
	switch {
	case err == io.EOF:
		return err
	case errors.As(err, &problem) && problem.Status == 400: // the client has reset the stream, or left
		return status.Error(codes.Canceled, "grpc: the client has cancelled the call")
	case errors.As(err, &problem) && problem.Status == 413:
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d)", k.services.options.MaxRecvMsgSize)
	}
	return statusOf(k.context, err).Err()
}

// idleTime is how long a client of a stream may be silent if nothing else limits it: practically forever.
const idleTime = 100 * 365 * 24 * time.Hour

// readAhead is the size of the buffer for a client's stream: enough for a few small messages. It is small, since each idle stream keeps one.
const readAhead = 512

// beginReceiving prepares the request's body for reading.
func (k *call) beginReceiving() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, limit := k.c, k.services.options.MaxRecvMsgSize
	if c == nil {
		return errOver
	}
	if k.format.text {
		c.Request.SetBodyReader(&textReader{source: c.BodyReader()})
	}
	k.in.encodingName, k.in.limit, k.in.plain = k.encodingName, limit, k.codec == protobuf
	if !k.ClientStreams {
		c.SetMaxBodyBytes(k.format.wireSize(prefixSize + limit))
		body, err := c.Body()
		k.in.body = body
		k.in.whole.Reset(body)
		k.in.source = &k.in.whole
		return err
	}
	c.SetMaxBodyBytes(-1)
	until, ok := k.context.Deadline()
	if !ok {
		until = time.Now().Add(idleTime)
	}
	k.in.until, k.in.patience = until, cmp.Or(c.Server().ReadTimeout, filo.DefaultReadTimeout)
	if k.in.patience < 0 {
		k.in.patience = idleTime
	}
	if duplex, ok := c.Request.DuplexReader(); ok {
		k.in.from, k.in.mayIdle = duplex.(deadlineReader), true
	} else {
		// Nothing must be sent before the client has sent everything, so a method with a client stream alone may wait.
		k.in.from, k.in.mayIdle = &lockedReader{call: k}, k.ClientStreams && !k.ServerStreams
	}
	k.in.ahead = bufio.NewReaderSize(k.in.from, readAhead)
	k.in.source = k.in.ahead
	return k.in.from.SetReadDeadline(until)
}

// lockedReader reads a body over HTTP/1.1, where only the handler's goroutine may read. It holds mu while it waits, so nothing can be sent
// meanwhile, and the handler can't return. Hence it sends the gathered messages first, and the client of a bidirectional method may be silent
// for ReadTimeout only.
type lockedReader struct {
	*call
	until time.Time // the deadline of the next Read
}

// SetReadDeadline implements deadlineReader. It doesn't end a Read that waits.
func (r *lockedReader) SetReadDeadline(until time.Time) error {
	r.until = until
	return nil
}

// Read implements io.Reader.
func (r *lockedReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		return 0, errOver
	}
	r.flushGatheredLocked()
	if err := r.c.SetReadDeadline(r.until); err != nil {
		return 0, err
	}
	return r.c.BodyReader().Read(p)
}
