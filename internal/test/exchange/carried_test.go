package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

// textTransport is a transport that reads the request from strings, and records the answer as a string. It doesn't frame bodies.
type textTransport struct {
	net.Conn // used only for its addresses and deadlines
	ctx      context.Context
	head     string
	body     *strings.Reader
	answer   strings.Builder
	hijacked net.Conn
}

func (x *textTransport) Read(p []byte) (int, error) { return x.body.Read(p) }
func (x *textTransport) Trailer() iter.Seq2[string, string] {
	return func(func(name, value string) bool) {}
}
func (x *textTransport) Write(p []byte) (int, error) { return x.answer.Write(p) }
func (x *textTransport) Flush() error                { return nil }
func (x *textTransport) Context() context.Context    { return x.ctx }
func (x *textTransport) TLS() *tls.ConnectionState   { return nil }
func (x *textTransport) Hijack() (net.Conn, error)   { return x.hijacked, nil }

func (x *textTransport) Head(h *http1.RequestHead, limits *http1.Limits) (b []byte, length int64, fault http1.Fault) {
	lines := strings.Split(x.head, "\r\n")
	method, rest, _ := strings.Cut(lines[0], " ")
	b, fault = h.Begin(nil, method, strings.TrimSuffix(rest, " HTTP/1.1"), 1, limits)
	for _, each := range lines[1:] {
		if name, value, ok := strings.Cut(each, ":"); ok && fault == http1.NoFault {
			b, fault = h.Add(b, name, value, limits)
			if name == "Content-Length" {
				fmt.Sscan(value, &length)
			}
		}
	}
	return b, length, fault
}

func (x *textTransport) Major() uint8       { return 1 }
func (x *textTransport) MayInterrupt() bool { return false }

func (x *textTransport) WriteHead(h hooks.Head) {
	fmt.Fprintf(&x.answer, "%d\n", h.Status)
	for name, value := range h.Fields {
		fmt.Fprintf(&x.answer, "%s: %s\n", name, value)
	}
	fmt.Fprintf(&x.answer, "length %d, streams %t\n", h.Length, h.Streams)
}

func (x *textTransport) WriteTrailer(fields iter.Seq2[[]byte, []byte]) {
	for name, value := range fields {
		fmt.Fprintf(&x.answer, "\n%s: %s", name, value)
	}
}

// serveTransport serves a request with h, and returns the answer and the error of inside.Carry.
func serveTransport(t *testing.T, ctx context.Context, request string, h filo.Handler) (string, error) {
	t.Helper()
	client, server := servertest.Pipe()
	defer client.Close()
	client.SetDeadline(time.Now().Add(filotest.Bound))
	head, body, _ := strings.Cut(request, "\r\n\r\n")
	x := &textTransport{Conn: server, hijacked: server, ctx: ctx, head: head, body: strings.NewReader(body)}
	s := &filo.Server{Name: "-", Logger: slog.New(slog.DiscardHandler)}
	err := inside.Carry(s, x, h)
	server.Close()
	got, readErr := io.ReadAll(client)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return x.answer.String() + string(got), err
}

type transportKey struct{}

