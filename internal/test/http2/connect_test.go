package http2

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/servertest"
)

// connectAnswers returns handlers for all ways to answer CONNECT with a 2xx, each with the expected body.
func connectAnswers(t *testing.T) map[string]struct {
	handler filo.Handler
	body    string
} {
	large := strings.Repeat("large ", 1<<16)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		handler filo.Handler
		body    string
	}{
		"text":       {func(c *filo.Ctx) error { return c.Text(200, "text") }, "text"},
		"large":      {func(c *filo.Ctx) error { return c.BytesNoCopy(200, "text/plain", []byte(large)) }, large},
		"empty":      {func(c *filo.Ctx) error { c.Response.SetStatus(200); return nil }, ""},
		"no content": {func(c *filo.Ctx) error { return c.NoContent() }, ""},
		"length": {func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Length", "4")
			_, err := c.Stream().WriteString("four")
			return err
		}, "four"},
		"stream": {func(c *filo.Ctx) error {
			stream := c.Stream()
			stream.WriteString("one ")
			stream.Flush()
			_, err := stream.WriteString("two")
			return err
		}, "one two"},
		"reader": {func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("unknown length"), -1)
			return nil
		}, "unknown length"},
		"file": {func(c *filo.Ctx) error {
			file, err := os.Open(name)
			if err != nil {
				return err
			}
			c.Response.SetBodyStream(file, int64(len(large)))
			return nil
		}, large},
		"parked": {func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
			if err != nil {
				return nil // Hijack fails over HTTP/2 and for a carried request
			}
			p.Write([]byte("parked"))
			p.End()
			return nil
		}, "parked"},
		"net/http": {adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "8")
			io.WriteString(w, "net/http")
		})), "net/http"},
	}
}

// connectRefusing calls handler for CONNECT, and counts other requests.
func connectRefusing(handler filo.Handler, others *atomic.Int32) filo.Handler {
	return func(c *filo.Ctx) error {
		if c.Method() != "CONNECT" {
			others.Add(1)
			return c.Text(200, "ok")
		}
		return handler(c)
	}
}

// wantTunnel sends CONNECT, followed by bytes that look like a request. The answer must have no framing fields, and then the connection must end.
func wantTunnel(t *testing.T, conn net.Conn, body string, others *atomic.Int32) {
	t.Helper()
	c := filotest.NewClient(t, conn)
	c.Send("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n")
	answer, err := io.ReadAll(c)
	head, rest, _ := strings.Cut(string(answer), "\r\n\r\n")
	lower := strings.ToLower(head)
	if err != nil || !strings.HasPrefix(lower, "http/1.1 20") || rest != body ||
		strings.Contains(lower, "\r\ncontent-length") || strings.Contains(lower, "\r\ntransfer-encoding") {
		t.Errorf("%q, %d bytes %.100q, %v; want %d bytes", head, len(rest), rest, err, len(body))
	}
	if n := others.Load(); n > 0 {
		t.Error("the tunnel's bytes were taken for a request")
	}
}

// RFC 9110, section 9.3.6: after a 2xx to CONNECT the connection is a tunnel, so the answer has no framing fields. Bytes that the client
// sends after the CONNECT aren't a request.
func TestConnect(t *testing.T) {
	for name, test := range connectAnswers(t) {
		t.Run(name, func(t *testing.T) {
			var others atomic.Int32
			s := filotest.Serve(t, &filo.Server{Handler: connectRefusing(test.handler, &others)})
			wantTunnel(t, s.Dial(t).Conn, test.body, &others)
		})
	}
}

// A CONNECT that net/http's server has received gets the same answer.
func TestConnectCarried(t *testing.T) {
	for name, test := range connectAnswers(t) {
		if name == "parked" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var others atomic.Int32
			s := httptest.NewServer(adaptor.ToHTTPServer(&filo.Server{Handler: connectRefusing(test.handler, &others)}))
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			wantTunnel(t, conn, test.body, &others)
		})
	}
}

// Over HTTP/2, the tunnel is the stream. The stream ends, and other streams continue.
func TestConnectHTTP2(t *testing.T) {
	for name, test := range connectAnswers(t) {
		if name == "parked" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var others atomic.Int32
			listener := servertest.NewListener()
			filotest.Serve(t, &filo.Server{Handler: connectRefusing(test.handler, &others), HTTP2: filo.HTTP2Options{Unencrypted: true}}, listener)
			conn, err := listener.Dial()
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(filotest.Bound))
			c, err := h2test.New(conn)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i := range 2 {
				s := c.Open(true, ":method", "CONNECT", ":authority", "a.test:443")
				if status, err := s.Status(); status/100 != 2 || err != nil || s.Field("content-length") != "" {
					t.Errorf("%d, %v, content-length %q", status, err, s.Field("content-length"))
				}
				if body, err := io.ReadAll(s); string(body) != test.body || err != nil {
					t.Errorf("%d bytes, %v; want %d", len(body), err, len(test.body))
				}
				wantGet(t, c)
				if n := others.Load(); int(n) != i+1 {
					t.Errorf("%d other requests", n)
				}
			}
		})
	}
}

// A refusal of CONNECT is an ordinary answer. A handler can't answer a CONNECT with an upgrade.
func TestConnectRefused(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Method() == "CONNECT" {
			return filo.Error(405, "no tunnels")
		}
		return c.Text(200, "ok")
	}})
	c := s.Dial(t)
	c.Send("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
	if response, _ := c.Answer(); response.StatusCode != 405 || response.Close || response.ContentLength < 0 {
		t.Errorf("%d, close %v, length %d", response.StatusCode, response.Close, response.ContentLength)
	}
	c.Get("/")
	c.Want(200, "ok", false)
}
