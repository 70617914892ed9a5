package exchange

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

// answerWire returns the bytes on the wire for a text of the tests: it replaces "\n" with CRLF, and "␊" with a lone LF.
func answerWire(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\r\n"), "␊", "\n")
}

// answerUndated replaces each Date of the server with "Date: D", after it has checked that the date is valid.
func answerUndated(t *testing.T, wire string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.SplitAfterSeq(wire, "\r\n") {
		if date, ok := strings.CutPrefix(line, "Date: "); ok && date != "user\r\n" {
			date = strings.TrimSuffix(date, "\r\n")
			if at, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", date); err != nil || len(date) != 29 {
				t.Errorf("Date %q at %v isn't an IMF-fixdate: %v", date, at, err)
			}
			line = "Date: D\r\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

// answerLog collects log records. It omits records that the server logs only because of the driver under test, and those about the server's
// start and end.
type answerLog struct {
	mu      sync.Mutex
	records []string // guarded by mu
}

func (l *answerLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *answerLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *answerLog) WithGroup(string) slog.Handler            { return l }

func (l *answerLog) Handle(_ context.Context, record slog.Record) error {
	if strings.HasPrefix(record.Message, filotest.DriverVariable) || slices.Contains(filotest.LifeMessages, record.Message) {
		return nil
	}
	var line strings.Builder
	line.WriteString(record.Level.String() + " " + record.Message)
	record.Attrs(func(a slog.Attr) bool {
		line.WriteString(" " + a.Key + "=" + a.Value.String())
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, line.String())
	return nil
}

func (l *answerLog) logger() *slog.Logger { return slog.New(l) }

// all returns the records so far.
func (l *answerLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records)
}

// answerGoexit ends the handler's goroutine, as FailNow of a test does.
func answerGoexit() { runtime.Goexit() }

// answerRef is a body that the answer uses without a copy. The server must never change it.
var answerRef = []byte("given away")

// answerExchanges are complete exchanges, compared byte by byte. In requests and answers, "\n" stands for CRLF and "␊" for a lone LF.
var answerExchanges = []struct {
	name, rule string
	handler    filo.Handler
	request    string
	want       string
}{
	{
		name: "Text", rule: "text/plain in UTF-8",
		handler: func(c *filo.Ctx) error { return c.Text(200, "Grüße") },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 7\n\nGrüße",
	},
	{
		name: "Bytes", rule: "bytes with their type",
		handler: func(c *filo.Ctx) error { return c.Bytes(201, "image/x", []byte{0, 1, 0xff}) },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 201 Created\nContent-Type: image/x\nServer: filo\nDate: D\nContent-Length: 3\n\n\x00\x01\xff",
	},
	{
		name: "BytesNoCopy", rule: "bytes that are given away, as often as wanted",
		handler: func(c *filo.Ctx) error { return c.BytesNoCopy(200, "text/x", answerRef) },
		request: "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\nHost: a\n\n",
		want: strings.Repeat("HTTP/1.1 200 OK\nContent-Type: text/x\nServer: filo\nDate: D\n"+
			"Content-Length: 10\n\ngiven away", 2),
	},
	{
		name: "JSON", rule: "JSON with its type",
		handler: func(c *filo.Ctx) error { return c.JSON(200, map[string]any{"a": []int{1, 2}, "b": "x"}) },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nContent-Type: application/json\nServer: filo\nDate: D\nContent-Length: 20\n\n" +
			`{"a":[1,2],"b":"x"}` + "␊",
	},
	{
		name: "JSON that can't be encoded", rule: "an error, and the response stays as it was",
		handler: func(c *filo.Ctx) error {
			c.Text(200, "as it was")
			if err := c.JSON(200, func() {}); err == nil {
				return errors.New("no error")
			}
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 9\n\nas it was",
	},
	{
		name: "Redirect", rule: "a Location and no body",
		handler: func(c *filo.Ctx) error { return c.Redirect(303, "/elsewhere?x=1") },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 303 See Other\nLocation: /elsewhere?x=1\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "Redirect with line breaks", rule: "CR, LF and NUL never reach the wire from any setter",
		handler: func(c *filo.Ctx) error { return c.Redirect(303, "/x\r\nSet-Cookie: a=b\x00\r\n\r\nbody") },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 303 See Other\nLocation: /x  Set-Cookie: a=b     body\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "Redirect with a wrong status", rule: "a redirect has a status of 300 to 308",
		handler: func(c *filo.Ctx) error {
			if c.Redirect(200, "/") == nil || c.Redirect(309, "/") == nil {
				return c.Text(200, "no error")
			}
			return c.NoContent()
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 204 No Content\nServer: filo\nDate: D\n\n",
	},
	{
		name: "NoContent", rule: "a 204 has no body, no Content-Length and no Transfer-Encoding (RFC 9110, section 8.6)",
		handler: func(c *filo.Ctx) error {
			c.Text(200, "dropped")
			c.Response.Header.Del("Content-Type")
			c.Response.Header.Set("Content-Length", "7")
			return c.NoContent()
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 204 No Content\nServer: filo\nDate: D\n\n",
	},
	{
		name: "204 with a body", rule: "a 204 has no body (RFC 9110, section 15.3.5)",
		handler: func(c *filo.Ctx) error { return c.Bytes(204, "text/x", []byte("dropped")) },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 204 No Content\nContent-Type: text/x\nServer: filo\nDate: D\n\n",
	},
	{
		name: "304 with a body", rule: "a 304 has no body; without a Content-Length of the handler's it says nothing of one (RFC 9110, section 8.6)",
		handler: func(c *filo.Ctx) error { return c.Bytes(304, "text/x", []byte("dropped")) },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 304 Not Modified\nContent-Type: text/x\nServer: filo\nDate: D\n\n",
	},
	{
		name: "304 with a Content-Length", rule: "Content-Length in a 304 is that of the answer to a GET (RFC 9110, section 8.6)",
		handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Length", "1234")
			c.Response.SetStatus(304)
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 304 Not Modified\nServer: filo\nDate: D\nContent-Length: 1234\n\n",
	},
	{
		name: "nothing", rule: "a handler that does nothing answers 200 with an empty body",
		handler: func(c *filo.Ctx) error { return nil },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "HEAD", rule: "the same head as for GET, and no body (RFC 9110, section 9.3.2)",
		handler: func(c *filo.Ctx) error { return c.Text(200, "hello") },
		request: "HEAD / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 5\n\n" +
			"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 5\n\nhello",
	},
	{
		name: "HEAD with a large body", rule: "no body (RFC 9110, section 9.3.2)",
		handler: func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("x", 100_000)) },
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 100000\n\n",
	},
	{
		name: "HEAD with a Content-Length alone", rule: "a HEAD need not make the body: its length is the handler's word",
		handler: func(c *filo.Ctx) error { c.Response.Header.Set("Content-Length", "1234"); return nil },
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 1234\n\n",
	},
	{
		name: "HEAD with an error", rule: "no body in an error's answer either (RFC 9110, section 9.3.2)",
		handler: func(c *filo.Ctx) error { return filo.Error(404, "x") },
		request: "HEAD / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 404 Not Found\nX-Content-Type-Options: nosniff\nVary: Accept\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 13\n\n",
	},
	{
		name: "wrong Content-Length", rule: "the body's own length goes out, since another one would break the framing",
		handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Length", "3")
			return c.Bytes(200, "text/x", []byte("0123456789"))
		},
		request: "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\nHost: a\n\n",
		want:    strings.Repeat("HTTP/1.1 200 OK\nContent-Type: text/x\nServer: filo\nDate: D\nContent-Length: 10\n\n0123456789", 2),
	},
	{
		name: "invalid Content-Length", rule: "what is no length is none",
		handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Length", "-5, 7")
			return c.Bytes(200, "text/x", []byte("body"))
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nContent-Type: text/x\nServer: filo\nDate: D\nContent-Length: 4\n\nbody",
	},
	{
		name: "framing fields of the handler's", rule: "a Transfer-Encoding that a handler sets is dropped; so are Keep-Alive and Trailer",
		handler: func(c *filo.Ctx) error {
			for _, name := range []string{"Transfer-Encoding", "transfer-encoding", "Keep-Alive", "Trailer", "CONTENT-LENGTH", "X-Kept"} {
				c.Response.Header.Add(name, "chunked")
			}
			return c.Bytes(200, "text/x", []byte("body"))
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nX-Kept: chunked\nContent-Type: text/x\nServer: filo\nDate: D\nContent-Length: 4\n\nbody",
	},
	{
		name: "Date and Server of the handler's", rule: "the handler's go before the server's own",
		handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("date", "user")
			c.Response.Header.Set("SERVER", "mine/1.0")
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\ndate: user\nSERVER: mine/1.0\nContent-Length: 0\n\n",
	},
	{
		name: "order and case", rule: "kept in order and case as set",
		handler: func(c *filo.Ctx) error {
			h := &c.Response.Header
			h.Set("X-b", "1")
			h.Add("x-A", "2")
			h.Add("X-B", "3")
			h.Set("X-a", "4")
			h.Add("X-Empty", "")
			h.Add("not a token", "dropped")
			h.Add("", "dropped")
			h.Set("X-Padded", " \t v \t ")
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nX-b: 1\nX-a: 4\nX-B: 3\nX-Empty: \nX-Padded: v\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "close by header", rule: "Connection: close in Header closes the connection after the answer",
		handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Connection", "foo, Close")
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\nGET /never HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\nConnection: close\n\n",
	},
	{
		name: "close by SetClose", rule: "SetClose closes the connection after this answer, which says so",
		handler: func(c *filo.Ctx) error { c.Response.SetClose(); return nil },
		request: "GET / HTTP/1.1\nHost: a\n\nGET /never HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\nConnection: close\n\n",
	},
	{
		name: "close by the client", rule: "a server that is asked to close must do so after the answer (RFC 9112, section 9.6)",
		handler: func(c *filo.Ctx) error { return nil },
		request: "GET / HTTP/1.1\nHost: a\nConnection: CLOSE\n\nGET /never HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\nConnection: close\n\n",
	},
	{
		name: "Connection of the handler's", rule: "other options are the handler's",
		handler: func(c *filo.Ctx) error { c.Response.Header.Set("Connection", "X-Hop"); return nil },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nConnection: X-Hop\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "HTTP/1.0", rule: "HTTP/1.0 closes after the answer, whose version is 1.1 all the same (RFC 9110, section 2.5)",
		handler: func(c *filo.Ctx) error { return nil },
		request: "GET / HTTP/1.0\n\nGET /never HTTP/1.0\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\nConnection: close\n\n",
	},
	{
		name: "HTTP/1.0 with keep-alive", rule: "a server must confirm keep-alive to an HTTP/1.0 client (RFC 9112, appendix C.2.2)",
		handler: func(c *filo.Ctx) error { return c.Text(200, c.Path()) },
		request: "GET /1 HTTP/1.0\nConnection: keep-alive\n\nGET /2 HTTP/1.0\n\n",
		want: "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 2\nConnection: keep-alive\n\n/1" +
			"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 2\nConnection: close\n\n/2",
	},
	{
		name: "OPTIONS *", rule: "it asks about the server and not about what a handler has (RFC 9110, section 9.3.7)",
		handler: func(c *filo.Ctx) error { return errors.New("the handler was called") },
		request: "OPTIONS * HTTP/1.1\nHost: a\n\nOPTIONS * HTTP/1.1\nHost: a\nContent-Length: 4\n\nbodyOPTIONS * HTTP/1.0\n\n",
		want: strings.Repeat("HTTP/1.1 204 No Content\nServer: filo\nDate: D\n\n", 2) +
			"HTTP/1.1 204 No Content\nServer: filo\nDate: D\nConnection: close\n\n",
	},
	{
		name: "OPTIONS of a path", rule: "is the handler's",
		handler: func(c *filo.Ctx) error { c.Response.Header.Set("Allow", "GET"); return c.NoContent() },
		request: "OPTIONS /x HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 204 No Content\nAllow: GET\nServer: filo\nDate: D\n\n",
	},
	{
		name: "body piece by piece", rule: "Write appends to the body that was set before",
		handler: func(c *filo.Ctx) error {
			c.Response.SetBodyString("one ")
			fmt.Fprintf(&c.Response, "two %d ", 3)
			c.Response.WriteString("four ")
			c.Response.SetBodyNoCopy([]byte("ref "))
			c.Response.Write([]byte("after"))
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 9\n\nref after",
	},
	{
		name: "body written without a type", rule: "the first Write sets text/plain, so that no browser takes the body for HTML",
		handler: func(c *filo.Ctx) error {
			fmt.Fprintf(&c.Response, "<b>%d</b>", 3)
			c.Response.WriteString("!")
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 9\n\n<b>3</b>!",
	},
	{
		name: "body written with a type", rule: "Write keeps a Content-Type that was set before, and a later one replaces Write's",
		handler: func(c *filo.Ctx) error {
			if c.Path() == "/before" {
				c.Response.Header.Set("Content-Type", "text/html")
			}
			c.Response.WriteString("x")
			if c.Path() == "/after" {
				c.Response.Header.Set("Content-Type", "text/html")
			}
			return nil
		},
		request: "GET /before HTTP/1.1\nHost: a\n\nGET /after HTTP/1.1\nHost: a\n\n",
		want:    strings.Repeat("HTTP/1.1 200 OK\nContent-Type: text/html\nServer: filo\nDate: D\nContent-Length: 1\n\nx", 2),
	},
	{
		name: "an empty body written", rule: "without content there is no type",
		handler: func(c *filo.Ctx) error {
			c.Response.Write(nil)
			c.Response.WriteString("")
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "body set without a type", rule: "the program chooses whether it has one",
		handler: func(c *filo.Ctx) error { c.Response.SetBodyString("x"); return c.Bytes(200, "", []byte("y")) },
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 1\n\ny",
	},
	{
		name: "cookies", rule: "SetCookie adds a Set-Cookie field; an invalid cookie is an error and adds none",
		handler: func(c *filo.Ctx) error {
			c.Response.SetCookie(&filo.Cookie{Name: "a", Value: "1", Path: "/", HttpOnly: true})
			c.Response.SetCookie(&filo.Cookie{Name: "b", Value: "2"})
			if c.Response.SetCookie(&filo.Cookie{Name: "c", Value: "x;y"}) == nil {
				return errors.New("no error")
			}
			return nil
		},
		request: "GET / HTTP/1.1\nHost: a\n\n",
		want:    "HTTP/1.1 200 OK\nSet-Cookie: a=1; Path=/; HttpOnly\nSet-Cookie: b=2\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
	{
		name: "a refused request", rule: "the server's own errors have a Date, and the connection ends with them",
		handler: func(c *filo.Ctx) error { return nil },
		request: "GET / HTTP/1.1\n\nGET /never HTTP/1.1\nHost: a\n\n",
		want: "HTTP/1.1 400 Bad Request\nContent-Type: text/plain; charset=utf-8\nServer: filo\nDate: D\nContent-Length: 26\n" +
			"Connection: close\n\nBad Request: missing Host␊",
	},
	{
		name: "an empty line behind the last request", rule: "an empty line in front of a request line is ignored (RFC 9112, section 2.2): nothing follows it here",
		handler: func(c *filo.Ctx) error { return nil },
		request: "GET / HTTP/1.1\nHost: a\n\n\n",
		want:    "HTTP/1.1 200 OK\nServer: filo\nDate: D\nContent-Length: 0\n\n",
	},
}

func TestExchanges(t *testing.T) {
	for _, test := range answerExchanges {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server { return &filo.Server{Handler: test.handler, Logger: filotest.Quiet} }, func(t *testing.T, h *filotest.Host) {
				got := answerUndated(t, h.Raw(t, answerWire(test.request)))
				if want := answerWire(test.want); got != want {
					t.Errorf("%s:\n got %q\nwant %q", test.rule, got, want)
				}
			})
		})
	}
}

// RFC 9112, section 4: the status line has the status code and its reason phrase.
func TestStatusLines(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		status, err := strconv.Atoi(c.Path()[1:])
		c.Response.SetStatus(status)
		return err
	}})
	c := h.Connect(t)
	for sent, want := range map[int]string{
		200: "200 OK", 203: "203 Non-Authoritative Information", 299: "299 Status 299", 308: "308 Permanent Redirect",
		413: "413 Content Too Large", 422: "422 Unprocessable Content", 451: "451 Unavailable For Legal Reasons",
		511: "511 Network Authentication Required", 599: "599 Status 599",
		600: "500 Internal Server Error", 199: "500 Internal Server Error", 101: "500 Internal Server Error",
		100: "500 Internal Server Error", 0: "500 Internal Server Error", 1000: "500 Internal Server Error",
	} {
		c.Send(t, fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", sent))
		if m := c.Receive(t, "GET"); m.Line != "HTTP/1.1 "+want {
			t.Errorf("SetStatus(%d): got %q, want %q", sent, m.Line, want)
		}
	}
}

// If a handler sets a status that can't be sent, the server logs it with the route.
func TestWrongStatusIsLogged(t *testing.T) {
	for _, status := range []int{0, 99, 150, 600, 1000} {
		log := &filotest.Log{}
		h := filotest.ServeMemory(t, &filo.Server{Logger: log.Logger(), Handler: func(c *filo.Ctx) error {
			inside.Match(c).Route = "GET /{id}"
			return c.Text(status, "")
		}})
		h.Raw(t, "GET /7 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		want := fmt.Sprintf(`msg="the status of an answer must be 200 to 599: it becomes 500" status=%d route="GET /{id}" method=GET path=/7`, status)
		if got := log.Lines(""); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%d: logged %q", status, got)
		}
	}
}

// Name is the value of the Server field, even in the server's own answers. If it is "-", the server sends no Server field.
func TestServerName(t *testing.T) {
	for name, want := range map[string]string{"": "filo", "mine/1.0 (x)": "mine/1.0 (x)", "-": "", "two\r\nX-Lines: 1": "two  X-Lines: 1"} {
		h := filotest.ServeMemory(t, &filo.Server{Name: name, Handler: func(c *filo.Ctx) error { return nil }})
		for _, request := range []string{filotest.GetRequest, "GET / HTTP/1.1\r\n\r\n"} {
			m, err := filotest.ReadMessage(bufio.NewReader(strings.NewReader(h.Raw(t, request))), "GET")
			if err != nil || m.Get("Server") != want || m.Count("Server") != len(want[:min(len(want), 1)]) {
				t.Errorf("Name %q: got %q, %v, want %q", name, m.Fields, err, want)
			}
		}
	}
}

// The Date of an answer is current (RFC 9110, section 6.6.1), even after the server has been idle.
func TestDateIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error { return nil })
		for _, pause := range []time.Duration{0, time.Second, time.Minute, 24 * time.Hour, 300 * time.Millisecond} {
			time.Sleep(pause)
			m, err := filotest.ReadMessage(bufio.NewReader(strings.NewReader(s.Raw(t, filotest.GetRequest))), "GET")
			if err != nil {
				t.Fatal(err)
			}
			date, err := http.ParseTime(m.Get("Date"))
			if off := time.Since(date); err != nil || off < 0 || off > 1200*time.Millisecond {
				t.Errorf("Date %q, %v, %v from now", m.Get("Date"), err, off)
			}
		}
	})
}

