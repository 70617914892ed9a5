package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// encoded returns text in a content coding.
func encoded(t testing.TB, coding, text string) string {
	t.Helper()
	var buffer bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&buffer)
	case "deflate":
		w = zlib.NewWriter(&buffer)
	case "raw deflate":
		w, err = flate.NewWriter(&buffer, 5)
	case "zstd":
		w, err = zstd.NewWriter(&buffer)
	case "zstd with a large window":
		w, err = zstd.NewWriter(&buffer, zstd.WithWindowSize(16<<20))
	default:
		return text
	}
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer.String()
}

// echo answers with the request's body.
func echo(c *filo.Ctx) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	if c.Request.Header.Has("Content-Encoding") {
		return c.Text(200, "Content-Encoding is still there")
	}
	return c.Bytes(200, "text/plain", body)
}

func TestDecompress(t *testing.T) {
	zipped := encoded(t, "gzip", "hello")
	broken := []byte(encoded(t, "gzip", strings.Repeat("hello", 100)))
	broken[len(broken)-6] ^= 1 // the checksum
	s := servertest.NewServer(t, &filo.Server{MaxBodyBytes: 10_000, Handler: middleware.Decompress(middleware.DecompressOptions{MaxBytes: 5000})(echo)})
	for _, test := range []struct {
		why, coding, body string
		status            int
		want              string
	}{
		{"gzip", "gzip", zipped, 200, "hello"},
		{"names have no case", "GZip", zipped, 200, "hello"},
		{"x-gzip is gzip", "x-gzip", zipped, 200, "hello"},
		{"deflate is zlib", "deflate", encoded(t, "deflate", "hello"), 200, "hello"},
		{"and not raw", "deflate", encoded(t, "raw deflate", "hello"), 400, "Content-Encoding"},
		{"zstd", "zstd", encoded(t, "zstd", "hello"), 200, "hello"},
		{"several frames of zstd", "zstd", encoded(t, "zstd", "hel") + encoded(t, "zstd", "lo"), 200, "hello"},
		{"several members of gzip", "gzip", encoded(t, "gzip", "hel") + encoded(t, "gzip", "lo"), 200, "hello"},
		{"nothing, encoded", "gzip", encoded(t, "gzip", ""), 200, ""},
		{"no coding", "", "hello", 200, "hello"},
		{"identity is none", "identity", "hello", 200, "Content-Encoding is still there"},
		{"no body", "gzip", "", 200, ""},
		{"a coding that isn't known", "br", "hello", 415, ""},
		{"several codings", "gzip, zstd", "hello", 415, ""},
		{"not gzip at all", "gzip", "hello", 400, "Content-Encoding"},
		{"gzip that ends early", "gzip", zipped[:len(zipped)-3], 400, "Content-Encoding"},
		{"gzip that ends in its header", "gzip", zipped[:5], 400, "Content-Encoding"},
		{"gzip with a wrong checksum", "gzip", string(broken), 400, "Content-Encoding"},
		{"something behind gzip", "gzip", zipped + "x", 400, "Content-Encoding"},
		{"something behind zlib", "deflate", encoded(t, "deflate", "hello") + "x", 400, "Content-Encoding"},
		{"zstd that ends early", "zstd", encoded(t, "zstd", "hello")[:8], 400, "Content-Encoding"},
		{"not zstd", "zstd", "hello", 400, "Content-Encoding"},
		{"a bomb of gzip", "gzip", encoded(t, "gzip", strings.Repeat("x", 5_000_000)), 413, "too large when decoded"},
		{"a bomb of deflate", "deflate", encoded(t, "deflate", strings.Repeat("x", 5_000_000)), 413, "too large when decoded"},
		{"a bomb of zstd", "zstd", encoded(t, "zstd", strings.Repeat("x", 5_000_000)), 413, "too large when decoded"},
		{"as much as is allowed", "gzip", encoded(t, "gzip", strings.Repeat("x", 5000)), 200, strings.Repeat("x", 5000)},
		{"a byte more", "gzip", encoded(t, "gzip", strings.Repeat("x", 5001)), 413, "too large when decoded"},
		{"larger than the server takes as it is sent", "gzip", strings.Repeat(zipped, 1000), 413, "too large"},
	} {
		fields := []string{"Connection: close"}
		if test.coding != "" {
			fields = append(fields, "Content-Encoding: "+test.coding)
		}
		for range 2 { // the second time with a reused decoder
			got := s.DoBody(t, "POST /", test.body, fields...)
			if got.Status != test.status || test.status == 200 && got.Body != test.want || !strings.Contains(got.Body, test.want) {
				t.Errorf("%s: %d %.80q, want %d %.80q", test.why, got.Status, got.Body, test.status, test.want)
			}
			if accept := got.Header.Get("Accept-Encoding"); (accept == "gzip, deflate, zstd") != (test.status == 415) {
				t.Errorf("%s: Accept-Encoding: %q", test.why, accept)
			}
		}
	}
}

