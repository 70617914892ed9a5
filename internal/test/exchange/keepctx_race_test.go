//go:build race

package exchange

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// "Using it after that may panic, and always does in builds with the race detector": each method of Ctx does.
func TestKeptCtxPanics(t *testing.T) {
	for name, use := range map[string]func(c *filo.Ctx){
		"Method":          func(c *filo.Ctx) { c.Method() },
		"Path":            func(c *filo.Ctx) { c.Path() },
		"PathBytes":       func(c *filo.Ctx) { c.PathBytes() },
		"Host":            func(c *filo.Ctx) { c.Host() },
		"HostBytes":       func(c *filo.Ctx) { c.HostBytes() },
		"Body":            func(c *filo.Ctx) { c.Body() },
		"BodyReader":      func(c *filo.Ctx) { c.BodyReader() },
		"SetMaxBodyBytes": func(c *filo.Ctx) { c.SetMaxBodyBytes(1) },
		"Context":         func(c *filo.Ctx) { c.Context() },
		"ShuttingDown":    func(c *filo.Ctx) { c.ShuttingDown() },
		"RemoteAddr":      func(c *filo.Ctx) { c.RemoteAddr() },
		"LocalAddr":       func(c *filo.Ctx) { c.LocalAddr() },
		"TLS":             func(c *filo.Ctx) { c.TLS() },
		"Logger":          func(c *filo.Ctx) { c.Logger() },
		"Server":          func(c *filo.Ctx) { c.Server() },
		"Text":            func(c *filo.Ctx) { c.Text(200, "") },
		"Bytes":           func(c *filo.Ctx) { c.Bytes(200, "", nil) },
		"BytesNoCopy":     func(c *filo.Ctx) { c.BytesNoCopy(200, "", nil) },
		"JSON":            func(c *filo.Ctx) { c.JSON(200, 1) },
		"Redirect":        func(c *filo.Ctx) { c.Redirect(302, "/") },
		"NoContent":       func(c *filo.Ctx) { c.NoContent() },
		"File":            func(c *filo.Ctx) { c.File("errors_test.go") },
		"Stream":          func(c *filo.Ctx) { c.Stream() },
		"Hijack":          func(c *filo.Ctx) { c.Hijack() },
		"Upgrade":         func(c *filo.Ctx) { c.Upgrade("x") },
		"EarlyHints":      func(c *filo.Ctx) { c.EarlyHints() },
	} {
		for _, end := range []string{"keep-alive", "close"} {
			kept := make(chan *filo.Ctx, 1)
			h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				kept <- c
				return c.Text(200, "answer")
			}})
			c := h.Connect(t)
			c.Send(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: "+end+"\r\n\r\n")
			c.Receive(t, "GET")
			if end == "close" {
				c.WantEnd(t) // the server retires the Ctx when the connection ends
			}
			func() {
				defer func() {
					if value := recover(); !strings.Contains(fmt.Sprint(value), "used after its handler returned") {
						t.Errorf("%s, %s: panic %v, want one that says what is wrong", name, end, value)
					}
				}()
				use(<-kept)
			}()
		}
	}
}

// A goroutine that outlives its handler panics if it uses the Ctx or a body reader.
func TestKeptBodyReaderPanics(t *testing.T) {
	values := make(chan any, 1)
	next := make(chan bool)
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		body := c.BodyReader()
		go func() {
			defer func() { values <- recover() }()
			<-next
			body.Read(make([]byte, 10))
		}()
		return c.Text(200, "answer")
	}})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	c.Receive(t, "GET")
	next <- true
	if value := filotest.Recv(t, values, "the goroutine"); !strings.Contains(fmt.Sprint(value), "used after its handler returned") {
		t.Errorf("panic %v, want one that says what is wrong", value)
	}
}

const (
	answerKeptHead = "POST /a%20b/c?q=value&e=val%75e HTTP/1.1\r\nHost: host.example\r\nX-Field: field-value\r\nCookie: c=cookie\r\nExtra: extra\r\n"
	answerKeptForm = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 14\r\n"
)

var answerKeptBody = strings.Repeat("x", 20_000)