// Pipelined requests of all kinds are answered in order, wherever the client's writes are cut (RFC 9112, section 9.3.2).
func TestPipelining(t *testing.T) {
	const count = 400
	var all strings.Builder
	for i := range count {
		switch i % 5 {
		case 0, 1:
			fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: a\r\nPad: %s\r\n\r\n", i, strings.Repeat("x", i*7%900))
		case 2:
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, i*31, strings.Repeat("b", i*31))
		case 3:
			fmt.Fprintf(&all, "HEAD /%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
		case 4: // the handler doesn't read this request's body
			fmt.Fprintf(&all, "PUT /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", i, i+1, strings.Repeat("c", i+1))
		}
	}
	for _, piece := range []int{1 << 20, 4096, 1000, 61} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Handler: func(c *filo.Ctx) error {
					if c.Method() == "POST" {
						body, err := c.Body()
						if err != nil {
							return err
						}
						return c.Text(200, fmt.Sprint(c.Path(), " ", strings.Count(string(body), "b")))
					}
					return c.Text(200, c.Path())
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				go func() {
					for rest := all.String(); rest != ""; {
						n := min(piece, len(rest))
						if _, err := io.WriteString(c, rest[:n]); err != nil {
							return
						}
						rest = rest[n:]
					}
					c.CloseWrite()
				}()
				for i := range count {
					method := []string{"GET", "GET", "POST", "HEAD", "PUT"}[i%5]
					want := fmt.Sprint("/", i)
					if method == "POST" {
						want += fmt.Sprint(" ", i*31)
					} else if method == "HEAD" {
						want = ""
					}
					if m := c.Receive(t, method); m.Status != 200 || m.Body != want {
						t.Fatalf("answer %d: got %d %q, want %q", i, m.Status, m.Body, want)
					}
				}
				c.WantEnd(t)
			})
		})
	}
}

