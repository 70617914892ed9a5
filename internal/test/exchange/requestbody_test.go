package exchange

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// closingReader counts how often it is closed.
type closingReader struct {
	io.Reader
	closed *int
	panics bool
}

func (r closingReader) Close() error {
	*r.closed++
	if r.panics {
		panic("in Close")
	}
	return nil
}

// upper converts a body to upper case.
type upper struct{ io.Reader }

func (u upper) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	copy(p, bytes.ToUpper(p[:n]))
	return n, err
}

func post(body string, fields ...string) string {
	head := "POST / HTTP/1.1\r\nHost: filo.test\r\n"
	for _, field := range fields {
		head += field + "\r\n"
	}
	return head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

func TestSetBodyReader(t *testing.T) {
	multipartBody := "--b\r\ncontent-disposition: form-data; name=\"k\"\r\n\r\nvalue\r\n--b--\r\n"
	tripled := func(c *filo.Ctx) {
		body := c.BodyReader()
		c.Request.SetBodyReader(io.MultiReader(strings.NewReader("<"), upper{body}, strings.NewReader(">")))
	}
	for _, test := range []struct {
		why, request string
		replace      func(c *filo.Ctx)
		handler      filo.Handler
		want         string
	}{
		{"Body reads the replacement, every time", post("abc"), tripled, func(c *filo.Ctx) error {
			first, err := c.Body()
			if err != nil {
				return err
			}
			second, err := c.Body()
			return errors.Join(err, c.Text(200, string(first)+string(second)))
		}, "<ABC><ABC>"},
		{"BodyReader reads the replacement", post("abc"), tripled, func(c *filo.Ctx) error {
			body, err := io.ReadAll(c.BodyReader())
			return errors.Join(err, c.Text(200, string(body)))
		}, "<ABC>"},
		{"BodyReader after Body reads what Body returned", post("abc"), tripled, func(c *filo.Ctx) error {
			if _, err := c.Body(); err != nil {
				return err
			}
			body, err := io.ReadAll(c.BodyReader())
			return errors.Join(err, c.Text(200, string(body)))
		}, "<ABC>"},
		{"a replacement of a replacement reads that", post("abc"), func(c *filo.Ctx) { tripled(c); tripled(c) }, func(c *filo.Ctx) error {
			body, err := c.Body()
			return errors.Join(err, c.Text(200, string(body)))
		}, "<<ABC>>"},
		{"a body that was read before can still be replaced", post("abc"), func(c *filo.Ctx) { c.Body(); tripled(c) }, func(c *filo.Ctx) error {
			body, err := c.Body()
			return errors.Join(err, c.Text(200, string(body)))
		}, "<ABC>"},
		{"Form parses the replacement", post("a=b", "Content-Type: application/x-www-form-urlencoded"), func(c *filo.Ctx) {
			c.Request.SetBodyReader(upper{c.BodyReader()})
		}, func(c *filo.Ctx) error {
			form, err := c.Request.Form()
			return errors.Join(err, c.Text(200, form.Get("A")))
		}, "B"},
		{"MultipartForm reads the replacement", post("!!"+multipartBody, "Content-Type: multipart/form-data; boundary=b"), func(c *filo.Ctx) {
			body := c.BodyReader()
			io.ReadFull(body, make([]byte, 2))
			c.Request.SetBodyReader(body)
		}, func(c *filo.Ctx) error {
			form, err := c.Request.MultipartForm()
			if err != nil {
				return err
			}
			return c.Text(200, form.Value["k"][0])
		}, "value"},
		{"a response may stream the replacement when the handler has returned", post("abc"), tripled, func(c *filo.Ctx) error {
			c.Response.SetBodyStream(c.BodyReader(), -1)
			return nil
		}, "<ABC>"},
		{"the length isn't known any more", post("abc"), tripled, func(c *filo.Ctx) error {
			return c.Text(200, fmt.Sprint(c.Request.ContentLength()))
		}, "-1"},
		{"the limit holds for what the replacement returns", post("abc"), func(c *filo.Ctx) { c.SetMaxBodyBytes(4); tripled(c) }, func(c *filo.Ctx) error {
			_, err := c.Body()
			_, again := c.BodyReader().Read(make([]byte, 1))
			return c.Text(200, fmt.Sprint(errors.Is(err, filo.ErrBodyTooLarge), errors.Is(again, filo.ErrBodyTooLarge)))
		}, "true true"},
		{"the limit may be set after it", post("abc"), func(c *filo.Ctx) { tripled(c); c.SetMaxBodyBytes(4) }, func(c *filo.Ctx) error {
			_, err := io.ReadAll(c.BodyReader())
			return c.Text(200, fmt.Sprint(errors.Is(err, filo.ErrBodyTooLarge)))
		}, "true"},
		{"the limit holds for what the client sends too", post("abcdef"), func(c *filo.Ctx) {
			c.SetMaxBodyBytes(4)
			c.Request.SetBodyReader(swallowing{c.BodyReader()})
		}, func(c *filo.Ctx) error {
			_, err := c.Body()
			return c.Text(200, fmt.Sprint(errors.Is(err, filo.ErrBodyTooLarge)))
		}, "true"},
		{"the reader's error is the body's", post("abc"), func(c *filo.Ctx) {
			c.Request.SetBodyReader(io.MultiReader(c.BodyReader(), failing{}))
		}, func(c *filo.Ctx) error {
			body, err := c.Body()
			return c.Text(200, fmt.Sprint(body == nil, err))
		}, "true broken"},
	} {
		s := servertest.New(t, func(c *filo.Ctx) error { test.replace(c); return test.handler(c) })
		if got := s.Raw(t, test.request); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.why, got, test.want)
		}
	}
}

