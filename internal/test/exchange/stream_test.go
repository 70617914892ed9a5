package exchange

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// answerStream returns a handler that calls write with its stream.
func answerStream(write func(c *filo.Ctx, w *filo.StreamWriter) error) filo.Handler {
	return func(c *filo.Ctx) error { return write(c, c.Stream()) }
}

// answerStreams are exchanges, compared byte by byte. In requests and answers, "\n" stands for CRLF.
var answerStreams = []struct {
	name, rule string
	handler    filo.Handler
	request    string
	want       string
}{
	{
		name: "chunks", rule: "without a Content-Length the body is sent in chunks, one for each Flush",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.Write([]byte("hello, "))
			w.WriteString("world")
			w.Flush()
			w.WriteString("0123456789abcdef")
			return w.Flush()
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n" +
			"c\nhello, world\n10\n0123456789abcdef\n0\n\n",
	},
	{
		name: "Flush without bytes", rule: "the head is sent at the first Flush; a chunk of size 0 would end the body",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.Flush()
			w.Flush()
			w.WriteString("x")
			w.Write(nil)
			w.WriteString("")
			return w.Flush()
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n1\nx\n0\n\n",
	},
	{
		name: "nothing flushed", rule: "if nothing was sent when the handler returns, the body goes out with its length as any other",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.SetStatus(201)
			c.Response.Header.Set("Content-Type", "text/x")
			_, err := w.WriteString("short")
			return err
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 201 Created\nContent-Type: text/x\nServer: filo\nDate: D\nContent-Length: 5\n\nshort",
	},
	{
		name: "nothing written", rule: "an empty body has the length 0",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error { return nil }),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "Content-Length kept", rule: "a Content-Length that the handler has set is kept to",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Header.Set("Content-Length", "10")
			w.WriteString("01234")
			w.Flush()
			w.WriteString("56789")
			return nil
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 10\n\n0123456789",
	},
	{
		name: "trailer", rule: "the trailer fields that are there when the head is sent are announced (RFC 9110, section 6.6.2)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Trailer.Set("X-Sum", "")
			c.Response.Trailer.Set("X-Other", "1")
			w.WriteString("body")
			w.Flush()
			c.Response.Trailer.Set("X-Sum", "42\r\nX-Evil: 1")
			return nil
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\nTrailer: X-Sum, X-Other\n\n" +
			"4\nbody\n0\nX-Sum: 42  X-Evil: 1\nX-Other: 1\n\n",
	},
	{
		name: "trailer without a Flush", rule: "trailers need chunks, so a body with them isn't sent with its length",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Trailer.Set("X-Sum", "42")
			_, err := w.WriteString("body")
			return err
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n" +
			"4\nbody\n0\nX-Sum: 42\n\n",
	},
	{
		name: "framing fields in the trailer", rule: "a sender must not put framing fields into a trailer (RFC 9110, section 6.5.1)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			for _, name := range []string{"Content-Length", "Transfer-Encoding", "Host", "Connection", "X-Sum"} {
				c.Response.Trailer.Set(name, "7")
			}
			return w.Flush()
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n0\nX-Sum: 7\n\n",
	},
	{
		name: "trailer to HTTP/1.0", rule: "to an HTTP/1.0 client none are sent",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Trailer.Set("X-Sum", "42")
			_, err := w.WriteString("body")
			return err
		}),
		request: "GET / HTTP/1.0\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 4\nConnection: close\n\nbody",
	},
	{
		name: "HTTP/1.0", rule: "no chunks to HTTP/1.0 (RFC 9112, section 6.1): the body ends with the connection",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.WriteString("one ")
			w.Flush()
			_, err := w.WriteString("two")
			return err
		}),
		request: "GET / HTTP/1.0\nConnection: keep-alive\n\nGET /never HTTP/1.0\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nConnection: close\n\none two",
	},
	{
		name: "HTTP/1.0 with a length", rule: "with a length the connection is kept for an HTTP/1.0 client that asked for it",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Header.Set("Content-Length", "3")
			w.Flush()
			_, err := w.WriteString("abc")
			return err
		}),
		request: "GET / HTTP/1.0\nConnection: keep-alive\n\nGET / HTTP/1.0\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 3\nConnection: keep-alive\n\nabc" +
			"HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 3\nConnection: close\n\nabc",
	},
	{
		name: "HEAD", rule: "a response to HEAD has no body (RFC 9110, section 9.3.2)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.WriteString("body")
			w.Flush()
			_, err := w.WriteString(strings.Repeat("x", 20000))
			return err
		}),
		request: "HEAD / HTTP/1.1\nHost: a\n\nHEAD / HTTP/1.1\nHost: a\nConnection: close\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\n\n" +
			"HTTP/1.1 200 OK\nServer: filo\nDate: D\nConnection: close\n\n",
	},
	{
		name: "HEAD with nothing flushed", rule: "the same head as for GET (RFC 9110, section 9.3.2)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			_, err := w.WriteString("body")
			return err
		}),
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 4\n\n",
	},
	{
		name: "HEAD with a length", rule: "the same head as for GET (RFC 9110, section 9.3.2)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Header.Set("Content-Length", "4")
			w.Flush()
			_, err := w.WriteString("body")
			return err
		}),
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 4\n\n",
	},
	{
		name: "HEAD with a length and nothing written", rule: "a HEAD need not make the body: its length stays",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.Header.Set("Content-Length", "4")
			return w.Flush()
		}),
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 4\n\n",
	},
	{
		name: "204", rule: "no Content-Length and no Transfer-Encoding in a 204 (RFC 9110, section 8.6, and RFC 9112, section 6.1)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.SetStatus(204)
			c.Response.Header.Set("Content-Length", "0")
			return w.Flush()
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 204 No Content\nServer: filo\nDate: D\n\n",
	},
	{
		name: "304", rule: "Content-Length in a 304 is that of the answer to a GET (RFC 9110, section 8.6)",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			c.Response.SetStatus(304)
			c.Response.Header.Set("Content-Length", "99")
			return w.Flush()
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 304 Not Modified\nServer: filo\nDate: D\nContent-Length: 99\n\n",
	},
	{
		name: "head after the Flush", rule: "status and header fields can't be changed after the head was sent",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.Flush()
			c.Response.SetStatus(404)
			c.Response.Header.Set("X-Late", "1")
			_, err := w.WriteString("x")
			return err
		}),
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n1\nx\n0\n\n",
	},
	{
		name: "body of another kind after the Flush", rule: "a Content-Length is kept to: what a handler sets behind a streamed body is dropped",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			if c.Path() == "/length" {
				c.Response.Header.Set("Content-Length", "5")
			}
			w.WriteString("hello")
			w.Flush()
			c.Text(200, "late")
			c.Response.SetBodyStream(strings.NewReader("later"), 5)
			return nil
		}),
		request: "GET /length HTTP/1.1\nHost: a\n\nGET /chunks HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 5\n\nhello" +
			"HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
	},
	{
		name: "body of another kind before", rule: "Stream replaces a body that was set before",
		handler: func(c *filo.Ctx) error {
			c.Text(200, "not this")
			_, err := c.Stream().WriteString("this")
			return err
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\n" +
			"Content-Length: 4\n\nthis",
	},
	{
		name: "asked twice", rule: "Stream returns the one writer of the body",
		handler: func(c *filo.Ctx) error {
			c.Stream().WriteString("one ")
			_, err := c.Stream().WriteString("two")
			return err
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 7\n\none two",
	},
	{
		name: "while the body is read", rule: "Stream writes while the handler runs; it may still read the body",
		handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.Flush()
			_, err := io.Copy(w, c.BodyReader())
			return err
		}),
		request: "POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbodyGET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n" +
			"HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n0\n\n",
	},
	{
		name: "SetBodyStream with its size", rule: "size bytes",
		handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("0123456789"), 10)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 10\n\n0123456789",
	},
	{
		name: "SetBodyStream of more than its size", rule: "size bytes and no more",
		handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("0123456789"), 4)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 4\n\n0123",
	},
	{
		name: "SetBodyStream without a size", rule: "until io.EOF if size is negative",
		handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Length", "3") // a wrong length
			c.Response.SetBodyStream(iotest.OneByteReader(strings.NewReader("0123456789")), -1)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.0\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\na\n0123456789\n0\n\n" +
			"HTTP/1.1 200 OK\nServer: filo\nDate: D\nConnection: close\n\n0123456789",
	},
	{
		name: "SetBodyStream with a trailer", rule: "Trailer goes behind a chunked body (SetBodyStream of unknown size)",
		handler: func(c *filo.Ctx) error {
			c.Response.Trailer.Set("X-Sum", "42")
			c.Response.SetBodyStream(strings.NewReader("abc"), -1)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n" +
			"3\nabc\n0\nX-Sum: 42\n\n",
	},
	{
		name: "SetBodyStream of size 0", rule: "size bytes",
		handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(iotest.ErrReader(errors.New("must not be read")), 0)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "SetBodyStream to HEAD", rule: "the same head as for GET, and no body (RFC 9110, section 9.3.2)",
		handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("0123456789"), 10)
			return nil
		},
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 10\n\n",
	},
	{
		name: "SetBodyStream with 204", rule: "a 204 has no body and no Content-Length (RFC 9110, section 8.6)",
		handler: func(c *filo.Ctx) error {
			c.Response.SetStatus(204)
			c.Response.SetBodyStream(strings.NewReader("0123456789"), 10)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 204 No Content\nServer: filo\nDate: D\n\n",
	},
	{
		name: "SetBodyStream of the request body", rule: "it is read when the handler has returned",
		handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(c.BodyReader(), -1)
			return nil
		},
		request: "POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbodyPOST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nnext",
		want: "HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n" +
			"HTTP/1.1 200 OK\nServer: filo\nDate: D\nTransfer-Encoding: chunked\n\n4\nnext\n0\n\n",
	},
}