// Large bodies of every kind arrive complete, and the connection can be used again.
func TestLargeAnswers(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 80_000)
	for name, answer := range map[string]filo.Handler{
		"Text":          func(c *filo.Ctx) error { return c.Text(200, large) },
		"Bytes":         func(c *filo.Ctx) error { return c.Bytes(200, "text/x", []byte(large)) },
		"BytesNoCopy":   func(c *filo.Ctx) error { return c.BytesNoCopy(200, "text/x", []byte(large)) },
		"Write":         func(c *filo.Ctx) error { _, err := c.Response.WriteString(large); return err },
		"Stream":        func(c *filo.Ctx) error { _, err := c.Stream().WriteString(large); return err },
		"SetBodyStream": func(c *filo.Ctx) error { c.Response.SetBodyStream(strings.NewReader(large), -1); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server { return &filo.Server{Handler: answer} }, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				for range 2 {
					c.Send(t, filotest.GetRequest)
					if m := c.Receive(t, "GET"); m.Body != large {
						t.Errorf("%d bytes came, want %d", len(m.Body), len(large))
					}
				}
			})
		})
	}
}

func TestFile(t *testing.T) {
	directory := t.TempDir()
	modified := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	large := strings.Repeat("0123456789abcdef", 100_000)
	for name, content := range map[string]string{"small.txt": "small", "large.html": large, "empty.json": "", "unknown.filotype": "x"} {
		path := filepath.Join(directory, name)
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o644), os.Chtimes(path, modified, modified)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("small.txt", filepath.Join(directory, "link.txt")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path, method string
		status       int
		contentType  string
		body         string
	}{
		{"small.txt", "GET", 200, "text/plain; charset=utf-8", "small"},
		{"large.html", "GET", 200, "text/html; charset=utf-8", large},
		{"empty.json", "GET", 200, "application/json", ""},
		{"unknown.filotype", "GET", 200, "application/octet-stream", "x"},
		{"link.txt", "GET", 200, "text/plain; charset=utf-8", "small"},
		{"small.txt", "HEAD", 200, "text/plain; charset=utf-8", ""},
		{"large.html", "HEAD", 200, "text/html; charset=utf-8", ""},
		{"missing", "GET", 404, "", ""},
		{"", "GET", 404, "", ""}, // the directory
		{"small.txt/below", "GET", 404, "", ""},
		{strings.Repeat("x", 300), "GET", 404, "", ""},
		{"fifo", "GET", 404, "", ""},
	} {
		if test.path == "fifo" {
			if err := exec.Command("mkfifo", filepath.Join(directory, "fifo")).Run(); err != nil {
				t.Logf("no FIFO: %v", err)
				continue
			}
		}
		t.Run(test.method+" "+test.path[:min(len(test.path), 20)], func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
					return c.File(filepath.Join(directory, test.path))
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				for range 2 {
					c.Send(t, test.method+" / HTTP/1.1\r\nHost: a\r\n\r\n")
					m := c.Receive(t, test.method)
					if m.Status != test.status {
						t.Fatalf("got %d %q, want %d", m.Status, m.Body, test.status)
					}
					if test.status != 200 {
						continue
					}
					if m.Body != test.body || m.Get("Content-Type") != test.contentType || m.Get("Last-Modified") != modified.Format(http.TimeFormat) {
						t.Errorf("got %d bytes and %q, want %d", len(m.Body), m.Fields, len(test.body))
					}
					if test.method == "HEAD" && m.Get("Content-Length") == "" || m.Get("Transfer-Encoding") != "" {
						t.Errorf("fields %q, want the file's length", m.Fields)
					}
				}
			})
		})
	}
}

