package middleware

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// CompressOptions configures Compress.
type CompressOptions struct {
	// Encodings are the content codings to choose from, out of "zstd", "gzip", "deflate" and those of Codings. Their order decides between
	// codings that the client prefers equally. Nil means the names of Codings, followed by "zstd", "gzip" and "deflate".
	Encodings []string
	// Codings are content codings by other packages, such as contrib/brotli.
	Codings []Coding
	// Types are the media types to compress, such as "application/json", or "text/*" for a whole group. Nil means text/* and the usual
	// textual types with other names: JSON, XML, all that end in +json or +xml, JavaScript, WebAssembly and fonts. The default doesn't
	// include text/event-stream, because an encoder takes some 1 to 1.5 MB of memory for as long as a stream is open. To compress
	// text/event-stream, list it or "text/*" here, and see Compress for how many streams are compressed at once.
	Types []string
	// MinBytes is the minimum size of a body to be compressed, 1,024 bytes if 0.
	MinBytes int
	// GzipLevel and DeflateLevel are from 1, the fastest, to 9; 0 means 5. ZstdLevel is from 1 to 4; 0 means 1.
	GzipLevel, DeflateLevel, ZstdLevel int
}

// Compress encodes response bodies as the request's Accept-Encoding allows. It compresses a whole body when the handler has returned, so that
// status, fields and body are final for middleware outside. It compresses a stream while the handler writes it; each Flush sends everything
// written before. The encoders of all of a server's streams take at most as much memory as Server.MaxBufferedAnswers: with the default, 85 streams
// are compressed at once. Further streams are sent uncompressed. Those of clients that refuse that may take as much again.
//
// Compressible answers get Vary: Accept-Encoding, whether or not they are compressed. Compress appends the coding to a strong entity tag of a
// compressed answer: "v7" becomes "v7-gzip". In If-Match and If-None-Match the handler finds both tags, so it only needs to know "v7". A
// compressed answer loses the fields that describe its uncompressed bytes: Content-Length, Accept-Ranges and digests. Compress doesn't
// compress partial answers, answers with a Content-Encoding or Cache-Control: no-transform, or bodies that wouldn't become shorter. If a
// client refuses uncompressed answers (identity;q=0) and every available coding, it gets 406 (Not Acceptable) before the handler runs. HEAD is
// answered like GET, and takes as long as GET unless the body streams.
//
// Don't use Compress for routes whose answers contain both a secret and text that an attacker can put into the request: the compressed length
// reveals whether the two are alike (BREACH).
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

// Coding is a content coding by another package, for CompressOptions.
type Coding struct {
	// Name is the coding's name in Accept-Encoding and Content-Encoding, such as "br". A Coding with the name of a built-in coding replaces it.
	Name string
	// New returns an encoder. Compress reuses encoders: it keeps as many as there were bodies being compressed at the same time.
	New func() Encoder
}

// Encoder encodes one body after another. Reset begins a new body, whose encoded bytes go to w. If w is nil, Reset drops all references to
// the last body, which may be unfinished. Flush writes everything that a decoder needs to decode what has been written so far. Close ends the
// body. For a body that isn't streamed, Compress calls Write only once, and doesn't call Flush.
type Encoder interface {
	io.WriteCloser
	Flush() error
	Reset(w io.Writer)
}

type compressor struct {
	codings  []*coding
	types    map[string]bool // whole media types
	prefixes []string        // the prefixes of groups of types, such as "text/"
	usual    bool            // Types is nil: text/event-stream is left out, and some types are recognized by suffix
	minBytes int
}

// coding is a content coding and its encoders.
type coding struct {
	name   string
	suffix []byte // appended to entity tags
	number int
	pool   sync.Pool // of *encoding
}

// encoding is an encoder while it encodes one body.
type encoding struct {
	Encoder
	buffer bytes.Buffer // for whole bodies
	coding *coding
}