func TestStreams(t *testing.T) {
	for _, test := range answerStreams {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server { return &filo.Server{Handler: test.handler} }, func(t *testing.T, h *filotest.Host) {
				got := answerUndated(t, h.Raw(t, answerWire(test.request)))
				if want := answerWire(test.want); got != want {
					t.Errorf("%s:\n got %q\nwant %q", test.rule, got, want)
				}
			})
		})
	}
}

// A body arrives complete and unchanged, with each way to write it and each size of pieces.
func TestStreamSizes(t *testing.T) {
	sizes := []int{1, 100, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 40000, 300_000}
	content := bytes.Repeat([]byte("0123456789abcde"), 200_000)
	for _, length := range []bool{false, true} {
		want := 0
		for _, size := range sizes {
			want += size
		}
		h := filotest.ServeSocket(t, &filo.Server{Handler: func(c *filo.Ctx) error {
			if length {
				c.Response.Header.Set("Content-Length", fmt.Sprint(want))
			}
			w, sent := c.Stream(), 0
			for i, size := range sizes {
				piece := content[sent : sent+size]
				var n int
				var err error
				if i%2 == 0 {
					n, err = w.Write(piece)
				} else {
					n, err = w.WriteString(string(piece))
				}
				if n != size || err != nil {
					t.Errorf("writing %d bytes: %d, %v", size, n, err)
				}
				sent += size
			}
			return nil
		}})
		c := h.Connect(t)
		for range 2 {
			c.Send(t, filotest.GetRequest)
			m := c.Receive(t, "GET")
			if m.Body != string(content[:want]) {
				t.Errorf("length known %v: %d bytes came, %d were written, or others", length, len(m.Body), want)
			}
			if (m.Get("Content-Length") != "") != length {
				t.Errorf("head %q", m.Fields)
			}
		}
	}
}