// File keeps the Content-Type and the status that the handler has set.
func TestFileWithItsOwnType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.txt")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := answerRequest(t, func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/own")
		c.Response.SetStatus(203)
		return c.File(path)
	}, filotest.GetRequest)
	if m.Status != 203 || m.Get("Content-Type") != "text/own" || m.Body != "x" {
		t.Errorf("got %d %q %q", m.Status, m.Fields, m.Body)
	}
}

// If the process has no permission to read a file, the answer is a 403.
func TestFileForbidden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.txt")
	if err := os.WriteFile(path, []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if file, err := os.Open(path); err == nil {
		file.Close()
		t.Skip("every file may be read here: TestFileErrors has the mapping")
	}
	if m := answerRequest(t, func(c *filo.Ctx) error { return c.File(path) }, filotest.GetRequest); m.Status != 403 {
		t.Errorf("got %d, want 403", m.Status)
	}
}

// File sends nothing if the request's decoded path has an element "..", since a handler may have built the file's path from it. Dots in
// names are no elements.
func TestFileDotDot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.txt")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for target, status := range map[string]int{
		"/uploads/..%2f..%2fetc%2fpasswd":  400,
		"/uploads/%2e%2e/%2e./etc/passwd":  400,
		"/uploads/..%5c..%5cboot.ini":      400,
		"/../etc/passwd":                   400,
		"/uploads/..":                      400,
		"/uploads/a..b/..c/d../...":        200,
		"/uploads/%252e%252e%252f":         200,
		"/uploads?name=..%2f..":            200,
		"http://a/uploads/..%2fetc/passwd": 400,
	} {
		for name, answer := range map[string]func(c *filo.Ctx) error{
			"File":       func(c *filo.Ctx) error { return c.File(path) },
			"Attachment": func(c *filo.Ctx) error { return c.Attachment(path, "") },
		} {
			if m := answerRequest(t, answer, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n"); m.Status != status {
				t.Errorf("%s for %s: got %d, want %d", name, target, m.Status, status)
			}
		}
	}
}