var defaultTypes = []string{
	"text/*",
	"application/json", "application/x-ndjson", "application/xml", "application/javascript", "application/wasm",
	"image/bmp", "font/ttf", "font/otf",
}

func newCompressor(o CompressOptions) *compressor {
	check(o.MinBytes >= 0, "Compress: MinBytes must not be negative")
	m := &compressor{types: make(map[string]bool), minBytes: cmp.Or(o.MinBytes, 1024)}
	if o.Types == nil {
		o.Types, m.usual = defaultTypes, true
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
		for _, k := range o.Codings {
			o.Encodings = append(o.Encodings, k.Name)
		}
		for _, name := range []string{"zstd", "gzip", "deflate"} {
			if !slices.Contains(o.Encodings, name) {
				o.Encodings = append(o.Encodings, name)
			}
		}
	}
	for _, k := range o.Codings {
		known := syntax.CodingNumber([]byte(k.Name))
		check(0 <= known && known < syntax.Identity, "Compress: Codings: %q is not br, zstd, gzip or deflate", k.Name)
		check(k.New != nil, "Compress: Codings: %q has no New", k.Name)
		check(slices.Contains(o.Encodings, k.Name), "Compress: Encodings lacks %q of Codings", k.Name)
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
	k := &coding{name: name, suffix: []byte("-" + name), number: syntax.CodingNumber([]byte(name))}
	var make func() (Encoder, error)
	other := slices.IndexFunc(o.Codings, func(k Coding) bool { return k.Name == name })
	switch {
	case other >= 0:
		make = func() (Encoder, error) { return o.Codings[other].New(), nil }
	case name == "gzip":
		level := level("GzipLevel", o.GzipLevel, 5, 9)
		make = func() (Encoder, error) { return gzip.NewWriterLevel(nil, level) }
	case name == "deflate":
		level := level("DeflateLevel", o.DeflateLevel, 5, 9)
		make = func() (Encoder, error) { return zlib.NewWriterLevel(nil, level) }
	case name == "zstd":
		level := zstd.EncoderLevel(level("ZstdLevel", o.ZstdLevel, 1, 4))
		make = func() (Encoder, error) {
			return zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
				zstd.WithWindowSize(1<<20))
		}
	default:
		check(false, "Compress: Encodings: %q is not gzip, deflate, zstd or one of Codings", name)
	}
	k.pool.New = func() any {
		encoder, err := make()
		if err != nil {
			panic("middleware: Compress: " + err.Error()) // can't happen: the levels were checked
		}
		return &encoding{Encoder: encoder, coding: k}
	}
	return k
}

// Close ends the body and returns the encoder to its pool.
func (e *encoding) Close() error {
	err := e.Encoder.Close()
	e.release()
	return err
}

func (e *encoding) release() {
	e.Encoder.Reset(nil)
	if e.buffer.Cap() > 1<<20 {
		e.buffer = bytes.Buffer{}
	}
	e.coding.pool.Put(e)
}

// compression is the state of one response.
type compression struct {
	*compressor
	ctx    *filo.Ctx
	coding *coding // nil if none is used
	must   bool    // the client refuses an uncompressed answer
	done   bool    // the body is final
}

var errNotAcceptable = filo.Error(406, "no content coding that the client accepts is available")

