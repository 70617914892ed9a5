package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// bracket is a writer for WrapBody that makes its calls visible. It collects the written bytes until Flush or Close, and then writes them in
// brackets.
type bracket struct {
	w      io.Writer
	held   bytes.Buffer
	signs  string // an opening bracket, a closing one
	closed *atomic.Int32
	fail   error
	panics string // the method that panics
}

func (b *bracket) Write(p []byte) (int, error) {
	if b.panics == "Write" {
		panic("the layer's Write")
	}
	if b.fail != nil {
		return 0, b.fail
	}
	return b.held.Write(p)
}

func (b *bracket) Flush() error {
	_, err := io.WriteString(b.w, b.signs[:1]+b.held.String()+b.signs[1:])
	b.held.Reset()
	return err
}

func (b *bracket) Close() error {
	b.closed.Add(1)
	if b.panics == "Close" {
		panic("the layer's Close")
	}
	return b.Flush()
}

// wrapping is a middleware that wraps bodies in brackets, and reports the size that its function receives in a field.
func wrapping(closed *atomic.Int32, signs ...string) filo.Middleware {
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			for _, each := range signs {
				c.Response.WrapBody(func(c *filo.Ctx, w io.Writer, size int64) io.WriteCloser {
					c.Response.Header.Add("X-Size", fmt.Sprint(size))
					return &bracket{w: w, signs: each, closed: closed}
				})
			}
			c.Response.WrapBody(func(*filo.Ctx, io.Writer, int64) io.WriteCloser { return nil })
			return next(c)
		}
	}
}

func TestWrapBody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large.txt")
	large := strings.Repeat("0123456789abcdef", 4<<10)
	if err := os.WriteFile(file, []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		handler filo.Handler
		request string // GET / HTTP/1.1 by default
		signs   []string
		body    string // dechunked
		framing string // the framing that the head must have
		size    string // the size that the function must receive
		closed  int32
	}{
		"a whole body": {handler: func(c *filo.Ctx) error { return c.Text(200, "hi") },
			body: "[hi]", framing: "Content-Length: 4", size: "2", closed: 1},
		"an empty one": {handler: func(c *filo.Ctx) error { return nil },
			body: "[]", framing: "Content-Length: 2", size: "0", closed: 1},
		"the innermost comes first": {handler: func(c *filo.Ctx) error { return c.Text(200, "hi") },
			signs: []string{"[]", "<>"}, body: "[<hi>]", framing: "Content-Length: 6", size: "2", closed: 2},
		"a small stream is whole": {handler: func(c *filo.Ctx) error { _, err := c.Stream().WriteString("hi"); return err },
			body: "[hi]", framing: "Content-Length: 4", size: "2", closed: 1},
		"a flush goes through": {handler: func(c *filo.Ctx) error {
			c.Stream().WriteString("hi")
			err := c.Stream().Flush()
			c.Stream().WriteString("ho")
			return err
		}, signs: []string{"[]", "<>"}, body: "[<hi>][<ho>]", framing: "Transfer-Encoding: chunked", size: "-1", closed: 2},
		"a large stream": {handler: func(c *filo.Ctx) error {
			for i := range 64 {
				c.Stream().WriteString(large[i<<10 : (i+1)<<10])
			}
			return nil
		}, body: "[" + large + "]", framing: "Transfer-Encoding: chunked", size: "-1", closed: 1},
		"an announced length is the handler's": {handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Length", "4")
			c.Stream().WriteString("hi")
			c.Stream().Flush()
			if _, err := c.Stream().WriteString("hoo"); !errors.Is(err, filo.ErrContentLength) {
				t.Errorf("more than was announced: %v", err)
			}
			_, err := c.Stream().WriteString("ho")
			return err
		}, body: "[hi][ho]", framing: "Transfer-Encoding: chunked", size: "4", closed: 1},
		"a body to be read": {handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("hi"), 2)
			return nil
		}, body: "[hi]", framing: "Transfer-Encoding: chunked", size: "2", closed: 1},
		"a body to be read to its end": {handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("hi"), -1)
			return nil
		}, body: "[hi]", framing: "Transfer-Encoding: chunked", size: "-1", closed: 1},
		"a file": {handler: func(c *filo.Ctx) error { return c.File(file) },
			body: "[" + large + "]", framing: "Transfer-Encoding: chunked", size: "65536", closed: 1},
		"trailers": {handler: func(c *filo.Ctx) error {
			c.Response.Trailer.Set("X-Sum", "1")
			_, err := c.Stream().WriteString("hi")
			return err
		}, body: "[hi]", framing: "Trailer: X-Sum", size: "-1", closed: 1},
		"HTTP/1.0": {handler: func(c *filo.Ctx) error {
			c.Stream().WriteString("hi")
			return c.Stream().Flush()
		}, request: "GET / HTTP/1.0\r\n\r\n", body: "[hi][]", framing: "Connection: close", size: "-1", closed: 1},
		"HEAD is as GET": {handler: func(c *filo.Ctx) error { return c.Text(200, "hi") },
			request: "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", framing: "Content-Length: 4", size: "2", closed: 1},
		"HEAD of a stream": {handler: func(c *filo.Ctx) error {
			c.Stream().WriteString("hi")
			return c.Stream().Flush()
		}, request: "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", framing: "200 OK", size: "-1", closed: 1},
		"no content": {handler: func(c *filo.Ctx) error { return c.NoContent() }, framing: "204 No Content"},
		"no content to stream": {handler: func(c *filo.Ctx) error {
			c.Response.SetStatus(304)
			return c.Stream().Flush()
		}, framing: "304 Not Modified", closed: 1},
		"an error answer": {handler: func(c *filo.Ctx) error { return filo.Error(404, "gone") },
			body: "[Not Found: gone\n]", framing: "404 Not Found", size: "16", closed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var closed atomic.Int32
			signs := test.signs
			if signs == nil {
				signs = []string{"[]"}
			}
			request := test.request
			if request == "" {
				request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
			}
			s := servertest.New(t, wrapping(&closed, signs...)(test.handler))
			head, body, _ := strings.Cut(s.Raw(t, request), "\r\n\r\n")
			head += "\r\n"
			if strings.Contains(head, "chunked") {
				body = dechunk(t, body)
			}
			if body != test.body {
				t.Errorf("body %.80q, want %.80q", body, test.body)
			}
			if !strings.Contains(head, test.framing+"\r\n") {
				t.Errorf("the head lacks %q:\n%s", test.framing, head)
			}
			if test.size != "" && strings.Count(head, "X-Size: "+test.size+"\r\n") != len(signs) {
				t.Errorf("told another size than %s:\n%s", test.size, head)
			}
			if closed.Load() != test.closed {
				t.Errorf("closed %d times, want %d", closed.Load(), test.closed)
			}
		})
	}
}

