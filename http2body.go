package filo

import (
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/running"
)

// This file has the bodies of HTTP/2 requests, as handlers read them. internal/http2conn buffers the bytes that have arrived.

// readBody implements wire.
func (s *http2Exchange) readBody(b *body, p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.isTooLarge():
		return 0, b.fail(errTooLarge)
	case s.scratch.ctx.timedOut():
		return 0, b.fail(ErrHandlerTimeout)
	}
	n, err := s.receive(b, p)
	if n > 0 && !b.chunked && int64(n) >= b.remaining {
		// These are the last bytes of the announced length. Further bytes would make the request malformed, so the read waits for the end of the
		// stream.
		_, err = s.receive(b, make([]byte, 1))
	}
	switch {
	case err == io.EOF && n == 0:
		return 0, s.bodyEnded(b)
	case err != nil && err != io.EOF:
		return 0, b.fail(bodyError(err))
	}
	if err := b.took(n); err != nil {
		return 0, err
	}
	if b.done {
		s.takeTrailer()
	}
	return n, nil
}

// receive copies bytes of the body that have arrived into p, or waits for some. If p is empty, it only waits. The error is io.EOF at the
// end.
func (s *http2Exchange) receive(b *body, p []byte) (n int, err error) {
	ctx, waits := s.scratch.ctx, false
	r := http2conn.Reading{Until: &ctx.readUntil, Pace: &s.ReadPace, Fills: true, Gathers: s.gathers(b)}
	r.BeforeWait = func(start clock.Time) error {
		if err := s.beforeWait(b); err != nil {
			return err
		}
		if !r.Gathers {
			s.server.bodies.BeginSilence(&ctx.room, s.Stream, start) // before mu is locked, since BeginSilence takes a lock that ranks before mu
		}
		s.scratch.running.Is(running.Reading)
		waits = true
		return nil
	}
	n, err = s.Read(p, &r)
	if waits {
		s.scratch.running.Is(ctx.runningState())
	}
	s.server.bodies.EndSilence(&ctx.room)
	return n, http2BodyError(err)
}

// http2BodyError turns an error of a stream into the error that the reader of its body gets.
func http2BodyError(err error) error {
	switch err {
	case http2conn.ErrNoRoom:
		return errBodiesFull
	case http2conn.ErrAnswered:
		return ErrHandlerTimeout
	case http2conn.ErrLate:
		return errDeadline
	}
	return err
}

// beforeWait prepares a wait for the body: it gives away the loop and the connection, for which other requests would wait, and sends the
// 100 (Continue) for which the client may wait.
func (s *http2Exchange) beforeWait(b *body) error {
	if err := s.leave(); err != nil {
		return err
	}
	ctx := s.scratch.ctx
	if err := ctx.holdAnswer(); err != nil {
		return err
	}
	defer ctx.releaseAnswer()
	if b.expect {
		b.expect = false
		if b.received == 0 && !ctx.stream.sent {
			return s.Inform(100, nil)
		}
	}
	return nil
}

// bodyEnded records that the handler has read all of the body.
func (s *http2Exchange) bodyEnded(b *body) error {
	s.takeTrailer()
	b.reachEnd()
	return io.EOF
}

// takeTrailer gives the request the trailer fields of its body.
func (s *http2Exchange) takeTrailer() {
	if trailer := s.Trailer(); trailer != nil {
		list := &s.scratch.ctx.Request.Trailer.list
		for i := range trailer.Len() {
			list.AddBytes(string(trailer.Name(i)), trailer.Value(i))
		}
	}
}