func (m *compressor) serve(c *filo.Ctx, next filo.Handler) error {
	coding, identity := m.negotiate(&c.Request.Header)
	if coding == nil && !identity {
		c.Response.Header.Add("Vary", "Accept-Encoding")
		return errNotAcceptable
	}
	z := &compression{compressor: m, ctx: c, coding: coding, must: !identity}
	m.addTags(c, coding)
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
	size := len(body)
	announced := size == 0 && z.isHead() && z.ctx.Response.Header.Has("Content-Length")
	if announced {
		size, _ = strconv.Atoi(z.ctx.Response.Header.Get("Content-Length")) // the size of the body for GET, which the handler hasn't produced
	}
	if !z.possible() || z.coding == nil || size < z.minBytes && !z.must {
		return
	}
	if announced {
		z.mark()
		z.ctx.Response.SetBodyStream(http.NoBody, -1) // otherwise the length would be 0
		return
	}
	e := z.coding.pool.Get().(*encoding)
	defer e.release()
	e.buffer.Reset()
	e.Encoder.Reset(&e.buffer)
	_, err := e.Encoder.Write(body)
	if err == nil {
		err = e.Encoder.Close()
	}
	if err != nil || e.buffer.Len() >= len(body) && !z.must {
		return // err is nil, since a bytes.Buffer never fails
	}
	z.mark()
	z.ctx.Response.SetBody(e.buffer.Bytes())
}

// wrap compresses a body that streams.
func (z *compression) wrap(_ *filo.Ctx, body io.Writer, size int64) io.WriteCloser {
	if z.done || !z.possible() || z.coding == nil || size >= 0 && size < int64(z.minBytes) && !z.must {
		return nil
	}
	if _, whole := body.(*bytes.Buffer); z.isHead() && !whole { // a whole body is compressed also for HEAD, to announce its length
		z.mark()
		return unsent{}
	}
	if !inside.TakeEncoder(z.ctx, encoderCost, z.must) {
		return nil
	}
	kept := false
	defer func() { // an encoder of CompressOptions.Codings may panic
		if !kept {
			inside.GiveEncoder(z.ctx, encoderCost)
		}
	}()
	z.mark()
	e := z.coding.pool.Get().(*encoding)
	e.Encoder.Reset(body)
	kept = true
	return &encodedStream{e, z.ctx}
}

// encoderCost is about how much memory an encoder takes.
const encoderCost = 3 << 19

// unsent discards the body of an answer to HEAD.
type unsent struct{}

func (unsent) Write(p []byte) (int, error) { return len(p), nil }
func (unsent) Close() error                { return nil }

// encodedStream is a body that is compressed while the handler writes it.
type encodedStream struct {
	*encoding
	ctx *filo.Ctx
}

// Close ends the body. The trailer is sent next, so Close removes the digests of the uncompressed body from it.
func (s *encodedStream) Close() error {
	defer inside.GiveEncoder(s.ctx, encoderCost) // even if an encoder of CompressOptions.Codings panics
	err := s.encoding.Close()
	for _, name := range digests {
		s.ctx.Response.Trailer.Del(name)
	}
	return err
}

func (z *compression) isHead() bool { return string(z.ctx.Request.MethodBytes()) == "HEAD" }

