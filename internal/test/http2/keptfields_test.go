package http2

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/h2test"
)

// keptSenders lists the ways to answer a request, with their paths.
var keptSenders = []struct {
	path   string
	status int
	extend bool // the client requests a switch to another protocol
	// late says that the server calls the functions of WrapBody before it makes the head.
	late bool
	// bare says that no bytes are written to the writers of WrapBody.
	bare bool
	send filo.Handler
}{
	{"/whole", 200, false, true, false, func(c *filo.Ctx) error { return c.Text(200, "whole") }},
	{"/error", 404, false, true, false, func(*filo.Ctx) error { return filo.Error(404, "") }},
	{"/panic", 500, false, true, false, func(*filo.Ctx) error { panic("in the handler") }},
	{"/timeout", 503, false, false, true, func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Disposition", "attachment")
		c.SetTimeout(time.Millisecond, nil)
		c.Response.Header.Set("X-Before", "changed")
		<-c.Context().Done()
		return c.Context().Err()
	}},
	{"/stream", 200, false, true, false, func(c *filo.Ctx) error { return c.Stream().Flush() }},
	{"/empty", 204, false, true, true, func(c *filo.Ctx) error {
		c.Response.SetStatus(204)
		return c.Stream().Flush()
	}},
	{"/parkstream", 200, false, true, true, func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
		if err == nil {
			p.End()
		}
		return err
	}},
	{"/park", 101, true, true, true, func(c *filo.Ctx) error {
		p, err := c.Park("echo", func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
		if err == nil {
			p.End()
		}
		return err
	}},
	{"/upgrade", 101, true, true, true, func(c *filo.Ctx) error {
		conn, _, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		return conn.Close()
	}},
	{"/adapted", 101, true, true, true, adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Upgrade", "echo")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(101)
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}))},
}

// keptLayer is a writer that changes nothing.
type keptLayer struct{ io.Writer }

func (keptLayer) Close() error { return nil }

// keptHandler returns a handler with middleware around the senders. The middleware sets one field before it calls the sender, and another one
// in a function of WrapBody. It calls committed after the sender has returned.
func keptHandler(committed func(path string, c *filo.Ctx)) filo.Handler {
	routes := make(map[string]filo.Handler, len(keptSenders))
	for _, sender := range keptSenders {
		routes[sender.path] = sender.send
	}
	next := route(routes)
	return func(c *filo.Ctx) error {
		path := c.Path()
		c.Response.Header.Set("X-Before", "kept")
		c.Response.Header.Set("Cache-Control", "private")
		c.Response.WrapBody(func(c *filo.Ctx, _ io.Writer, _ int64) io.WriteCloser {
			c.Response.Header.Set("X-Late", "kept")
			return nil
		})
		c.Response.WrapBody(func(c *filo.Ctx, body io.Writer, _ int64) io.WriteCloser {
			c.Response.Header.Set("X-Wrapped", "yes")
			return keptLayer{body}
		})
		err := next(c)
		committed(path, c)
		return err
	}
}