// "The server sends the head at the first Flush, or when 8 KB have gathered": after Flush the head has been sent.
func TestStreamSendsWhileTheHandlerRuns(t *testing.T) {
	next := make(chan bool)
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.WriteString("flushed")
			w.Flush()
			<-next
			w.WriteString(strings.Repeat("x", 8<<10))
			<-next
			return nil
		})}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		if head, err := filotest.ReadLines(c.In); err != nil || len(head) != 4 {
			t.Fatalf("head %q, %v", head, err)
		}
		for _, size := range []int{len("flushed"), 8 << 10} {
			if line, err := filotest.ReadLine(c.In); err != nil || line != fmt.Sprintf("%x", size) {
				t.Fatalf("chunk size %q, %v, want %x", line, err, size)
			}
			if _, err := io.ReadFull(c.In, make([]byte, size+2)); err != nil {
				t.Fatal(err)
			}
			next <- true
		}
		if rest, err := filotest.ReadLines(c.In); err != nil || len(rest) != 1 || rest[0] != "0" {
			t.Errorf("end of the body: %q, %v", rest, err)
		}
	})
}

// RFC 9110, section 8.6: a sender must send exactly as many bytes as Content-Length says. If a handler writes more, Write returns
// ErrContentLength and doesn't send the excess. If it writes less, the server aborts the connection.
func TestStreamAgainstItsContentLength(t *testing.T) {
	const head = "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 5\n\n"
	for _, test := range []struct {
		name  string
		write func(t *testing.T, w *filo.StreamWriter)
		want  string
	}{
		{"too much after the head", func(t *testing.T, w *filo.StreamWriter) {
			w.WriteString("12345")
			w.Flush()
			for _, write := range []func() (int, error){
				func() (int, error) { return w.Write([]byte("6")) },
				func() (int, error) { return w.WriteString("6") },
				func() (int, error) { return w.WriteString(strings.Repeat("6", 10000)) },
				func() (int, error) { return w.Write(make([]byte, 10000)) },
			} {
				if n, err := write(); n != 0 || !errors.Is(err, filo.ErrContentLength) {
					t.Errorf("writing too much: %d, %v, want 0, ErrContentLength", n, err)
				}
			}
		}, head + "12345"},
		{"too much before the head", func(t *testing.T, w *filo.StreamWriter) {
			w.WriteString("123")
			if n, err := w.WriteString("456"); n != 0 || !errors.Is(err, filo.ErrContentLength) {
				t.Errorf("writing too much: %d, %v, want 0, ErrContentLength", n, err)
			}
			w.WriteString("45")
		}, head + "12345"},
		{"too little", func(t *testing.T, w *filo.StreamWriter) {
			w.WriteString("123")
			w.Flush()
		}, head + "123"},
		{"too little, the last of it not flushed", func(t *testing.T, w *filo.StreamWriter) {
			w.Flush()
			w.WriteString("12")
		}, head},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Logger: filotest.Quiet, Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
					c.Response.Header.Set("Content-Length", "5")
					test.write(t, w)
					return nil
				})}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, filotest.GetRequest)
				if strings.HasPrefix(test.name, "too much") {
					if m := c.Receive(t, "GET"); m.Body != "12345" {
						t.Errorf("body %q", m.Body)
					}
					c.Send(t, filotest.GetRequest) // the connection must stay usable
					c.Receive(t, "GET")
					return
				}
				all, _ := io.ReadAll(c)
				got, want := answerUndated(t, string(all)), answerWire(test.want)
				// The connection may end with a reset, which may destroy bytes that were sent before.
				if short := !h.Memory && strings.HasPrefix(want, got); got != want && got != want+"12" && !short {
					t.Errorf("got %q, want %q and the end", got, want)
				}
			})
		})
	}
}

