package adaptor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// carrier is a hooks.Transport: it carries a request of net/http to a handler of filo, and the answer back.
type carrier struct {
	answer
	r     *http.Request
	head  []byte // what hasn't been read of the request's head
	body  io.Reader
	taken net.Conn // the client's connection once it was hijacked
}

// heads holds buffers for request heads.
var heads = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptHead is how large a buffer for a request's head is kept.
const maxKeptHead = 16 << 10

func newCarrier(w http.ResponseWriter, r *http.Request) *carrier {
	return &carrier{r: r, answer: answer{
		w: w, control: http.NewResponseController(w), noBody: r.Method == http.MethodHead, duplex: r.ContentLength != 0,
		shared: r.ProtoMajor >= 2,
	}}
}

// serve runs h on the request. It panics with http.ErrAbortHandler if the answer can't be completed.
func (t *carrier) serve(s *filo.Server, h filo.Handler) {
	buffer := heads.Get().(*[]byte)
	t.head = t.appendHead((*buffer)[:0])
	*buffer = t.head
	defer func() {
		if cap(*buffer) <= maxKeptHead {
			heads.Put(buffer)
		}
	}()
	if inside.Carry(s, t, h) != nil {
		if t.state != answerHead {
			t.Flush() // what there is, as a part
		}
		panic(http.ErrAbortHandler)
	}
}

// lendHeader gives the answer of c the fields that are there by now.
func (t *carrier) lendHeader(c *filo.Ctx) {
	for name, values := range t.w.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, value := range values {
			c.Response.Header.Add(name, value)
		}
	}
}

// appendHead renders the request's head.
func (t *carrier) appendHead(dst []byte) []byte {
	r := t.r
	dst = append(append(append(dst, r.Method...), ' '), t.target()...)
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		dst = append(dst, " HTTP/1.0\r\n"...)
	} else {
		dst = append(dst, " HTTP/1.1\r\n"...)
	}
	dst = appendField(dst, "Host", r.Host)
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		for _, value := range values {
			dst = appendField(dst, name, value)
		}
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
	case r.ContentLength > 0:
		dst = appendField(dst, "Content-Length", strconv.FormatInt(r.ContentLength, 10))
		t.body = io.LimitReader(r.Body, r.ContentLength)
	default:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		for name := range r.Trailer {
			dst = appendField(dst, "Trailer", name)
		}
		t.body = &chunkReader{r: r}
	}
	return append(dst, "\r\n"...)
}

// target returns what the request is for. Middleware changes the URL, and not RequestURI.
func (t *carrier) target() string {
	r := t.r
	if r.Method == http.MethodConnect && r.URL.Path == "" {
		return lineText(r.Host)
	}
	target := lineText(r.URL.RequestURI())
	if !strings.HasPrefix(target, "/") && target != "*" {
		target = "/" + target // http.StripPrefix leaves such
	}
	return target
}

// appendField renders a field. No value can end it.
func appendField(dst []byte, name, value string) []byte {
	if !httpguts.ValidHeaderFieldName(name) {
		return dst
	}
	dst = append(append(dst, name...), ": "...)
	start := len(dst)
	dst = append(dst, value...)
	for i := start; i < len(dst); i++ {
		if isControl(dst[i]) && dst[i] != '\t' {
			dst[i] = ' '
		}
	}
	return append(dst, "\r\n"...)
}

// lineText returns text for a request line, where a space or a control byte may only be percent-encoded.
func lineText(text string) string {
	for i := range len(text) {
		if text[i] == ' ' || isControl(text[i]) {
			return string(appendEncoded([]byte(text[:i]), text[i:]))
		}
	}
	return text
}

