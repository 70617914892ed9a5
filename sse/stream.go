package sse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/setup"
)

// DefaultHeartbeat is the default interval of heartbeats: comments that are sent if the client has received no event in the
// interval.
const DefaultHeartbeat = 15 * time.Second

// heartbeat is an empty comment. It is followed by an empty line for clients that split the stream at empty lines.
const heartbeat = ":\n\n"

// maxKeptBuffer is the size up to which a buffer for events is kept for the next event.
const maxKeptBuffer = 64 << 10

// Options configures a Stream.
type Options struct {
	// Heartbeat is the interval of heartbeats. A heartbeat is a comment, sent if there was no event since the last heartbeat was due. It keeps
	// proxies from closing the connection, and detects a client that has left. DefaultHeartbeat if 0; negative: never.
	Heartbeat time.Duration
	// Retry is how long the client waits before it reconnects. If 0, the client decides, usually some seconds.
	Retry time.Duration
}

// Stream sends events to one client while its handler runs: see Open. Several goroutines may call its methods at once.
type Stream struct {
	lastEventID string
	server      *filo.Server
	ctx         context.Context
	cancel      context.CancelCauseFunc
	ended       chan struct{} // closed when the method run has returned

	mu     sync.Mutex
	writer *filo.StreamWriter // guarded by mu
	buffer []byte             // guarded by mu
	sent   bool               // an event was sent since the last heartbeat was due; guarded by mu
	err    error              // why nothing can be sent any more; guarded by mu
}

// errHead is the error of sending to a client that has asked for the head only. It isn't worth a record in the log.
var errHead = fmt.Errorf("sse: the request is a HEAD: %w (%w)", filo.ErrBodyNotAllowed, filo.ErrAbort)

// errHeartbeat is the error of sending after code of the program, such as a layer around the body, has panicked or ended its goroutine during a
// heartbeat. A panic has its record in the log already.
var errHeartbeat = fmt.Errorf("sse: sending a heartbeat has failed: %w", filo.ErrAbort)

// errStreamClosed is the error of sending after Close.
var errStreamClosed = fmt.Errorf("sse: the stream was closed: %w", io.ErrClosedPipe)

// Open answers the request with a stream of events, and sends its head. The handler must call Close before it returns, usually by
// defer, and return nil when the stream's Context is done.
//
// The response has the status and the fields that the handler and its middleware have set. Open ignores the client's Accept field, because
// there is no other representation to offer. If your handler has another representation, use Ctx.Negotiate.
//
// The handler must have read the request's body, if it needs it, before it calls Open. From then on another goroutine sends heartbeats, and over
// HTTP/1.1 the handler must not read from a connection to which that goroutine writes.
//
// Open fails if the head can't be sent, or if a head was sent already.
func Open(c *filo.Ctx, options ...Options) (*Stream, error) {
	o := setup.One("sse: Open", options)
	if o.Retry < 0 {
		return nil, fmt.Errorf("sse: Options.Retry is negative: %v", o.Retry)
	}
	if c.Committed() {
		return nil, filo.ErrHeadSent
	}
	// From here on another goroutine writes as well, so the handler must no longer run on a loop.
	if err := inside.Offload(c); err != nil {
		return nil, err
	}
	setFields(c)
	s := &Stream{lastEventID: lastEventID(c), server: c.Server(), writer: c.Stream(), ended: make(chan struct{})}
	if o.Retry > 0 {
		s.buffer = append(appendRetry(s.buffer, o.Retry), '\n')
	}
	s.ctx, s.cancel = context.WithCancelCause(c.Context())
	if err := s.write(s.buffer); err != nil {
		s.cancel(err)
		return nil, err
	}
	if c.Method() == "HEAD" {
		s.err = errHead
		s.cancel(errHead)
		close(s.ended)
		return s, nil
	}
	go s.run(c.ShuttingDown(), o.Heartbeat)
	return s, nil
}

var (
	contentType  = filo.NewField("Content-Type", "text/event-stream")
	cacheControl = filo.NewField("Cache-Control", "no-store")
	noBuffering  = filo.NewField("X-Accel-Buffering", "no")
)

func setFields(c *filo.Ctx) {
	h := &c.Response.Header
	h.SetField(&contentType)
	h.SetField(&noBuffering)
	if !h.Has("Cache-Control") {
		h.SetField(&cacheControl)
	}
}

// lastEventID returns the ID of the last event that the client says it has received.
func lastEventID(c *filo.Ctx) string { return c.Request.Header.Get("Last-Event-ID") }

// LastEventID returns the id of the last event that the client has received on an earlier stream. The client chooses it: it may
// be any text. It is "" when the client connects for the first time.
func (s *Stream) LastEventID() string { return s.lastEventID }

// Context returns a context that is done when the handler should return. That is when the request's context is done because the
// client has left, when the server begins to shut down, when the client doesn't accept the bytes it is sent, when the request is
// a HEAD, and after Close. On shutdown the cause is filo.ErrServerClosed, and the handler may still send a last event.
//
// This context suits streams without an end, whose clients reconnect. A handler whose events have an end, such as a model's answer, should
// wait for Ctx.Context instead. That context lasts until Shutdown gives up waiting, so the handler can complete the stream. A handler that
// ends before its stream is complete must return an error, such as context.Cause of the context: then the connection is aborted. If the
// handler returned nil, the client would mistake the stream for a complete one.
func (s *Stream) Context() context.Context { return s.ctx }

// Send sends an event at once. If the client doesn't accept it at once, Send waits, within the server's WriteTimeout and MinTransferRate.
// The error wraps ErrInvalidEvent for an event that can't be sent. Any other error means that the stream has failed, and the handler should
// return it.
func (s *Stream) Send(e Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	var err error
	if s.buffer, err = e.AppendTo(s.buffer[:0]); err != nil {
		return err
	}
	s.sent = true
	err = s.write(s.buffer)
	if cap(s.buffer) > maxKeptBuffer {
		s.buffer = nil
	}
	return s.fail(err)
}

// Close ends the stream, and waits until nothing uses the request any more. Further calls do nothing.
func (s *Stream) Close() error {
	s.cancel(errStreamClosed)
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = errStreamClosed
	}
	return nil
}

func (s *Stream) write(b []byte) error {
	if _, err := s.writer.Write(b); err != nil {
		return err
	}
	return s.writer.Flush()
}

// fail records an error of the connection. The caller holds mu.
func (s *Stream) fail(err error) error {
	if err != nil {
		s.err = err
		s.cancel(err)
	}
	return err
}

// run sends heartbeats, and ends the stream's context when the server shuts down.
func (s *Stream) run(shuttingDown <-chan struct{}, interval time.Duration) {
	defer close(s.ended)
	interval = cmp.Or(interval, DefaultHeartbeat)
	var due <-chan time.Time
	if interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-shuttingDown:
			s.cancel(filo.ErrServerClosed)
			return
		case <-due:
			s.beat()
		}
	}
}

// beat sends a heartbeat, unless an event was sent since the last heartbeat was due, or is being sent. A panic of a layer around the body ends
// the stream, and not the process: nobody else recovers panics on this goroutine.
func (s *Stream) beat() {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover() // nil after a Goexit
		if err, ok := value.(error); value != nil && !(ok && errors.Is(err, filo.ErrAbort)) {
			logPanic(s.server, "sse: panic while a heartbeat was sent", value)
		}
		s.fail(errHeartbeat)
	}()
	if s.err == nil && !s.sent {
		s.fail(s.write([]byte(heartbeat)))
	}
	s.sent = false
	returned = true
}
