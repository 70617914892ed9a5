package adaptor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/textproto"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/http1"
)

const (
	// gatherSize is how many bytes of a body are buffered before the answer becomes a stream: shorter bodies are sent with their
	// length. net/http buffers as many bytes.
	gatherSize = 2048
	// sniffSize is how much of a body http.DetectContentType looks at.
	sniffSize = 512
	// noLength stands for a length that wasn't announced.
	noLength = -1
)

// errEnded is the error of a ResponseWriter whose handler has returned.
var errEnded = errors.New("adaptor: the ResponseWriter or the request was used after the handler returned")

// gathered is a pool of buffers for gathered bytes.
var gathered = sync.Pool{New: func() any { return new([gatherSize]byte) }}

// responseWriter is an http.ResponseWriter. Its fields are guarded by exchange.mu, except header: as in net/http, only the handler may
// use the header.
type responseWriter struct {
	exchange *exchange
	header   http.Header // nil until asked for

	wrote    bool // WriteHeader was called with a final status
	informed bool // an interim answer was sent
	hijacked bool
	direct   bool // the rest of filo's chain has answered with methods of the Ctx, not with this writer
	sniff    bool // the type must be detected from the body
	status   int
	length   int64 // announced by Content-Length, or noLength
	written  int64
	trailers []string // announced, in canonical form

	room   *[gatherSize]byte // the array behind buffer; from gathered
	buffer []byte            // the gathered bytes, while stream is nil
	stream *filo.StreamWriter
}

// Header implements http.ResponseWriter. The header includes the fields that filo's middleware has set before. If a handler clears the
// header after an interim answer, Header restores these fields once: ReverseProxy clears it only to remove the interim fields.
func (w *responseWriter) Header() http.Header {
	if w.header == nil || w.informed && len(w.header) == 0 {
		e := w.exchange
		e.mu.Lock()
		defer e.mu.Unlock()
		if w.header == nil {
			w.header = make(http.Header)
		}
		w.informed = false
		if !e.ended && e.running == nil {
			for name, value := range e.ctx.Response.Header.All() {
				w.header.Add(string(name), string(value))
			}
		}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	switch {
	case w.exchange.ended:
	case w.hijacked:
		w.complain("WriteHeader on a hijacked connection")
	case w.wrote:
		w.complain("superfluous WriteHeader call")
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.inform(status)
	default:
		w.writeHeaderLocked(status)
	}
}

// inform sends an interim answer. The response keeps the fields that it had before: an error may become the final answer.
func (w *responseWriter) inform(status int) {
	c := w.exchange.ctx
	var before [][2]string
	for name, value := range c.Response.Header.All() {
		before = append(before, [2]string{string(name), string(value)})
	}
	w.copyHeader()
	c.Informational(status)
	c.Response.Header.Reset()
	for _, field := range before {
		c.Response.Header.Add(field[0], field[1])
	}
	w.informed = true
}

// writeHeaderLocked sets the answer's status and header. Later changes by the handler affect trailer fields only.
func (w *responseWriter) writeHeaderLocked(status int) {
	w.wrote, w.status = true, status
	w.copyHeader()
	c := w.exchange.ctx
	h := &c.Response.Header
	c.Response.SetStatus(status)
	switch {
	case !bodyAllowed(status):
		h.Del("Content-Length")
		if status == http.StatusNotModified {
			h.Del("Content-Type")
		}
		return
	case h.Has("Content-Length"):
		n, ok := http1.ParseLength([]byte(h.Get("Content-Length")))
		if !ok {
			w.complain("invalid Content-Length")
			h.Del("Content-Length")
			break
		}
		w.length = n
	}
	_, typed := w.header["Content-Type"] // even without a value, which asks for no Content-Type
	w.sniff = !typed && !h.Has("Content-Type") && h.Get("Content-Encoding") == "" && !h.Has("Transfer-Encoding")
}

// copyHeader copies the header to the answer, in alphabetical order. Trailer fields aren't copied, only announced.
func (w *responseWriter) copyHeader() {
	if w.header == nil {
		return // the handler hasn't asked for the header, so the answer keeps its fields
	}
	response := &w.exchange.ctx.Response
	response.Header.Reset()
	var few [16]string
	names := few[:0]
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, http.TrailerPrefix):
		case name == "Trailer" && w.wrote:
			w.announce(w.header[name])
		case name == "Date" && len(w.header[name]) == 0:
			response.Header.Set(name, "") // an empty value keeps Date out of the answer
		default:
			for _, value := range w.header[name] {
				response.Header.Add(name, value)
			}
		}
	}
}

// announce records names of trailer fields, so that the answer's head announces them.
func (w *responseWriter) announce(lists []string) {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(textproto.TrimString(name)); name != "" {
				w.trailers = append(w.trailers, name)
				w.exchange.ctx.Response.Trailer.Add(name, "")
			}
		}
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) { return write(w, p, (*filo.StreamWriter).Write) }