// Several Content-Encoding fields are one list, whose empty elements are ignored (RFC 9110, sections 5.3 and 5.6.1.2).
func TestDecompressLists(t *testing.T) {
	s := servertest.New(t, middleware.Decompress()(echo))
	zipped := encoded(t, "gzip", "hello")
	for _, test := range []struct {
		codings []string
		status  int
	}{
		{[]string{"gzip", ""}, 200},
		{[]string{"", "gzip"}, 200},
		{[]string{"gzip,"}, 200},
		{[]string{" , gzip , "}, 200},
		{[]string{"gzip", "gzip"}, 415},
		{[]string{"gzip,gzip"}, 415},
		{[]string{"identity", "gzip"}, 415},
		{[]string{"gzip", "", "br"}, 415},
		{[]string{"identity", "identity"}, 415},
	} {
		fields := []string{"Connection: close"}
		for _, coding := range test.codings {
			fields = append(fields, "Content-Encoding: "+coding)
		}
		if got := s.DoBody(t, "POST /", zipped, fields...); got.Status != test.status || got.Status == 200 && got.Body != "hello" {
			t.Errorf("%q: %d %.80q, want %d", test.codings, got.Status, got.Body, test.status)
		}
	}
	if got := s.DoBody(t, "POST /", "hello", "Content-Encoding: "); got.Status != 200 {
		t.Errorf("an empty field: %v", got)
	}
}

// The window of a zstd body is limited, since it takes memory in addition to the body.
func TestDecompressWindow(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{MaxBodyBytes: 64 << 20, Handler: middleware.Decompress(middleware.DecompressOptions{MaxBytes: -1})(echo)})
	body := encoded(t, "zstd with a large window", strings.Repeat("0123456789", 2<<20))
	if got := s.DoBody(t, "POST /", body, "Content-Encoding: zstd"); got.Status != 413 || !strings.Contains(got.Body, "memory") {
		t.Errorf("%d %.80q, want 413", got.Status, got.Body)
	}
}