// swallowing reads the whole body and returns none of it.
type swallowing struct{ body io.Reader }

func (s swallowing) Read([]byte) (int, error) {
	if _, err := io.Copy(io.Discard, s.body); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

// If a replacement reader leaves a part of the body unread, the server doesn't parse the rest as a request, and answers the next request.
func TestSetBodyReaderKeepsConnection(t *testing.T) {
	for why, body := range map[string]string{
		"nothing is left":             "abc",
		"a little is left":            strings.Repeat("GET / HTTP/1.1\r\n\r\n", 10),
		"more than a buffer is left":  strings.Repeat("GET / HTTP/1.1\r\n\r\n", 5000),
		"the end of chunks is unread": "",
	} {
		s := servertest.New(t, func(c *filo.Ctx) error {
			c.Request.SetBodyReader(io.LimitReader(c.BodyReader(), 3))
			body, err := c.Body()
			return errors.Join(err, c.Text(200, "got "+string(body)))
		})
		request := post(body)
		if body == "" {
			request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
		}
		got := s.Raw(t, request+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if strings.Count(got, "HTTP/1.1 200 OK") != 2 || strings.Count(got, "HTTP/1.1") != 2 {
			t.Errorf("%s: %q, want two answers", why, got)
		}
	}
}

// The server sends the 100 when the body is read, not when it is replaced.
func TestSetBodyReaderContinue(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		c.Request.SetBodyReader(upper{c.BodyReader()})
		if c.Path() == "/unread" {
			return c.NoContent()
		}
		body, err := c.Body()
		return errors.Join(err, c.Bytes(200, "text/plain", body))
	})
	for path, want := range map[string]bool{"/unread": false, "/read": true} {
		c := s.Dial(t)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n", path)
		buffer := make([]byte, 1024)
		n, err := c.Read(buffer)
		if err != nil || strings.HasPrefix(string(buffer[:n]), "HTTP/1.1 100 ") != want {
			t.Errorf("%s: %q, %v", path, buffer[:n], err)
		}
		if !want {
			continue
		}
		io.WriteString(c, "abc")
		if rest, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(rest), "ABC") {
			t.Errorf("%s: %q, %v", path, rest, err)
		}
	}
}

// Each reader is closed once, at the end of the request. A panic in Close does no harm.
func TestSetBodyReaderCloses(t *testing.T) {
	closed := 0
	s := servertest.New(t, func(c *filo.Ctx) error {
		if closed != 0 && c.Path() == "/first" {
			t.Error("closed before the handler returned")
		}
		if c.Path() == "/first" {
			c.Request.SetBodyReader(closingReader{c.BodyReader(), &closed, true})
			c.Request.SetBodyReader(closingReader{c.BodyReader(), &closed, false})
		}
		return c.NoContent()
	})
	got := s.Raw(t, "GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if closed != 2 || strings.Count(got, " 204 ") != 2 {
		t.Errorf("closed %d times, want 2; %q", closed, got)
	}
}