// "If the handler returns an error after the head was sent … the server cuts the connection, so that the client doesn't mistake the body
// for complete." An earlier error is answered as any other.
func TestStreamAndErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		fail  func() error
		flush bool
		want  int
	}{
		{"error before the head", func() error { return filo.Error(409, "no") }, false, 409},
		{"panic before the head", func() error { panic("no") }, false, 500},
		{"Goexit before the head", func() error { runtime.Goexit(); return nil }, false, 500},
		{"abort before the head", func() error { return filo.ErrAbort }, false, 0},
		{"error after the head", func() error { return filo.Error(409, "no") }, true, 200},
		{"panic after the head", func() error { panic("no") }, true, 200},
		{"Goexit after the head", func() error { runtime.Goexit(); return nil }, true, 200},
		{"abort after the head", func() error { return filo.ErrAbort }, true, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Logger: filotest.Quiet, Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
					c.Response.SetStatus(200)
					w.WriteString("written")
					if test.flush {
						w.Flush()
					}
					w.WriteString("not sent")
					return test.fail()
				})}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				all, _ := io.ReadAll(c)
				m, err := filotest.ReadMessage(bufio.NewReader(bytes.NewReader(all)), "GET")
				switch {
				case test.want == 0:
					if len(all) > 0 {
						t.Errorf("got %q after an abort", all)
					}
				case test.flush:
					if err == nil || h.Memory && (m.Status != 200 || m.Body != "written") {
						t.Errorf("a broken body came as a whole one: %+v", m)
					}
				case err != nil || m.Status != test.want || strings.Contains(string(all), "written"):
					t.Errorf("got %q, %v, want the error's answer alone", all, err)
				}
			})
		})
	}
}

