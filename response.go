package filo

import (
	"io"
	"unsafe"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
)

const textPlain = "text/plain; charset=utf-8"

// maxKeptBody is the size of the largest buffer that a worker keeps for request bodies, and of its buffer for copied response bodies.
const maxKeptBody = 64 << 10

// maxKeptHeader is the size of the largest buffer for header fields that a worker keeps between requests.
const maxKeptHeader = 16 << 10

// bodySource says where a response's body is.
type bodySource uint8

const (
	bodyBuffer bodySource = iota // Response.buffer
	bodyString                   // Response.text
	bodyRef                      // Response.ref
	bodyStream                   // Response.stream
)

// Response is the answer that a handler prepares. The server sends it when the handler returns, unless Ctx.Stream has sent its
// head earlier. It belongs to its Ctx and is valid until the handler returns.
//
// The server adds Date, Server, Content-Length and Connection, and drops a Transfer-Encoding that a handler sets. With
// Connection: close in Header it closes the connection after the answer. An empty Date field in Header omits Date.
type Response struct {
	// Header holds the header fields.
	Header Header
	// Trailer holds the fields to send after a chunked body (with Ctx.Stream, or SetBodyStream of unknown size), and in HTTP/2 after any body,
	// even an empty one. The Trailer header field announces the trailer fields that are set before the head is sent. An HTTP/1.0 client gets
	// no trailer.
	Trailer Header

	ctx        *Ctx // the Ctx that the response belongs to
	status     int
	source     bodySource
	close      bool
	buffer     []byte
	text       string
	ref        []byte
	stream     io.Reader
	streamSize int64
	wraps      []func(*Ctx, io.Writer, int64) io.WriteCloser // see WrapBody
}

// reset makes the response ready for the next request.
func (r *Response) reset() {
	r.Header.list.ResetWithin(maxKeptHeader)
	r.Trailer.list.ResetWithin(maxKeptHeader)
	r.status, r.close = 200, false
	r.forgetBody()
}

// forgetBody is called when an answer has been sent or rendered, so that a connection or worker that becomes idle doesn't keep its body.
func (r *Response) forgetBody() {
	if r.source != bodyBuffer || len(r.buffer) > 0 {
		r.resetBody()
	}
}

func (r *Response) resetBody() {
	r.closeStream()
	r.source, r.text, r.ref = bodyBuffer, "", nil
	if cap(r.buffer) > maxKeptBody {
		r.buffer = nil
	}
	r.buffer = r.buffer[:0]
}

// replaceBody drops the body before the program sets another one, or none.
func (r *Response) replaceBody() {
	r.dropStream()
	r.resetBody()
}

// dropStream drops what the handler has written to Ctx.Stream, if nothing of it was sent.
func (r *Response) dropStream() {
	if r.ctx == nil {
		return
	}
	if w := &r.ctx.stream; w.open && !w.sent {
		w.open, w.written = false, 0
		w.buffer = w.buffer[:0]
	}
}

// closeStream closes the body stream, if there is one. A panic in its Close, which is the user's code, is logged and goes no further.
func (r *Response) closeStream() {
	if stream := r.stream; stream != nil {
		r.stream = nil
		r.ctx.exchange.server.closeStream(stream)
	}
}

func (s *Server) closeStream(stream io.Reader) {
	if closer, ok := stream.(io.Closer); ok {
		survive(s.logger(), "panic in a body stream's Close", func() { closer.Close() })
	}
}

// SetStatus sets the status, 200 to 599. Any other value becomes 500 and is logged. The default is 200.
func (r *Response) SetStatus(status int) {
	if status < 200 || status > 599 {
		r.logStatus(status)
		status = 500
	}
	r.status = status
}

// logStatus logs a status that no final answer can have.
func (r *Response) logStatus(status int) {
	if c := r.ctx; c != nil && c.exchange != nil {
		c.exchange.server.logger().Error("the status of an answer must be 200 to 599: it becomes 500", "status", status, "route", c.match.Route,
			"method", c.loggedMethod(), "path", c.loggedPath())
	}
}

// Status returns the status.
func (r *Response) Status() int { return r.status }

// SetClose closes the connection after this answer, and tells the client so.
func (r *Response) SetClose() { r.close = true }

// SetBody sets the body to a copy of b.
func (r *Response) SetBody(b []byte) {
	r.replaceBody()
	r.buffer = append(r.buffer, b...)
}

// SetBodyString sets the body to s.
func (r *Response) SetBodyString(s string) {
	r.replaceBody()
	r.source, r.text = bodyString, s
}

// SetBodyNoCopy sets the body to b without copying it. The caller must never change b again.
func (r *Response) SetBodyNoCopy(b []byte) {
	r.replaceBody()
	r.source, r.ref = bodyRef, b
}

