package http3filo

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"iter"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/qpack"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/pace"
)

const (
	// maxUnsent is how many bytes of an answer are buffered, so that a small answer takes a single write.
	maxUnsent = 4 << 10
	// maxKept is the capacity up to which buffers return to the pool.
	maxKept = 64 << 10
)

var (
	errBadMessage = errors.New("http3filo: a malformed request")
	errSlowBody   = &filo.HTTPError{Status: 408, Detail: "the request body arrived too slowly", Err: os.ErrDeadlineExceeded}
)

// request is a request and its answer. It implements hooks.Transport. The deadlines reads and writes limit how long it waits for the client, as
// ReadHeaderTimeout, ReadTimeout, WriteTimeout and MinTransferRate demand.
type request struct {
	*buffers
	conn   *conn
	stream *stream

	large   bool          // the head is much larger than its limit, so it wasn't read
	left    uint64        // bytes of the content in the frame that is being read
	content http2.Content // checks the length that the head has announced
	read    error         // io.EOF at the end of the body, or the error that ended it; nil before
	failed  failure       // why the answer can't be sent, or must not be
	limits  *http1.Limits // of the head, and of the trailer fields
	trailer field.List

	reading, writing pace.Pace
	reads, writes    deadline
}

// failure is the reason why a request fails, or nil. A time-out's answer may be sent while the handler reads the body, and both may fail.
type failure struct{ err atomic.Pointer[error] }

func (f *failure) set(err error) { f.err.Store(&err) }

func (f *failure) get() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// buffers are the buffers for decoding a request and encoding its answer. They are pooled.
type buffers struct {
	in      *bufio.Reader // reads the stream
	text    []byte        // the request's head
	fields  http2.Head
	frame   []byte // an encoded block of fields of the request
	unsent  []byte // the head and the first bytes of the answer's body
	block   bytes.Buffer
	encoder *qpack.Encoder // writes to block
}

var pool = sync.Pool{New: func() any {
	b := &buffers{in: bufio.NewReader(nil)}
	b.encoder = qpack.NewEncoder(&b.block)
	return b
}}

// serve answers the request of a stream. It reports false if it couldn't send the whole answer, for example because the client has cancelled the
// request.
func (c *conn) serve(s *stream) (whole bool) {
	r := &request{
		buffers: pool.Get().(*buffers), conn: c, stream: s,
		reads:  deadline{clock: &c.listener.clock, set: s.SetReadDeadline},
		writes: deadline{clock: &c.listener.clock, set: s.SetWriteDeadline},
	}
	defer func() {
		r.reads.stop()
		r.writes.stop()
		if !whole { // also after a panic
			c.fail(s, r.failed.get())
		}
	}()
	r.in.Reset(untilNow{s})
	if limit := c.listener.limits.ReadHeaderTimeout; limit > 0 {
		r.reads.setNow(time.Now().Add(limit))
	}
	if err := r.readHead(); err != nil {
		r.failed.set(err)
	}
	if <-c.heads; r.failed.get() != nil {
		return false
	}
	if c.listener.draining.Load() { // the request was on its way when the client was told to leave
		reset(s, errRejected)
		return true
	}
	if inside.Serve(c.listener.server, r) != nil || r.Flush() != nil || s.Context().Err() != nil {
		return false
	}
	if r.in.Reset(nil); max(cap(r.frame), cap(r.text), cap(r.unsent), r.block.Cap()) <= maxKept {
		pool.Put(r.buffers)
	}
	finish(s)
	return true
}

// untilNow is a stream whose Read doesn't return the error of an expired deadline together with bytes. A bufio.Reader would store that error for the
// next read, which may have a later deadline.
type untilNow struct{ *stream }