// WriteString implements io.StringWriter.
func (w *responseWriter) WriteString(s string) (int, error) {
	return write(w, s, (*filo.StreamWriter).WriteString)
}

// write gathers p, or passes it on to the stream.
func write[B []byte | string](w *responseWriter, p B, on func(*filo.StreamWriter, B) (int, error)) (int, error) {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	if err := w.admitLocked(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if w.stream == nil {
		if len(w.buffer)+len(p) <= gatherSize {
			w.buffer = append(w.gather(), p...)
			return len(p), nil
		}
		if err := w.beginLocked([]byte(p[:min(len(p), sniffSize)])); err != nil {
			return 0, err
		}
	}
	return on(w.stream, p)
}

// admitLocked decides whether size more bytes may be written, and counts them.
func (w *responseWriter) admitLocked(size int) error {
	switch {
	case w.exchange.ended:
		return errEnded
	case w.hijacked:
		if size > 0 {
			w.complain("Write on a hijacked connection")
		}
		return http.ErrHijacked
	case w.direct && size > 0:
		return http.ErrContentLength // the answer is complete
	case !w.wrote:
		w.writeHeaderLocked(http.StatusOK)
	}
	switch {
	case size == 0:
	case !bodyAllowed(w.status):
		return http.ErrBodyNotAllowed
	}
	w.written += int64(size) // refused bytes count, too, so that finishLocked detects the wrong length
	if w.length >= 0 && w.written > w.length && size > 0 {
		return http.ErrContentLength
	}
	return nil
}

// gather returns the slice with the gathered bytes, to append to.
func (w *responseWriter) gather() []byte {
	if w.room == nil {
		w.room = gathered.Get().(*[gatherSize]byte)
		w.buffer = w.room[:0]
	}
	return w.buffer
}

// beginLocked makes the answer a stream, which begins with the gathered bytes and the bytes of the argument next.
func (w *responseWriter) beginLocked(next []byte) error {
	w.sniffType(next)
	w.stream = w.exchange.ctx.Stream()
	if len(w.buffer) == 0 {
		return nil
	}
	_, err := w.stream.Write(w.buffer)
	w.release()
	return err
}

// sniffType detects the type of the body from its first bytes, if no type was set.
func (w *responseWriter) sniffType(next []byte) {
	if !w.sniff || len(w.buffer)+len(next) == 0 {
		return
	}
	w.sniff = false
	begin := w.buffer
	if len(begin) == 0 {
		begin = next
	} else if len(begin) < sniffSize {
		begin = append(begin, next[:min(len(next), sniffSize-len(begin))]...) // after the gathered bytes, where the buffer has room
	}
	w.exchange.ctx.Response.Header.Set("Content-Type", http.DetectContentType(begin))
}

// release returns the buffer to the pool.
func (w *responseWriter) release() {
	if w.room != nil {
		gathered.Put(w.room)
		w.room, w.buffer = nil, nil
	}
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { w.FlushError() }

// FlushError sends the bytes written so far, for http.ResponseController.
func (w *responseWriter) FlushError() error {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	if err := w.admitLocked(0); err != nil || w.direct || w.status == http.StatusSwitchingProtocols {
		return err // Hijack sends the head of a 101
	}
	if w.stream == nil {
		if err := w.beginLocked(nil); err != nil {
			return err
		}
	}
	return w.stream.Flush()
}

// copyBuffers is a pool of buffers for ReadFrom.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom implements io.ReaderFrom. A file of announced length is sent by sendfile if the connection supports it.
func (w *responseWriter) ReadFrom(src io.Reader) (n int64, err error) {
	if file := fileOf(src); file != nil {
		// The first bytes are copied: a file that fits into the buffer isn't sent separately, and the type may have to be
		// detected.
		n, err = io.CopyN(struct{ io.Writer }{w}, src, gatherSize)
		if err == io.EOF {
			return n, nil
		}
		if err == nil && w.sendsFile() {
			m, err := w.sendFile(src)
			return n + m, err
		}
		if err != nil {
			return n, err
		}
	}
	// The exchange isn't locked here, because src may be the request's body, which locks it.
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	m, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{src}, buffer[:])
	return n + m, err
}

// fileOf returns the file if src is one, or a part of one; otherwise nil.
func fileOf(src io.Reader) *os.File {
	if limited, ok := src.(*io.LimitedReader); ok {
		src = limited.R
	}
	file, _ := src.(*os.File)
	return file
}

// sendsFile reports whether the next bytes may be sent directly from a file.
func (w *responseWriter) sendsFile() bool {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	return !w.exchange.ended && !w.hijacked && !w.direct && w.length > w.written && string(w.exchange.ctx.Request.MethodBytes()) != "HEAD"
}

// sendFile sends a file, or a part of one, up to the announced length.
func (w *responseWriter) sendFile(src io.Reader) (int64, error) {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	if err := w.admitLocked(0); err != nil {
		return 0, err
	}
	if w.stream == nil {
		if err := w.beginLocked(nil); err != nil {
			return 0, err
		}
	}
	limited, ok := src.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: src, N: w.length - w.written}
	}
	left := limited.N - (w.length - w.written)
	limited.N = min(limited.N, w.length-w.written)
	n, err := w.stream.ReadFrom(limited)
	w.written += n
	if left > 0 {
		limited.N += left
	}
	return n, err
}

