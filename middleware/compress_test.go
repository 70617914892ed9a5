package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// decoded decodes a body that has a content coding.
func decoded(t testing.TB, coding, body string) string {
	t.Helper()
	var r io.Reader = strings.NewReader(body)
	var err error
	switch coding {
	case "gzip":
		r, err = gzip.NewReader(r)
	case "deflate":
		r, err = zlib.NewReader(r)
	case "zstd":
		var decoder *zstd.Decoder
		if decoder, err = zstd.NewReader(r); err == nil {
			defer decoder.Close()
			r = decoder
		}
	}
	if err != nil {
		t.Fatalf("%s: %v in %.40q", coding, err, body)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("%s: %v in %.40q", coding, err, body)
	}
	return string(text)
}

var longText = strings.Repeat("All work and no play makes Jack a dull boy. ", 100)

// text answers with longText.
func text(c *filo.Ctx) error { return c.Text(200, longText) }

// The coding is chosen by RFC 9110, section 12.5.3.
func TestCompressNegotiation(t *testing.T) {
	s := servertest.New(t, middleware.Compress()(text))
	for accept, want := range map[string]string{
		"":                              "",
		"gzip":                          "gzip",
		"GZIP":                          "gzip",
		"x-gzip":                        "gzip",
		"deflate":                       "deflate",
		"zstd":                          "zstd",
		"br":                            "",
		"gzip, deflate, br, zstd":       "zstd",
		"gzip, deflate, br":             "gzip",
		"deflate;q=0.9, gzip;q=0.8":     "deflate",
		"gzip;q=1.0, zstd;q=0.999":      "gzip",
		"gzip ; q=0.5 ,zstd; Q=0.6":     "zstd",
		"gzip;q=0":                      "",
		"gzip;q=0.000":                  "",
		"*":                             "zstd",
		"*, zstd;q=0":                   "gzip",
		"*;q=0, gzip":                   "gzip",
		"*;q=0.1, gzip;q=0.2":           "gzip",
		"identity":                      "",
		"identity, gzip;q=0.5":          "",
		"identity;q=0.5, gzip;q=0.5":    "gzip",
		"identity;q=0.1, gzip;q=0.5":    "gzip",
		"identity;q=0, gzip":            "gzip",
		"identity;q=0, br":              "406",
		"*;q=0":                         "406",
		"identity;q=0, *;q=0":           "406",
		"*;q=0, identity":               "",
		"*;q=0, identity;q=0.1":         "",
		"gzip;q=2":                      "",
		"gzip;q=":                       "",
		"gzip;q=1.0000":                 "",
		"gzip;q=0x1":                    "",
		"gzip;level=1":                  "",
		",,gzip,":                       "gzip",
		strings.Repeat("a,", 1000) + "": "",
	} {
		got := s.Do(t, "GET /", "Accept-Encoding: "+accept)
		coding := got.Header.Get("Content-Encoding")
		if got.Status == 406 {
			coding = "406"
		} else if decoded(t, coding, got.Body) != longText {
			t.Errorf("%.80q: %.80q", accept, got.Body)
		}
		if coding != want || got.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%.80q: %s, %v, want %s", accept, coding, got.Header, want)
		}
	}
	if got := s.Do(t, "GET /"); got.Header.Get("Content-Encoding") != "" || got.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("no Accept-Encoding: %v", got.Header)
	}
	if got := s.Do(t, "GET /", "Accept-Encoding: zstd;q=0", "Accept-Encoding: gzip"); got.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("a list in two fields: %v", got.Header)
	}
}

// compressCase is a handler's response, and the answer that the client must get.
type compressCase struct {
	why     string
	handler filo.Handler
	coding  string
	vary    string
}

// answers returns a handler that answers with fields, such as "Name: value", and longText.
func answers(status int, fields ...string) filo.Handler {
	return func(c *filo.Ctx) error {
		c.Response.SetStatus(status)
		c.Response.SetBodyString(longText)
		c.Response.Header.Set("Content-Type", "text/html")
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			c.Response.Header.Set(name, value)
		}
		return nil
	}
}