func appendEncoded(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c == ' ' || isControl(c) {
			dst = fmt.Appendf(dst, "%%%02X", c)
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

func isControl(c byte) bool { return c < ' ' || c == 0x7f }

// Read implements net.Conn.
func (t *carrier) Read(p []byte) (int, error) {
	switch {
	case t.taken != nil:
		return t.taken.Read(p)
	case len(t.head) > 0:
		n := copy(p, t.head)
		t.head = t.head[n:]
		return n, nil
	case t.body == nil:
		return 0, io.EOF
	}
	n, err := t.body.Read(p)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil || err == io.EOF:
	case errors.As(err, &tooLarge):
		err = &filo.HTTPError{Status: 413, Detail: "request body too large", Err: errors.Join(err, filo.ErrBodyTooLarge)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &filo.HTTPError{Status: 408, Detail: "the request body arrived too slowly", Err: err}
	}
	return n, err
}

// Write implements net.Conn.
func (t *carrier) Write(p []byte) (int, error) {
	if t.taken == nil && t.switches(p) {
		if _, err := t.Hijack(); err != nil {
			return 0, err
		}
	}
	if t.taken != nil {
		return t.taken.Write(p)
	}
	n, err := t.answer.Write(p)
	if err == nil && t.flushes() {
		err = t.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("adaptor: %v", err) // filo would take it for a deadline of its own
	}
	return n, err
}

// Flush implements hooks.Transport. A wrapped ResponseWriter may not be able to flush.
func (t *carrier) Flush() error {
	err := t.control.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// Hijack implements hooks.Transport.
func (t *carrier) Hijack() (net.Conn, error) {
	if t.taken != nil {
		return t.taken, nil
	}
	conn, rw, err := t.control.Hijack()
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	if rw.Reader.Buffered() > 0 {
		conn = &receivedConn{Conn: conn, reader: rw.Reader}
	}
	t.taken = conn
	return conn, nil
}

// receivedConn is a connection of which something was received.
type receivedConn struct {
	net.Conn
	reader io.Reader
}

// Read implements net.Conn.
func (c *receivedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// Context implements hooks.Transport.
func (t *carrier) Context() context.Context { return t.r.Context() }

// TLS implements hooks.Transport.
func (t *carrier) TLS() *tls.ConnectionState { return t.r.TLS }

// Close implements net.Conn.
func (t *carrier) Close() error {
	if t.taken != nil {
		return t.taken.Close()
	}
	return nil
}

// LocalAddr implements net.Conn.
func (t *carrier) LocalAddr() net.Addr {
	if address, ok := t.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return address
	}
	return &net.TCPAddr{}
}

// RemoteAddr implements net.Conn. Middleware may have set a text that isn't an address and a port.
func (t *carrier) RemoteAddr() net.Addr {
	text := t.r.RemoteAddr
	if address, err := netip.ParseAddrPort(text); err == nil {
		return net.TCPAddrFromAddrPort(address)
	}
	if address, err := netip.ParseAddr(text); err == nil {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0))
	}
	return textAddr(text)
}

// textAddr is an address that is none of TCP.
type textAddr string

// Network implements net.Addr.
func (textAddr) Network() string { return "" }

// String implements net.Addr.
func (a textAddr) String() string { return string(a) }

// SetDeadline implements net.Conn.
func (t *carrier) SetDeadline(at time.Time) error {
	return errors.Join(t.SetReadDeadline(at), t.SetWriteDeadline(at))
}

// SetReadDeadline implements net.Conn.
func (t *carrier) SetReadDeadline(at time.Time) error {
	if t.taken != nil {
		return t.taken.SetReadDeadline(at)
	}
	return t.control.SetReadDeadline(at)
}

// SetWriteDeadline implements net.Conn.
func (t *carrier) SetWriteDeadline(at time.Time) error {
	if t.taken != nil {
		return t.taken.SetWriteDeadline(at)
	}
	return t.control.SetWriteDeadline(at)
}

// chunkReader reads a request's body in the chunked coding.
type chunkReader struct {
	r      *http.Request
	buffer [8 << 10]byte
	chunk  []byte // what hasn't been read of the last one
	err    error
}

// chunkRoom is the space that a chunk's size takes before its data.
const chunkRoom = len("2000\r\n")

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	for len(c.chunk) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.next()
	}
	n := copy(p, c.chunk)
	c.chunk = c.chunk[n:]
	return n, nil
}

// next makes a chunk of what can be read, or the end of the body.
func (c *chunkReader) next() {
	data := c.buffer[chunkRoom : len(c.buffer)-len("\r\n")]
	n, err := c.r.Body.Read(data)
	if n > 0 {
		size := strconv.AppendInt(nil, int64(n), 16)
		start := chunkRoom - len(size) - len("\r\n")
		copy(c.buffer[start:], size)
		copy(c.buffer[chunkRoom-len("\r\n"):], "\r\n")
		end := chunkRoom + n + copy(c.buffer[chunkRoom+n:], "\r\n")
		c.chunk = c.buffer[start:end]
	}
	if err == io.EOF {
		last := []byte("0\r\n")
		for name, values := range c.r.Trailer {
			for _, value := range values {
				last = appendField(last, name, value)
			}
		}
		c.chunk = append(c.chunk[:len(c.chunk):len(c.chunk)], append(last, "\r\n"...)...)
	}
	c.err = err
}