// dechunk returns the content of a chunked body, and fails the test if the body is incomplete.
func dechunk(t *testing.T, body string) string {
	t.Helper()
	var content strings.Builder
	for body != "" && (len(body) < 2 || body[0] != '0') {
		var size int
		line, rest, _ := strings.Cut(body, "\r\n")
		if _, err := fmt.Sscanf(line, "%x", &size); err != nil || len(rest) < size+2 {
			return ""
		}
		content.WriteString(rest[:size])
		body = rest[size+2:]
	}
	if !strings.HasPrefix(body, "0\r\n") || !strings.HasSuffix(body, "\r\n\r\n") {
		t.Errorf("the chunked body ends with %q", body)
	}
	return content.String()
}

// If a wrapping writer fails or panics, the answer becomes a 500 if nothing has been sent yet. Otherwise the server aborts the body. It
// closes the writer in both cases, and continues to serve.
func TestWrapBodyFails(t *testing.T) {
	wrong := errors.New("the layer is broken")
	for name, test := range map[string]struct {
		layer   bracket
		wrap    func() // panics
		stream  bool
		handler error
		want    string // the beginning of the answer
		closed  int32
	}{
		"Write of a whole body":           {layer: bracket{fail: wrong}, want: "HTTP/1.1 500 ", closed: 1},
		"Write of a stream":               {layer: bracket{fail: wrong}, stream: true, want: "HTTP/1.1 200 ", closed: 1},
		"a panic in Write":                {layer: bracket{panics: "Write"}, want: "HTTP/1.1 500 ", closed: 1},
		"a panic in Write of a stream":    {layer: bracket{panics: "Write"}, stream: true, want: "HTTP/1.1 200 ", closed: 1},
		"a panic in Close":                {layer: bracket{panics: "Close"}, want: "HTTP/1.1 500 ", closed: 1},
		"a panic in Close of a stream":    {layer: bracket{panics: "Close"}, stream: true, want: "HTTP/1.1 200 ", closed: 1},
		"a panic in the function":         {wrap: func() { panic("the function") }, want: "HTTP/1.1 500 "},
		"the handler, behind what it had": {stream: true, handler: wrong, want: "HTTP/1.1 200 ", closed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var closed atomic.Int32
			layer := test.layer
			layer.signs, layer.closed = "[]", &closed
			handler := func(c *filo.Ctx) error {
				if c.Path() == "/sound" {
					return c.Text(200, "sound")
				}
				c.Response.WrapBody(func(_ *filo.Ctx, w io.Writer, size int64) io.WriteCloser {
					if test.wrap != nil {
						test.wrap()
					}
					layer.w = w
					return &layer
				})
				if !test.stream {
					return errors.Join(c.Text(200, "hi"), test.handler)
				}
				c.Stream().WriteString(strings.Repeat("x", 9<<10))
				return test.handler
			}
			s := servertest.NewServer(t, &filo.Server{Handler: handler, Logger: slog.New(slog.DiscardHandler)})
			answer := s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(answer, test.want) || strings.HasSuffix(answer, "0\r\n\r\n") {
				t.Errorf("the answer is %.200q, want %s", answer, test.want)
			}
			if closed.Load() != test.closed {
				t.Errorf("closed %d times, want %d", closed.Load(), test.closed)
			}
			if answer := s.Raw(t, "GET /sound HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(answer, "\r\n\r\nsound") {
				t.Errorf("the next answer is %q", answer)
			}
		})
	}
}

