package middleware

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// DecompressOptions configures Decompress.
type DecompressOptions struct {
	// MaxBytes is the maximum size of a decoded body: filo.DefaultMaxBodyBytes (4 MB) if 0, no limit of its own if negative. The limit for
	// all bodies, Server.MaxBodyBytes or that of BodyLimit, also applies, both to the body as sent and to the decoded body.
	MaxBytes int64
	// Encodings are the content codings to decode, out of "gzip", "deflate" and "zstd"; nil means all.
	Encodings []string
}

// Decompress decodes request bodies with a Content-Encoding for every reader: Ctx.Body, BodyReader, Form and so on. It removes
// the fields Content-Encoding and Content-Length from such requests.
//
// Decompress refuses a body with another coding, or with more than one, with 415 (Unsupported Media Type) and an Accept-Encoding that lists
// the available codings. Reading a corrupt body fails with 400, and reading a body that exceeds MaxBytes fails with 413.
//
// A zstd body may use a window of up to 8 MB; a body with a larger window fails with 413. If the window exceeds 1 MB, decoding begins only
// when 1 MB of the body, or all of it, has arrived. In a body of several frames, the window of the first frame decides. While zstd decodes a
// body, 1.25 MB count against Server.MaxBufferedBodies, or 9.25 MB if the window exceeds 1 MB. If there is no room for them, reading the body
// fails with 503, and a body whose client has been silent for a second may be cut off with 408, as other bodies in memory are.
//
// Put it in front of everything that reads bodies.
func Decompress(options ...DecompressOptions) filo.Middleware {
	m := newDecompressor(setup.One("middleware: Decompress", options))
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if err := m.decode(c); err != nil {
				return err
			}
			return next(c)
		}
	}
}

type decompressor struct {
	maxBytes  int64
	encodings []string
	accept    string // the Accept-Encoding of a refusal
}

const (
	// maxWindow is the largest window of a zstd decoder. RFC 9659 forbids larger windows.
	maxWindow = 8 << 20
	// smallWindow is the largest window that a decoder allocates at once. It allocates a larger window only after smallWindow bytes of the
	// body, or the whole body, have arrived.
	smallWindow = 1 << 20
	// decoderCost is about how much memory a zstd decoder takes besides its window.
	decoderCost = 256 << 10
)

var (
	errCoding   = filo.Error(415, "unsupported Content-Encoding: Accept-Encoding lists the supported ones")
	errExpanded = &filo.HTTPError{Status: 413, Detail: "request body too large when decoded", Err: filo.ErrBodyTooLarge}
)

func newDecompressor(o DecompressOptions) *decompressor {
	o.MaxBytes = cmp.Or(o.MaxBytes, filo.DefaultMaxBodyBytes)
	if o.Encodings == nil {
		o.Encodings = []string{"gzip", "deflate", "zstd"}
	}
	for _, encoding := range o.Encodings {
		check(decoders[encoding] != nil, "Decompress: Encodings: %q is not gzip, deflate or zstd", encoding)
	}
	return &decompressor{o.MaxBytes, o.Encodings, strings.Join(o.Encodings, ", ")}
}

// decode replaces the body of a request that has a Content-Encoding.
func (m *decompressor) decode(c *filo.Ctx) error {
	h := &c.Request.Header
	coding, several := codingOf(h)
	if coding == "" || coding == "identity" && !several {
		return nil
	}
	for _, encoding := range m.encodings {
		if encoding != coding || several {
			continue
		}
		if c.Request.ContentLength() != 0 {
			body := bodies.Get().(*decodedBody)
			body.begin(c, decoders[encoding], m.maxBytes)
			c.Request.SetBodyReader(body)
		}
		h.Del("Content-Encoding")
		h.Del("Content-Length")
		return nil
	}
	c.Response.Header.Set("Accept-Encoding", m.accept)
	return errCoding
}

