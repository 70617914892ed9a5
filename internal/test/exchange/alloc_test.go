//go:build !race

package exchange

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// answerAllocs returns how many allocations the server makes for a request. The client doesn't allocate: it writes prepared bytes, and only
// counts the bytes of the answer.
func answerAllocs(t *testing.T, config *filo.Server, request string) float64 {
	t.Helper()
	h := filotest.ServeMemory(t, config)
	c, err := h.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := []byte(request)
	out := make([]byte, 64<<10)
	size := 0
	exchange := func() {
		if _, err := c.Write(in); err != nil {
			t.Fatal(err)
		}
		if size > 0 {
			if _, err := io.ReadFull(c, out[:size]); err != nil {
				t.Fatal(err)
			}
			return
		}
		// All answers are as long as the first one, because they differ only in the Date.
		n := 0
		for !answerComplete(out[:n]) {
			m, err := c.Read(out[n:])
			if err != nil {
				t.Fatalf("%v after %q", err, out[:n])
			}
			n += m
		}
		if !bytes.HasPrefix(out, []byte("HTTP/1.1 200 ")) {
			t.Fatalf("got %q", out[:n])
		}
		size = n
	}
	for range 200 { // let buffers and pools reach their final size
		exchange()
	}
	return testing.AllocsPerRun(2000, exchange)
}

// answerComplete reports whether b is a whole answer: all answers here end in "end".
func answerComplete(b []byte) bool { return bytes.HasSuffix(b, []byte("end")) }

// These are parts of requests and answers.
const (
	answerBrowser = "GET /foo/bar%20x?q=hello+world&page=2&lang=en HTTP/1.1\r\nHost: www.example.com\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n" +
		"Accept-Encoding: gzip, deflate, br\r\nCookie: session=0123456789abcdef; theme=dark\r\nX-Unknown: 1\r\n" +
		"Connection: keep-alive\r\n\r\n"
	answerEnd = "this is the end"
)

var (
	answerKB     = strings.Repeat("0123456789abcdef", 64)
	answerGiven  = []byte(answerEnd)
	answerBuffer = make([]byte, 4096)
)

// answerFree lists requests and handlers that must not cause an allocation.
var answerFree = []struct {
	name, request string
	handler       filo.Handler
}{
	{"GET", answerBrowser, func(c *filo.Ctx) error { return c.Text(200, answerEnd) }},
	{"GET with its headers read", answerBrowser, func(c *filo.Ctx) error {
		h := &c.Request.Header
		read := len(h.GetBytes("User-Agent")) + len(h.GetBytes("x-unknown")) + len(h.GetBytes("Missing")) + len(c.HostBytes())
		for name, value := range h.All() {
			read += len(name) + len(value)
		}
		if read == 0 || !h.Has("Accept") || c.Method() != "GET" || len(c.Request.CookieBytes("theme")) != 4 {
			return filo.Error(500, "")
		}
		return c.Text(200, answerEnd)
	}},
	{"GET with its path and query parsed", answerBrowser, func(c *filo.Ctx) error {
		query := c.Request.Query()
		if string(c.PathBytes()) != "/foo/bar x" || string(query.GetBytes("q")) != "hello world" || !query.Has("lang") {
			return filo.Error(500, "")
		}
		return c.Bytes(200, "text/plain", answerGiven)
	}},
	{"GET with fields set", answerBrowser, func(c *filo.Ctx) error {
		h := &c.Response.Header
		h.Set("Cache-Control", "no-store")
		h.Add("X-Own", "value")
		h.SetBytes("ETag", answerGiven)
		return c.BytesNoCopy(200, "text/plain", answerGiven)
	}},
	{"POST with Body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n" + answerKB, func(c *filo.Ctx) error {
		b, err := c.Body()
		if err != nil || len(b) != 1024 {
			return err
		}
		return c.Text(200, answerEnd)
	}},
	{"POST with BodyReader", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n" + answerKB, func(c *filo.Ctx) error {
		if n, err := io.ReadFull(c.BodyReader(), answerBuffer[:1024]); err != nil || n != 1024 {
			return err
		}
		return c.Text(200, answerEnd)
	}},
	{"POST of 1 MB with Body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n" + strings.Repeat(answerKB, 1024), func(c *filo.Ctx) error {
		if b, err := c.Body(); err != nil || len(b) != 1<<20 {
			return err
		}
		return c.Text(200, answerEnd)
	}},
	{"POST with BodyReader, copied", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n" + answerKB, func(c *filo.Ctx) error {
		if n, err := io.Copy(io.Discard, c.BodyReader()); err != nil || n != 1024 {
			return err
		}
		return c.Text(200, answerEnd)
	}},
	{"POST with a chunked body", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + answerKB + "\r\n0\r\n\r\n", func(c *filo.Ctx) error {
		b, err := c.Body()
		if err != nil || len(b) != 1024 {
			return err
		}
		return c.Text(200, answerEnd)
	}},
	{"POST echoed", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1027\r\n\r\n" + answerKB + "end", func(c *filo.Ctx) error {
		b, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", b)
	}},
	{"stream with a length", answerBrowser, func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Length", "15")
		w := c.Stream()
		w.WriteString("this is ")
		w.Flush()
		_, err := w.WriteString("the end")
		return err
	}},
	{"body written piece by piece", answerBrowser, func(c *filo.Ctx) error {
		c.Response.WriteString("this is ")
		_, err := c.Response.WriteString("the end")
		return err
	}},
}

// A plain GET and a 1 KB POST cause no allocation, even if the handler reads headers and the query.
func TestAllocations(t *testing.T) {
	for _, test := range answerFree {
		t.Run(test.name, func(t *testing.T) {
			if allocs := answerAllocs(t, &filo.Server{Handler: test.handler}, test.request); allocs != 0 {
				t.Errorf("%v allocations per request, want none", allocs)
			}
		})
	}
}

// A context costs one allocation if nobody calls its Done or Err, and a value that middleware adds costs another one.
func TestAllocationsOfAContext(t *testing.T) {
	for want, handler := range map[float64]filo.Handler{
		1: func(c *filo.Ctx) error { return answerWithValue(c.Context(), c) },
		2: func(c *filo.Ctx) error {
			c.SetContext(context.WithValue(c.Context(), answerKey{}, answerEnd))
			return answerWithValue(c.Context(), c)
		},
	} {
		if allocs := answerAllocs(t, &filo.Server{Handler: handler}, answerBrowser); allocs != want {
			t.Errorf("%v allocations per request, want %v", allocs, want)
		}
	}
}

func answerWithValue(ctx context.Context, c *filo.Ctx) error {
	if _, limited := ctx.Deadline(); limited || ctx.Value(answerKey{}) == "" {
		return filo.Error(500, "")
	}
	return c.Text(200, answerEnd)
}

// A connection costs a bounded number of allocations, however large its requests are, because it uses the worker's buffers.
func TestAllocationsPerConnection(t *testing.T) {
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.NoContent() }}
	defer s.Close()
	client := func() {
		c, server := servertest.Pipe()
		io.WriteString(c, filotest.GetRequest)
		c.CloseWrite()
		s.ServeConn(server)
	}
	pipe := testing.AllocsPerRun(500, func() {
		c, server := servertest.Pipe()
		io.WriteString(c, filotest.GetRequest)
		c.CloseWrite()
		io.WriteString(server, "HTTP/1.1 204 No Content\r\n")
	})
	if allocs := testing.AllocsPerRun(500, client) - pipe; allocs > 8 {
		t.Errorf("%v allocations per connection, want 8 at most", allocs)
	}
}