// A handler answers a request from a transport in the same way as one from a connection.
func TestServeTransport(t *testing.T) {
	for _, test := range []struct {
		name, request string
		handler       filo.Handler
		want          string // how the answer begins
		end           string
		err           error
	}{
		{"a whole answer", filotest.GetRequest, func(c *filo.Ctx) error { return c.Text(200, "hello") }, "200\n", "length 5, streams false\nhello", nil},
		{"a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", func(c *filo.Ctx) error {
			body, err := c.Body()
			return errors.Join(err, c.Bytes(200, "x/y", body))
		}, "200\n", "length 4, streams false\nbody", nil},
		{"a body that is missing", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nbody", func(c *filo.Ctx) error {
			_, err := c.Body()
			return err
		}, "400\n", "", nil},
		{"a stream", filotest.GetRequest, func(c *filo.Ctx) error {
			w := c.Stream()
			w.WriteString("piece")
			c.Response.Trailer.Set("X-Sum", "7")
			return w.Flush()
		}, "200\n", "streams true\npiece\nX-Sum: 7", nil},
		{"an error", filotest.GetRequest, func(c *filo.Ctx) error { return filo.Error(404, "") }, "404\n", "Not Found\n", nil},
		{"an abort", filotest.GetRequest, func(c *filo.Ctx) error { return filo.ErrAbort }, "", "", filo.ErrAbort},
		{"a stream that is broken off", filotest.GetRequest, func(c *filo.Ctx) error {
			c.Stream().Flush()
			return errors.New("broken")
		}, "200\n", "streams true\n", filo.ErrAbort},
		{"no request", "GET / HTTP/1.1\r\n\r\n", func(c *filo.Ctx) error { t.Error("the handler was called"); return nil },
			"400\n", "missing Host\n", nil},
		{"no request, but the method is known", "HEAD / HTTP/1.1\r\n\r\n", func(c *filo.Ctx) error { t.Error("the handler was called"); return nil },
			"400\n", "streams false\n", nil},
		{"OPTIONS * is the handler's", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", func(c *filo.Ctx) error { return c.Text(200, c.Path()) },
			"200\n", "*", nil},
		{"a connection that is taken over", filotest.GetRequest, func(c *filo.Ctx) error {
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			_, err = conn.Write([]byte("more"))
			return err
		}, "more", "more", nil},
		{"the context's values", filotest.GetRequest, func(c *filo.Ctx) error {
			value, _ := c.Context().Value(transportKey{}).(string)
			return c.Text(200, value)
		}, "200\n", "value", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := serveTransport(t, context.WithValue(context.Background(), transportKey{}, "value"), test.request, test.handler)
			if !strings.HasPrefix(got, test.want) || !strings.HasSuffix(got, test.end) || test.want == "" && got != "" {
				t.Errorf("got %q", got)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("Carry returned %v, want %v", err, test.err)
			}
		})
	}
}

