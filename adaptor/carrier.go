package adaptor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/inside"
)

// carrier is a hooks.Transport: it carries a request of net/http to a handler of filo, and the answer back.
type carrier struct {
	w       http.ResponseWriter
	control *http.ResponseController
	r       *http.Request
	buffer  *[]byte   // holds the request's head
	outer   *exchange // the exchange from which the request comes, if filo received it; nil if another server did
	around  *exchange // the exchange of the outer request, if this request is a part of one: see Join; otherwise nil
	body    io.Reader // nil if there is none
	// proxy is the address for the Ctx if middleware.RealIP has found the request's RemoteAddr by asking this proxy; otherwise nil. The Ctx needs
	// it to find the client again, and the client's scheme.
	proxy net.Addr
	// If middleware has parsed a form, its body has formLength bytes, and files are the files in it.
	formLength int64
	files      []*formFile
	began      bool            // the head of the final answer was written
	lent       bool            // lendHeader was called
	announced  map[string]bool // the names of announced trailer fields
	// text holds the gathered names and values of the answer's fields, in the space of buffer after the request's head. ends has the end of
	// each name and value in text.
	text []byte
	ends []int
	room [16]int
}

// heads is a pool of buffers for request heads.
var heads = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptHead is the size in bytes of the largest buffer that goes back to heads.
const maxKeptHead = 16 << 10

func newCarrier(w http.ResponseWriter, r *http.Request) *carrier {
	outer, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return &carrier{w: w, control: http.NewResponseController(w), r: r, outer: outer}
}

// serve runs h on the request. It panics with http.ErrAbortHandler if the answer can't be completed.
func (t *carrier) serve(s *filo.Server, h filo.Handler) {
	t.carry(func(t *carrier) error { return inside.Carry(s, t, h) })
}

// carry calls its argument with the carrier, which has a buffer during the call. It panics like serve.
func (t *carrier) carry(carry func(*carrier) error) {
	buffer := heads.Get().(*[]byte)
	t.buffer = buffer
	defer func() {
		for _, file := range t.files {
			file.close()
		}
		if cap(*buffer) <= maxKeptHead {
			heads.Put(buffer)
		}
	}()
	if carry(t) != nil {
		if t.began {
			t.Flush() // sends the bytes written so far, as an incomplete answer
		}
		panic(http.ErrAbortHandler)
	}
}

// lendHeader copies the fields that are already in the ResponseWriter's header to the response of c.
func (t *carrier) lendHeader(c *filo.Ctx) {
	t.lent = true
	for name, values := range t.w.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, value := range values {
			c.Response.Header.Add(name, value)
		}
	}
}

// Head implements hooks.Transport.
func (t *carrier) Head(h *http1.RequestHead, limits *http1.Limits) (b []byte, length int64, fault http1.Fault) {
	r, minor := t.r, uint8(1)
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		minor = 0
	}
	b, fault = h.Begin((*t.buffer)[:0], r.Method, t.target(), minor, limits)
	add := func(name, value string) {
		if fault == http1.NoFault {
			b, fault = h.Add(b, name, value, limits)
		}
	}
	add("Host", fieldText(r.Host))
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		if httpguts.ValidHeaderFieldName(name) {
			for _, value := range values {
				add(name, fieldText(value))
			}
		}
	}
	switch length = t.setBody(); {
	case length > 0:
		add("Content-Length", strconv.FormatInt(length, 10))
	case length < 0:
		if minor > 0 {
			add("Transfer-Encoding", "chunked")
		}
		for name := range r.Trailer {
			add("Trailer", name)
		}
	}
	*t.buffer = b
	return b, length, fault
}

// Major implements hooks.Transport.
func (t *carrier) Major() uint8 {
	switch t.r.ProtoMajor {
	case 2, 3:
		return uint8(t.r.ProtoMajor)
	}
	return 1
}

// target returns the request's target. The target is made from the URL, because middleware changes the URL but not RequestURI.
func (t *carrier) target() string {
	r := t.r
	if r.Method == http.MethodConnect && r.URL.Path == "" {
		return lineText(r.Host)
	}
	at := *r.URL
	keepPath(&at)
	target := lineText(at.RequestURI())
	if !strings.HasPrefix(target, "/") && (target != "*" || r.RequestURI != "*") {
		target = "/" + target // http.StripPrefix may have left a path without its leading slash
	}
	return target
}

// fieldText returns a field's value with spaces in place of control bytes, which an http.Header may hold.
func fieldText(value string) string {
	if strings.IndexFunc(value, unicode.IsControl) < 0 {
		return value
	}
	clean := []byte(value)
	field.CleanValue(clean)
	return string(clean)
}

// lineText percent-encodes spaces and control bytes, which a request line can't hold unencoded.
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