// If a file is truncated while it is sent, the server aborts the answer, whether it uses sendfile or copies.
func TestFileShrinks(t *testing.T) {
	for _, size := range []int64{20_000, 4 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				path := filepath.Join(t.TempDir(), "f.txt")
				return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
					// The file is sparse, so it takes no space.
					if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, size)); err != nil {
						return err
					}
					if err := c.File(path); err != nil {
						return err
					}
					return os.Truncate(path, size/2)
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, filotest.GetRequest)
				m, err := filotest.ReadMessage(c.In, "GET")
				if m.Status != 200 || err == nil || int64(len(m.Body)) > size/2 || m.Get("Content-Length") != fmt.Sprint(size) {
					t.Errorf("got %d with %d bytes, %v, want an answer that is broken off", m.Status, len(m.Body), err)
				}
			})
		})
	}
}

// If a client disconnects while the server sends a file, the server logs no error, and closes the file.
func TestFileToAClientThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.txt")
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<30)); err != nil {
		t.Fatal(err)
	}
	log := &answerLog{}
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: log.logger(), Handler: func(c *filo.Ctx) error { return c.File(path) }}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		c.In.ReadByte()
		c.Close()
		filotest.Await(t, "the connection to end", func() bool { return h.Config.Stats().ConnsOpen == 0 })
	})
	if records := log.all(); len(records) > 0 {
		t.Errorf("logged %q", records)
	}
}