// Read implements io.Reader.
func (s untilNow) Read(p []byte) (n int, err error) {
	if n, err = s.stream.Read(p); n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// readHead reads the first frame of a request, which must contain the fields of the head.
func (r *request) readHead() error {
	kind, length, err := r.nextFrame()
	switch {
	case err != nil:
		return err // io.EOF, too: there is no request
	case kind != frameHeaders:
		return errFrameUnexpected
	case length > uint64(2*r.conn.listener.headBytes): // filo itself refuses heads that are less oversized, based on their fields
		r.large = true
		return nil
	}
	return r.readBlock(length)
}

// nextFrame skips frames of unknown types, and returns the type and length of the next frame. The error is io.EOF if the stream ends before one.
func (r *request) nextFrame() (kind frameType, length uint64, err error) {
	for {
		kind, length, err = readFrame(r.in)
		switch {
		case err != nil || kind == frameData || kind == frameHeaders:
			return kind, length, err
		case kind.in(onRequests):
			return 0, 0, errFrameUnexpected
		}
		if err := skip(r.in, length); err != nil {
			return 0, 0, err
		}
	}
}

// readBlock reads a block of fields. It allocates memory as the bytes arrive, since a client can announce a large frame and send nothing.
func (r *request) readBlock(length uint64) error {
	r.frame = r.frame[:0]
	for have, end := 0, 0; end < int(length); have = end {
		end = min(int(length), have+r.in.Size())
		r.frame = slices.Grow(r.frame, end-have)[:end]
		if _, err := io.ReadFull(r.in, r.frame[have:]); err != nil {
			return cutOff(err)
		}
	}
	return nil
}

// decode calls field for each field of the block. If the fields take more bytes than the limit (most), it stops and returns true in over.
func (r *request) decode(most int, field func(name, value string)) (over bool, err error) {
	next := new(qpack.Decoder).Decode(r.frame)
	for {
		f, err := next()
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, errBadBlock
		}
		if most -= len(f.Name) + len(f.Value) + 32; most < 0 { // RFC 9114, section 4.2.2
			return true, nil
		}
		field(f.Name, f.Value)
	}
}

// Head implements hooks.Transport.
func (r *request) Head(h *http1.RequestHead, limits *http1.Limits) (b []byte, length int64, fault http1.Fault) {
	r.limits = limits
	r.fields.Begin(h, r.text[:0], limits, false)
	over := r.large
	if !over {
		var err error
		if over, err = r.decode(2*r.conn.listener.headBytes, r.fields.Text); err != nil {
			r.failed.set(err)
		}
	}
	b, framing, bad, fault := r.fields.End(!over && r.isOver(), over)
	r.text = b
	if r.failed.get() == nil && bad != http2.NoFault && fault == http1.NoFault {
		r.failed.set(errBadMessage)
	}
	if r.failed.get() != nil {
		fault = http1.FaultFieldName // any fault with status 400 will do, since it isn't sent: the stream is reset
	}
	r.content.Begin(framing.Length)
	if framing.Length == 0 {
		r.read = io.EOF
	}
	r.stream.SetPriority(int8(r.fields.Priority.Urgency), r.fields.Priority.Incremental)
	return b, framing.Length, fault
}

// isOver reports whether the client has ended the request right after its head.
func (r *request) isOver() bool {
	r.reads.setNow(clock.Past)
	_, err := r.in.Peek(1)
	return err == io.EOF
}

// Read implements hooks.Transport.
func (r *request) Read(p []byte) (int, error) {
	l := r.conn.listener
	since := l.clock.Exact()
	r.reads.begin(r.reading.Deadline(since, l.reading), since)
	n, err := r.readContent(p)
	r.reading.Add(l.reading, n, l.clock.Exact().Sub(since))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errSlowBody
	}
	return n, err
}

func (r *request) readContent(p []byte) (n int, err error) {
	for r.left == 0 && r.read == nil {
		if err := r.nextData(); err != nil {
			return 0, err
		}
	}
	if r.left == 0 {
		return 0, r.read
	}
	n, err = r.in.Read(p[:min(uint64(len(p)), r.left)])
	if r.left -= uint64(n); r.left == 0 && err == io.EOF {
		err = nil
	}
	return n, r.fails(cutOff(err))
}

// nextData reads up to the next DATA frame, or to the end of the body.
func (r *request) nextData() error {
	kind, length, err := r.nextFrame()
	switch {
	case err == io.EOF:
	case err != nil:
		return r.fails(err)
	case kind == frameData:
		r.left = length
		return r.holdToLength(int64(length), false)
	default:
		if err := r.readTrailer(length); err != nil {
			return r.fails(err)
		}
		if _, _, err := r.nextFrame(); err == nil {
			return r.fails(errFrameUnexpected)
		} else if err != io.EOF {
			return r.fails(err)
		}
	}
	r.read = io.EOF
	return r.holdToLength(0, true)
}

func (r *request) readTrailer(length uint64) error {
	if length > uint64(r.conn.listener.headBytes) {
		return errBadMessage
	}
	if err := r.readBlock(length); err != nil {
		return err
	}
	var h http1.RequestHead
	r.fields.BeginTrailer(&h, nil, r.limits)
	over, err := r.decode(r.conn.listener.headBytes, r.fields.Text)
	if err != nil {
		return err
	}
	if bad, refused := r.fields.EndTrailer(&r.trailer, over); bad != http2.NoFault || refused != http1.NoFault {
		return errBadMessage
	}
	return nil
}

// holdToLength counts n bytes of content. It fails if the content exceeds the length that the head has announced, or ends before it.
func (r *request) holdToLength(n int64, ends bool) error {
	if r.content.Receive(n, ends) != http2.NoFault {
		return r.fails(errBadMessage)
	}
	return nil
}