// zstd's decoder allocates the window as soon as it has read the window's size. So a large window must wait until enough of the body has arrived.
func TestDecompressWindowWaits(t *testing.T) {
	frame := func(exponent byte) string { // a window of 2^(10+exponent) bytes, and a block that isn't the last: "x"
		return "\x28\xb5\x2f\xfd\x00" + string([]byte{exponent << 3, 1 << 3, 0, 0, 'x'})
	}
	const last = "\x01\x00\x00" // an empty block
	for _, test := range []struct {
		why, begin, rest string
		status           int
		waits            bool
	}{
		{"a window of 1 MB", frame(10), last, 200, false},
		{"one of 8 MB", frame(13), last, 200, true},
		{"one of 8 MB, and 1 MB of body", frame(13) + strings.Repeat("\x08\x00\x00x", 1<<18), last, 200, false},
		{"a frame to be skipped before it", "\x50\x2a\x4d\x18\x00\x00\x00\x00" + frame(13), last, 200, true},
		{"a second frame", frame(10) + last + frame(13), last, 413, false},
		{"16 MB", frame(14), last, 413, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			read := make(chan error, 1)
			s := servertest.New(t, middleware.Decompress()(func(c *filo.Ctx) error {
				_, err := io.ReadFull(c.BodyReader(), make([]byte, 1))
				read <- err
				if err == nil {
					_, err = io.Copy(io.Discard, c.BodyReader())
				}
				return err
			}))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			client := s.Dial(t)
			fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: filo.test\r\nConnection: close\r\nContent-Encoding: zstd\r\nContent-Length: %d\r\n\r\n%s",
				len(test.begin)+len(test.rest), test.begin)
			synctest.Wait()
			runtime.ReadMemStats(&after)
			if waits := len(read) == 0; waits != test.waits {
				t.Errorf("%s: waits for the body: %t, want %t", test.why, waits, test.waits)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; test.waits && grown > 4<<20 {
				t.Errorf("%s: it has taken %d bytes", test.why, grown)
			}
			io.WriteString(client, test.rest)
			if raw, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(raw), fmt.Sprint("HTTP/1.1 ", test.status)) {
				t.Errorf("%s: %q, %v, want %d", test.why, raw, err, test.status)
			}
		})
		// A decoder has a channel that belongs to the synctest bubble, so the pool mustn't give the decoder to a request outside of the
		// bubble. Two garbage collections empty the pool.
		runtime.GC()
		runtime.GC()
	}
}

// The memory of zstd's decoders counts against MaxBufferedBodies until they have decoded their body. Clients that send the beginning of a body,
// and then nothing, give way to others.
func TestDecompressRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		server := &filo.Server{MaxBufferedBodies: 8 << 20, Handler: middleware.Decompress()(func(c *filo.Ctx) error {
			body, err := c.Body()
			if c.Path() == "/held" {
				<-held
			}
			if err != nil {
				return err
			}
			return c.Text(200, string(body))
		})}
		s := servertest.NewServer(t, server)
		post := func(path, begin, rest string) net.Conn {
			client := s.Dial(t)
			fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: filo.test\r\nConnection: close\r\nContent-Encoding: zstd\r\nContent-Length: %d\r\n\r\n%s",
				path, len(begin)+len(rest), begin)
			return client
		}
		statuses := func(clients []net.Conn) map[string]int {
			counts := make(map[string]int)
			for _, client := range clients {
				raw, err := io.ReadAll(client)
				if err != nil {
					t.Fatal(err)
				}
				counts[string(raw)[len("HTTP/1.1 "):][:3]]++
			}
			return counts
		}
		const begin, end = "\x28\xb5\x2f\xfd\x00\x50\x08\x00\x00x", "\x01\x00\x00" // a window of 1 MB
		var whole, silent []net.Conn
		for range 20 {
			whole = append(whole, post("/held", begin+end, ""))
			synctest.Wait()
		}
		if used := server.Stats().BodiesBuffered; used != 0 {
			t.Errorf("%d bytes are counted for bodies that were decoded", used)
		}
		for range 200 {
			silent = append(silent, post("/", begin, end))
			synctest.Wait()
		}
		if used := server.Stats().BodiesBuffered; used < 3<<20 || used > 4<<20 {
			t.Errorf("%d bytes are counted for bodies that are being decoded", used)
		}
		time.Sleep(2 * time.Second)
		if got := s.DoBody(t, "POST /", begin+end, "Content-Encoding: zstd"); got.Status != 200 || got.Body != "x" {
			t.Errorf("while others are silent: %v", got)
		}
		if got := statuses(silent[:3]); got["408"] != 3 { // one at once, and the others when they have taken too long
			t.Errorf("the first silent ones: %v", got)
		}
		if got := statuses(silent[3:]); got["503"] != 197 {
			t.Errorf("the other silent ones: %v", got)
		}
		close(held)
		if got := statuses(whole); got["200"] != 20 {
			t.Errorf("the whole ones: %v", got)
		}
		if used := server.Stats().BodiesBuffered; used != 0 {
			t.Errorf("%d bytes are counted in the end", used)
		}
	})
	runtime.GC() // see TestDecompressWindowWaits
	runtime.GC()
}