func TestCompressWhat(t *testing.T) {
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	tests := []compressCase{
		{"text", answers(200), "gzip", "Accept-Encoding"},
		{"JSON", answers(200, "Content-Type: application/json"), "gzip", "Accept-Encoding"},
		{"a type with a parameter", answers(200, "Content-Type: Application/JSON ; charset=utf-8"), "gzip", "Accept-Encoding"},
		{"an image", answers(200, "Content-Type: image/png"), "", ""},
		{"events, whose streams would each keep an encoder", answers(200, "Content-Type: Text/Event-Stream; charset=utf-8"), "", ""},
		{"no type", answers(200, "Content-Type: "), "", ""},
		{"only the beginning of a type", answers(200, "Content-Type: text/"), "", ""},
		{"a body that has a coding", answers(200, "Content-Encoding: br"), "br", ""},
		{"no-transform", answers(200, "Cache-Control: public, no-transform"), "", ""},
		{"a part", answers(206, "Content-Range: bytes 0-9/20"), "", "Accept-Encoding"},
		{"a part of an image", answers(206, "Content-Range: bytes 0-9/20", "Content-Type: image/png"), "", ""},
		{"parts", answers(206, "Content-Type: multipart/byteranges; boundary=x"), "", "Accept-Encoding"},
		{"a type with the suffix of JSON", answers(200, "Content-Type: application/vnd.Example+JSON; v=1"), "gzip", "Accept-Encoding"},
		{"a type with that of XML", answers(200, "Content-Type: application/soap+xml"), "gzip", "Accept-Encoding"},
		{"digests of the uncompressed bytes", answers(200, "Content-Digest: sha-256=:a:", "Repr-Digest: sha-256=:a:", "Digest: sha-256=a", "Content-MD5: a"), "gzip", "Accept-Encoding"},
		{"a digest that comes behind", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/plain")
			c.Response.Header.Set("Trailer", "Content-Digest")
			_, err := io.WriteString(c.Stream(), longText)
			c.Response.Trailer.Set("Content-Digest", "sha-256=:a:")
			return err
		}, "gzip", "Accept-Encoding"},
		{"what is like a part", answers(200, "Content-Range: bytes 0-9/20"), "", ""},
		{"an error page", answers(404), "gzip", "Accept-Encoding"},
		{"Vary of the handler's", answers(200, "Vary: Origin"), "gzip", "Origin,Accept-Encoding"},
		{"Vary that says it", answers(200, "Vary: accept-ENCODING, Origin"), "gzip", "accept-ENCODING, Origin"},
		{"Vary: *", answers(200, "Vary: *"), "gzip", "*"},
		{"a short body", func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("x", 1023)) }, "", "Accept-Encoding"},
		{"just long enough", func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("x", 1024)) }, "gzip", "Accept-Encoding"},
		{"what doesn't get shorter", func(c *filo.Ctx) error { return c.Bytes(200, "text/plain", random) }, "", "Accept-Encoding"},
		{"an error that isn't rendered yet", func(c *filo.Ctx) error { return filo.Error(400, longText) }, "gzip", "Accept,Accept-Encoding"},
		{"an error that is", func(c *filo.Ctx) error { return c.RenderError(filo.Error(400, longText)) }, "gzip", "Accept,Accept-Encoding"},
		{"a stream", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/plain")
			for part := range strings.SplitAfterSeq(strings.Repeat(longText, 10), "\n") {
				if _, err := io.WriteString(c.Stream(), part); err != nil {
					return err
				}
			}
			return nil
		}, "gzip", "Accept-Encoding"},
		{"a stream of an announced length", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/plain")
			c.Response.Header.Set("Content-Length", fmt.Sprint(len(longText)))
			w := c.Stream()
			return errors.Join(w.Flush(), second(io.WriteString(w, longText)))
		}, "gzip", "Accept-Encoding"},
		{"a stream of a short announced length", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/plain")
			c.Response.Header.Set("Content-Length", "5")
			w := c.Stream()
			return errors.Join(w.Flush(), second(io.WriteString(w, "hello")))
		}, "", "Accept-Encoding"},
		{"a reader", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/plain")
			c.Response.SetBodyStream(strings.NewReader(longText), int64(len(longText)))
			return nil
		}, "gzip", "Accept-Encoding"},
		{"a reader of an image", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "image/png")
			c.Response.SetBodyStream(strings.NewReader(longText), -1)
			return nil
		}, "", ""},
	}
	compress := middleware.Compress()
	for _, test := range tests {
		plain := mwtest.Do(t, test.handler, "GET /")
		s := servertest.New(t, compress(test.handler))
		got := s.Do(t, "GET /", "Accept-Encoding: gzip")
		body := got.Body
		if test.coding != "br" {
			body = decoded(t, test.coding, got.Body)
		}
		if got.Header.Get("Content-Encoding") != test.coding || strings.Join(got.Header.Values("Vary"), ",") != test.vary {
			t.Errorf("%s: %v, want %q varying by %q", test.why, got.Header, test.coding, test.vary)
		}
		if got.Status != plain.Status || body != plain.Body {
			t.Errorf("%s: %d %.80q, want %d %.80q", test.why, got.Status, body, plain.Status, plain.Body)
		}
		if length := got.Header.Get("Content-Length"); length != "" && length != fmt.Sprint(len(got.Body)) {
			t.Errorf("%s: Content-Length %s of %d bytes", test.why, length, len(got.Body))
		}
		if raw := s.Raw(t, servertest.Request("GET /", "", "Accept-Encoding: gzip", "Connection: close")); got.Header.Get("Content-Encoding") == "gzip" &&
			(strings.Contains(raw, "Digest: ") || strings.Contains(raw, "Content-MD5")) {
			t.Errorf("%s: a digest that isn't the body's: %q", test.why, raw)
		}
		identity := s.Do(t, "GET /")
		if identity.Body != plain.Body || strings.Join(identity.Header.Values("Vary"), ",") != test.vary {
			t.Errorf("%s: uncompressed: %v %.80q, want %q", test.why, identity.Header, identity.Body, plain.Body)
		}
		head := s.Do(t, "HEAD /", "Accept-Encoding: gzip")
		if head.Body != "" || strings.Join(head.Header.Values("Vary"), ",") != test.vary {
			t.Errorf("%s: HEAD: %v", test.why, head)
		}
	}
}

