package http3filo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/qpack"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/pace"
)

// The types of frames that answers consist of (RFC 9114, section 7.2).
const (
	frameData    = 0
	frameHeaders = 1
)

// maxUnsent is how many bytes of an answer are gathered, so that small answers are sent in one piece.
const maxUnsent = 4 << 10

// exchange is a request and its answer. Its reads and writes wait for the client as long as ReadTimeout, WriteTimeout and MinTransferRate
// allow, which the stream's deadlines enforce. It implements hooks.HeadWriter.
type exchange struct {
	http.ResponseWriter // the protocol's; the answer goes to the stream instead
	*buffers

	listener *listener
	stream   *stream
	body     io.ReadCloser
	failed   error // why the answer can't be sent

	reading, writing pace.Pace

	mu                    sync.Mutex // held while a deadline is set
	readUntil, writeUntil time.Time  // what the handler has set; guarded by mu
}

// buffers are what an answer is encoded with.
type buffers struct {
	unsent  []byte // the head and the first bytes of the body
	block   bytes.Buffer
	encoder *qpack.Encoder // writes to block
}

var pool = sync.Pool{New: func() any {
	b := new(buffers)
	b.encoder = qpack.NewEncoder(&b.block)
	return b
}}

// serve answers a request. It reports false if the answer isn't whole, such as when the client has cancelled the request.
func (c *conn) serve(w http.ResponseWriter, r *http.Request, s *stream) (whole bool) {
	defer func() {
		if !whole { // also after a panic
			s.reset(errInternal)
		}
	}()
	e := &exchange{ResponseWriter: w, buffers: pool.Get().(*buffers), listener: c.listener, stream: s, body: r.Body}
	if r.ContentLength < 0 && e.isOver() {
		r.ContentLength, r.Body = 0, http.NoBody
	} else {
		r.Body = e
	}
	c.listener.handler.ServeHTTP(e, r)
	if e.FlushError() != nil || r.Context().Err() != nil {
		return false
	}
	pool.Put(e.buffers)
	s.end()
	return true
}

// isOver reports whether the client has ended a request whose head doesn't say how long its body is.
func (e *exchange) isOver() bool {
	e.stream.SetReadDeadline(clock.Past) // until Read sets another one
	_, err := e.body.Read(make([]byte, 1))
	return err == io.EOF
}

// Read implements io.Reader.
func (e *exchange) Read(p []byte) (int, error) {
	limits, since := e.listener.reading, e.listener.clock.Exact()
	e.setDeadline(e.stream.SetReadDeadline, &e.readUntil, e.reading.Deadline(since, limits), since)
	n, err := e.body.Read(p)
	e.reading.Add(limits, n, e.listener.clock.Exact().Sub(since))
	return n, err
}

// Close implements io.Closer.
func (e *exchange) Close() error { return e.body.Close() }

// setDeadline sets the earlier one of two deadlines: what the handler has set, and the moment due. Either may be none.
func (e *exchange) setDeadline(set func(time.Time) error, until *time.Time, due, now clock.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := *until
	if due != 0 {
		if limit := time.Now().Add(due.Sub(now)); at.IsZero() || limit.Before(at) {
			at = limit
		}
	}
	set(at)
}

// WriteHead implements hooks.HeadWriter.
func (e *exchange) WriteHead(h hooks.Head) {
	e.field(":status", strconv.Itoa(h.Status))
	e.fields(h.Fields)
	if h.Length >= 0 {
		e.field("content-length", strconv.FormatInt(h.Length, 10))
	}
	if h.Trailer != nil {
		for i := range h.Trailer.Len() {
			if h.Trailer.ID(i).InTrailer() {
				e.field("trailer", string(h.Trailer.Name(i)))
			}
		}
	}
	e.endFields()
	if h.Status < 200 {
		e.FlushError()
	}
}

// WriteTrailer implements hooks.HeadWriter.
func (e *exchange) WriteTrailer(fields iter.Seq2[[]byte, []byte]) {
	e.fields(fields)
	if e.block.Len() > 0 {
		e.endFields()
	}
}

// fields adds fields to the block, except the one that only HTTP/1.1 has.
func (b *buffers) fields(fields iter.Seq2[[]byte, []byte]) {
	for name, value := range fields {
		if lower := strings.ToLower(string(name)); lower != "connection" {
			b.field(lower, string(value))
		}
	}
}

func (b *buffers) field(name, value string) {
	b.encoder.WriteField(qpack.HeaderField{Name: name, Value: value}) // a bytes.Buffer takes everything
}

// endFields makes a frame of the block's fields.
func (b *buffers) endFields() {
	b.unsent = append(appendFrame(b.unsent, frameHeaders, b.block.Len()), b.block.Bytes()...)
	b.block.Reset()
	b.encoder.Close()
}

// appendFrame appends the beginning of a frame. Its length takes 8 bytes if it doesn't fit into 2 (RFC 9000, section 16).
func appendFrame(b []byte, kind byte, length int) []byte {
	b = append(b, kind)
	if length < 1<<14 {
		return binary.BigEndian.AppendUint16(b, uint16(length)|1<<14)
	}
	return binary.BigEndian.AppendUint64(b, uint64(length)|3<<62)
}

// Write implements http.ResponseWriter. The bytes become a frame.
func (e *exchange) Write(p []byte) (int, error) {
	e.unsent = appendFrame(e.unsent, frameData, len(p))
	if len(e.unsent)+len(p) <= maxUnsent {
		e.unsent = append(e.unsent, p...)
		return len(p), e.failed
	}
	if err := e.FlushError(); err != nil {
		return 0, err
	}
	return e.send(p)
}

// FlushError is http.Flusher's Flush for an http.ResponseController.
func (e *exchange) FlushError() error {
	_, err := e.send(e.unsent)
	e.unsent = e.unsent[:0]
	return err
}

// send sends bytes. A client that takes a part before the deadline gets the time that it has earned by that.
func (e *exchange) send(p []byte) (written int, err error) {
	limits := e.listener.writing
	for written < len(p) && e.failed == nil {
		since := e.listener.clock.Exact()
		e.setDeadline(e.stream.SetWriteDeadline, &e.writeUntil, e.writing.Deadline(since, limits), since)
		n, err := e.stream.QUICStream().Write(p[written:])
		written += n
		e.writing.Add(limits, n, e.listener.clock.Exact().Sub(since))
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || e.writing.UsedUp(limits) || e.isPastUntil()) {
			e.failed = err
		}
	}
	return written, e.failed
}

// isPastUntil reports whether the deadline that the handler has set for writing has passed.
func (e *exchange) isPastUntil() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.writeUntil.IsZero() && !time.Now().Before(e.writeUntil)
}

// SetReadDeadline is for an http.ResponseController.
func (e *exchange) SetReadDeadline(at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readUntil = at
	return e.stream.SetReadDeadline(at)
}

// SetWriteDeadline is for an http.ResponseController.
func (e *exchange) SetWriteDeadline(at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writeUntil = at
	return e.stream.SetWriteDeadline(at)
}