// possible reports whether the response may be compressed for clients that accept a coding. It adds Vary to such a response, and to a 304 or
// 206 if the complete answer may be compressed.
func (z *compression) possible() bool {
	h := &z.ctx.Response.Header
	switch status := z.ctx.Status(); {
	case status == 304:
		// A 304 must repeat the Vary of the answer that the client has.
		z.vary()
		z.tag304()
		return false
	case status == 204, h.Has("Content-Encoding"), caching.HasDirective(h, "no-transform"):
		return false
	case status == 206 && syntax.EqualFold(syntax.MediaType(h.GetBytes("Content-Type")), "multipart/byteranges"):
		z.vary() // the complete answer may have a compressible type
		return false
	case !z.compressible(h.GetBytes("Content-Type")):
		return false
	case status == 206: // RFC 9110, section 15.3.7: a 206 has the same Vary as the complete answer
		z.vary()
		return false
	case h.Has("Content-Range"):
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

// digests are the fields that contain a digest of a body's encoded bytes: those of RFC 9530 and their predecessors. Unencoded-Digest isn't
// one of them, since compression doesn't invalidate it.
var digests = [...]string{"Content-Digest", "Repr-Digest", "Digest", "Content-MD5"}

// mark describes the body as compressed. It changes a strong entity tag, which stands for a single sequence of bytes (RFC 9110, section
// 8.8.3).
func (z *compression) mark() {
	h := &z.ctx.Response.Header
	h.Set("Content-Encoding", z.coding.name)
	h.Del("Content-Length")
	h.Del("Accept-Ranges")
	for _, name := range digests {
		h.Del(name)
	}
	if tag, ok := z.coding.tag(h.GetBytes("ETag")); ok {
		h.SetBytes("ETag", tag)
	}
}

// tag returns the entity tag of the compressed body, given that of the uncompressed body. It returns false for a weak tag, which the two
// bodies may share.
func (k *coding) tag(etag []byte) ([]byte, bool) {
	if len(etag) < 2 || etag[0] != '"' || etag[len(etag)-1] != '"' {
		return nil, false
	}
	return append(append(slices.Clone(etag[:len(etag)-1]), k.suffix...), '"'), true
}

// tag304 gives a 304 the entity tag of the compressed answer, if that is the answer that the client has stored.
func (z *compression) tag304() {
	if z.coding == nil {
		return
	}
	tag, ok := z.coding.tag(z.ctx.Response.Header.GetBytes("ETag"))
	if !ok {
		return
	}
	for value := range z.ctx.Request.Header.Values("If-None-Match") {
		if bytes.Contains(value, tag) {
			z.ctx.Response.Header.SetBytes("ETag", tag)
			return
		}
	}
}

// addTags prepares the request's If-Match and If-None-Match for the handler: in front of the entity tag of a compressed answer, it inserts
// the handler's own tag for that answer. For GET, HEAD and QUERY, it does so in If-None-Match only for the tags of best, the client's
// preferred coding: a copy in another coding isn't the answer that this request would get.
func (m *compressor) addTags(c *filo.Ctx, best *coding) {
	h := &c.Request.Header
	if h.Has("If-Match") {
		addTags(h, "If-Match", m.codings)
	}
	if h.Has("If-None-Match") {
		codings := m.codings
		if caching.ReadsOnly(c) {
			codings = nil
			if best != nil {
				codings = []*coding{best}
			}
		}
		addTags(h, "If-None-Match", codings)
	}
}

func addTags(h *filo.Header, name string, codings []*coding) {
	var all []byte
	added := false
	for list := range h.Values(name) {
		if len(all) > 0 {
			all = append(all, ", "...)
		}
		for {
			before, rest, ok := bytes.Cut(list, []byte{'"'})
			tag, after, closed := bytes.Cut(rest, []byte{'"'})
			if !ok || !closed {
				break
			}
			all = append(all, before...)
			for _, k := range codings {
				if plain, ok := bytes.CutSuffix(tag, k.suffix); ok && !bytes.HasSuffix(before, []byte("W/")) {
					all = append(append(append(all, '"'), plain...), `", `...)
					added = true
				}
			}
			all = append(append(append(all, '"'), tag...), '"')
			list = after
		}
		all = append(all, list...)
	}
	if added {
		h.SetBytes(name, all) // as one field, since some handlers read only the first field
	}
}

// compressible reports whether a media type is one of Types.
func (m *compressor) compressible(contentType []byte) bool {
	contentType = syntax.MediaType(contentType)
	for _, prefix := range m.prefixes {
		if len(contentType) > len(prefix) && syntax.EqualFold(contentType[:len(prefix)], prefix) {
			return !m.usual || !syntax.EqualFold(contentType, "text/event-stream")
		}
	}
	if m.types[string(contentType)] {
		return true
	}
	lower := bytes.ToLower(contentType)
	return m.types[string(lower)] || m.usual && (bytes.HasSuffix(lower, []byte("+json")) || bytes.HasSuffix(lower, []byte("+xml")))
}

// negotiate chooses a coding by Accept-Encoding (RFC 9110, section 12.5.3), or nil for none. It also reports whether the client accepts an
// uncompressed answer.
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
