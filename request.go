package filo

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"mime/multipart"
	"runtime/debug"
	"unsafe"

	"github.com/filohttp/filo/internal/cookie"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/formdata"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/syntax"
)

// Request is the request that a handler answers. It belongs to its Ctx and is valid until the handler returns.
type Request struct {
	// Header holds the header fields.
	Header Header
	// Trailer holds the trailer fields of a chunked body, once the body has been read to its end.
	Trailer Header

	ctx  *Ctx
	head []byte // the request head, in the connection's read buffer
	host []byte // the value of Host as sent, in head; nil if there is none

	line  http1.Line // in head
	http2 bool
	// major is the version of HTTP over which another server has received the request, 2 or 3; 0 if http2 and line determine the version.
	major uint8
	// extended says that the request is an extended CONNECT: a 2xx answer switches to the protocol that the request names.
	extended bool
	framing  http1.Framing
	// changed says that change or replaced is set. Checking this one flag saves time in every request.
	changed bool

	body     body
	replaced *replacedBody // nil if nothing replaces body

	uri       URI
	uriParsed bool
	change    requestChange

	form          Args
	formErr       error
	formParsed    bool
	multipart     *multipart.Form
	multipartErr  error
	multipartRead bool
}

// begin sets r to the request with the head h, which lies in b. r.Header already has the fields.
func (r *Request) begin(c *Ctx, h *http1.RequestHead, b []byte, f http1.Framing) {
	r.ctx, r.head, r.framing, r.line = c, b, f, h.Line
	r.uriParsed, r.http2, r.major, r.extended = false, false, 0, false
	r.host = nil
	if i := h.HostIndex(); i >= 0 {
		r.host = r.Header.list.Value(i)
	}
	r.body.begin(f)
}

// isForServer reports whether the target is "*": OPTIONS * asks about the server. A target of CONNECT may begin with a star, too.
func (r *Request) isForServer() bool {
	line := &r.line
	return r.head[line.TargetStart] == '*' && line.TargetEnd == line.TargetStart+1
}

// end releases what the request holds.
func (r *Request) end() {
	if r.Trailer.Len() > 0 {
		r.Trailer.list.ResetWithin(maxKeptHeader)
	}
	if r.formParsed || r.multipartRead {
		r.form.Reset()
		r.formParsed, r.formErr = false, nil
		r.multipartErr, r.multipartRead = nil, false
	}
	if r.uriParsed {
		r.uri.reset()
		r.uriParsed = false
	}
	if r.changed {
		r.changed = false
		r.change.end()
	}
	r.body.end()
}

// errBodyEnded is what an ErrorHandler gets if it asks for the body after the answer has begun.
var errBodyEnded = errors.New("filo: the body was released when its answer began")

// overlap reports whether a begins in the memory of b.
func overlap(a, b []byte) bool {
	start, begin := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return start >= begin && start-begin < uintptr(cap(b))
}

// Method returns the method as sent, or as changed by SetMethod. Methods are case-sensitive.
func (r *Request) Method() string {
	method := r.MethodBytes()
	for _, name := range &syntax.Methods { // without an allocation
		if string(method) == name {
			return name
		}
	}
	return string(method)
}

// MethodBytes returns the method, borrowed.
func (r *Request) MethodBytes() []byte {
	if r.changed && r.change.method != nil {
		return r.change.method
	}
	return r.head[r.line.MethodStart:r.line.MethodEnd:r.line.MethodEnd]
}

// isHead reports whether the client sent HEAD, to which the answer has no body.
func (r *Request) isHead() bool { return string(r.head[r.line.MethodStart:r.line.MethodEnd]) == "HEAD" }

// isConnect reports whether the client sent CONNECT.
func (r *Request) isConnect() bool {
	return string(r.head[r.line.MethodStart:r.line.MethodEnd]) == "CONNECT"
}

// Target returns the request target as sent (RFC 9112, section 3.2), usually a path with its query, or as changed by SetTarget.
func (r *Request) Target() string { return string(r.TargetBytes()) }

// TargetBytes returns the result of Target as borrowed bytes.
func (r *Request) TargetBytes() []byte {
	if r.changed && r.change.target != nil {
		return r.change.target
	}
	return r.head[r.line.TargetStart:r.line.TargetEnd:r.line.TargetEnd]
}