// For an HTTP/1.0 client, the body ends with the connection, so only a reset can show that the body is incomplete (RFC 9112, section 8: a
// body delimited by the close of the connection "is considered complete").
func TestStreamBrokenOffForHTTP10(t *testing.T) {
	h := filotest.ServeSocket(t, &filo.Server{Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
		w.WriteString("written")
		w.Flush()
		// Wait until the client has read the first bytes, because the reset might destroy them.
		c.Body()
		return errAnswer
	})})
	c := h.Connect(t)
	body := strings.Repeat("x", 20_000) // so long that the server calls the handler before the whole body has arrived
	c.Send(t, "POST / HTTP/1.0\r\nContent-Length: 20000\r\n\r\n")
	if head, err := filotest.ReadLines(c.In); err != nil || len(head) == 0 {
		t.Fatalf("head %q, %v", head, err)
	}
	if _, err := io.ReadFull(c.In, make([]byte, len("written"))); err != nil {
		t.Fatal(err)
	}
	c.Send(t, body)
	if _, err := c.In.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end of a body that was broken off: %v, want a reset", err)
	}
}

// Writes fail if the answer's status allows no body. In answers to HEAD, writes are dropped without an error.
func TestStreamBodyNotAllowed(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
		if c.Method() == "HEAD" {
			if n, err := w.WriteString("dropped"); n != 7 || err != nil {
				t.Errorf("writing to a HEAD: %d, %v", n, err)
			}
			return w.Flush()
		}
		c.Response.SetStatus(204)
		for range 2 {
			if n, err := w.WriteString("x"); n != 0 || !errors.Is(err, filo.ErrBodyNotAllowed) {
				t.Errorf("writing to a 204: %d, %v, want ErrBodyNotAllowed", n, err)
			}
			if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, filo.ErrBodyNotAllowed) {
				t.Errorf("writing to a 204: %d, %v, want ErrBodyNotAllowed", n, err)
			}
			if err := w.Flush(); err != nil {
				t.Errorf("Flush: %v", err)
			}
		}
		return nil
	})})
	c := h.Connect(t)
	for _, method := range []string{"GET", "HEAD", "GET"} {
		c.Send(t, method+" / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.Receive(t, method)
	}
}