// lendBody implements wire: it lends a body that has arrived completely. It waits for the first byte, so that a handler holds no buffer
// while its client has only announced a body.
func (s *http2Exchange) lendBody(b *body) (whole []byte, ok bool, err error) {
	whole, ok, waits := s.Whole()
	if waits {
		if s.scratch.ctx.timedOut() {
			return nil, true, b.fail(ErrHandlerTimeout)
		}
		if _, err := s.receive(b, nil); err != nil && err != io.EOF {
			return nil, true, b.fail(bodyError(err))
		}
		whole, ok, _ = s.Whole()
	}
	if !ok {
		return nil, false, nil
	}
	if err := b.took(len(whole)); err != nil {
		return nil, true, err
	}
	b.reachEnd()
	s.takeTrailer()
	return whole, true, nil
}

// queuedBody implements wire.
func (s *http2Exchange) queuedBody() int64 { return s.QueuedBody() }

// overrunBody implements wire.
func (s *http2Exchange) overrunBody() bool { return s.OverrunBody() }

// http2Duplex reads a request's body concurrently with the handler, for package adaptor and DuplexReader: see hooks.Duplex.
type http2Duplex struct {
	http2conn.BodyReader
	stream *http2conn.Stream
	server *Server

	mu       sync.Mutex // one Read at a time
	limit    bodyLimit
	received int64
	err      error
}

// Read implements io.Reader.
func (d *http2Duplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	n, err := d.BodyReader.Read(p)
	switch err {
	case nil, io.EOF, http2conn.ErrBodyClosed:
		d.err = err
	case http2conn.ErrOver:
		d.err = errStreamOver
	default:
		d.err = bodyError(http2BodyError(err))
	}
	if d.received += int64(n); d.limit.isBelow(d.received) {
		n, d.err = 0, errTooLarge
	}
	return n, d.err
}

// SetReadDeadline is Ctx.SetReadDeadline for this reader alone: see DuplexReader.
func (d *http2Duplex) SetReadDeadline(t time.Time) error {
	d.stream.SetReadDeadline(d.server.clock.At(t))
	return nil
}

// Trailer implements hooks.Duplex.
func (d *http2Duplex) Trailer() iter.Seq2[[]byte, []byte] {
	if trailer := d.BodyReader.Trailer(); trailer != nil {
		return trailer.All()
	}
	return func(func(name, value []byte) bool) {}
}

// duplex returns a reader of the body for package adaptor: see hooks.Duplex. Afterwards the Ctx can't read the body.
func (c *Ctx) duplex() (hooks.Duplex, bool) {
	c.check()
	b := &c.Request.body
	s, ok := c.exchange.wire.(*http2Exchange)
	if !ok || s.Extended || b.err != nil || b.received > 0 || b.wholeRead || b.formRead || c.Request.replaced != nil || s.leave() != nil {
		return nil, false
	}
	d := &http2Duplex{BodyReader: s.Lend(b.expect), stream: s.Stream, server: s.server, limit: b.limit}
	if b.isTooLarge() {
		d.err = errTooLarge
	}
	b.fail(errBodyLent)
	return d, true
}

// errBodyLent is the error of reading the body from the Ctx after another reader has taken it: DuplexReader's, or that of package adaptor.
var errBodyLent = errors.New("filo: the body is read by the reader that has taken it")

// DuplexReader returns a reader of the body for protocols in which client and server send at the same time, such as gRPC. Any goroutine may
// use the reader, one at a time, while the handler, or another goroutine that has the Ctx, sends the answer with Ctx.Stream. The reader
// fails with the errors of BodyReader, and after the handler has returned. Ctx.SetReadDeadline applies to the reader, even to a Read that
// is waiting. The reader also has a method SetReadDeadline(time.Time) error, which any goroutine may call, even while another one uses the
// Ctx. Once DuplexReader has returned it, reads by Body, BodyReader and the like fail.
//
// If ok is false, nothing has changed. DuplexReader returns false over HTTP/1.1, where only the handler can read; if a part of the body was
// read before; after SetBodyReader; and if the request needs a worker's place but none is free.
func (r *Request) DuplexReader() (reader io.Reader, ok bool) {
	d, ok := r.ctx.duplex()
	if !ok {
		return nil, false
	}
	return d, true
}