// SetBodyStream sets the body to size bytes read from stream, or to everything until io.EOF if size is negative. After the handler has
// returned, the server reads the stream, possibly on another goroutine, and then closes it if it is an io.Closer. A file, or an
// io.SectionReader of a file, is sent by sendfile where the connection allows it; so is a stream with a method FileSection()
// *io.SectionReader that returns the part of the file that the stream reads.
func (r *Response) SetBodyStream(stream io.Reader, size int64) {
	r.replaceBody()
	r.source, r.stream, r.streamSize = bodyStream, stream, size
}

// Write appends a copy of p to the body; it never fails. Use it for small bodies that are built piece by piece, and Ctx.Stream for larger
// ones. The first Write to an empty body sets the Content-Type "text/plain; charset=utf-8" unless the handler has set one, since browsers
// would guess a type, such as HTML. The type stays if another body replaces these bytes. SetBody and the other methods that set a body set no
// type.
func (r *Response) Write(p []byte) (int, error) {
	r.toBuffer(len(p))
	r.buffer = append(r.buffer, p...)
	return len(p), nil
}

// WriteString is like Write, for a string.
func (r *Response) WriteString(s string) (int, error) {
	r.toBuffer(len(s))
	r.buffer = append(r.buffer, s...)
	return len(s), nil
}

// toBuffer copies a body that is a string or a reference into the buffer, so that size more bytes can be appended. It drops a stream. An
// empty body that gets bytes also gets a Content-Type, unless it has one.
func (r *Response) toBuffer(size int) {
	r.dropStream()
	switch r.source {
	case bodyString:
		r.buffer = append(r.buffer[:0], r.text...)
		r.source, r.text = bodyBuffer, ""
	case bodyRef:
		r.buffer = append(r.buffer[:0], r.ref...)
		r.source, r.ref = bodyBuffer, nil
	case bodyStream:
		r.resetBody()
	}
	if len(r.buffer) == 0 && size > 0 && r.Header.list.FindID(field.ContentType, 0) < 0 {
		r.Header.SetField(&plainTextField)
	}
}

// SetCookie adds a Set-Cookie field. If the cookie is invalid, it returns an error and adds nothing. Browsers drop a Secure cookie that
// arrives over plain HTTP from a host other than localhost. The server logs the first such cookie, unless a proxy says that the client uses
// TLS.
func (r *Response) SetCookie(cookie *Cookie) error {
	var buffer [256]byte
	value, err := cookie.AppendTo(buffer[:0])
	if err != nil {
		return err
	}
	r.Header.AddBytes(field.SetCookie.String(), value)
	if cookie.Secure && cookie.MaxAge >= 0 {
		r.warnPlainHTTP(cookie.Name)
	}
	return nil
}

// size returns the length of a body that isn't a stream.
func (r *Response) size() int {
	switch r.source {
	case bodyString:
		return len(r.text)
	case bodyRef:
		return len(r.ref)
	case bodyBuffer:
		return len(r.buffer)
	}
	return 0
}

// bodyBytes returns the body, which must not be changed.
func (r *Response) bodyBytes() []byte {
	switch r.source {
	case bodyString:
		return unsafe.Slice(unsafe.StringData(r.text), len(r.text))
	case bodyRef:
		return r.ref
	}
	return r.buffer
}

// noLength stands for a length that is unknown or not declared.
const noLength = -1

// declaredLength returns the Content-Length that the handler set, or noLength if there is none or it is invalid.
func (r *Response) declaredLength() int64 {
	if value := r.Header.list.GetID(field.ContentLength); value != nil {
		if n, ok := http1.ParseLength(value); ok {
			return n
		}
	}
	return noLength
}

// tunnels reports whether the answer begins a tunnel, as a 2xx to CONNECT does: the client treats all bytes after the head as the tunnel's,
// and sends no further requests (RFC 9110, section 9.3.6). Such an answer has no framing fields: its body lasts until the end of the
// connection, or of the stream.
func (r *Response) tunnels() bool { return r.status/100 == 2 && r.ctx.Request.isConnect() }

// wantsClose reports whether the handler asked for the connection to be closed.
func (r *Response) wantsClose() bool {
	return r.close || r.Header.Len() > 0 && r.Header.list.HasToken(field.Connection, "close")
}

// appendHead renders the response head. The caller has set the framing in head; appendHead sets the other fields of head.
func (r *Response) appendHead(dst []byte, s *Server, head *http1.Head) []byte {
	head.Status, head.Trailer = r.status, &r.Trailer.list
	head.Server, head.Date = s.config.serverLine, s.clock.dateLine()
	return head.Append(dst, &r.Header.list)
}