// "An error means that the client has gone or doesn't read", and from then on each call of Flush returns one.
func TestStreamToAClientThatIsGone(t *testing.T) {
	log := &answerLog{}
	errs := make(chan error, 1)
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: log.logger(), Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			var err error
			for i := 0; i < 1_000_000 && err == nil; i++ {
				w.WriteString("tick")
				err = w.Flush()
			}
			if _, again := w.Write(make([]byte, 20000)); err != nil && again == nil {
				t.Error("a Write after an error had none")
			}
			if err != nil && w.Flush() == nil {
				t.Error("a Flush after an error had none")
			}
			errs <- err
			return err
		})}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		c.In.ReadByte()
		c.Close()
		if err := filotest.Recv(t, errs, "the handler"); err == nil {
			t.Error("no error for a client that is gone")
		}
	})
	// "LogAllErrors also logs client errors": without it, the server doesn't log that a client has disconnected.
	if records := log.all(); len(records) > 0 {
		t.Errorf("logged %q", records)
	}
}

// A StreamWriter is valid until the handler returns. A later Write fails, and sends nothing.
func TestStreamKeptTooLong(t *testing.T) {
	kept := make(chan *filo.StreamWriter, 1)
	h := filotest.ServeMemory(t, &filo.Server{Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
		kept <- w
		_, err := w.WriteString("answer")
		return err
	})})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	c.Receive(t, "GET")
	w := <-kept
	if n, err := w.WriteString("late"); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("WriteString after the handler returned: %d, %v, want ErrClosedPipe", n, err)
	}
	if n, err := w.Write([]byte("late")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write after the handler returned: %d, %v, want ErrClosedPipe", n, err)
	}
	if err := w.Flush(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Flush after the handler returned: %v, want ErrClosedPipe", err)
	}
	c.CloseWrite()
	c.WantEnd(t)
}

// answerCloser is a body stream that counts how often it is closed.
type answerCloser struct {
	io.Reader
	closed *atomic.Int32
}

func (c *answerCloser) Close() error { c.closed.Add(1); return nil }

// answerEndless is a reader without an end.
type answerEndless struct{}

func (answerEndless) Read(p []byte) (int, error) { return len(p), nil }

// errAnswer is the error of handlers and readers that fail in these tests.
var errAnswer = errors.New("no")

// answerFailing is a reader that fails after size bytes.
func answerFailing(size int) io.Reader {
	return io.MultiReader(strings.NewReader(strings.Repeat("x", size)), iotest.ErrReader(errAnswer))
}

// answerPanics is a reader that panics.
type answerPanics struct{}

func (answerPanics) Read([]byte) (int, error) { panic("no") }

func answerABC() io.Reader { return strings.NewReader("abc") }