// "Middleware that calls it after the inner handler has returned can inspect the body and set another."
func TestWholeBody(t *testing.T) {
	for name, test := range map[string]struct {
		handler filo.Handler
		body    string
		ok      bool
	}{
		"a text":         {func(c *filo.Ctx) error { return c.Text(200, "hi") }, "hi", true},
		"bytes":          {func(c *filo.Ctx) error { return c.BytesNoCopy(200, "a/b", []byte("hi")) }, "hi", true},
		"none":           {func(c *filo.Ctx) error { return c.NoContent() }, "", true},
		"a small stream": {func(c *filo.Ctx) error { _, err := c.Stream().WriteString("hi"); return err }, "hi", true},
		"an error":       {func(c *filo.Ctx) error { return c.RenderError(filo.Error(404, "gone")) }, "Not Found: gone\n", true},
		"a stream that was sent": {func(c *filo.Ctx) error {
			c.Stream().WriteString("hi")
			return c.Stream().Flush()
		}, "", false},
		"a stream with trailers": {func(c *filo.Ctx) error {
			c.Response.Trailer.Set("X-Sum", "1")
			_, err := c.Stream().WriteString("hi")
			return err
		}, "", false},
		"a reader": {func(c *filo.Ctx) error { c.Response.SetBodyStream(strings.NewReader("hi"), 2); return nil }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := servertest.New(t, func(c *filo.Ctx) error {
				err := test.handler(c)
				body, ok := c.Response.WholeBody()
				if string(body) != test.body || ok != test.ok || ok && c.BytesWritten() != int64(len(body)) {
					t.Errorf("%q, %v, %d bytes; want %q, %v", body, ok, c.BytesWritten(), test.body, test.ok)
				}
				if ok && c.Status() == 200 {
					c.Response.SetBodyString("another")
				}
				return err
			})
			answer := s.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			if strings.Contains(answer, "another") != (test.ok && strings.Contains(answer, " 200 ")) {
				t.Errorf("a body set instead: %q", answer)
			}
		})
	}
}

// contextReader can be read until its context is done. Its Close reports the cause with which the context has ended.
type contextReader struct {
	ctx   context.Context
	left  int64
	ended chan error
}

func (r *contextReader) Read(p []byte) (int, error) {
	switch {
	case r.ctx.Err() != nil:
		return 0, context.Cause(r.ctx)
	case r.left == 0:
		return 0, io.EOF
	}
	n := min(int64(len(p)), r.left)
	clear(p[:n])
	r.left -= n
	return int(n), nil
}

func (r *contextReader) Close() error {
	go func() {
		<-r.ctx.Done()
		r.ended <- context.Cause(r.ctx)
	}()
	return nil
}

// The context lasts until the handler has returned and the stream of Response.SetBodyStream has been sent, because the stream may be the
// answer to a request that the handler has made with this context. The context ends when the client disconnects.
func TestContextLastsForBodyStream(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		ended := make(chan error, 2)
		_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			size := int64(100 << 10)
			if c.Path() == "/endless" {
				size = 1 << 40
			}
			return c.Reader(200, "a/b", &contextReader{c.Context(), size, ended}, size)
		}})
		for range 2 {
			client.Get("/")
			client.Want(200, string(make([]byte, 100<<10)), false)
			if err := filotest.Recv(t, ended, "the context to end"); err != context.Canceled {
				t.Errorf("the context ended by %v", err)
			}
		}
		client.Get("/endless")
		io.ReadFull(client.Reader, make([]byte, 1000))
		client.Close()
		filotest.Recv(t, ended, "the context to end")
	})
}