// codingOf returns the name of a body's content coding as in decoders, "unknown" for any other coding, or "" if there is none. It also
// reports whether there are several codings.
func codingOf(h *filo.Header) (coding string, several bool) {
	for list := range h.Values("Content-Encoding") {
		for len(list) > 0 {
			var element []byte
			element, list, _ = bytes.Cut(list, []byte{','})
			if element = bytes.TrimSpace(element); len(element) == 0 {
				continue // RFC 9110, section 5.6.1.2
			}
			several = coding != ""
			coding = "unknown"
			if i := syntax.CodingNumber(element); i >= 0 {
				coding = syntax.CodingNames[i]
			}
			if several {
				return coding, true
			}
		}
	}
	return coding, false
}

// decodedBody is a request body that is decoded while it is read.
type decodedBody struct {
	ctx     *filo.Ctx
	source  *bufio.Reader // reads from encoded
	encoded encodedBody
	decoder decoder    // nil before the first read, and when decoding has ended
	pool    *sync.Pool // of decoders
	room    int64      // how many bytes decoder counts against the server's limit for bodies
	left    int64      // how many more decoded bytes are allowed, if bounded
	bounded bool
	err     error
}

// bodies has all unused instances of *decodedBody.
var bodies = sync.Pool{New: func() any { return &decodedBody{source: bufio.NewReader(nil)} }}

// encodedBody is the body as it was sent. It remembers its final error, since the decoder may return another one.
type encodedBody struct {
	io.Reader
	err error
}

