package middleware

import (
	"bytes"
	"cmp"
	"io"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// CompressOptions configures Compress.
type CompressOptions struct {
	// Encodings are the content codings to choose from, out of "zstd", "gzip" and "deflate". Their order decides between codings
	// that the client prefers equally. Nil means all three, in that order.
	Encodings []string
	// Types are the media types to compress, such as "application/json", or "text/*" for a whole group. Nil means text/* and the
	// usual textual types under other names: JSON, XML, JavaScript, SVG, WebAssembly and fonts. The default doesn't include
	// text/event-stream, because an encoder takes some 1 to 1.5 MB of memory for as long as a stream is open. To compress it,
	// name it here, or set a text/* of your own.
	Types []string
	// MinBytes is the minimum size of a body to be compressed, 1,024 bytes if 0.
	MinBytes int
	// GzipLevel and DeflateLevel are from 1, the fastest, to 9; 0 means 5. ZstdLevel is from 1 to 4; 0 means 1.
	GzipLevel, DeflateLevel, ZstdLevel int
}

// Compress encodes response bodies as the request's Accept-Encoding allows. It compresses a whole body when the handler has
// returned, so that status, fields and body are final for middleware outside. It compresses a stream as the handler writes it;
// each Flush sends everything written before.
//
// Compressible answers get Vary: Accept-Encoding, whether or not they are compressed. A strong entity tag of a compressed answer
// becomes weak. Compress doesn't touch partial answers, answers with a Content-Encoding or Cache-Control: no-transform, and
// bodies that wouldn't become shorter. If a client refuses uncompressed answers (identity;q=0) and every available coding, it
// gets 406 (Not Acceptable) before the handler runs.
//
// Leave out routes whose answers contain both a secret and text from somebody else's request: the compressed length reveals
// whether the two are alike (BREACH).
//
// Put it outside of ETag and inside of the cache and AccessLog.
func Compress(options ...CompressOptions) filo.Middleware {
	m := newCompressor(setup.One("middleware: Compress", options))
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			return m.serve(c, next)
		}
	}
}

type compressor struct {
	codings  []*coding
	types    map[string]bool // whole media types
	prefixes []string        // of others
	noEvents bool            // text/event-stream isn't one of them
	minBytes int
}

// coding is a content coding and its encoders.
type coding struct {
	name   string
	number int
	pool   sync.Pool // of *encoding
}

// encoding is an encoder that is in use for one body.
type encoding struct {
	encoder
	buffer bytes.Buffer // for whole bodies
	coding *coding
}

type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(w io.Writer)
}

var defaultTypes = []string{
	"text/*",
	"application/json", "application/problem+json", "application/ld+json", "application/manifest+json", "application/geo+json",
	"application/vnd.api+json", "application/graphql-response+json", "application/x-ndjson",
	"application/xml", "application/xhtml+xml", "application/rss+xml", "application/atom+xml", "application/problem+xml",
	"application/javascript", "application/wasm", "image/svg+xml", "image/bmp", "font/ttf", "font/otf",
}

func newCompressor(o CompressOptions) *compressor {
	check(o.MinBytes >= 0, "Compress: MinBytes must not be negative")
	m := &compressor{types: make(map[string]bool), minBytes: cmp.Or(o.MinBytes, 1024)}
	if o.Types == nil {
		o.Types, m.noEvents = defaultTypes, true
	}
	for _, mediaType := range o.Types {
		kind, rest, ok := strings.Cut(mediaType, "/")
		check(ok && kind != "" && rest != "" && !strings.ContainsAny(mediaType, "; ,"), "Compress: Types: %q is not a media type", mediaType)
		if rest == "*" {
			m.prefixes = append(m.prefixes, strings.ToLower(kind)+"/")
		} else {
			m.types[strings.ToLower(mediaType)] = true
		}
	}
	if o.Encodings == nil {
		o.Encodings = []string{"zstd", "gzip", "deflate"}
	}
	for _, name := range o.Encodings {
		m.codings = append(m.codings, newCoding(name, o))
	}
	return m
}

func newCoding(name string, o CompressOptions) *coding {
	level := func(option string, level, byDefault, most int) int {
		check(level >= 0 && level <= most, "Compress: %s must be 1 to %d", option, most)
		return cmp.Or(level, byDefault)
	}
	k := &coding{name: name, number: syntax.CodingNumber([]byte(name))}
	var make func() (encoder, error)
	switch name {
	case "gzip":
		level := level("GzipLevel", o.GzipLevel, 5, 9)
		make = func() (encoder, error) { return gzip.NewWriterLevel(nil, level) }
	case "deflate":
		level := level("DeflateLevel", o.DeflateLevel, 5, 9)
		make = func() (encoder, error) { return zlib.NewWriterLevel(nil, level) }
	case "zstd":
		level := zstd.EncoderLevel(level("ZstdLevel", o.ZstdLevel, 1, 4))
		make = func() (encoder, error) {
			return zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
				zstd.WithWindowSize(1<<20))
		}
	default:
		check(false, "Compress: Encodings: %q is not gzip, deflate or zstd", name)
	}
	k.pool.New = func() any {
		encoder, err := make()
		if err != nil {
			panic("middleware: Compress: " + err.Error()) // the levels were checked
		}
		return &encoding{encoder: encoder, coding: k}
	}
	return k
}

// Close ends the body and returns the encoder to its pool.
func (e *encoding) Close() error {
	err := e.encoder.Close()
	e.release()
	return err
}