func second(_ int, err error) error { return err }

// A client that refuses uncompressed answers gets even the shortest answer compressed.
func TestCompressMust(t *testing.T) {
	got := mwtest.Do(t, middleware.Compress()(mwtest.Hello), "GET /", "Accept-Encoding: identity;q=0, gzip")
	if got.Header.Get("Content-Encoding") != "gzip" || decoded(t, "gzip", got.Body) != "hello" {
		t.Errorf("%v", got)
	}
}

// A compressed answer has an entity tag of its own. In conditions, this tag is accepted as the handler's own tag.
func TestCompressETag(t *testing.T) {
	s := servertest.New(t, mwtest.Wrap(text, middleware.Compress(), middleware.ETag()))
	plain := s.Do(t, "GET /").Header.Get("ETag")
	zipped := strings.TrimSuffix(plain, `"`) + `-gzip"`
	for _, test := range []struct {
		why    string
		fields []string
		status int
		etag   string
	}{
		{"uncompressed", nil, 200, plain},
		{"compressed", []string{"Accept-Encoding: gzip"}, 200, zipped},
		{"the client has it compressed", []string{"Accept-Encoding: gzip", "If-None-Match: " + zipped}, 304, zipped},
		{"among others", []string{"Accept-Encoding: gzip", `If-None-Match: "x", W/"y-gzip"`, "If-None-Match: " + zipped + `, "z"`}, 304, zipped},
		{"as caches say it", []string{"Accept-Encoding: gzip", "If-None-Match: W/" + plain}, 304, plain},
		{"compressed is no answer to this one", []string{"If-None-Match: " + zipped}, 200, plain},
		{"nor to one that has another coding", []string{"Accept-Encoding: zstd", "If-None-Match: " + zipped}, 200, strings.Replace(zipped, "gzip", "zstd", 1)},
		{"a change of what the client has", []string{"Accept-Encoding: gzip", "If-Match: " + zipped}, 200, zipped},
		{"whatever it accepts now", []string{"If-Match: " + zipped}, 200, plain},
		{"a change of something else", []string{"Accept-Encoding: gzip", `If-Match: "x-gzip"`}, 412, ""},
		{"weak tags are for no change", []string{"Accept-Encoding: gzip", "If-Match: W/" + zipped}, 412, ""},
		{"the client has it uncompressed", []string{"Accept-Encoding: gzip", "If-None-Match: " + plain}, 304, plain},
	} {
		got := s.Do(t, "GET /", test.fields...)
		if got.Status != test.status || test.status < 400 && (got.Header.Get("ETag") != test.etag || got.Header.Get("Vary") != "Accept-Encoding") {
			t.Errorf("%s: %d %v, want %d %s", test.why, got.Status, got.Header, test.status, test.etag)
		}
	}
}