// Read implements hooks.Transport.
func (t *carrier) Read(p []byte) (int, error) {
	if t.body == nil {
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

// Trailer implements hooks.Transport.
func (t *carrier) Trailer() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for name, values := range t.r.Trailer {
			for _, value := range values {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// WriteHead implements hooks.Transport.
func (t *carrier) WriteHead(h hooks.Head) {
	if h.Status == http.StatusContinue {
		return // net/http sends a 100 by itself when the body is read
	}
	header, final := t.w.Header(), h.Status >= 200
	for name := range header {
		// A refusal without a handler keeps the fields of the middleware around, such as CORS's, but not those about another content.
		if t.lent && !strings.HasPrefix(name, http.TrailerPrefix) || isAboutContent(name) {
			delete(header, name) // lendHeader has copied the fields, so h has them
		}
	}
	h.Fields(t.gather)
	t.addGathered(header)
	if h.Length >= 0 {
		header["Content-Length"] = []string{strconv.FormatInt(h.Length, 10)}
	}
	if final {
		t.finishHeader(header, &h)
	}
	t.w.WriteHeader(h.Status)
}

// isAboutContent reports whether a field describes the content of an answer, or its framing.
func isAboutContent(name string) bool {
	switch name {
	case "Content-Type", "Content-Range", "Transfer-Encoding":
		return true
	}
	return slices.ContainsFunc(field.OfContent[:], func(other string) bool { return strings.EqualFold(name, other) })
}

// gather stores a field of an answer for addGathered.
func (t *carrier) gather(name, value []byte) bool {
	if t.text == nil {
		t.text, t.ends = (*t.buffer)[len(*t.buffer):], t.room[:0]
	}
	t.text = append(t.text, name...)
	t.ends = append(t.ends, len(t.text))
	t.text = append(t.text, value...)
	t.ends = append(t.ends, len(t.text))
	return true
}

// addGathered adds the gathered fields to a header. All names and values share one string, and the values one slice.
func (t *carrier) addGathered(header http.Header) {
	text, values, start := string(t.text), make([]string, len(t.ends)/2), 0
	for i := range values {
		end, valueEnd := t.ends[2*i], t.ends[2*i+1]
		name := http.CanonicalHeaderKey(text[start:end])
		if strings.HasPrefix(name, "Sec-Websocket-") {
			name = text[start:end] // as it was written: clients expect Sec-WebSocket-, which isn't canonical
		}
		values[i], start = text[end:valueEnd], valueEnd
		if before := header[name]; before != nil {
			header[name] = append(before, values[i])
		} else {
			header[name] = values[i : i+1 : i+1]
		}
	}
	t.text, t.ends = t.text[:0], t.ends[:0]
}

// finishHeader adds the fields about connection and framing to the header of a final answer.
func (t *carrier) finishHeader(header http.Header, h *hooks.Head) {
	t.began = true
	switch {
	case t.r.ProtoMajor >= 2: // other requests share the connection
		delete(header, "Connection")
	case h.Close:
		header["Connection"] = []string{"close"}
		if t.r.Method == http.MethodConnect && h.Status/100 == 2 {
			header["Transfer-Encoding"] = []string{"identity"} // then net/http adds no framing, which a tunnel can't have
		}
	}
	for _, name := range [...]string{"Content-Type", "Date"} {
		if _, ok := header[name]; !ok {
			header[name] = nil // nil keeps net/http from adding a value
		}
	}
	if h.Trailer != nil {
		t.announce(header, h.Trailer)
	}
	if h.Streams && t.r.ContentLength != 0 {
		t.control.EnableFullDuplex() // the body may be read while the answer is sent
	}
}

// announce adds the names of the trailer fields to the header.
func (t *carrier) announce(header http.Header, trailer *field.List) {
	t.announced = make(map[string]bool)
	for i := range trailer.Len() {
		if trailer.ID(i).InTrailer() {
			name := http.CanonicalHeaderKey(string(trailer.Name(i)))
			t.announced[name] = true
			header.Add("Trailer", name)
		}
	}
}

// Write implements hooks.Transport.
func (t *carrier) Write(p []byte) (int, error) { return t.w.Write(p) }

// Flush implements hooks.Transport. A wrapped ResponseWriter might not be able to flush.
func (t *carrier) Flush() error {
	err := t.control.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// WriteTrailer implements hooks.Transport.
func (t *carrier) WriteTrailer(fields iter.Seq2[[]byte, []byte]) {
	header := t.w.Header()
	for name, value := range fields {
		key := http.CanonicalHeaderKey(string(name))
		if !t.announced[key] {
			key = http.TrailerPrefix + key
		}
		header[key] = append(header[key], string(value))
	}
}

// Hijack implements hooks.Transport.
func (t *carrier) Hijack() (net.Conn, error) {
	conn, rw, err := t.control.Hijack()
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	if rw.Reader.Buffered() > 0 {
		conn = &receivedConn{Conn: conn, reader: rw.Reader}
	}
	return conn, nil
}

// receivedConn is a connection from which some bytes were received already.
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

// LocalAddr implements hooks.Transport.
func (t *carrier) LocalAddr() net.Addr {
	if address, ok := t.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return address
	}
	return &net.TCPAddr{}
}

// RemoteAddr implements hooks.Transport. Middleware may have set r.RemoteAddr to a text that isn't an address and a port.
func (t *carrier) RemoteAddr() net.Addr {
	if t.proxy != nil {
		return t.proxy
	}
	text := t.r.RemoteAddr
	if address, err := netip.ParseAddrPort(text); err == nil {
		return net.TCPAddrFromAddrPort(address)
	}
	if address, err := netip.ParseAddr(text); err == nil {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0))
	}
	return textAddr(text)
}

// textAddr is an address that isn't a TCP address.
type textAddr string

// Network implements net.Addr.
func (textAddr) Network() string { return "" }

// String implements net.Addr.
func (a textAddr) String() string { return string(a) }

// MayInterrupt implements hooks.Transport. It returns false for a request from filo's own connection, because a Read may hold the
// lock of the exchange, which setting a deadline needs.
func (t *carrier) MayInterrupt() bool {
	return t.outer == nil && reaches[interface{ SetReadDeadline(time.Time) error }](t.w)
}

// SetReadDeadline implements hooks.Transport.
func (t *carrier) SetReadDeadline(at time.Time) error { return t.control.SetReadDeadline(at) }

// SetWriteDeadline implements hooks.Transport.
func (t *carrier) SetWriteDeadline(at time.Time) error { return t.control.SetWriteDeadline(at) }