func TestSetBodyReaderNil(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		defer func() {
			if recover() == nil {
				t.Error("no panic for a nil reader")
			}
			c.NoContent()
		}()
		c.Request.SetBodyReader(nil)
		return nil
	})
	s.Raw(t, post(""))
}

func ExampleRequest_SetBodyReader() {
	unzip := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if c.Request.Header.Get("Content-Encoding") != "gzip" {
				return next(c)
			}
			decoded, err := gzip.NewReader(c.BodyReader())
			if err != nil {
				return filo.Error(400, "the body isn't gzip")
			}
			c.Request.SetBodyReader(decoded)
			return next(c)
		}
	}
	h := unzip(func(c *filo.Ctx) error {
		body, err := c.Body()
		fmt.Println(string(body), err)
		return err
	})

	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	io.WriteString(w, "Hello")
	w.Close()
	client, server := servertest.Pipe()
	go func() {
		fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", zipped.Len(), zipped.Bytes())
		io.Copy(io.Discard, client)
	}()
	filo.ServeConn(server, h)
	// Output: Hello <nil>
}

// BenchmarkSetBodyReader reads a body of 64 KB through a replacement reader.
func BenchmarkSetBodyReader(b *testing.B) {
	b.ReportAllocs()
	request := post(strings.Repeat("x", 64<<10))
	s := servertest.New(b, func(c *filo.Ctx) error {
		c.Request.SetBodyReader(c.BodyReader())
		if body, err := c.Body(); err != nil || len(body) != 64<<10 {
			b.Errorf("%d bytes, %v", len(body), err)
		}
		return c.NoContent()
	})
	c := s.Dial(b)
	answer := make([]byte, 4<<10)
	b.SetBytes(64 << 10)
	for range b.N {
		io.WriteString(c, request)
		if _, err := c.Read(answer); err != nil {
			b.Fatal(err)
		}
	}
}

// If an answer doesn't say Connection: close, the connection stays open, however much of the body is unread. Otherwise a client that has read
// the answer might send the next request before it notices that the connection is closed.
func TestUnreadBodyKeepsTheConnection(t *testing.T) {
	handlers := map[string]filo.Handler{
		"whole": func(c *filo.Ctx) error { return c.Text(200, "whole") },
		"error": func(c *filo.Ctx) error { return filo.Error(401, "") },
		"partly": func(c *filo.Ctx) error {
			_, err := io.ReadFull(c.BodyReader(), make([]byte, 1000))
			return errors.Join(err, c.Text(200, "partly"))
		},
		"stream": func(c *filo.Ctx) error { w := c.Stream(); w.WriteString("stream"); return w.Flush() },
	}
	announced := func(name, framing string, size int) bool {
		return name != "stream" && size > 256<<10 && framing != "small chunks"
	}
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: func(c *filo.Ctx) error {
			if handler := handlers[c.Path()[1:]]; handler != nil {
				return handler(c)
			}
			return c.Text(200, "next")
		}}
	}, func(t *testing.T, h *filotest.Host) {
		for name := range handlers {
			for _, size := range []int{100_000, 300_000, 3_000_000} {
				chunk := func(size int) string { return fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size)) }
				for framing, body := range map[string]string{
					"length":       fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)),
					"small chunks": "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk(10_000), size/10_000) + "0\r\n\r\n",
					"one chunk":    "Transfer-Encoding: chunked\r\n\r\n" + chunk(size) + "0\r\n\r\n",
				} {
					c := h.Connect(t)
					sent := make(chan error, 1)
					go func() {
						_, err := io.WriteString(c, "POST /"+name+" HTTP/1.1\r\nHost: a\r\n"+body)
						sent <- err
					}()
					m := c.Receive(t, "POST")
					closes := m.Get("Connection") == "close"
					if closes != announced(name, framing, size) {
						t.Errorf("%s, %s, %d bytes: closes %v", name, framing, size, closes)
					}
					if !closes {
						if err := <-sent; err != nil {
							t.Errorf("%s, %s, %d bytes: %v", name, framing, size, err)
							continue
						}
						c.Send(t, "GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
						if m := c.Receive(t, "GET"); m.Body != "next" {
							t.Errorf("%s, %s, %d bytes: got %q", name, framing, size, m.Body)
						}
					}
					c.Close()
				}
			}
		}
	})
}