// If a wrapped body that is delimited by the connection's end is aborted, the client must not mistake it for complete, even if the handler
// has announced a length.
func TestWrappedBodyThatBreaksOff(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		var closed atomic.Int32
		c.Response.WrapBody(func(_ *filo.Ctx, w io.Writer, _ int64) io.WriteCloser {
			return &bracket{w: w, signs: "[]", closed: &closed}
		})
		c.Response.Header.Set("Content-Length", "100")
		c.Stream().WriteString("half")
		return errors.Join(c.Stream().Flush(), errors.New("no more"))
	}})
	client := s.Dial(t)
	client.Send("GET / HTTP/1.0\r\n\r\n")
	if answer, err := io.ReadAll(client.Reader); err == nil {
		t.Errorf("the connection ends as if that were all: %q", answer)
	}
}

// "The server calls Close once, also for a body that was broken off". This also holds if another wrapper panics.
func TestWrapBodyFunctionPanics(t *testing.T) {
	for _, stream := range []bool{false, true} {
		var closed atomic.Int32
		s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/sound" {
				return nil
			}
			c.Response.WrapBody(func(_ *filo.Ctx, w io.Writer, _ int64) io.WriteCloser {
				c.Response.Header.Set("Content-Encoding", "brackets")
				return &bracket{w: w, signs: "[]", closed: &closed}
			})
			c.Response.WrapBody(func(*filo.Ctx, io.Writer, int64) io.WriteCloser { panic("the function") })
			if stream {
				c.Stream().WriteString("hi")
				return c.Stream().Flush()
			}
			return c.Text(200, "hi")
		}, ErrorHandler: func(c *filo.Ctx, err error) { c.Text(500, "an error page") }})
		client := s.Dial(t)
		client.Get("/")
		if response, body := client.Answer(); response.StatusCode != 500 || body != "an error page" || response.Header.Get("Content-Encoding") != "" {
			t.Errorf("stream %v: %d %q %v", stream, response.StatusCode, body, response.Header)
		}
		client.Get("/sound")
		client.Want(200, "", false)
		if closed.Load() != 1 {
			t.Errorf("stream %v: closed %d times", stream, closed.Load())
		}
	}
}

// If a handler answers HEAD and sets the Content-Length that GET's body would have, the server sends this length.
func TestWrapBodyAndAnnouncedHead(t *testing.T) {
	s := servertest.New(t, wrapping(new(atomic.Int32), "[]")(func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Length", "5000")
		return nil
	}))
	if got := s.Do(t, "HEAD /"); got.Header.Get("Content-Length") != "5000" {
		t.Errorf("got %v", got.Header)
	}
}

// An error of a wrapping writer is the server's fault, so the server logs it.
func TestErrorOfALayerIsLogged(t *testing.T) {
	var log filotest.Log
	s := filotest.Serve(t, &filo.Server{Logger: log.Logger(), Handler: func(c *filo.Ctx) error {
		c.Response.WrapBody(func(_ *filo.Ctx, w io.Writer, _ int64) io.WriteCloser {
			return &bracket{w: w, signs: "[]", closed: new(atomic.Int32), fail: errors.New("the encoder is broken")}
		})
		c.Stream().WriteString("hi")
		return c.Stream().Flush()
	}})
	client := s.Dial(t)
	client.Get("/")
	client.TryAnswer()
	filotest.Await(t, "the log", func() bool { return len(log.Lines("the encoder is broken")) == 1 })
}

// Middleware "can inspect the body and set another", even with a stream.
func TestStreamAfterWholeBody(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		c.Stream().WriteString("old")
		if body, ok := c.Response.WholeBody(); !ok || string(body) != "old" {
			t.Errorf("%q, %v", body, ok)
		}
		_, err := c.Stream().WriteString("new")
		return err
	})
	if got := s.Do(t, "GET /"); got.Body != "new" {
		t.Errorf("got %q", got.Body)
	}
}

// closingBody calls Context when it is closed, which happens after the answer.
type closingBody struct {
	io.Reader
	c *filo.Ctx
}

func (b closingBody) Close() error {
	b.c.Context().Done()
	return nil
}

// A request's body may call Context when it is closed at the end of the request. The next request must not be affected.
func TestContextAskedForAtTheEnd(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			c.Request.SetBodyReader(closingBody{strings.NewReader("x"), c})
			return c.Text(200, c.Path())
		}})
		for range 20 {
			client.Get("/a")
			client.Want(200, "/a", false)
		}
	})
}