// After a Flush, the client can decode everything written before, even though the handler hasn't written the rest.
func TestCompressFlush(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		goOn := make(chan struct{})
		s := servertest.New(t, middleware.Compress(middleware.CompressOptions{Types: []string{"text/event-stream"}})(func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/event-stream")
			w := c.Stream()
			io.WriteString(w, "first")
			if err := w.Flush(); err != nil {
				return err
			}
			<-goOn
			_, err := io.WriteString(w, "second")
			return err
		}))
		request := mwtest.NewRequest(t, s.URL+"/", "Accept-Encoding: "+coding)
		response, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader
		switch coding {
		case "gzip":
			r, err = gzip.NewReader(response.Body)
		case "deflate":
			r, err = zlib.NewReader(response.Body)
		case "zstd":
			r, err = zstd.NewReader(response.Body, zstd.WithDecoderConcurrency(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 5)
		if _, err := io.ReadFull(r, part); err != nil || string(part) != "first" {
			t.Errorf("%s: %q, %v before the handler goes on", coding, part, err)
		}
		close(goOn)
		if rest, err := io.ReadAll(r); err != nil || string(rest) != "second" {
			t.Errorf("%s: %q, %v", coding, rest, err)
		}
		response.Body.Close()
	}
}

// The memory of the encoders of streams is limited. Streams beyond the limit are sent uncompressed, unless the client refuses that.
func TestCompressRoom(t *testing.T) {
	const fit = 2
	goOn := make(chan struct{})
	server := &filo.Server{MaxBufferedAnswers: fit*3<<19 + 1000, Handler: middleware.Compress()(func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/plain")
		w := c.Stream()
		io.WriteString(w, "first")
		if err := w.Flush(); err != nil {
			return err
		}
		<-goOn
		return nil
	})}
	s := servertest.NewServer(t, server)
	begin := func(accept string) (coding string, end func()) {
		response, err := s.Client().Do(mwtest.NewRequest(t, s.URL+"/", "Accept-Encoding: "+accept))
		if err != nil {
			t.Fatal(err)
		}
		return response.Header.Get("Content-Encoding"), func() {
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Error(err)
			}
			response.Body.Close()
		}
	}
	for round := range 2 {
		var ends []func()
		for i, accept := range []string{"zstd", "gzip", "zstd", "gzip, identity;q=0"} {
			coding, end := begin(accept)
			if compressed := i < fit || i == 3; (coding != "") != compressed {
				t.Errorf("round %d, stream %d: coding %q, want it compressed: %t", round, i, coding, compressed)
			}
			ends = append(ends, end)
		}
		for range ends {
			goOn <- struct{}{}
		}
		for _, end := range ends {
			end()
		}
		if left := inside.Leftover(server); strings.Contains(left, "encoders") {
			t.Errorf("after round %d: %s", round, left)
		}
	}
}