// answerClosings lists the ways in which a body stream can end.
var answerClosings = [...]struct {
	name    string
	stream  func() io.Reader
	size    int64
	request string
	before  func(c *filo.Ctx) error // called by the handler before it sets the stream
	after   func(c *filo.Ctx) error // called by the handler after it has set the stream
}{
	{name: "sent", stream: answerABC, size: 3},
	{name: "sent, size unknown", stream: answerABC, size: -1},
	{name: "short", stream: answerABC, size: 4},
	{name: "short after the head", stream: func() io.Reader { return strings.NewReader(strings.Repeat("x", 20000)) }, size: 20001},
	{name: "fails", stream: func() io.Reader { return iotest.ErrReader(errAnswer) }, size: 4},
	{name: "fails, size unknown", stream: func() io.Reader { return iotest.ErrReader(errAnswer) }, size: -1},
	{name: "fails after the head", stream: func() io.Reader { return answerFailing(20000) }, size: -1},
	{name: "panics", stream: func() io.Reader { return answerPanics{} }, size: -1},
	{name: "HEAD", stream: answerABC, size: 3, request: "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"},
	{name: "204", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { c.Response.SetStatus(204); return nil }},
	{name: "connection closes", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { c.Response.SetClose(); return nil }},
	{name: "error", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { return filo.Error(404, "") }},
	{name: "abort", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { return filo.ErrAbort }},
	{name: "panic", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { panic("no") }},
	{name: "Goexit", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { runtime.Goexit(); return nil }},
	{name: "replaced by Text", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { return c.Text(200, "") }},
	{name: "replaced by Write", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { c.Response.Write([]byte("x")); return nil }},
	{name: "replaced by Stream", stream: answerABC, size: 3, after: func(c *filo.Ctx) error { return c.Stream().Flush() }},
	{name: "replaced by another", stream: answerABC, size: 3, after: func(c *filo.Ctx) error {
		c.Response.SetBodyStream(strings.NewReader("x"), 1)
		return nil
	}},
	{name: "hijacked", stream: answerABC, size: 3, after: answerHijacks},
	{name: "set when hijacked", stream: answerABC, size: 3, before: answerHijacks},
	{name: "parked", stream: answerABC, size: 3, after: answerParks},
	{name: "set when parked", stream: answerABC, size: 3, before: answerParks},
	{name: "set when streaming", stream: answerABC, size: 3, before: func(c *filo.Ctx) error { return c.Stream().Flush() }},
}

func answerHijacks(c *filo.Ctx) error {
	conn, _, err := c.Hijack()
	if err == nil {
		conn.Close()
	}
	return err
}

func answerParks(c *filo.Ctx) error {
	_, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF }) // ends it when the client sends something or leaves
	return err
}

// answerClosing is a handler that sets a body stream as a test says.
func answerClosing(c *filo.Ctx, test int, closed *atomic.Int32) error {
	each := &answerClosings[test]
	if each.before != nil {
		if err := each.before(c); err != nil {
			closed.Add(1) // over HTTP/2, where nothing can be hijacked
			return err
		}
	}
	if err := c.Reader(200, "a/b", &answerCloser{each.stream(), closed}, each.size); err != nil || each.after == nil {
		return err
	}
	return each.after(c)
}

// The server "reads the stream after the handler has returned, and then closes it if it is an io.Closer": once, whatever happens, and no
// later than the end of the answer.
func TestBodyStreamIsClosedOnce(t *testing.T) {
	for i, test := range answerClosings {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var closed atomic.Int32
				first := true
				s := servertest.NewServer(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
					if !first {
						return c.Text(200, "next")
					}
					first = false
					return answerClosing(c, i, &closed)
				}})
				request := test.request
				if request == "" {
					request = filotest.GetRequest
				}
				c := s.Dial(t)
				io.WriteString(c, request)
				synctest.Wait() // now the whole answer is in the client's buffer, and the connection is idle or closed
				if n := closed.Load(); n != 1 {
					t.Errorf("closed %d times when the answer was over, want once", n)
				}
				io.WriteString(c, filotest.GetRequest)
				synctest.Wait()
				c.Close()
				synctest.Wait()
				if n := closed.Load(); n != 1 {
					t.Errorf("closed %d times when the connection was over, want once", n)
				}
			})
		})
	}
}

// Over HTTP/2 likewise, also in a request that stays parked.
func TestBodyStreamIsClosedOnceOverHTTP2(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		var closed [len(answerClosings)]atomic.Int32
		_, dial := serve(&filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			i, err := strconv.Atoi(c.Path()[1:])
			if err != nil {
				return err
			}
			return answerClosing(c, i, &closed[i])
		}})
		for i, test := range answerClosings {
			if test.request != "" {
				continue // of HTTP/1.1
			}
			c := dial()
			c.Request(1, "/"+strconv.Itoa(i), true).Send()
			filotest.Await(t, test.name+": the stream to be closed", func() bool { return closed[i].Load() == 1 })
			c.Conn.Close()
		}
		for i, test := range answerClosings {
			if n := closed[i].Load(); n > 1 {
				t.Errorf("%s: closed %d times", test.name, n)
			}
		}
	})
}