// However an answer is sent, it has the fields that middleware has set before the handler, and those that functions of WrapBody set. Fields
// that describe a wrapped body are omitted if no body is sent. After the handler, middleware can find out whether the answer has been sent,
// or the connection taken over, so that it can't change the answer any more.
func TestFieldsAreKept(t *testing.T) {
	returned := make(chan string, 1000) // the paths of the handlers that have returned
	config := func(t *testing.T) *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: keptHandler(func(path string, c *filo.Ctx) {
			defer func() { returned <- path }()
			if sent := path != "/whole" && path != "/error"; c.Committed() != sent {
				t.Errorf("%s: Committed is %t", path, !sent)
			}
			for _, sender := range keptSenders {
				if taken := strings.HasPrefix(path, "/park") || sender.extend; sender.path == path && c.Hijacked() != taken {
					t.Errorf("%s: Hijacked is %t", path, !taken)
				}
				if sender.path == path && sender.extend && c.Status() != 101 {
					t.Errorf("%s: Status is %d", path, c.Status())
				}
			}
		})}
	}
	wants := func(t *testing.T, path string, late, bare bool, get func(string) string) {
		t.Helper()
		if cache := get("Cache-Control"); cache != "private" || get("Content-Disposition") != "" {
			t.Errorf("%s: Cache-Control is %q, Content-Disposition %q", path, cache, get("Content-Disposition"))
		}
		if get("X-Before") != "kept" || late && (get("X-Late") != "kept" || bare != (get("X-Wrapped") == "")) {
			t.Errorf("%s: X-Before is %q, X-Late %q, X-Wrapped %q", path, get("X-Before"), get("X-Late"), get("X-Wrapped"))
		}
	}
	http1 := func(t *testing.T, raw func(t testing.TB, request string) string, carried bool) {
		for _, sender := range keptSenders {
			if carried && (strings.HasPrefix(sender.path, "/park") || sender.path == "/panic") {
				continue // a carried request can't be parked, and the carrying server handles a panic
			}
			fields := "Connection: close\r\n"
			if sender.extend {
				fields = "Connection: Upgrade\r\nUpgrade: echo\r\n"
			}
			got := raw(t, "GET "+sender.path+" HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n")
			line, rest, _ := strings.Cut(got, "\r\n")
			header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(rest))).ReadMIMEHeader()
			if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+strconv.Itoa(sender.status)) {
				t.Errorf("%s: %q, %v", sender.path, got, err)
			}
			wants(t, sender.path, sender.late, sender.bare, header.Get)
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		filotest.EachHost(t, func() *filo.Server { return config(t) }, func(t *testing.T, h *filotest.Host) { http1(t, h.Raw, false) })
	})
	t.Run("HTTP/2", func(t *testing.T) {
		eachExtended(t, func(t *testing.T, serve serveExtended) {
			for len(returned) > 0 {
				<-returned
			}
			_, dial := serve(config(t))
			c := dial()
			for _, sender := range keptSenders {
				var stream *h2test.Stream
				status := sender.status
				if sender.extend {
					stream, status = c.Connect("echo", sender.path), 200
				} else {
					stream = c.Open(true, ":method", "GET", ":scheme", "http", ":path", sender.path, ":authority", "a")
				}
				wantStatus(t, stream, status)
				wants(t, sender.path, sender.late, sender.bare, func(name string) string { return stream.Field(strings.ToLower(name)) })
				// The head may arrive before Upgrade or Park has returned. These calls would fail if the client disconnected then.
				for sender.path != "/panic" && <-returned != sender.path {
				}
			}
		})
	})
	t.Run("carried", func(t *testing.T) {
		s := httptest.NewServer(adaptor.ToHTTPServer(config(t)))
		defer s.Close()
		http1(t, func(t testing.TB, request string) string {
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(filotest.Bound))
			io.WriteString(conn, request)
			answer, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			return string(answer)
		}, true)
	})
}

// "a server MUST NOT generate content in a 205 response" (RFC 9110, section 15.3.6), whichever method the handler uses to answer.
func TestResetContentHasNoContent(t *testing.T) {
	h := route(map[string]filo.Handler{
		"/text": func(c *filo.Ctx) error { return c.Text(205, "content") },
		"/reader": func(c *filo.Ctx) error {
			return c.Reader(205, "text/plain", strings.NewReader("content"), -1)
		},
		"/stream": func(c *filo.Ctx) error {
			c.Response.SetStatus(205)
			if _, err := c.Stream().WriteString("content"); !errors.Is(err, filo.ErrBodyNotAllowed) {
				t.Errorf("a write: %v", err)
			}
			return c.Stream().Flush()
		},
		"/adapted": adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(205)
			io.WriteString(w, "content")
		})),
	})
	paths := []string{"/text", "/reader", "/stream", "/adapted"}
	filotest.EachHost(t, func() *filo.Server { return &filo.Server{Logger: filotest.Quiet, Handler: h} }, func(t *testing.T, host *filotest.Host) {
		for _, path := range paths {
			got := host.Raw(t, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\nGET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			if strings.Count(got, "HTTP/1.1 205 ") != 2 || strings.Count(got, "Content-Length: 0\r\n") != 2 || strings.Contains(got, "content") ||
				strings.Contains(got, "chunked") {
				t.Errorf("%s: %q", path, got)
			}
		}
	})
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Logger: filotest.Quiet, Handler: h})
		for _, path := range paths {
			c.Want("GET", path, nil, 205, "")
		}
	})
}
