package filo

import (
	"errors"
	"fmt"
	"io"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/filepart"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/running"
)

// streamBufferSize is how many bytes of a stream are buffered before they are sent.
const streamBufferSize = 8 << 10

// StreamWriter sends a response body while the handler runs: see Ctx.Stream. It is valid until the handler returns.
type StreamWriter struct {
	ctx     *Ctx
	used    bool
	open    bool
	sent    bool  // the head has been passed to the wire
	discard bool  // no body is sent: an answer to HEAD, 204, 304
	length  int64 // the announced Content-Length, or noLength
	written int64
	kept    int // bytes of the body that the wire may have buffered since the last flush
	buffer  []byte
	err     error            // the error of the connection, or of a layer
	ours    bool             // a layer has returned err
	layers  []io.WriteCloser // around the writer of the body, the outermost first: see Response.WrapBody
	wrapped bool             // layers may write
	inLayer bool             // a call of a layer's Write or Flush hasn't returned: it is running, or has panicked
}

// errStreamOver is the error of a write after the handler has returned.
var errStreamOver = fmt.Errorf("filo: write to a response whose handler has returned: %w", io.ErrClosedPipe)

// Stream returns a writer of the response body. The server sends the head at the first Flush, or once 8 KB are buffered; after that, status
// and header fields can't be changed. The body must have the Content-Length that the handler has set, if any. Without Content-Length the
// body is sent in chunks, or to an HTTP/1.0 client until the connection closes. If nothing was sent when the handler returns, the body is
// sent with its length, like any other.
//
// If the handler returns an error after the head was sent, or has written less than its Content-Length, the server cuts the
// connection, so that the client doesn't mistake the body for complete.
func (c *Ctx) Stream() *StreamWriter {
	c.check()
	w := &c.stream
	if !w.open {
		if race.Enabled {
			c.warnReplaced(keptStatus)
		}
		c.Response.resetBody()
		w.ctx, w.used, w.open = c, true, true
		w.length = noLength
	}
	return w
}

func (w *StreamWriter) reset() {
	buffer := w.buffer
	if cap(buffer) > 2*streamBufferSize {
		buffer = nil
	}
	ctx, layers := w.ctx, w.layers
	*w = StreamWriter{buffer: buffer[:0]}
	ctx.dropLayers(layers)
}