func (e *encoding) release() {
	e.encoder.Reset(nil)
	if e.buffer.Cap() > 1<<20 {
		e.buffer = bytes.Buffer{}
	}
	e.coding.pool.Put(e)
}

// compression is the state of one response.
type compression struct {
	*compressor
	ctx    *filo.Ctx
	coding *coding // nil: none
	must   bool    // the client refuses an uncompressed answer
	done   bool    // the body is as it will be
}

var errNotAcceptable = filo.Error(406, "no content coding that the client accepts is available")

func (m *compressor) serve(c *filo.Ctx, next filo.Handler) error {
	coding, identity := m.negotiate(&c.Request.Header)
	if coding == nil && !identity {
		c.Response.Header.Add("Vary", "Accept-Encoding")
		return errNotAcceptable
	}
	z := &compression{compressor: m, ctx: c, coding: coding, must: !identity}
	c.Response.WrapBody(z.wrap)
	err := next(c)
	if c.Committed() || err != nil && !c.ErrorRendered() {
		return err
	}
	if body, ok := c.Response.WholeBody(); ok {
		z.done = true
		z.whole(body)
	}
	return err
}

// whole compresses a whole body.
func (z *compression) whole(body []byte) {
	if !z.possible() || z.coding == nil || len(body) < z.minBytes && !z.must || z.isHead() {
		return
	}
	e := z.coding.pool.Get().(*encoding)
	defer e.release()
	e.buffer.Reset()
	e.encoder.Reset(&e.buffer)
	_, err := e.encoder.Write(body)
	if err == nil {
		err = e.encoder.Close()
	}
	if err != nil || e.buffer.Len() >= len(body) && !z.must {
		return // a bytes.Buffer never fails
	}
	z.mark()
	z.ctx.Response.SetBody(e.buffer.Bytes())
}

// wrap compresses a body that streams.
func (z *compression) wrap(_ *filo.Ctx, body io.Writer, size int64) io.WriteCloser {
	if z.done || !z.possible() || z.coding == nil || size >= 0 && size < int64(z.minBytes) && !z.must || z.isHead() {
		return nil
	}
	z.mark()
	e := z.coding.pool.Get().(*encoding)
	e.encoder.Reset(body)
	return e
}

func (z *compression) isHead() bool { return string(z.ctx.Request.MethodBytes()) == "HEAD" }

// possible reports whether the response is one that is compressed for clients that have it so, and says so in Vary.
func (z *compression) possible() bool {
	h := &z.ctx.Response.Header
	switch status := z.ctx.Status(); {
	case status == 304:
		// What it has to say of the answer that the client has.
		z.vary()
		z.weaken304()
		return false
	case status == 204, status == 206, h.Has("Content-Encoding"), h.Has("Content-Range"), caching.HasDirective(h, "no-transform"):
		return false
	case !z.compressible(h.GetBytes("Content-Type")):
		return false
	}
	z.vary()
	return true
}

func (z *compression) vary() {
	h := &z.ctx.Response.Header
	if !caching.HasToken(h, "Vary", "accept-encoding") && !caching.HasToken(h, "Vary", "*") {
		h.Add("Vary", "Accept-Encoding")
	}
}

// mark describes the body as compressed. RFC 9110, section 8.8.3: a strong entity tag is of one sequence of bytes, so that
// two codings of a body can't have the same.
func (z *compression) mark() {
	h := &z.ctx.Response.Header
	h.Set("Content-Encoding", z.coding.name)
	h.Del("Content-Length")
	h.Del("Accept-Ranges")
	if etag := h.GetBytes("ETag"); len(etag) > 0 && etag[0] == '"' {
		h.Set("ETag", "W/"+string(etag))
	}
}

// weaken304 gives a 304 the entity tag that the answer had which the client has kept, if that was compressed.
func (z *compression) weaken304() {
	etag := z.ctx.Response.Header.GetBytes("ETag")
	if len(etag) == 0 || etag[0] != '"' {
		return
	}
	weak := "W/" + string(etag)
	for value := range z.ctx.Request.Header.Values("If-None-Match") {
		if bytes.Contains(value, []byte(weak)) {
			z.ctx.Response.Header.Set("ETag", weak)
			return
		}
	}
}

// compressible reports whether a media type is one of Types.
func (m *compressor) compressible(contentType []byte) bool {
	contentType = syntax.MediaType(contentType)
	for _, prefix := range m.prefixes {
		if len(contentType) > len(prefix) && syntax.EqualFold(contentType[:len(prefix)], prefix) {
			return !m.noEvents || !syntax.EqualFold(contentType, "text/event-stream")
		}
	}
	if m.types[string(contentType)] {
		return true
	}
	return m.types[string(bytes.ToLower(contentType))]
}

// negotiate chooses a coding by Accept-Encoding (RFC 9110, section 12.5.3), nil for none, and says whether the client takes
// an uncompressed answer.
func (m *compressor) negotiate(h *filo.Header) (best *coding, identity bool) {
	var accepted syntax.Codings
	for list := range h.Values("Accept-Encoding") {
		accepted.Read(list)
	}
	quality := 0
	for _, k := range m.codings {
		if q := accepted.Weight(k.number); q > quality {
			best, quality = k, q
		}
	}
	plain, ok := accepted.Plain()
	if plain > quality {
		return nil, true
	}
	return best, ok
}