// Proto returns the protocol version: "HTTP/2.0", "HTTP/1.1" or "HTTP/1.0", and "HTTP/3.0" if another server has received the request over
// HTTP/3. A later 1.x counts as HTTP/1.1.
func (r *Request) Proto() string {
	switch {
	case r.http2, r.major == 2:
		return "HTTP/2.0"
	case r.major == 3:
		return "HTTP/3.0"
	case r.line.Minor == 0:
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// URI returns the parts of the target. The target is parsed on the first call.
func (r *Request) URI() *URI {
	if !r.uriParsed {
		r.check()
		r.uri.parse(r.TargetBytes(), r.host, r.ctx.TLS() != nil)
		r.uriParsed = true
	}
	return &r.uri
}

// Query returns the parameters of the target's query.
func (r *Request) Query() *Args { return r.URI().Query() }

// Host returns the host and port that the request is for: from the target if it was sent in absolute form, else from the Host
// field.
func (r *Request) Host() string { return string(r.HostBytes()) }

// HostBytes returns the result of Host as borrowed bytes.
func (r *Request) HostBytes() []byte {
	if r.head[r.line.TargetStart] == '/' {
		return r.Header.list.GetID(field.Host)
	}
	return r.URI().HostBytes()
}

// ContentLength returns the announced length of the body in bytes. It is 0 if there is no body, and -1 if the length is unknown
// because the body is chunked or SetBodyReader replaced it.
func (r *Request) ContentLength() int64 {
	if r.replaced != nil {
		return -1
	}
	return r.framing.Length
}

// ContentType returns the Content-Type field with its parameters.
func (r *Request) ContentType() string { return string(r.Header.list.GetID(field.ContentType)) }

// Close reports whether the client asked the server to close the connection after this request.
func (r *Request) Close() bool { return r.framing.Close }

// Cookie returns the value of the first cookie called name, "" if there is none. A cookie whose value has bytes that RFC 6265 doesn't
// allow, such as the quotes of JSON, counts as missing: encode such values, for example with encodeURIComponent. Spaces and commas are
// allowed.
func (r *Request) Cookie(name string) string { return string(r.CookieBytes(name)) }

// CookieBytes returns the result of Cookie as borrowed bytes, or nil if there is no such cookie.
func (r *Request) CookieBytes(name string) []byte {
	h := &r.Header
	for i := h.list.FindID(field.Cookie, 0); i >= 0; i = h.list.FindID(field.Cookie, i+1) {
		if value, ok := cookie.Value(h.list.Value(i), name); ok {
			return value
		}
	}
	return nil
}

// Cookies yields the name and value of each cookie, borrowed, except those that Cookie leaves out.
func (r *Request) Cookies() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for pairs := range r.Header.Values(field.Cookie.String()) {
			for name, value := range cookie.Pairs(pairs) {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// check does what Ctx.check does, for the methods that need the server or the connection.
func (r *Request) check() {
	if r.ctx == nil || r.ctx.exchange == nil {
		panic(released)
	}
}

// Body reads the whole body and returns it, borrowed. It waits for bytes that haven't arrived yet. The error is an HTTPError:
// 413 for a body over the limit, 408 for one that arrives too slowly, 400 for one that is truncated or malformed. With an error
// no part of the body is returned. Later calls return the same result.
//
// Body may be called before Form and MultipartForm, and after Form. After MultipartForm, which keeps no whole body, Body returns an
// error without a status. After a part of the body was read by BodyReader, Body returns the rest.
func (r *Request) Body() ([]byte, error) {
	r.check()
	if r.replaced != nil {
		return r.replaced.readWhole()
	}
	return r.ctx.exchange.readWholeBody(&r.body)
}

// BodyReader returns a reader of the body as it arrives, with the same errors as Body. Both read the same bytes, so use only
// one of them.
//
// io.Copy and io.CopyBuffer call the reader's WriteTo, which uses a buffer that the server lends: 32 KB, or 64 KB once the client fills 32
// KB. To use a buffer of your own, or the writer's ReadFrom, copy from struct{ io.Reader }{c.BodyReader()}.
func (r *Request) BodyReader() io.Reader {
	r.check()
	if r.replaced != nil {
		return r.replaced
	}
	return (*bodyReader)(r.ctx)
}

type bodyReader Ctx

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	c := (*Ctx)(b)
	c.check()
	return c.exchange.readBody(&c.Request.body, p)
}

// WriteTo implements io.WriterTo.
func (b *bodyReader) WriteTo(w io.Writer) (int64, error) { return lend.Copy(w, b) }

// Form reads an application/x-www-form-urlencoded body and returns its parameters. The error is an HTTPError with status 415
// for another Content-Type, and 400 for too many parameters. If BodyReader has read from the body, the error has no status.
func (r *Request) Form() (*Args, error) {
	if r.formParsed {
		return &r.form, r.formErr
	}
	r.formParsed = true
	if !syntax.EqualFold(syntax.MediaType(r.Header.list.GetID(field.ContentType)), "application/x-www-form-urlencoded") {
		r.formErr = Error(415, "the body must be application/x-www-form-urlencoded")
		return &r.form, r.formErr
	}
	if whole, taken := r.progress(); !whole && taken > 0 {
		r.formErr = errNotWhole
		return &r.form, errNotWhole
	}
	data, err := r.Body()
	if err == nil {
		err = r.form.Parse(data)
	}
	r.formErr = err
	return &r.form, err
}

// MultipartForm reads a multipart/form-data body, limited by the server's MultipartLimits and the body limit. Files over the
// memory limit go to temporary files, which the server removes when the handler returns. If BodyReader or MultipartReader has read
// from the body, the error has no status.
func (r *Request) MultipartForm() (*multipart.Form, error) {
	r.check()
	if !r.multipartRead {
		r.multipartRead = true
		r.multipart, r.multipartErr = r.readMultipartForm()
	}
	return r.multipart, r.multipartErr
}

func (r *Request) readMultipartForm() (*multipart.Form, error) {
	body := r.BodyReader()
	whole, taken := r.progress()
	switch {
	case whole:
		b, err := r.Body()
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b) // from the start, even if a reader has read from it since
	case taken > 0:
		return nil, errNotWhole
	}
	x := r.ctx.exchange
	limits := formdata.Limits(x.server.MultipartLimits).WithDefaults()
	room := &formdata.Counter{Body: body, Most: max(limits.MaxMemory, 0), Free: maxKeptBody, Take: x.takeRoom, Give: x.giveRoom}
	form, err := room.ReadForm(r.ContentType(), limits)
	if _, taken = r.progress(); !whole && taken > 0 {
		if r.replaced != nil {
			r.replaced.formRead = true
		} else {
			r.body.formRead = true
		}
	}
	return form, formError(err)
}

// progress reports whether Body has read the body, and how many bytes of the body were read so far.
func (r *Request) progress() (whole bool, taken int64) {
	if r.replaced != nil {
		return r.replaced.wholeRead, r.replaced.received
	}
	return r.body.wholeRead, r.body.received
}

// wholeBody returns the result of Body, and whether that is the whole body: see inside.WholeBody.
func (c *Ctx) wholeBody() ([]byte, bool, error) {
	body, err := c.Request.Body()
	if errors.Is(err, errFormRead) || errors.Is(err, errBodyLent) {
		return nil, false, nil
	}
	_, taken := c.Request.progress()
	return body, int64(len(body)) == taken, err
}

// MultipartReader returns a reader of the parts of a multipart body, one by one, as they arrive.
func (r *Request) MultipartReader() (*multipart.Reader, error) {
	reader, err := formdata.NewReader(r.BodyReader(), r.ContentType())
	return reader, formError(err)
}

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

// SetTarget changes the path and query of the request, for middleware that runs before the router. Target, URI and Query then return target
// and its parts. The target must be in origin-form, such as "/a%20b?x=1". Scheme and host don't change, even if they were sent as a part of
// the target. Bytes that were borrowed earlier stay valid.
//
// If SetTarget returns an error, an *HTTPError with status 400, the target is unchanged. The reason is that the argument isn't in origin-form
// (RFC 9112, section 3.2.1), or that the request has no path to replace, as with CONNECT and OPTIONS *.
func (r *Request) SetTarget(target string) error {
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, target...)
	return r.setTarget(start)
}

// SetTargetBytes is like SetTarget, for a target in bytes, which are copied.
func (r *Request) SetTargetBytes(target []byte) error {
	start := len(r.change.memory)
	r.change.memory = append(r.change.memory, target...)
	return r.setTarget(start)
}

// setTarget sets the target that was appended to change.memory at start. It removes an invalid target from that memory.
func (r *Request) setTarget(start int) error {
	target, uri := r.change.since(start), r.URI()
	hasPath := uri.target.HasPath()
	if hasPath && syntax.ValidOriginTarget(target) {
		r.change.target, r.changed = target, true
		uri.replace(target)
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

// replacedBody is the body that SetBodyReader has set in place of the request's.
type replacedBody struct {
	ctx      *Ctx
	reader   io.Reader
	before   *replacedBody // the body that this one replaces; nil if it replaces the client's body
	received int64
	err      error // returned by every further read

	wholeBody // whole is in a buffer of its own
}

// SetBodyReader replaces the request body with the content of reader, for Body, BodyReader, Form and the other methods. Usually reader
// decodes what the reader of an earlier BodyReader call returns. reader must return io.EOF at the end; any other error becomes an error of
// the body.
//
// The body is read from reader on demand. At the end of the request reader is closed if it is an io.Closer. The body limit applies to
// the bytes from reader and, separately, to the bytes that the client sends. The server skips the client's bytes that reader leaves unread, as
// for any request. ContentLength then returns -1; the caller adjusts the header fields. Call SetBodyReader before Form or
// MultipartForm: once these have returned a result, they keep returning it.
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

// WriteTo implements io.WriterTo.
func (b *replacedBody) WriteTo(w io.Writer) (int64, error) { return lend.Copy(w, b) }

func (b *replacedBody) read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.reader.Read(p)
	b.received += int64(n)
	if b.ctx.Request.body.limit.isBelow(b.received) {
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
	buffer := b.ctx.exchange.scratch.takeBuffer()
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