// Shutdown doesn't wait for the end of an unread body, whether the client still sends or not.
func TestShutdownEndsUnreadBodies(t *testing.T) {
	t.Parallel()
	for _, sends := range []bool{true, false} {
		filotest.EachHost(t, func() *filo.Server {
			return &filo.Server{ReadTimeout: time.Hour, Handler: func(c *filo.Ctx) error { return c.Text(200, "answered") }}
		}, func(t *testing.T, h *filotest.Host) {
			c := h.Connect(t)
			defer c.Close()
			c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
			if m := c.Receive(t, "POST"); m.Body != "answered" {
				t.Fatalf("got %q", m.Body)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			over := make(chan error, 1)
			go func() { over <- h.Config.Shutdown(ctx) }()
			for sends {
				if _, err := c.Write([]byte("1\r\nx\r\n")); err != nil {
					break
				}
				time.Sleep(time.Millisecond) // the client is slow, but faster than MinTransferRate
			}
			if err := <-over; err != nil {
				t.Errorf("a client that sends: %v: %v", sends, err)
			}
		})
	}
}

// An endless unread body doesn't keep its connection open for ever.
func TestUnreadBodyWithoutAnEnd(t *testing.T) {
	// This exceeds the sum of the bytes that the server skips, the bytes that it reads while the connection lingers, and the bytes in transit.
	const maxSent = 128 << 20
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "answered") }}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		defer c.Close()
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		if m := c.Receive(t, "POST"); m.Body != "answered" {
			t.Fatalf("got %q", m.Body)
		}
		chunk := []byte("10000\r\n" + strings.Repeat("x", 64<<10) + "\r\n")
		for sent := 0; sent < maxSent; sent += len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
		t.Error("the connection takes any number of chunks")
	})
}