// Middleware outside of Compress sees the body as it is sent.
func TestCompressFinal(t *testing.T) {
	var size int
	var coding string
	outside := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			body, _ := c.Response.WholeBody()
			size, coding = len(body), c.Response.Header.Get("Content-Encoding")
			return err
		}
	}
	got := mwtest.Do(t, mwtest.Wrap(text, outside, middleware.Compress()), "GET /", "Accept-Encoding: deflate")
	if size != len(got.Body) || coding != "deflate" {
		t.Errorf("%d bytes of %q were seen, %d of %v sent", size, coding, len(got.Body), got.Header)
	}
}

func TestCompressOptions(t *testing.T) {
	only := middleware.Compress(middleware.CompressOptions{
		Encodings: []string{"deflate", "gzip"}, Types: []string{"application/x", "image/*"}, MinBytes: 1, GzipLevel: 9, DeflateLevel: 1, ZstdLevel: 4,
	})
	for contentType, want := range map[string]string{"application/x": "deflate", "image/png": "deflate", "text/plain": ""} {
		h := only(func(c *filo.Ctx) error { return c.Bytes(200, contentType, bytes.Repeat([]byte("x"), 100)) })
		if got := mwtest.Do(t, h, "GET /", "Accept-Encoding: *"); got.Header.Get("Content-Encoding") != want {
			t.Errorf("%s: %v, want %s", contentType, got.Header, want)
		}
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"an encoding that isn't known": func() { middleware.Compress(middleware.CompressOptions{Encodings: []string{"br"}}) },
		"a new line":                   func() { middleware.Compress(middleware.CompressOptions{Encodings: []string{"gzip\r\nA: b"}}) },
		"a type without a slash":       func() { middleware.Compress(middleware.CompressOptions{Types: []string{"text"}}) },
		"a type with a parameter":      func() { middleware.Compress(middleware.CompressOptions{Types: []string{"text/html; charset=x"}}) },
		"negative MinBytes":            func() { middleware.Compress(middleware.CompressOptions{MinBytes: -1}) },
		"GzipLevel":                    func() { middleware.Compress(middleware.CompressOptions{GzipLevel: 10}) },
		"DeflateLevel":                 func() { middleware.Compress(middleware.CompressOptions{DeflateLevel: -1}) },
		"ZstdLevel":                    func() { middleware.Compress(middleware.CompressOptions{ZstdLevel: 5}) },
	})
}

// fakeEncoder is the encoder of a coding by another package: it writes everything in upper case.
type fakeEncoder struct{ w io.Writer }

func (e *fakeEncoder) Write(p []byte) (int, error) { return e.w.Write(bytes.ToUpper(p[:len(p)/2])) }
func (e *fakeEncoder) Flush() error                { return nil }
func (e *fakeEncoder) Close() error                { return nil }
func (e *fakeEncoder) Reset(w io.Writer)           { e.w = w }

