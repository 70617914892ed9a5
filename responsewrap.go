package filo

import (
	"bytes"
	"io"
	"runtime/debug"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
)

// WrapBody wraps the writer of the response body, for middleware that compresses or counts bodies, for example. Call it before the handler
// that writes the body. If several middlewares call it, the bytes pass through the innermost middleware's wrapper first.
//
// The server calls wrap just before it renders the response's head, with the writer of the body and the body's size: the size of a complete
// body, the announced length of a streamed one, or -1 if unknown. The function may still change status and fields. It returns nil to leave
// the body as it is.
//
// If the returned writer has a method Flush() error, StreamWriter.Flush calls it. The server calls Close once, even for a body that was
// broken off; in that case Close can't write any more. The body of an answer to HEAD is wrapped like GET's, but not sent.
//
// No bytes pass through a wrapper when the handler parks or upgrades the connection (Park, ParkStream and Upgrade), or uses Ctx.Stream to
// send the head of a response that can have no body. wrap is still called in these cases, with the size -1, since it may have to add a
// field. If it returns a writer, that writer is closed without having been used, and the fields and the status are what they were before
// the call. A whole response that can have no body isn't wrapped.
func (r *Response) WrapBody(wrap func(c *Ctx, body io.Writer, size int64) io.WriteCloser) {
	r.ctx.check()
	r.wraps = append(r.wraps, wrap)
}

// WholeBody returns the body, borrowed, if it is complete in memory and no part of it was sent. Middleware that calls it after
// the inner handler has returned can inspect the body and set another. WholeBody returns false if a streamed body was sent in part or
// has a trailer, if the body comes from a reader, and after a Hijack or a timeout.
func (r *Response) WholeBody() ([]byte, bool) {
	c := r.ctx
	c.check()
	w := &c.stream
	switch {
	case c.exchange.hijacked, w.sent, r.source == bodyStream, c.timedOut():
		return nil, false
	case w.open && r.Trailer.Len() > 0 && c.Request.line.Minor > 0:
		return nil, false // only chunks can carry the trailer
	case w.open:
		r.endStream(w)
	}
	return r.bodyBytes(), true
}

// endStream turns a stream, if nothing of it was sent, into the response's whole body.
func (r *Response) endStream(w *StreamWriter) {
	w.open = false
	r.buffer = append(r.buffer[:0], w.buffer...)
	w.buffer, w.written = w.buffer[:0], 0
}

// wrap calls the functions given to WrapBody for a body that streams. It reports whether one of them has wrapped it.
func (w *StreamWriter) wrap() bool {
	switch r := &w.ctx.Response; {
	case len(r.wraps) == 0:
	case http1.BodyAllowed(r.status):
		w.wrapped = true
		w.addLayers(bodySink{w}, w.length)
	default:
		r.announceHead()
		r.forgetWraps()
	}
	return len(w.layers) > 0
}

// announceHead calls the functions given to WrapBody for a head whose body they can't wrap, so that they can add fields. If a function
// wraps the body all the same, announceHead undoes its changes, which describe a body that isn't sent. The functions stay registered, since
// the head may turn out not to be sent.
func (r *Response) announceHead() {
	for _, wrap := range r.wraps {
		var before field.List
		before.CopyFrom(&r.Header.list)
		status := r.status
		if layer := wrap(r.ctx, bodySink{&r.ctx.stream}, noLength); layer != nil {
			r.Header.list, r.status = before, status
			r.ctx.exchange.guard(layer.Close)
		}
	}
}

// addLayers calls the functions given to WrapBody, and forgets them.
func (w *StreamWriter) addLayers(sink io.Writer, size int64) {
	r := &w.ctx.Response
	defer r.forgetWraps()
	for _, wrap := range r.wraps {
		if layer := wrap(w.ctx, sink, size); layer != nil {
			w.layers = append(w.layers, layer) // stored at once, since the next wrap may panic
			sink = layer
		}
	}
}