// Write adds p to the body, and sends the buffered bytes once there are 8 KB or more. The error is ErrContentLength for more bytes than
// announced, ErrBodyNotAllowed if the response can have no body, or the error of the connection.
func (w *StreamWriter) Write(p []byte) (int, error) {
	if err := w.admit(len(p)); err != nil {
		return 0, err
	}
	if len(w.buffer)+len(p) < streamBufferSize || w.discard {
		if !w.discard {
			w.buffer = append(w.buffer, p...)
		}
		return len(p), nil
	}
	if len(p) < streamBufferSize/2 {
		w.buffer = append(w.buffer, p...)
		return len(p), w.emitGathered(true)
	}
	if len(w.buffer) > 0 || !w.sent {
		if err := w.emitGathered(true); err != nil {
			return 0, err
		}
	}
	if err := w.emit(p, true); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString is like Write, for a string.
func (w *StreamWriter) WriteString(s string) (int, error) {
	if err := w.admit(0); err != nil {
		return 0, err
	}
	if len(w.buffer)+len(s) >= streamBufferSize || w.discard {
		return w.Write([]byte(s))
	}
	if err := w.admit(len(s)); err != nil {
		return 0, err
	}
	w.buffer = append(w.buffer, s...)
	return len(s), nil
}

// Flush sends the buffered bytes, after the head. An error means that the client has gone or doesn't read.
func (w *StreamWriter) Flush() error {
	if err := w.admit(0); err != nil && !errors.Is(err, ErrBodyNotAllowed) {
		return err
	}
	if err := w.start(); err != nil {
		return err
	}
	if len(w.layers) == 0 {
		return w.emitGathered(true)
	}
	if err := w.emitGathered(false); err != nil {
		return err
	}
	if err := w.flushLayers(); err != nil {
		return err
	}
	return w.put(nil, true)
}

// emitGathered emits the buffered bytes.
func (w *StreamWriter) emitGathered(flush bool) error {
	err := w.emit(w.buffer, flush)
	w.buffer = w.buffer[:0]
	return err
}

// admit decides whether size more bytes may be written.
func (w *StreamWriter) admit(size int) error {
	switch {
	case w.ctx == nil || w.ctx.exchange == nil || !w.open:
		return errStreamOver
	case w.err != nil:
		return w.err
	case w.ctx.exchange.hijacked:
		return ErrHijacked
	}
	w.ctx.check()
	if w.ctx.timedOut() {
		return ErrHandlerTimeout
	}
	if !http1.BodyAllowed(w.ctx.Response.status) && size > 0 {
		return ErrBodyNotAllowed
	}
	if !w.sent {
		w.length = w.ctx.Response.declaredLength()
	}
	if w.length >= 0 && w.written+int64(size) > w.length {
		return ErrContentLength
	}
	w.written += int64(size)
	return nil
}

// begin renders the head.
func (w *StreamWriter) begin() {
	r := &w.ctx.Response
	w.length = r.declaredLength()
	length := w.length
	if w.wrap() {
		length = noLength // the handler's Content-Length counts the unwrapped body
	}
	w.discard = !http1.BodyAllowed(r.status) || w.ctx.Request.isHead()
	w.sent = true
	w.ctx.exchange.scratch.running.Is(running.Answering)
	w.ctx.exchange.wire.head(w.ctx, length)
}

// head implements wire.
func (c *conn) head(ctx *Ctx, length int64) {
	r := &ctx.Response
	f := http1.Head{Length: length}
	c.writing = writingSized
	switch {
	case !http1.BodyAllowed(r.status):
		f.Length = r.bareLength(length)
	case r.tunnels():
		f.Length, c.writing = noLength, writingToEnd
	case ctx.Request.isHead(), length >= 0:
	case ctx.Request.line.Minor == 0:
		r.close, c.writing = true, writingToEnd
	default:
		f.Chunked, c.writing = true, writingChunks
	}
	c.settle(ctx, &f)
	c.out = r.appendHead(c.out, c.server, &f)
}

// start sends the head, unless it was sent before.
func (w *StreamWriter) start() error {
	if w.sent {
		return nil
	}
	if err := w.ctx.maySucceed(); err != nil {
		w.err, w.ours = err, true
		return err
	}
	if err := w.ctx.claimAnswer(); err != nil {
		return err
	}
	w.begin()
	return nil
}

// emit sends data, after the head if that wasn't sent yet. Without flush, data may stay in the connection's buffer. A layer may buffer data
// even with flush.
func (w *StreamWriter) emit(data []byte, flush bool) error {
	if err := w.start(); err != nil {
		return err
	}
	if len(w.layers) > 0 {
		if err := w.writeLayers(data); err != nil {
			return err
		}
		data = nil
	}
	return w.put(data, flush)
}

// put sends a part of the body that has passed through the layers.
func (w *StreamWriter) put(data []byte, flush bool) error {
	if w.discard {
		data = nil
	}
	if w.kept += len(data); flush || len(data) > copiedBody {
		w.kept = 0
	}
	err := w.ctx.exchange.wire.data(data, flush)
	if err != nil {
		w.err = err
	}
	return err
}

// data implements wire.
func (c *conn) data(p []byte, flush bool) error {
	if len(p) > 0 {
		if c.writing == writingChunks {
			c.out = http1.AppendChunkSize(c.out, len(p))
		}
		if len(p) <= copiedBody {
			c.out = append(c.out, p...)
		} else {
			c.outBody = p
			if err := c.flush(); err != nil {
				return err
			}
		}
		if c.writing == writingChunks {
			c.out = http1.AppendChunkEnd(c.out)
		}
	}
	if flush {
		return c.flush()
	}
	return nil
}

// finishStream completes a streamed answer, or makes it a whole one if nothing of it was sent. An error means that the answer can't be
// completed.
func (c *Ctx) finishStream() (ending, error) {
	w, r := &c.stream, &c.Response
	switch {
	case w.err != nil:
		return endingAborted, w.err
	case w.inLayer:
		return endingAborted, ErrAbort // the code that has recovered the layer's panic reports it
	case r.source == bodyStream && !w.open:
		if err := c.copyBody(); err != nil {
			return endingAborted, err
		}
	case !w.sent && (r.Trailer.Len() == 0 || c.Request.line.Minor == 0 || c.Request.http2): // in HTTP/2 a whole answer can have a trailer, too
		r.endStream(w)
		return endingWhole, r.wrapWhole()
	}
	if err := w.emitGathered(false); err != nil {
		return endingAborted, err
	}
	if w.length >= 0 && w.written < w.length && !w.discard {
		return endingAborted, fmt.Errorf("filo: the handler wrote %d bytes of its Content-Length of %d: %w", w.written, w.length, io.ErrUnexpectedEOF)
	}
	if err := w.closeLayers(); err != nil {
		return endingAborted, err
	}
	r.closeStream() // before the end: from then on, a client that has its answer may send its next request, and the place may be free
	c.exchange.wire.endStream(&r.Trailer)
	return endingStreamed, nil
}

// endStream implements wire.
func (c *conn) endStream(trailer *Header) {
	if c.writing == writingChunks {
		c.out = http1.AppendLastChunk(c.out, &trailer.list)
	}
}

// copyBody sends the stream given to Response.SetBodyStream.
func (c *Ctx) copyBody() error {
	r, stream, size := &c.Response, c.Response.stream, c.Response.streamSize
	if size >= 0 {
		r.Header.list.SetInt(field.ContentLength, size)
	} else {
		r.Header.list.DelID(field.ContentLength)
	}
	// Ctx.Stream isn't called, since it would drop the body's stream.
	w := &c.stream
	w.ctx, w.used, w.open, w.length = c, true, true, noLength
	if c.Request.isHead() || !http1.BodyAllowed(r.status) {
		r.closeStream() // the head may end the answer
		return w.emit(nil, false)
	}
	if size > copiedBody {
		if part, ok := filepart.Of(r.stream); ok && size <= part.Size {
			// The file may belong to the form or to the reader of SetBodyReader, and a layer may read the body.
			if c.Request.multipart == nil && c.Request.replaced == nil && len(r.wraps) == 0 {
				c.endBodyEarly()
			}
			if done, err := c.sendFile(part, size); done || err != nil {
				return err
			}
		}
	}
	if size >= 0 {
		stream = io.LimitReader(stream, size)
	}
	_, err := w.copyFrom(stream)
	if err == nil && size >= 0 && w.written < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

var errInformational = errors.New("filo: an informational answer has a status of 100 to 199, but not 101")

// Informational sends an interim answer (RFC 9110, section 15.2), such as 103 (Early Hints), with the current fields of
// Response.Header. The fields stay for the final answer. The status must be 100 to 199 except 101, for which there is Upgrade.
// Nothing is sent to an HTTP/1.0 client, which doesn't know interim answers.
func (c *Ctx) Informational(status int) error {
	c.check()
	switch {
	case status < 100 || status > 199 || status == 101:
		return errInformational
	case c.exchange.hijacked:
		return ErrHijacked
	case c.stream.sent:
		return ErrHeadSent
	case c.Request.line.Minor == 0:
		return nil
	}
	if err := c.holdAnswer(); err != nil {
		return err
	}
	defer c.releaseAnswer()
	if status == 100 {
		c.Request.body.expect = false
	}
	return c.exchange.wire.inform(status, &c.Response.Header)
}

// inform implements wire.
func (c *conn) inform(status int, h *Header) error {
	c.out = http1.AppendInterim(c.out, status, &h.list)
	return c.flush()
}

// EarlyHints sends 103 (Early Hints) with the current fields of Response.Header, usually Link. The fields stay for the final
// answer. Nothing is sent to an HTTP/1.0 client, which doesn't know interim answers.
func (c *Ctx) EarlyHints() error { return c.Informational(103) }
