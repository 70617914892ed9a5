package filo

import (
	"io"
	"runtime/debug"

	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/syntax"
)

// requestChange holds the method and the target that SetMethod and SetTarget have set. The original ones stay in the connection's
// buffer: the handler may have borrowed them, and the original method decides how the answer is framed.
type requestChange struct {
	method, target []byte // slices of memory; nil if unchanged
	// memory is append-only until the request ends, so that slices borrowed from it keep their bytes.
	memory []byte
}

// maxKeptChange is how much memory for changes is kept between requests.
const maxKeptChange = 8 << 10

// These errors are shared: nothing may change them.
var (
	errChangeMethod  = Error(400, "the method isn't a token")
	errChangeConnect = Error(400, "CONNECT can't become another request, nor another one CONNECT")
	errChangeForm    = Error(400, "the request target has no path")
)

// SetMethod changes the method that Method and MethodBytes return, for middleware that runs before the router. The method that
// was sent still decides how the answer is framed: an answer to HEAD, and only that, has no body.
//
// If SetMethod returns an error, an *HTTPError, the method is unchanged. The status is 400 if method isn't a token (RFC 9110,
// section 5.6.2), or if the old or new method is CONNECT, whose target has another form; 501 if method has more than 32 bytes.
func (r *Request) SetMethod(method string) error {
	switch {
	case method == "CONNECT" || string(r.MethodBytes()) == "CONNECT":
		return errChangeConnect
	case !syntax.IsToken(method):
		return errChangeMethod
	case len(method) > http1.MaxMethodBytes:
		return faultErrors[http1.FaultMethodTooLong]
	}
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, method...)
	r.change.method, r.changed = r.change.since(start), true
	return nil
}

// SetTarget changes the path and query of the request, for middleware that runs before the router. Target, URI and Query then
// return those of target, which must be in origin-form, such as "/a%20b?x=1". Scheme and host don't change, even if they were
// sent as a part of the target. Bytes borrowed before stay valid.
//
// If SetTarget returns an error, an *HTTPError with status 400, the target is unchanged. Either target isn't in origin-form
// (RFC 9112, section 3.2.1), or the request has no path to replace, as with CONNECT and OPTIONS *.
func (r *Request) SetTarget(target string) error {
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, target...)
	return r.setTarget(start)
}

// SetTargetBytes is SetTarget for a target in bytes, which are copied.
func (r *Request) SetTargetBytes(target []byte) error {
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, target...)
	return r.setTarget(start)
}

// setTarget sets the target that was appended to change.memory at start. It removes an invalid one from there.
func (r *Request) setTarget(start int) error {
	target, uri := r.change.since(start), r.URI()
	uri.split()
	hasPath := uri.form == targetOrigin || uri.form == targetAbsolute
	if hasPath && syntax.ValidOriginTarget(target) {
		r.change.target, r.changed = target, true
		uri.setTarget(target)
		return nil
	}
	r.change.memory = r.change.memory[:start]
	if !hasPath {
		return errChangeForm
	}
	return faultErrors[http1.FaultTarget]
}

// since returns what was appended to the memory from start on.
func (change *requestChange) since(start int) []byte {
	end := len(change.memory)
	return change.memory[start:end:end]
}

// end forgets the changes. Slices borrowed from them become invalid.
func (change *requestChange) end() {
	lend.Poison(change.memory[:cap(change.memory)])
	memory := change.memory[:0]
	if cap(memory) > maxKeptChange {
		memory = nil
	}
	*change = requestChange{memory: memory}
}

// setTarget replaces path and query. The URI must have been split, so that host and scheme are known.
func (u *URI) setTarget(target []byte) {
	u.target, u.form = target, targetOrigin
	u.rawPath, u.rawQuery = nil, nil
	u.splitPath(target)
	if u.path != nil {
		// The handler may have borrowed the old path, whose bytes are in decoded: give up both.
		u.path, u.decoded = nil, nil
	}
	if u.queryParsed {
		u.query, u.queryParsed = Args{}, false
	}
}

// replacedBody is the body that SetBodyReader has set in place of the request's.
type replacedBody struct {
	ctx      *Ctx
	reader   io.Reader
	before   *replacedBody // the body that this one replaces; nil if that is the client's
	received int64
	err      error // returned by every further read

	wholeBody // whole is in a buffer of its own
}

// SetBodyReader replaces the request body by the content of reader, for Body, BodyReader, Form and the other methods. Usually
// reader decodes what an earlier BodyReader returned. It returns io.EOF at the end; any other error becomes an error of the
// body.
//
// The body is read from reader on demand. At the end of the request reader is closed if it is an io.Closer. The body limit applies to
// the bytes from reader and, separately, to the bytes that the client sends. The server skips the client's bytes that reader leaves unread, as
// for any request. ContentLength then returns -1; the caller adjusts the header fields. Call SetBodyReader before Form or
// MultipartForm: those keep returning a result that they have returned before.
func (r *Request) SetBodyReader(reader io.Reader) {
	r.ctx.check()
	if reader == nil {
		panic("filo: SetBodyReader with a nil reader")
	}
	r.changed = true
	r.replaced = &replacedBody{ctx: r.ctx, reader: reader, before: r.replaced}
}

// Read implements io.Reader.
func (b *replacedBody) Read(p []byte) (int, error) {
	b.ctx.check()
	if b.wholeRead {
		return b.readFromWhole(p)
	}
	if b.formRead {
		return 0, errFormRead
	}
	return b.read(p)
}

func (b *replacedBody) read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.reader.Read(p)
	b.received += int64(n)
	if limit := b.ctx.Request.body.limit; limit >= 0 && b.received > limit {
		n, err = 0, errTooLarge
	}
	b.err = err
	return n, err
}

// readWhole returns the whole body. Its length isn't known in advance, so the buffer grows as needed.
func (b *replacedBody) readWhole() ([]byte, error) {
	if b.wholeRead {
		return b.whole, b.wholeErr
	}
	if b.formRead {
		return nil, errFormRead
	}
	buffer := b.ctx.exchange.worker.takeBuffer()
	var err error
	for err == nil {
		if len(buffer) == cap(buffer) {
			if buffer, err = b.ctx.exchange.growBody(buffer, 2*cap(buffer)); err != nil {
				break
			}
		}
		var n int
		n, err = b.read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
	}
	b.wholeRead = true
	if err != io.EOF {
		b.ctx.exchange.dropBody(buffer)
		b.wholeErr = err
		return nil, err
	}
	b.whole = buffer
	return buffer, nil
}

// end closes the body and those that it replaces, and releases their buffers.
func (b *replacedBody) end() {
	for ; b != nil; b = b.before {
		b.close()
		if b.whole != nil {
			b.ctx.exchange.dropBody(b.whole)
			b.whole = nil
		}
	}
}

// close closes the reader. A panic in its Close, which is the user's code, is logged and goes no further.
func (b *replacedBody) close() {
	closer, ok := b.reader.(io.Closer)
	if !ok {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			logPanic(b.ctx.Logger(), "panic in a body reader's Close", value, debug.Stack())
		}
	}()
	closer.Close()
}