func (r *Response) forgetWraps() {
	clear(r.wraps)
	r.wraps = r.wraps[:0]
}

// bodySink is the writer to which the outermost layer writes.
type bodySink struct{ stream *StreamWriter }

func (s bodySink) Write(p []byte) (int, error) {
	w := s.stream
	if !w.wrapped {
		return 0, io.ErrClosedPipe // the answer has ended
	}
	if err := w.put(p, w.kept >= streamBufferSize); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *StreamWriter) writeLayers(data []byte) error {
	if len(data) == 0 || w.discard {
		return nil
	}
	w.inLayer = true
	_, err := w.layers[len(w.layers)-1].Write(data)
	w.inLayer = false
	return w.layered(err)
}

// flushLayers flushes the layers that have a method Flush, from the inside out.
func (w *StreamWriter) flushLayers() error {
	for i := len(w.layers) - 1; i >= 0 && !w.discard; i-- {
		if layer, ok := w.layers[i].(interface{ Flush() error }); ok {
			w.inLayer = true
			err := layer.Flush()
			w.inLayer = false
			if err != nil {
				return w.layered(err)
			}
		}
	}
	return nil
}

// closeLayers closes the layers, from the inside out, and so ends the body.
func (w *StreamWriter) closeLayers() error {
	for len(w.layers) > 0 {
		last := len(w.layers) - 1
		layer := w.layers[last]
		w.layers = w.layers[:last] // before the call: it may panic
		if err := layer.Close(); err != nil {
			return w.layered(err)
		}
	}
	return nil
}

// layered makes a layer's error the stream's error, since the rest of the body can't be produced any more.
func (w *StreamWriter) layered(err error) error {
	if w.err == nil && err != nil {
		w.err, w.ours = err, true
	}
	return err
}

// dropLayers closes the layers of a body that was broken off.
func (c *Ctx) dropLayers(layers []io.WriteCloser) {
	for i := len(layers) - 1; i >= 0; i-- {
		c.exchange.guard(layers[i].Close)
	}
}

// wrapWhole sends a body that is in memory through the functions given to WrapBody.
func (r *Response) wrapWhole() error {
	c := r.ctx
	w := &c.stream
	body := r.bodyBytes()
	switch {
	case len(r.wraps) == 0 || !http1.BodyAllowed(r.status):
		return nil
	case len(body) == 0 && c.Request.isHead() && r.declaredLength() >= 0:
		return nil // the handler has announced the length of GET's body without producing the body
	}
	var wrapped bytes.Buffer
	w.ctx, w.used = c, true
	w.addLayers(&wrapped, int64(len(body)))
	if len(w.layers) == 0 {
		return nil
	}
	if err := w.writeLayers(body); err != nil {
		return err
	}
	if err := w.closeLayers(); err != nil {
		return err
	}
	r.Header.list.DelID(field.ContentLength)
	r.resetBody()
	r.buffer = wrapped.Bytes() // counts as rendered for this client alone, like a copied body
	return nil
}

// guard calls user code, and turns its panic into an error.
func (x *exchange) guard(f func() error) error {
	panicked, err := protect(f)
	if panicked != nil {
		return x.panicked(panicked)
	}
	return err
}

// protect calls f and returns its panic, if it panics. After a Goexit protect doesn't return. (recover can't tell a Goexit from a
// panic(nil) with GODEBUG=panicnil=1.)
func protect(f func() error) (panicked *PanicError, err error) {
	returned := false
	defer func() {
		if !returned {
			panicked = &PanicError{Value: recover(), Stack: debug.Stack()}
		}
	}()
	err = f()
	returned = true
	return nil, err
}

// takeEncoder counts n bytes for the encoder of a stream: see inside.TakeEncoder.
func (s *Server) takeEncoder(n int64, must bool) bool {
	if must && s.encoders.Used() < 2*s.encoders.Limit() {
		s.encoders.Add(n)
		return true
	}
	return s.encoders.Take(n)
}