// answerBorrowed lists all methods that return a []byte of a request.
var answerBorrowed = []struct {
	name, fields, body string
	keep               func(c *filo.Ctx) []byte
}{
	{"header value", "", "", func(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("X-Field") }},
	{"method", "", "", func(c *filo.Ctx) []byte { return c.Request.MethodBytes() }},
	{"target", "", "", func(c *filo.Ctx) []byte { return c.Request.TargetBytes() }},
	{"host", "", "", func(c *filo.Ctx) []byte { return c.HostBytes() }},
	{"cookie", "", "", func(c *filo.Ctx) []byte { return c.Request.CookieBytes("c") }},
	{"raw path", "", "", func(c *filo.Ctx) []byte { return c.Request.URI().RawPathBytes() }},
	{"decoded path", "", "", func(c *filo.Ctx) []byte { return c.PathBytes() }},
	{"query", "", "", func(c *filo.Ctx) []byte { return c.Request.Query().GetBytes("q") }},
	{"decoded query", "", "", func(c *filo.Ctx) []byte { return c.Request.Query().GetBytes("e") }},
	{"header value set by middleware", "", "", func(c *filo.Ctx) []byte {
		c.Request.Header.Set("X-Field", "set")
		return c.Request.Header.GetBytes("X-Field")
	}},
	{"header value beside one set by middleware", "", "", func(c *filo.Ctx) []byte {
		c.Request.Header.Set("X-New", "set")
		return c.Request.Header.GetBytes("X-Field")
	}},
	{"response header value", "", "", func(c *filo.Ctx) []byte {
		c.Response.Header.Set("X-Field", "set")
		return c.Response.Header.GetBytes("X-Field")
	}},
	{"body", "Content-Length: 4\r\n", "body", func(c *filo.Ctx) []byte { b, _ := c.Body(); return b }},
	{"chunked body", "Transfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n", func(c *filo.Ctx) []byte { b, _ := c.Body(); return b }},
	{"large body", "Content-Length: 20000\r\n", answerKeptBody, func(c *filo.Ctx) []byte { b, _ := c.Body(); return b }},
	{"header value beside a large body", "Content-Length: 20000\r\n", answerKeptBody, func(c *filo.Ctx) []byte {
		value := c.Request.Header.GetBytes("X-Field")
		c.Body()
		return value
	}},
	{"header value beside a body that isn't read", "Content-Length: 20000\r\n", answerKeptBody, func(c *filo.Ctx) []byte {
		return c.Request.Header.GetBytes("X-Field")
	}},
	{"header value of a large head", "Large: " + answerKeptBody[:9000] + "\r\n", "", func(c *filo.Ctx) []byte {
		return c.Request.Header.GetBytes("X-Field")
	}},
	{"form", answerKeptForm, "a=plain&b=%75e", func(c *filo.Ctx) []byte { f, _ := c.Request.Form(); return f.GetBytes("a") }},
	{"decoded form", answerKeptForm, "a=plain&b=%75e", func(c *filo.Ctx) []byte { f, _ := c.Request.Form(); return f.GetBytes("b") }},
	{"trailer", "Transfer-Encoding: chunked\r\n", "0\r\nX-Sum: trailer\r\n\r\n", func(c *filo.Ctx) []byte {
		c.Body()
		return c.Request.Trailer.GetBytes("X-Sum")
	}},
}

// "Builds with the race detector overwrite a handler's memory when it is given back": each []byte that a request's methods return is
// overwritten.
func TestKeptSlicesAreOverwritten(t *testing.T) {
	for _, test := range answerBorrowed {
		for _, end := range []string{"keep-alive", "close"} {
			t.Run(test.name+"/"+end, func(t *testing.T) {
				type pair struct{ borrowed, copied []byte }
				kept := make(chan pair, 1)
				h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
					borrowed := test.keep(c)
					kept <- pair{borrowed, bytes.Clone(borrowed)}
					return c.Text(200, "answer")
				}})
				c := h.Connect(t)
				c.Send(t, answerKeptHead+test.fields+"Connection: "+end+"\r\n\r\n"+test.body)
				c.Receive(t, "POST")
				// With keep-alive, the request ends before its answer is sent, unless the server must still drain a body.
				if end == "close" || strings.HasSuffix(test.name, "isn't read") {
					c.CloseWrite()
					c.WantEnd(t)
				}
				got := <-kept
				if len(got.copied) == 0 {
					t.Fatal("nothing was kept")
				}
				if bytes.Equal(got.borrowed, got.copied) {
					t.Errorf("%.40q is still there after the handler returned", got.borrowed)
				}
			})
		}
	}
}

// Strings that a request's methods return don't change after the request.
func TestKeptStringsStay(t *testing.T) {
	const head = "POST /a%20b/c?q=value&e=val%75e HTTP/1.1\r\nHost: host.example\r\nX-Field: field-value\r\nCookie: c=cookie\r\n" +
		"Content-Type: text/x\r\nContent-Length: 4\r\n\r\nbody"
	kept := make(chan []string, 2)
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		r := &c.Request
		kept <- []string{c.Path(), c.Host(), r.Target(), r.Header.Get("X-Field"), r.Cookie("c"), r.ContentType(),
			r.Query().Get("q"), r.Query().Get("e"), r.URI().RawQuery(), r.URI().String()}
		return c.Text(200, "answer")
	}})
	c := h.Connect(t)
	c.Send(t, head)
	c.Receive(t, "POST")
	c.Send(t, filotest.GetRequest)
	c.Receive(t, "GET")
	want := "/a b/c|host.example|/a%20b/c?q=value&e=val%75e|field-value|cookie|text/x|value|value|q=value&e=val%75e|http://host.example/a%20b/c?q=value&e=val%75e"
	if got := strings.Join(<-kept, "|"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The race detector sees that a request happens before its handler, and the answer after it, over real sockets too: users' tests rely on
// that order, as with net/http.
func TestRaceDetectorSeesOrderOfSockets(t *testing.T) {
	given, taken := 0, 0
	h := filotest.ServeSocket(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		taken = given
		return c.Text(200, "")
	}})
	c := h.Connect(t)
	for i := range 3 {
		given = i
		c.Send(t, filotest.GetRequest)
		c.Receive(t, "GET")
		if taken != i {
			t.Errorf("took %d, want %d", taken, i)
		}
	}
}