// If a client disconnects during a body stream, the server stops reading the stream and closes it.
func TestBodyStreamToAClientThatIsGone(t *testing.T) {
	log := &answerLog{}
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: log.logger(), Handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(answerEndless{}, -1)
			return nil
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		c.In.ReadByte()
		c.Close()
		filotest.Await(t, "the connection to end", func() bool { return h.Config.Stats().ConnsOpen == 0 })
	})
	if records := log.all(); len(records) > 0 {
		t.Errorf("logged %q: a client that leaves is no error of the server's", records)
	}
}

// If a body stream ends early or fails, the server aborts the answer, or answers with 500 if nothing has been sent yet.
func TestBodyStreamFails(t *testing.T) {
	long := strings.Repeat("x", 20000)
	for _, test := range []struct {
		name   string
		stream func() io.Reader
		size   int64
		want   int
	}{
		{"fails at once", func() io.Reader { return iotest.ErrReader(errAnswer) }, -1, 500},
		{"fails at once, size known", func() io.Reader { return iotest.ErrReader(errAnswer) }, 10, 500},
		{"panics at once", func() io.Reader { return answerPanics{} }, 10, 500},
		{"short", func() io.Reader { return strings.NewReader("abc") }, 4, 500},
		{"fails later", func() io.Reader { return answerFailing(len(long)) }, -1, 200},
		{"fails later, size known", func() io.Reader { return answerFailing(len(long)) }, 30000, 200},
		{"short later", func() io.Reader { return strings.NewReader(long) }, 20001, 200},
		{"panics later", func() io.Reader { return io.MultiReader(strings.NewReader(long), answerPanics{}) }, -1, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
					c.Response.SetBodyStream(test.stream(), test.size)
					return nil
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, filotest.GetRequest)
				m, err := filotest.ReadMessage(c.In, "GET")
				if m.Status != test.want || (err == nil) != (test.want == 500) {
					t.Errorf("got %d with %d bytes, %v, want %d", m.Status, len(m.Body), err, test.want)
				}
			})
		})
	}
}

// A panic in a body stream's Read is treated like a panic of the handler: it ends only the connection, even if ServeConn serves the
// connection on its caller's goroutine.
func TestBodyStreamPanicsInServeConn(t *testing.T) {
	client, server := servertest.Pipe()
	io.WriteString(client, filotest.GetRequest)
	s := &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
		c.Response.SetBodyStream(answerPanics{}, -1)
		return nil
	}}
	defer s.Close()
	func() {
		defer func() {
			if value := recover(); value != nil {
				t.Errorf("ServeConn panicked with %v", value)
			}
		}()
		client.CloseWrite()
		s.ServeConn(server)
	}()
	if open := s.Stats().ConnsOpen; open != 0 {
		t.Errorf("%d connections are left in the books", open)
	}
}

// The Close of a body stream is user code. If the server didn't recover from its panic, the connection would stay registered, and Shutdown
// would wait for it for ever.
func TestBodyStreamCloserPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &answerLog{}
		s := servertest.NewServer(t, &filo.Server{Logger: log.logger(), Handler: func(c *filo.Ctx) error {
			c.Response.SetBodyStream(answerPanicCloser{strings.NewReader("abc")}, 3)
			return nil
		}})
		c := s.Dial(t)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		io.ReadAll(c)
		synctest.Wait()
		if open := s.Config.Stats().ConnsOpen; open != 0 {
			t.Errorf("%d connections are left in the books", open)
		}
		if records := log.all(); len(records) != 1 || !strings.Contains(records[0], "Close") {
			t.Errorf("the server's Logger got %q, want one record that says what panicked", records)
		}
	})
}

type answerPanicCloser struct{ io.Reader }

func (answerPanicCloser) Close() error { panic("no") }