// If MaxBytes sets no limit, the server's limit for bodies applies to a decoded body. The connection stays usable after each request.
func TestDecompressLimitAndReuse(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{MaxBodyBytes: 1000, Handler: middleware.Decompress(middleware.DecompressOptions{MaxBytes: -1})(echo)})
	bomb, small := encoded(t, "gzip", strings.Repeat("x", 1001)), encoded(t, "gzip", "hello")
	raw := s.Raw(t, servertest.Request("POST /", bomb, "Content-Encoding: gzip")+
		servertest.Request("POST /", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(small), small), "Content-Encoding: gzip", "Transfer-Encoding: chunked")+
		servertest.Request("POST /", "plain"))
	if strings.Count(raw, "HTTP/1.1 413") != 1 || strings.Count(raw, "HTTP/1.1 200") != 2 || !strings.Contains(raw, "hello") || !strings.HasSuffix(raw, "plain") {
		t.Errorf("%q, want 413, 200 and 200", raw)
	}
}

// For any encoded body, the answer is 200, 400 or 413, and no more bytes are decoded than allowed.
func FuzzDecompress(f *testing.F) {
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		f.Add(coding, []byte(encoded(f, coding, "hello, mwtest.Hello, hello")))
		f.Add(coding, []byte(encoded(f, coding, strings.Repeat("x", 20_000))))
	}
	h := middleware.Decompress(middleware.DecompressOptions{MaxBytes: 10_000})(func(c *filo.Ctx) error {
		n, err := io.Copy(io.Discard, c.BodyReader())
		if n > 10_000 {
			panic("more than MaxBytes")
		}
		if err != nil {
			return err
		}
		return c.NoContent()
	})
	f.Fuzz(func(t *testing.T, coding string, body []byte) {
		switch coding {
		case "gzip", "deflate", "zstd":
		default:
			t.Skip("no coding")
		}
		got := servertest.New(t, h).DoBody(t, "POST /", string(body), "Content-Encoding: "+coding)
		if got.Status != 204 && got.Status != 400 && got.Status != 413 {
			t.Errorf("%v", got)
		}
	})
}

func TestDecompressOptions(t *testing.T) {
	s := servertest.New(t, middleware.Decompress(middleware.DecompressOptions{Encodings: []string{"zstd"}})(echo))
	if got := s.DoBody(t, "POST /", "x", "Content-Encoding: gzip"); got.Status != 415 || got.Header.Get("Accept-Encoding") != "zstd" {
		t.Errorf("a coding that isn't wanted: %v", got)
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"an encoding that isn't known": func() { middleware.Decompress(middleware.DecompressOptions{Encodings: []string{"br"}}) },
		"a new line":                   func() { middleware.Decompress(middleware.DecompressOptions{Encodings: []string{"gzip\r\nA: b"}}) },
	})
}

func ExampleDecompress() {
	h := middleware.Decompress(middleware.DecompressOptions{MaxBytes: 1 << 20})(mwtest.Hello)
	mwtest.Show(h, []string{"Accept-Encoding"}, "POST /", "Content-Encoding: compress", "Content-Length: 0")
	// Output:
	// 415 Unsupported Media Type: unsupported Content-Encoding: Accept-Encoding lists the supported ones
	// Accept-Encoding: gzip, deflate, zstd
}

func BenchmarkDecompress(b *testing.B) {
	text := strings.Repeat(`{"name":"value","number":12345},`, 300)
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		b.Run(coding, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			h := middleware.Decompress()(func(c *filo.Ctx) error {
				if body, err := c.Body(); err != nil || len(body) != len(text) {
					return filo.Error(500, "")
				}
				return c.NoContent()
			})
			mwtest.BenchmarkServer(b, h, "POST /", encoded(b, coding, text), "Content-Encoding: "+coding)
		})
	}
}