// fails ends the body if err isn't nil, and returns err. If the client broke the protocol, fails also prevents an answer.
func (r *request) fails(err error) error {
	if err != nil {
		r.read, r.left = err, 0
	}
	if _, ends := err.(closeCode); ends || err == errBadMessage {
		r.failed.set(err)
	}
	return err
}

// Trailer implements hooks.Transport.
func (r *request) Trailer() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for i := range r.trailer.Len() {
			if !yield(string(r.trailer.Name(i)), string(r.trailer.Value(i))) {
				return
			}
		}
	}
}

// WriteHead implements hooks.Transport. If the connection ends, the client is told to leave.
func (r *request) WriteHead(h hooks.Head) {
	r.add(":status", strconv.Itoa(h.Status))
	r.addAll(h.Fields)
	if h.Length >= 0 {
		r.add("content-length", strconv.FormatInt(h.Length, 10))
	}
	if h.Trailer != nil {
		for i := range h.Trailer.Len() {
			if h.Trailer.ID(i).InTrailer() {
				r.add("trailer", string(h.Trailer.Name(i)))
			}
		}
	}
	r.endBlock()
	if h.Status < 200 {
		r.Flush()
	} else if h.Close {
		r.conn.leave()
	}
}

// WriteTrailer implements hooks.Transport.
func (r *request) WriteTrailer(fields iter.Seq2[[]byte, []byte]) {
	if r.addAll(fields); r.block.Len() > 0 {
		r.endBlock()
	}
}

// addAll adds fields to the block, except HTTP/1.1's fields about the connection (RFC 9114, section 4.2).
func (b *buffers) addAll(fields iter.Seq2[[]byte, []byte]) {
	for name, value := range fields {
		switch field.Lookup(name) {
		case field.Connection, field.ProxyConnection, field.Upgrade, field.TE:
		default:
			b.add(strings.ToLower(string(name)), string(value))
		}
	}
}

func (b *buffers) add(name, value string) {
	b.encoder.WriteField(qpack.HeaderField{Name: name, Value: value}) // it can't fail: it writes to a bytes.Buffer
}

// endBlock puts the block's fields into a frame.
func (b *buffers) endBlock() {
	b.unsent = append(appendFrame(b.unsent, frameHeaders, b.block.Len()), b.block.Bytes()...)
	b.block.Reset()
	b.encoder.Close()
}

// Write implements hooks.Transport. It sends p as one DATA frame.
func (r *request) Write(p []byte) (int, error) {
	r.unsent = appendFrame(r.unsent, frameData, len(p))
	if len(r.unsent)+len(p) <= maxUnsent {
		r.unsent = append(r.unsent, p...)
		return len(p), r.failed.get()
	}
	if err := r.Flush(); err != nil {
		return 0, err
	}
	return r.send(p)
}

// Flush implements hooks.Transport.
func (r *request) Flush() error {
	_, err := r.send(r.unsent)
	r.unsent = r.unsent[:0]
	return err
}

// send sends bytes. If the client has taken a part of them when the deadline passes, it gets the time that it has earned by that: see MinTransferRate.
func (r *request) send(p []byte) (written int, err error) {
	l := r.conn.listener
	for written < len(p) && r.failed.get() == nil {
		since := l.clock.Exact()
		r.writes.begin(r.writing.Deadline(since, l.writing), since)
		n, err := r.stream.Write(p[written:])
		written += n
		r.writing.Add(l.writing, n, l.clock.Exact().Sub(since))
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || r.writing.UsedUp(l.writing) || r.writes.isPastUntil()) {
			r.failed.set(err)
		}
	}
	return written, r.failed.get()
}

// SetReadDeadline implements hooks.Transport.
func (r *request) SetReadDeadline(at time.Time) error {
	r.reads.setUntil(at)
	return nil
}

// SetWriteDeadline implements hooks.Transport.
func (r *request) SetWriteDeadline(at time.Time) error {
	r.writes.setUntil(at)
	return nil
}

// Major implements hooks.Transport.
func (r *request) Major() uint8 { return 3 }

// LocalAddr implements hooks.Transport.
func (r *request) LocalAddr() net.Addr { return r.conn.local }

// RemoteAddr implements hooks.Transport.
func (r *request) RemoteAddr() net.Addr { return r.conn.RemoteAddr() }

// TLS implements hooks.Transport.
func (r *request) TLS() *tls.ConnectionState { return &r.conn.tls }

// Context implements hooks.Transport.
func (r *request) Context() context.Context { return r.stream.Context() }

// MayInterrupt implements hooks.Transport.
func (r *request) MayInterrupt() bool { return true }

// Hijack implements hooks.Transport.
func (r *request) Hijack() (net.Conn, error) { return nil, errors.ErrUnsupported }