// Empty input isn't a request.
func TestServeTransportNothing(t *testing.T) {
	got, err := serveTransport(t, context.Background(), "", func(*filo.Ctx) error { t.Error("the handler was called"); return nil })
	if !strings.HasPrefix(got, "400\n") || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// LogAllErrors also logs a malformed request from a transport.
func TestServeTransportLogsRefusals(t *testing.T) {
	var log filotest.Log
	x := &textTransport{Conn: leftConn{}, ctx: context.Background(), head: "GET / HTTP/1.1\r\n\r\n"}
	s := &filo.Server{Logger: log.Logger(), LogAllErrors: true}
	if err := inside.Carry(s, x, func(*filo.Ctx) error { return nil }); err != nil || len(log.Lines("missing Host")) != 1 {
		t.Errorf("%v, logged %q", err, log.Lines(""))
	}
}

// leftConn is a connection whose client has disconnected.
type leftConn struct{ net.Conn }

func (leftConn) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (leftConn) Close() error              { return nil }
func (leftConn) RemoteAddr() net.Addr      { return &net.TCPAddr{} }

// If the client has disconnected before the handler takes the connection over, no answer is sent.
func TestServeTransportUpgradeOfAGoneClient(t *testing.T) {
	x := &textTransport{Conn: leftConn{}, ctx: context.Background(), hijacked: leftConn{},
		head: "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"}
	s := &filo.Server{Logger: slog.New(slog.DiscardHandler)}
	err := inside.Carry(s, x, func(c *filo.Ctx) error {
		_, _, err := c.Upgrade("x")
		return err
	})
	if x.answer.Len() > 0 || err != filo.ErrClientGone {
		t.Errorf("answered %q, %v", x.answer.String(), err)
	}
}

// The context of a request ends with the transport's context, and has the same deadline.
func TestServeTransportContext(t *testing.T) {
	parent, cancel := context.WithCancel(context.Background())
	serveTransport(t, parent, filotest.GetRequest, func(c *filo.Ctx) error {
		ctx := c.Context()
		cancel()
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != filo.ErrClientGone {
			t.Errorf("the cause is %v", cause)
		}
		return nil
	})
	soon, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	serveTransport(t, soon, filotest.GetRequest, func(c *filo.Ctx) error {
		ctx := c.Context()
		<-ctx.Done()
		if ctx.Err() != context.DeadlineExceeded {
			t.Errorf("at the deadline: %v", ctx.Err())
		}
		return nil
	})
}

// A handler's panic propagates to the caller of Carry, and doesn't affect later requests.
func TestServeTransportPanic(t *testing.T) {
	func() {
		defer func() {
			if value := recover(); value != "oh" {
				t.Errorf("recovered %v", value)
			}
		}()
		serveTransport(t, context.Background(), filotest.GetRequest, func(c *filo.Ctx) error { c.SetTimeout(time.Hour, nil); panic("oh") })
	}()
	if got, err := serveTransport(t, context.Background(), filotest.GetRequest, func(c *filo.Ctx) error { return c.Text(200, "next") }); !strings.HasSuffix(got, "next") || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// A Ctx inherits copies, so later changes of one Ctx don't affect the other.
func TestInherit(t *testing.T) {
	key := filo.NewKey[string]("key")
	serveTransport(t, context.Background(), filotest.GetRequest, func(outer *filo.Ctx) error {
		id := []byte("7")
		inside.Match(outer).SetNames([]string{"id"})
		inside.Match(outer).Append(id)
		inside.Match(outer).Route = "GET /{id}"
		key.Set(outer, "outer")
		serveTransport(t, context.Background(), filotest.GetRequest, func(inner *filo.Ctx) error {
			inside.Inherit(inner, outer)
			id[0] = '8'
			value, _ := key.Get(inner)
			if inner.Param("id") != "7" || inner.Route() != "GET /{id}" || value != "outer" {
				t.Errorf("inherited %q, %q, %q", inner.Param("id"), inner.Route(), value)
			}
			key.Set(inner, "inner")
			return nil
		})
		if value, _ := key.Get(outer); value != "outer" {
			t.Errorf("the value is shared: %q", value)
		}
		return nil
	})
}

// A Ctx that inherits also has the other Ctx's limit for bodies.
func TestInheritLimit(t *testing.T) {
	const request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
	for limit, want := range map[int64]error{3: filo.ErrBodyTooLarge, 4: nil, -1: nil} {
		serveTransport(t, context.Background(), request, func(outer *filo.Ctx) error {
			outer.SetMaxBodyBytes(limit)
			serveTransport(t, context.Background(), request, func(inner *filo.Ctx) error {
				inner.SetMaxBodyBytes(3)
				inside.Inherit(inner, outer)
				if _, err := inner.Body(); !errors.Is(err, want) {
					t.Errorf("limit %d: %v, want %v", limit, err, want)
				}
				return nil
			})
			return nil
		})
	}
}

// Interim answers precede the final one, with the fields that the handler has set so far.
func TestInformational(t *testing.T) {
	h := func(c *filo.Ctx) error {
		c.Response.Header.Set("X-A", "1")
		for _, status := range []int{102, 103} {
			if err := c.Informational(status); err != nil {
				t.Errorf("%d: %v", status, err)
			}
		}
		for _, status := range []int{99, 101, 200} {
			if err := c.Informational(status); err == nil {
				t.Errorf("%d isn't refused", status)
			}
		}
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		if err := c.Informational(103); err != filo.ErrHeadSent {
			t.Errorf("after the head: %v", err)
		}
		return nil
	}
	const before = "HTTP/1.1 102 Processing\r\nX-A: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-A: 1\r\n\r\n"
	s := servertest.New(t, h)
	if got := s.Raw(t, filotest.GetRequest); !strings.HasPrefix(got, before+"HTTP/1.1 200 OK\r\nX-A: 1\r\n") {
		t.Errorf("got %q", got)
	}
}

// The server sends 100 only once, even if the handler calls Informational(100) and then reads the body.
func TestInformationalContinue(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		if err := c.Informational(100); err != nil {
			return err
		}
		_, err := c.Body()
		return err
	})
	got := s.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody")
	if strings.Count(got, "100 Continue") != 1 || !strings.Contains(got, "HTTP/1.1 200 OK") {
		t.Errorf("got %q", got)
	}
}