// finishLocked completes the answer when the handler has returned.
func (w *responseWriter) finishLocked() error {
	if w.hijacked || w.direct {
		return nil
	}
	c := w.exchange.ctx
	if !w.wrote {
		w.writeHeaderLocked(http.StatusOK)
	}
	if w.status == http.StatusSwitchingProtocols {
		conn, _, err := w.hijackLocked()
		if err == nil {
			conn.Close() // the handler has returned, so nothing speaks the other protocol
		}
		return err
	}
	head := string(c.Request.MethodBytes()) == "HEAD"
	short := w.length >= 0 && w.length != w.written && bodyAllowed(w.status)
	// If a handler for HEAD writes nothing, the length isn't known.
	silent := head && len(w.buffer) == 0 && w.length < 0 && bodyAllowed(w.status)
	// No length is sent either if the handler forbids it, or if trailer fields may still follow.
	lengths, asked := w.header["Content-Length"]
	early := w.hasUnannounced() || w.lacksAnnounced() || asked && len(lengths) == 0 && bodyAllowed(w.status)
	if w.stream == nil {
		if !short && !silent && !early && len(w.trailers) == 0 {
			w.sniffType(nil)
			c.Response.SetBody(w.buffer)
			return nil
		}
		if early && !asked && !head && bodyAllowed(w.status) && c.Request.Proto() == "HTTP/2.0" {
			c.Response.Header.Set("Content-Length", strconv.Itoa(len(w.buffer))) // HTTP/2, unlike HTTP/1.1, allows trailer fields after a body with this field
		}
		if err := w.beginLocked(nil); err != nil {
			return err
		}
	}
	if short || silent || early {
		// The answer must be sent as a stream: its body is only a part of the announced one, or trailer fields follow it.
		if err := w.stream.Flush(); err != nil {
			return err
		}
	}
	w.setTrailer()
	return nil
}

// hasUnannounced reports whether the header has unannounced trailer fields, whose names begin with http.TrailerPrefix.
func (w *responseWriter) hasUnannounced() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// lacksAnnounced reports whether an announced trailer field has no value. The head must name such a field, too, and names it only if the head
// is sent before the trailer is known.
func (w *responseWriter) lacksAnnounced() bool {
	return slices.ContainsFunc(w.trailers, func(name string) bool { return len(w.header[name]) == 0 })
}

// setTrailer moves the header's trailer fields to the trailer.
func (w *responseWriter) setTrailer() {
	trailer := &w.exchange.ctx.Response.Trailer
	trailer.Reset()
	for _, name := range w.trailers {
		for _, value := range w.header[name] {
			trailer.Add(name, value)
		}
	}
	for key, values := range w.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			for _, value := range values {
				trailer.Add(name, value)
			}
		}
	}
}

// SetReadDeadline sets the deadline for reading the request's body, for http.ResponseController. It doesn't end a read that is
// already waiting.
func (w *responseWriter) SetReadDeadline(t time.Time) error {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	if w.exchange.ended || w.direct {
		return errEnded
	}
	return w.exchange.ctx.SetReadDeadline(deadline(t))
}

// deadline returns the deadline for a Ctx that means the same as t does in net/http, where the zero time means none. For a Ctx it means the
// server's time-outs.
func deadline(t time.Time) time.Time {
	const never = 100 * 365 * 24 * time.Hour
	if t.IsZero() {
		return time.Now().Add(never)
	}
	return t
}

// SetWriteDeadline sets the deadline for sending the answer, for http.ResponseController.
func (w *responseWriter) SetWriteDeadline(t time.Time) error {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	if w.exchange.ended || w.direct {
		return errEnded
	}
	return w.exchange.ctx.SetWriteDeadline(deadline(t))
}

// CloseNotify implements http.CloseNotifier, which is deprecated but in use.
func (w *responseWriter) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	ctx := &w.exchange.context
	context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, filo.ErrClientGone) || errors.Is(cause, filo.ErrServerClosed) {
			gone <- true
		}
	})
	return gone
}

// EnableFullDuplex supports http.ResponseController. A handler may always read while it writes.
func (w *responseWriter) EnableFullDuplex() error { return nil }

// bodyAllowed reports whether an answer with the status has a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// complain logs a handler's mistake and its location in the handler's code.
func (w *responseWriter) complain(what string) {
	var callers [16]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	frame, more := frames.Next()
	for more && (strings.HasPrefix(frame.Function, "net/http.") || strings.Contains(frame.Function, "/adaptor.(*responseWriter)")) {
		frame, more = frames.Next()
	}
	logger := w.exchange.server.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Warn("http: "+what, "caller", frame.Function,
		"at", path.Base(frame.File)+":"+strconv.Itoa(frame.Line))
}