// A coding by another package is chosen like the built-in codings, and by default is preferred to them.
func TestCompressCodings(t *testing.T) {
	coding := func(name string) []middleware.Coding {
		return []middleware.Coding{{Name: name, New: func() middleware.Encoder { return new(fakeEncoder) }}}
	}
	for _, test := range []struct {
		options      middleware.CompressOptions
		accept, want string
		fake         bool
	}{
		{middleware.CompressOptions{Codings: coding("br")}, "gzip, br, zstd", "br", true},
		{middleware.CompressOptions{Codings: coding("br")}, "gzip, br;q=0.9", "gzip", false},
		{middleware.CompressOptions{Codings: coding("br")}, "deflate", "deflate", false},
		{middleware.CompressOptions{Codings: coding("br"), Encodings: []string{"gzip", "br"}}, "br, gzip", "gzip", false},
		{middleware.CompressOptions{Codings: coding("br"), Encodings: []string{"gzip", "br"}}, "br", "br", true},
		{middleware.CompressOptions{Codings: coding("gzip")}, "gzip, zstd", "gzip", true},
	} {
		got := mwtest.Do(t, middleware.Compress(test.options)(text), "GET /", "Accept-Encoding: "+test.accept)
		fake := string(got.Body) == strings.ToUpper(longText[:len(longText)/2])
		if got.Header.Get("Content-Encoding") != test.want || fake != test.fake {
			t.Errorf("%s: %v, want %s", test.accept, got.Header, test.want)
		}
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"a coding that Encodings lacks": func() {
			middleware.Compress(middleware.CompressOptions{Codings: coding("br"), Encodings: []string{"gzip"}})
		},
		"a coding without New":               func() { middleware.Compress(middleware.CompressOptions{Codings: []middleware.Coding{{Name: "br"}}}) },
		"a name that no client is asked for": func() { middleware.Compress(middleware.CompressOptions{Codings: coding("identity")}) },
	})
}

func ExampleCompress() {
	h := middleware.Compress(middleware.CompressOptions{MinBytes: 1000})(func(c *filo.Ctx) error {
		return c.Text(200, strings.Repeat("x", 1000))
	})
	mwtest.Show(func(c *filo.Ctx) error {
		err := h(c)
		body, _ := c.Response.WholeBody()
		return errors.Join(err, c.Text(200, fmt.Sprint(len(body) < 100)))
	}, []string{"Content-Encoding", "Vary"}, "GET /", "Accept-Encoding: gzip, br")
	// Output:
	// 200 true
	// Content-Encoding: gzip
	// Vary: Accept-Encoding
}

// Whatever Accept-Encoding says, the client can decode the answer, or gets a 406.
func FuzzAcceptEncoding(f *testing.F) {
	for _, accept := range []string{"gzip;q=0.5, *;q=0", "identity;q=0", "zstd ; q=1.000,,", "*;q=;"} {
		f.Add(accept)
	}
	h := middleware.Compress()(text)
	f.Fuzz(func(t *testing.T, accept string) {
		if strings.ContainsFunc(accept, func(r rune) bool { return r < ' ' || r == 0x7F }) {
			t.Skip("not a field's value")
		}
		got := mwtest.Do(t, h, "GET /", "Accept-Encoding: "+accept)
		if got.Status != 406 && decoded(t, got.Header.Get("Content-Encoding"), got.Body) != longText {
			t.Errorf("%v", got)
		}
	})
}

func BenchmarkCompress(b *testing.B) {
	body := []byte(`[` + strings.Repeat(`{"id":12345,"name":"a name","tags":["one","two"],"ok":true},`, 160) + `{}]`)
	h := middleware.Compress()(func(c *filo.Ctx) error { return c.BytesNoCopy(200, "application/json", body) })
	for _, accept := range []string{"identity", "gzip", "deflate", "zstd"} {
		b.Run(accept, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			mwtest.BenchmarkServer(b, h, "GET /", "", "Accept-Encoding: "+accept)
		})
	}
	b.Run("stream", func(b *testing.B) {
		mwtest.BenchmarkServer(b, middleware.Compress()(func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "application/json")
			w := c.Stream()
			_, err := w.Write(body)
			return err
		}), "GET /", "", "Accept-Encoding: zstd")
	})
}

// The answer to HEAD announces the length of GET's answer or none, also for errors that are rendered outside of Compress.
func TestCompressHeadOfError(t *testing.T) {
	s := servertest.New(t, middleware.Compress()(func(*filo.Ctx) error { return filo.Error(404, strings.Repeat("x", 2000)) }))
	get := s.Do(t, "GET /", "Accept-Encoding: gzip").Header
	head := s.Do(t, "HEAD /", "Accept-Encoding: gzip").Header
	if length := head.Get("Content-Length"); length != "" && length != get.Get("Content-Length") {
		t.Errorf("HEAD: Content-Length %s, GET: %s", length, get.Get("Content-Length"))
	}
}