// Body, a reader and a form read the same bytes. If an earlier call has consumed the bytes, the error of a later call says so. In an order
// that works, each call gets the whole body.
func TestBodyAndForms(t *testing.T) {
	const (
		multi   = "--b\r\nContent-Disposition: form-data; name=\"k\"; filename=\"f\"\r\n\r\nvalue\r\n--b--\r\n"
		encoded = "k=value"
		gone    = "filo: MultipartForm or FormFile has read the body: use the form, or call Body before"
		partly  = "filo: BodyReader or MultipartReader has read from the body, so there is no whole form: call Body or the form's method before"
	)
	text := func(b []byte, err error) string {
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	calls := map[string]func(c *filo.Ctx) string{
		"Body":   func(c *filo.Ctx) string { return text(c.Body()) },
		"Reader": func(c *filo.Ctx) string { return text(io.ReadAll(c.BodyReader())) },
		"some": func(c *filo.Ctx) string {
			return text(make([]byte, 3), second(io.ReadFull(c.BodyReader(), make([]byte, 3))))
		},
		"File": func(c *filo.Ctx) string {
			header, err := c.FormFile("k")
			if err != nil {
				return err.Error()
			}
			file, err := header.Open()
			if err != nil {
				return err.Error()
			}
			defer file.Close()
			return text(io.ReadAll(file))
		},
		"Form": func(c *filo.Ctx) string {
			form, err := c.Request.Form()
			return text(form.GetBytes("k"), err)
		},
	}
	some := string(make([]byte, 3))
	for _, test := range []struct{ body, calls, want string }{
		{multi, "File Body Body Reader File", "value|" + gone + "|" + gone + "|" + gone + "|value"},
		{multi, "File Reader", "value|" + gone},
		{multi, "Body File Body File", multi + "|value|" + multi + "|value"},
		{multi, "Body Reader File Body", multi + "|" + multi + "|value|" + multi},
		{multi, "Reader File", multi + "|" + partly},
		{multi, "some File Body", some + "|" + partly + "|" + multi[3:]},
		{multi, "Form Body", "415 Unsupported Media Type: the body must be application/x-www-form-urlencoded|" + multi},
		{encoded, "File Body Reader Form", "415 Unsupported Media Type: Content-Type must be multipart/form-data|" + encoded + "|" + encoded + "|value"},
		{encoded, "Form Body Form Reader", "value|" + encoded + "|value|" + encoded},
		{encoded, "Body Form", encoded + "|value"},
		{encoded, "Reader Form", encoded + "|" + partly},
		{encoded, "some Form Body", some + "|" + partly + "|" + encoded[3:]},
	} {
		contentType := "Content-Type: application/x-www-form-urlencoded"
		if test.body == multi {
			contentType = "Content-Type: multipart/form-data; boundary=b"
		}
		fixed := post(test.body, contentType)
		chunked := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", contentType, len(test.body), test.body)
		for name, serve := range map[string]struct {
			request  string
			replaced bool
		}{"with a length": {fixed, false}, "in chunks": {chunked, false}, "replaced": {fixed, true}} {
			var got []string
			servertest.New(t, func(c *filo.Ctx) error {
				if serve.replaced {
					c.Request.SetBodyReader(strings.NewReader(test.body))
				}
				got = nil
				for call := range strings.FieldsSeq(test.calls) {
					got = append(got, calls[call](c))
				}
				return c.NoContent()
			}).Raw(t, serve.request)
			if got := strings.Join(got, "|"); got != test.want {
				t.Errorf("%s, %s:\n got %q\nwant %q", test.calls, name, got, test.want)
			}
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

// If an answer is sent before the request's body has arrived, it omits Connection: close only if the server will answer another request.
func TestEarlyAnswersKeepTheirPromise(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for answer, handler := range map[string]filo.Handler{
		"text": func(c *filo.Ctx) error { return c.Text(200, "early") },
		"file": func(c *filo.Ctx) error {
			file, err := os.Open(name)
			if err != nil {
				return err
			}
			c.Response.SetBodyStream(file, 100<<10)
			return nil
		},
		"reader": func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader(strings.Repeat("early", 10000)), -1)
			return nil
		},
		"flushed": func(c *filo.Ctx) error {
			stream := c.Stream()
			stream.WriteString("early")
			return stream.Flush()
		},
		"much written": func(c *filo.Ctx) error {
			_, err := c.Stream().WriteString(strings.Repeat("early", 10000))
			return err
		},
		"trailer": func(c *filo.Ctx) error {
			c.Response.Trailer.Set("X-Checked", "yes")
			_, err := c.Stream().WriteString("early")
			return err
		},
		"net/http": adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "early")
			w.(http.Flusher).Flush()
		})),
	} {
		for _, size := range []int{1 << 20, 20 << 20} {
			t.Run(fmt.Sprintf("%s, %d MB", answer, size>>20), func(t *testing.T) {
				s := filotest.Serve(t, &filo.Server{MaxBodyBytes: -1, Handler: func(c *filo.Ctx) error {
					if c.Method() == "GET" {
						return c.Text(200, "ok")
					}
					return handler(c)
				}})
				c := s.Dial(t)
				c.Send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: filo.test\r\nContent-Length: %d\r\n\r\n", size))
				response, _ := c.Answer()
				if response.StatusCode != 200 {
					t.Fatalf("got %d", response.StatusCode)
				}
				if response.Close {
					return // the answer says Connection: close
				}
				c.Send(strings.Repeat("x", size))
				c.Get("/")
				c.Want(200, "ok", false)
			})
		}
	}
}

// When the server sends the head of a streamed answer without Connection: close, it doesn't know the remaining length of a chunked request
// body. If the rest is at most 16 MB, it serves the next request. Otherwise the client gets the complete answer, and then the server ends the
// connection.
func TestEarlyAnswersToChunks(t *testing.T) {
	for _, test := range []struct {
		size int
		goOn bool
	}{{15 << 20, true}, {17 << 20, false}} {
		var served atomic.Int32
		s := filotest.Serve(t, &filo.Server{MaxBodyBytes: -1, Handler: func(c *filo.Ctx) error {
			if c.Method() == "GET" {
				served.Add(1)
				return c.Text(200, "ok")
			}
			stream := c.Stream()
			stream.WriteString("early")
			return stream.Flush()
		}})
		c := s.Dial(t)
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		c.Want(200, "early", false)
		c.Send(fmt.Sprintf("%x\r\n", test.size/16))
		for i := range 16 {
			if i > 0 {
				c.Send(fmt.Sprintf("\r\n%x\r\n", test.size/16))
			}
			c.Send(strings.Repeat("x", test.size/16))
		}
		c.Send("\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if test.goOn {
			c.Want(200, "ok", false)
			continue
		}
		c.WantEOF()
		if served.Load() > 0 {
			t.Error("what follows the body was served")
		}
	}
}