func (b *encodedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// decoder decodes its input to the end. Nothing may follow the encoded body.
type decoder interface {
	io.Reader
	start(b *decodedBody) error
	stop()
}

// decoders has a pool of decoders for each coding.
var decoders = map[string]*sync.Pool{
	"gzip":    decoderPool(func() decoder { return new(gzipDecoder) }),
	"deflate": decoderPool(func() decoder { return new(zlibDecoder) }),
	"zstd":    decoderPool(func() decoder { return new(zstdDecoder) }),
}

func decoderPool(make func() decoder) *sync.Pool {
	return &sync.Pool{New: func() any { return make() }}
}

func (b *decodedBody) begin(c *filo.Ctx, pool *sync.Pool, maxBytes int64) {
	b.ctx, b.pool = c, pool
	b.encoded = encodedBody{Reader: c.BodyReader()}
	b.source.Reset(&b.encoded)
	b.left, b.bounded, b.err = maxBytes, maxBytes >= 0, nil
}

// Read implements io.Reader. The body isn't read before the first call, because reading it may ask the client to send it.
func (b *decodedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.decoder == nil {
		b.decoder = b.pool.Get().(decoder)
		if err := b.decoder.start(b); err != nil {
			return 0, b.end(b.failure(err, false))
		}
	}
	n, err := b.decoder.Read(p)
	if b.left -= int64(n); b.bounded && b.left < 0 {
		return 0, b.end(errExpanded)
	}
	if err != nil {
		err = b.end(b.failure(err, true))
	}
	return n, err
}

// takeRoom counts n more bytes for the decoder.
func (b *decodedBody) takeRoom(n int64) error {
	err := inside.TakeRoom(b.ctx, n)
	if err == nil {
		b.room += n
	}
	return err
}

// end ends the decoding. Read then returns err. The decoder returns to its pool at once: the handler may still run for long.
func (b *decodedBody) end(err error) error {
	b.err = err
	if b.decoder != nil {
		b.decoder.stop()
		b.pool.Put(b.decoder)
		b.decoder = nil
	}
	if b.room > 0 {
		inside.GiveRoom(b.ctx, b.room)
		b.room = 0
	}
	return err
}

// failure translates an error of the decoder into the error of the body. started says that the decoder has read the beginning of the body.
func (b *decodedBody) failure(err error, started bool) error {
	switch {
	case b.encoded.err != nil:
		return b.encoded.err
	case errors.Is(err, filo.ErrBusy):
		return err // there is no room
	case err == io.EOF && started:
		if _, behind := b.source.Peek(1); behind == io.EOF {
			return io.EOF
		}
		if b.encoded.err != nil {
			return b.encoded.err
		}
		err = errors.New("data after the end of the encoded body")
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return &filo.HTTPError{Status: 413, Detail: "the body takes too much memory to decode", Err: err}
	}
	return &filo.HTTPError{Status: 400, Detail: "the body isn't valid in its Content-Encoding", Err: err}
}

// Close is called when the request has ended.
func (b *decodedBody) Close() error {
	_ = b.end(io.ErrClosedPipe) // the error of further reads
	b.ctx, b.encoded = nil, encodedBody{}
	b.source.Reset(nil)
	bodies.Put(b)
	return nil
}

type gzipDecoder struct{ gzip.Reader }

func (d *gzipDecoder) start(b *decodedBody) error { return noEOF(d.Reset(b.source)) }
func (d *gzipDecoder) stop()                      {}

// zlibDecoder decodes "deflate", which is the zlib format (RFC 9110, section 8.4.1.2).
type zlibDecoder struct{ io.ReadCloser }

func (d *zlibDecoder) start(b *decodedBody) (err error) {
	if d.ReadCloser == nil {
		d.ReadCloser, err = zlib.NewReader(b.source)
		return noEOF(err)
	}
	return noEOF(d.ReadCloser.(zlib.Resetter).Reset(b.source, nil))
}

func (d *zlibDecoder) stop() {}

// zstdDecoder allocates the window that a body declares before it decodes a byte, and encoders that don't know the size of a body often
// declare 2 to 8 MB. A client could make the server allocate that memory by sending ten bytes, and hold it by sending no more. So a window
// larger than smallWindow is allocated only after smallWindow bytes of the body, or the whole body, have arrived.
type zstdDecoder struct {
	*zstd.Decoder
	header zstd.Header
	large  bool // Decoder allows windows up to maxWindow
}

func (d *zstdDecoder) start(b *decodedBody) error {
	d.large = d.declaresLarge(b.source)
	if err := b.takeRoom(smallWindow + decoderCost); err != nil {
		return err
	}
	if !d.large {
		return d.decode(b.source, smallWindow)
	}
	var arrived bytes.Buffer
	if _, err := io.CopyN(&arrived, b.source, smallWindow); err != nil && err != io.EOF {
		return err
	}
	if err := b.takeRoom(maxWindow); err != nil {
		return err
	}
	d.Decoder = nil
	return d.decode(io.MultiReader(&arrived, b.source), maxWindow)
}

// declaresLarge reports whether the first frame needs a large window, or is a skippable frame. It reports false for bytes that aren't the
// header of a frame.
func (d *zstdDecoder) declaresLarge(source *bufio.Reader) bool {
	for _, size := range [...]int{6, zstd.HeaderMaxSize} { // in a streamed body the first 6 bytes declare the window, so 6 bytes are enough
		start, _ := source.Peek(size)
		if d.header.Decode(start) == nil {
			return d.header.Skippable || d.header.WindowSize > smallWindow ||
				d.header.SingleSegment && d.header.FrameContentSize > smallWindow
		}
	}
	return false
}

func (d *zstdDecoder) decode(source io.Reader, window uint64) (err error) {
	if d.Decoder == nil {
		d.Decoder, err = zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(window))
		return err
	}
	return d.Decoder.Reset(source)
}

func (d *zstdDecoder) stop() {
	if d.large {
		d.Decoder = nil // drops the large window, since the next body may need only a small one
	}
	if d.Decoder != nil {
		_ = d.Decoder.Reset(nil) // this releases the source, and doesn't fail
	}
}

// noEOF makes an empty encoded body an error: even the encoding of an empty body has some bytes.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