// A StreamWriter can send files and parts of files, mixed with other writes.
func TestStreamReadFrom(t *testing.T) {
	content := strings.Repeat("0123456789", 30000)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		length string // Content-Length; "" is none
		write  func(w *filo.StreamWriter, file *os.File) error
		want   string
	}{
		{"a whole file", "300000", func(w *filo.StreamWriter, file *os.File) error {
			n, err := io.Copy(w, file)
			if n != 300000 {
				t.Errorf("copied %d", n)
			}
			return err
		}, content},
		{"a whole file in chunks", "", func(w *filo.StreamWriter, file *os.File) error {
			_, err := io.Copy(w, file)
			return err
		}, content},
		{"a part between other writes", "100010", func(w *filo.StreamWriter, file *os.File) error {
			w.WriteString("begin")
			file.Seek(100, io.SeekStart)
			limited := &io.LimitedReader{R: file, N: 100000}
			n, err := w.ReadFrom(limited)
			if n != 100000 || limited.N != 0 {
				t.Errorf("copied %d, %d are left", n, limited.N)
			}
			w.WriteString("ended")
			return err
		}, "begin" + content[100:100100] + "ended"},
		{"more than there is", "300000", func(w *filo.StreamWriter, file *os.File) error {
			limited := &io.LimitedReader{R: file, N: 1 << 40}
			n, err := w.ReadFrom(limited)
			if n != 300000 || limited.N != 1<<40-300000 {
				t.Errorf("copied %d, %d are left", n, limited.N)
			}
			return err
		}, content},
		{"what is no file", "5", func(w *filo.StreamWriter, file *os.File) error {
			_, err := w.ReadFrom(io.LimitReader(strings.NewReader("hello world"), 5))
			return err
		}, "hello"},
		{"more than was announced", "10", func(w *filo.StreamWriter, file *os.File) error {
			if _, err := w.ReadFrom(file); !errors.Is(err, filo.ErrContentLength) {
				t.Errorf("too much: %v", err)
			}
			_, err := w.WriteString(content[:10])
			return err
		}, content[:10]},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Handler: func(c *filo.Ctx) error {
					file, err := os.Open(path)
					if err != nil {
						return err
					}
					defer file.Close()
					if test.length != "" {
						c.Response.Header.Set("Content-Length", test.length)
					}
					return test.write(c.Stream(), file)
				}}
			}, func(t *testing.T, h *filotest.Host) {
				response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(h.Raw(t, filotest.GetRequest))), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if string(body) != test.want || err != nil {
					t.Errorf("got %d bytes, %v; want %d", len(body), err, len(test.want))
				}
			})
		})
	}
}

// The request's context ends with the transport's, whatever deadline the handler sets.
func TestTransportDeadline(t *testing.T) {
	for name, set := range map[string]func(*filo.Ctx){
		"SetTimeout":  func(c *filo.Ctx) { c.SetTimeout(time.Hour, nil) },
		"SetDeadline": func(c *filo.Ctx) { c.SetDeadline(time.Now().Add(time.Hour)) },
		"nothing":     func(c *filo.Ctx) {},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		serveTransport(t, ctx, filotest.GetRequest, func(c *filo.Ctx) error {
			set(c)
			if deadline, ok := c.Context().Deadline(); !ok || time.Until(deadline) > time.Minute {
				t.Errorf("%s: the context's deadline is %v, %v", name, deadline, ok)
			}
			return nil
		})
		cancel()
	}
}
