package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// answerRequest serves one request and returns the answer's status and body.
func answerRequest(t *testing.T, handler filo.Handler, request string) *filotest.Message {
	t.Helper()
	h := filotest.ServeMemory(t, &filo.Server{Handler: handler, Logger: filotest.Quiet})
	c := h.Connect(t)
	c.Send(t, request)
	method, _, _ := strings.Cut(request, " ")
	return c.Receive(t, method)
}

func TestRequestParts(t *testing.T) {
	const target = "/a%20b/c?q=hello+world&page=2&page=3&x=%41"
	const request = "PATCH " + target + " HTTP/1.1\r\nHost: Example.com:8080\r\nX-One: 1\r\nx-one: 2\r\n" +
		"Cookie: a=1; b=two\r\nCookie: c=\"3\"\r\nContent-Type: text/x; p=1\r\nContent-Length: 4\r\n\r\nbody"
	var parts []any
	m := answerRequest(t, func(c *filo.Ctx) error {
		r := &c.Request
		var cookies, values []string
		for name, value := range r.Cookies() {
			cookies = append(cookies, string(name)+"="+string(value))
		}
		for value := range r.Header.Values("X-ONE") {
			values = append(values, string(value))
		}
		page, err := r.Query().Int("page")
		body, bodyErr := c.Body()
		again, againErr := r.Body()
		parts = []any{
			c.Method(), r.Method(), string(r.MethodBytes()), r.Target(), string(r.TargetBytes()), r.Proto(), // 0
			c.Path(), string(c.PathBytes()), r.URI().RawPath(), c.Host(), string(c.HostBytes()), r.Host(), // 6
			r.Query().Get("q"), page, err, r.Query().Get("x"), r.URI().RawQuery(), // 12
			r.ContentLength(), r.ContentType(), r.Close(), // 17
			r.Cookie("b"), string(r.CookieBytes("c")), r.CookieBytes("d") == nil, cookies, values, // 20
			string(body), bodyErr, string(again), againErr, // 25
			c.TLS() == nil, c.RemoteAddr().Network(), c.LocalAddr().String(), c.Server() != nil, c.Logger() != nil, // 29
		}
		return c.NoContent()
	}, request)
	if m.Status != 204 {
		t.Fatalf("status %d", m.Status)
	}
	want := []any{
		"PATCH", "PATCH", "PATCH", target, target, "HTTP/1.1",
		"/a b/c", "/a b/c", "/a%20b/c", "Example.com:8080", "Example.com:8080", "Example.com:8080",
		"hello world", 2, nil, "A", "q=hello+world&page=2&page=3&x=%41",
		int64(4), "text/x; p=1", false,
		"two", "3", true, []string{"a=1", "b=two", "c=3"}, []string{"1", "2"},
		"body", nil, "body", nil,
		true, "mem", "filo.test:80", true, true,
	}
	for i := range want {
		if fmt.Sprint(parts[i]) != fmt.Sprint(want[i]) {
			t.Errorf("part %d is %q, want %q", i, fmt.Sprint(parts[i]), fmt.Sprint(want[i]))
		}
	}
}

func TestRequestHost(t *testing.T) {
	for _, test := range []struct{ rule, request, want string }{
		{"the target's in absolute form, whatever Host says (RFC 9112, section 3.2.2)",
			"GET http://target.example/p HTTP/1.1\r\nHost: field.example\r\n\r\n", "target.example /p"},
		{"or else the Host field's", "GET /p HTTP/1.1\r\nHost: field.example\r\n\r\n", "field.example /p"},
		{"an empty Host is allowed (RFC 9112, section 3.2)", "GET /p HTTP/1.1\r\nHost:\r\n\r\n", " /p"},
		{"HTTP/1.0 needs none", "GET /p HTTP/1.0\r\n\r\n", " /p"},
		{"the authority of CONNECT", "CONNECT x.example:443 HTTP/1.1\r\nHost: x.example:443\r\n\r\n", "x.example:443 "},
	} {
		m := answerRequest(t, func(c *filo.Ctx) error { return c.Text(200, c.Host()+" "+c.Path()) }, test.request)
		if m.Body != test.want {
			t.Errorf("%s: got %q, want %q", test.rule, m.Body, test.want)
		}
	}
}

// RFC 9110, section 2.5: a higher minor version is processed as the highest one that the server knows.
func TestRequestProto(t *testing.T) {
	for version, want := range map[string]string{"HTTP/1.1": "HTTP/1.1", "HTTP/1.0": "HTTP/1.0", "HTTP/1.2": "HTTP/1.1"} {
		m := answerRequest(t, func(c *filo.Ctx) error { return c.Text(200, c.Request.Proto()) }, "GET / "+version+"\r\nHost: a\r\n\r\n")
		if m.Body != want {
			t.Errorf("%s: got %q, want %q", version, m.Body, want)
		}
	}
}

// RFC 9112, section 9.3, says whether the connection persists after a request. Request.Close reports this.
func TestRequestClose(t *testing.T) {
	for _, test := range []struct {
		rule, version, field string
		want                 bool
	}{
		{"HTTP/1.1 persists", "HTTP/1.1", "", false},
		{"close option", "HTTP/1.1", "Connection: close", true},
		{"close option in any case", "HTTP/1.1", "connection: Close", true},
		{"close option in a list", "HTTP/1.1", "Connection: foo , close", true},
		{"close option in a second field", "HTTP/1.1", "Connection: foo\r\nConnection: close", true},
		{"another option that contains close", "HTTP/1.1", "Connection: not-close", false},
		{"HTTP/1.0 closes", "HTTP/1.0", "", true},
		{"HTTP/1.0 with keep-alive persists", "HTTP/1.0", "Connection: Keep-Alive", false},
		{"close goes before keep-alive", "HTTP/1.0", "Connection: keep-alive, close", true},
	} {
		var closes bool
		h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
			closes = c.Request.Close()
			return c.Text(200, "")
		}})
		c := h.Connect(t)
		c.Send(t, "GET / "+test.version+"\r\nHost: a\r\n"+test.field+strings.Repeat("\r\n", min(len(test.field), 1))+"\r\n")
		m := c.Receive(t, "GET")
		if closes != test.want || (m.Get("Connection") == "close") != test.want {
			t.Errorf("%s: Close is %v, Connection %q, want close %v", test.rule, closes, m.Get("Connection"), test.want)
		}
		if test.want {
			c.WantEnd(t)
			continue
		}
		if keepAlive := m.Get("Connection") == "keep-alive"; keepAlive != (test.version == "HTTP/1.0") {
			t.Errorf("%s: Connection %q", test.rule, m.Get("Connection"))
		}
		c.Send(t, filotest.GetRequest)
		c.Receive(t, "GET")
	}
}

// answerBodies lists ways to send a body, with the content or the error that a handler gets.
var answerBodies = []struct {
	name, head, body string
	want             string
	err              int // status of the error, 0 for none
}{
	{name: "none", head: "", want: ""},
	{name: "length 0", head: "Content-Length: 0", want: ""},
	{name: "length", head: "Content-Length: 10", body: "0123456789", want: "0123456789"},
	{name: "length with zeros", head: "Content-Length: 0010", body: "0123456789", want: "0123456789"},
	{name: "larger than the read buffer", head: "Content-Length: 100000", body: strings.Repeat("0123456789", 10000), want: strings.Repeat("0123456789", 10000)},
	{name: "at the limit", head: "Content-Length: 400000", body: strings.Repeat("x", 400_000), want: strings.Repeat("x", 400_000)},
	{name: "over the limit", head: "Content-Length: 400001", err: 413},
	{name: "chunked", head: "Transfer-Encoding: chunked", body: "5\r\n01234\r\n5;x=\"y\"\r\n56789\r\n0\r\n\r\n", want: "0123456789"},
	{name: "chunked, empty", head: "Transfer-Encoding: chunked", body: "0\r\n\r\n", want: ""},
	{name: "chunked, large", head: "Transfer-Encoding: chunked", body: strings.Repeat("2710\r\n"+strings.Repeat("x", 10000)+"\r\n", 20) + "0\r\n\r\n", want: strings.Repeat("x", 200000)},
	{name: "chunked, over the limit", head: "Transfer-Encoding: chunked", body: strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 7) + "0\r\n\r\n", err: 413},
	{name: "chunked, malformed", head: "Transfer-Encoding: chunked", body: "5\r\n01234\r\nx\r\n", err: 400},
	{name: "chunked, wrong end of a chunk", head: "Transfer-Encoding: chunked", body: "5\r\n0123456789\r\n", err: 400},
	{name: "cut", head: "Content-Length: 10", body: "01234", err: 400},
	{name: "cut in large", head: "Content-Length: 100000", body: strings.Repeat("x", 50000), err: 400},
	{name: "chunked, cut", head: "Transfer-Encoding: chunked", body: "5\r\n01234\r\n", err: 400},
}

// Body and BodyReader return the same bytes and the same errors. If the handler returns such an error, the answer has its status. Body never
// returns the bytes before an error as if they were the whole body.
func TestRequestBody(t *testing.T) {
	readers := map[string]func(c *filo.Ctx) (string, error){
		"Body":       answerReadBody,
		"BodyReader": answerReadReader,
		"small reads": func(c *filo.Ctx) (string, error) {
			var out strings.Builder
			_, err := io.CopyBuffer(struct{ io.Writer }{&out}, struct{ io.Reader }{c.BodyReader()}, make([]byte, 3))
			return out.String(), err
		},
		"large reads": func(c *filo.Ctx) (string, error) {
			var out strings.Builder
			_, err := io.CopyBuffer(struct{ io.Writer }{&out}, struct{ io.Reader }{c.BodyReader()}, make([]byte, 1<<20))
			return out.String(), err
		},
		"Body, then BodyReader": func(c *filo.Ctx) (string, error) {
			if _, err := c.Body(); err != nil {
				return "", err
			}
			return answerReadReader(c)
		},
	}
	for _, test := range answerBodies {
		for name, read := range readers {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				var got string
				var gotErr error
				h := filotest.ServeMemory(t, &filo.Server{MaxBodyBytes: 400_000, Handler: func(c *filo.Ctx) error {
					if c.Path() == "/next" {
						return c.Text(200, "next")
					}
					got, gotErr = read(c)
					return gotErr
				}})
				all := h.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\n"+test.head+strings.Repeat("\r\n", min(len(test.head), 1))+"\r\n"+
					test.body+strings.Repeat("GET /next HTTP/1.1\r\nHost: a\r\n\r\n", 1-min(test.err, 1)))
				if test.err == 0 {
					if got != test.want || gotErr != nil || !strings.HasSuffix(all, "next") {
						t.Errorf("got %d bytes, %v, want %d; answers %.300q", len(got), gotErr, len(test.want), all)
					}
					return
				}
				var httpError *filo.HTTPError
				if !errors.As(gotErr, &httpError) || httpError.Status != test.err || !strings.HasPrefix(all, fmt.Sprintf("HTTP/1.1 %d ", test.err)) {
					t.Errorf("got %v, answer %.200q, want status %d", gotErr, all, test.err)
				}
				if errors.Is(gotErr, filo.ErrBodyTooLarge) != (test.err == 413) {
					t.Errorf("%v is ErrBodyTooLarge: %v", gotErr, test.err == 413)
				}
				if name == "Body" && got != "" {
					t.Errorf("Body returned %d bytes beside its error", len(got))
				}
				if strings.Count(all, "HTTP/1.1 ") != 1 || !strings.Contains(all, "\r\nConnection: close\r\n") {
					t.Errorf("the connection went on after a body that can't be trusted: %.300q", all)
				}
			})
		}
	}
}

// After an error of Body, later calls return the same error without waiting.
func TestRequestBodyErrorStays(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		_, first := c.Body()
		_, second := c.Request.Body()
		n, third := c.BodyReader().Read(make([]byte, 10))
		if first == nil || first != second || first != third || n != 0 {
			t.Errorf("errors %v, %v, %v with %d bytes", first, second, third, n)
		}
		return first
	}})
	h.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123")
}

// After an error of the reader, Body returns the same error, and doesn't wait for more bytes.
func TestRequestBodyAfterAFailedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.NewServer(t, &filo.Server{ReadTimeout: time.Second, Handler: func(c *filo.Ctx) error {
			n, first := c.BodyReader().Read(make([]byte, 10))
			start := time.Now()
			_, second := c.Body()
			if n != 0 || first == nil || second != first || !time.Now().Equal(start) {
				t.Errorf("Read: %d, %v; Body: %v after %v", n, first, second, time.Since(start))
			}
			return first
		}})
		c := answerClientOf(s.Dial(t))
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
		if m := c.Receive(t, "POST"); m.Status != 408 {
			t.Errorf("status %d, want 408", m.Status)
		}
	})
}

// SetMaxBodyBytes changes the limit for one request.
func TestSetMaxBodyBytes(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit int64
		body  string
		want  int
	}{
		{"lower", 5, "Content-Length: 6\r\n\r\n012345", 413},
		{"at it", 5, "Content-Length: 5\r\n\r\n01234", 200},
		{"chunked over it", 5, "Transfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n0\r\n\r\n", 413},
		{"chunked at it", 5, "Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n", 200},
		{"none", -1, "Content-Length: 20\r\n\r\n01234567890123456789", 200},
		{"zero", 0, "Content-Length: 1\r\n\r\n0", 413},
		{"zero and no body", 0, "\r\n", 200},
		{"the server's own", 10, "Content-Length: 11\r\n\r\n01234567890", 413},
	} {
		for name, read := range map[string]func(c *filo.Ctx) (string, error){"Body": answerReadBody, "BodyReader": answerReadReader} {
			h := filotest.ServeMemory(t, &filo.Server{MaxBodyBytes: 10, Handler: func(c *filo.Ctx) error {
				if test.limit != 10 {
					c.SetMaxBodyBytes(test.limit)
				}
				_, err := read(c)
				return err
			}})
			all := h.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\n"+test.body)
			if !strings.HasPrefix(all, fmt.Sprintf("HTTP/1.1 %d ", test.want)) {
				t.Errorf("%s, %s: got %.100q, want %d", test.name, name, all, test.want)
			}
		}
	}
}

// The server skips the rest of a body that its handler hasn't read, up to a limit, or else closes the connection. It never parses the
// rest as the next request.
func TestRequestBodyNotRead(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(smuggled), smuggled)
	filler := strings.Repeat(smuggled, 300_000/len(smuggled)+1)
	for _, test := range []struct {
		name, head, body string
		read             int // the number of the body's bytes that the handler reads
		goesOn           bool
	}{
		{"small", fmt.Sprintf("Content-Length: %d", len(smuggled)), smuggled, 0, true},
		{"small, read in part", fmt.Sprintf("Content-Length: %d", len(smuggled)), smuggled, 3, true},
		{"chunked", "Transfer-Encoding: chunked", chunk + chunk + "0\r\n\r\n", 0, true},
		{"chunked, read in part", "Transfer-Encoding: chunked", chunk + chunk + "0\r\nX-T: 1\r\n\r\n", 3, true},
		{"up to the drain's limit", "Content-Length: 262144", filler[:262144], 0, true},
		{"over the drain's limit", "Content-Length: 262145", filler[:262145], 0, false},
		{"chunked, over the drain's limit", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(filler), filler), 0, false},
		{"chunked, malformed", "Transfer-Encoding: chunked", "x\r\n" + smuggled, 0, false},
		{"over the body's limit", "Content-Length: 5000000", filler, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Handler: func(c *filo.Ctx) error {
					io.ReadFull(c.BodyReader(), make([]byte, test.read))
					return c.Text(200, c.Path())
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				go io.WriteString(c, "POST /first HTTP/1.1\r\nHost: a\r\n"+test.head+"\r\n\r\n"+test.body+"GET /second HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				if m := c.Receive(t, "POST"); m.Body != "/first" {
					t.Errorf("got %q", m.Body)
				}
				if test.goesOn {
					if m := c.Receive(t, "GET"); m.Body != "/second" {
						t.Errorf("got %q, want the second request's answer", m.Body)
					}
				}
				c.WantEnd(t)
			})
		})
	}
}

// Trailer fields are available after the body has been read, and not before.
func TestRequestTrailer(t *testing.T) {
	for _, test := range []struct {
		rule, trailer string
		status        int
		want          string
	}{
		{"Trailer holds the trailer fields", "X-Sum: 42\r\nX-Two: 2\r\n", 200, "42"},
		{"framing fields must not be in a trailer (RFC 9110, section 6.5.1)", "Content-Length: 3\r\n", 400, ""},
		{"a trailer is held to a head's rules", "X-Sum : 42\r\n", 400, ""},
		{"a trailer has a head's limits", "X-Sum: " + strings.Repeat("x", 17<<10) + "\r\n", 431, ""},
		{"a trailer has a head's limits", strings.Repeat("X-Sum: 1\r\n", 101), 431, ""},
	} {
		var before, after string
		m := answerRequest(t, func(c *filo.Ctx) error {
			before = c.Request.Trailer.Get("X-Sum")
			_, err := c.Body()
			after = c.Request.Trailer.Get("x-sum")
			if err == nil {
				c.Request.Trailer.Set("X-Own", "is fine")
			}
			return err
		}, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"+test.trailer+"\r\n")
		if m.Status != test.status || before != "" || after != test.want {
			t.Errorf("%s: status %d, before %q, after %q, want %d, %q", test.rule, m.Status, before, after, test.status, test.want)
		}
	}
}

// A request's trailer isn't visible to the next request.
func TestRequestTrailerIsNotKept(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if _, err := c.Body(); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(c.Request.Trailer.Len()))
	}})
	c := h.Connect(t)
	for _, test := range [][2]string{{"0\r\nX-Sum: 42\r\n\r\n", "1"}, {"0\r\n\r\n", "0"}} {
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+test[0])
		if m := c.Receive(t, "POST"); m.Body != test[1] {
			t.Errorf("%q has %s trailer fields, want %s", test[0], m.Body, test[1])
		}
	}
}

func TestRequestForm(t *testing.T) {
	for _, test := range []struct {
		rule, contentType, body string
		status                  int
		want                    string
	}{
		{"a form's parameters", "application/x-www-form-urlencoded", "a=1&b=x+y%21", 200, "1 x y!"},
		{"parameters of the type and its case don't count", "Application/X-WWW-Form-Urlencoded ; charset=utf-8", "a=1", 200, "1 "},
		{"an empty form", "application/x-www-form-urlencoded", "", 200, " "},
		{"another Content-Type is a 415", "application/json", "{}", 415, ""},
		{"no Content-Type is a 415", "", "a=1", 415, ""},
		{"too many parameters are a 400", "application/x-www-form-urlencoded", strings.Repeat("a=1&", 1001), 400, ""},
		{"a form over the body's limit is a 413", "application/x-www-form-urlencoded", strings.Repeat("x", 20000), 413, ""},
	} {
		h := filotest.ServeMemory(t, &filo.Server{MaxBodyBytes: 10000, Handler: func(c *filo.Ctx) error {
			form, err := c.Request.Form()
			again, againErr := c.Request.Form()
			if again != form || againErr != err {
				t.Errorf("%s: a second call returned another form, or %v", test.rule, againErr)
			}
			if err != nil {
				return err
			}
			return c.Text(200, form.Get("a")+" "+form.Get("b"))
		}})
		c := h.Connect(t)
		c.Send(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", test.contentType, len(test.body)))
		io.WriteString(c, test.body) // the server may have refused the body and closed the connection
		if m := c.Receive(t, "POST"); m.Status != test.status || test.status == 200 && m.Body != test.want {
			t.Errorf("%s: got %d %q, want %d %q", test.rule, m.Status, m.Body, test.status, test.want)
		}
	}
}

func TestRequestQueryLimit(t *testing.T) {
	for count, want := range map[int]string{1000: "1000 <nil>", 1001: "1000 400"} {
		m := answerRequest(t, func(c *filo.Ctx) error {
			query := c.Request.Query()
			err := any(query.Err())
			var httpError *filo.HTTPError
			if errors.As(query.Err(), &httpError) && errors.Is(query.Err(), filo.ErrTooManyArgs) {
				err = httpError.Status
			}
			return c.Text(200, fmt.Sprint(query.Len(), " ", err))
		}, "GET /?"+strings.Repeat("a&", count)+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if m.Body != want {
			t.Errorf("%d parameters: got %q, want %q", count, m.Body, want)
		}
	}
}

// answerMultipart returns a form with one value and one file.
func answerMultipart(t *testing.T, file string) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	w.WriteField("name", "gopher")
	part, err := w.CreateFormFile("file", "f.txt")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(part, file)
	w.Close()
	return w.FormDataContentType(), b.String()
}

// Files that exceed the memory limit are stored in temporary files, which the server removes when the handler has returned or panicked.
func TestRequestMultipartForm(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	temporary := func() int {
		entries, err := os.ReadDir(directory)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	large := strings.Repeat("0123456789", 200_000)
	for _, test := range []struct {
		name, file string
		files      int // temporary files while the handler runs
		end        func(c *filo.Ctx) error
		want       int
	}{
		{"small", "small", 0, func(c *filo.Ctx) error { return nil }, 200},
		{"large", large, 1, func(c *filo.Ctx) error { return nil }, 200},
		{"error", large, 1, func(c *filo.Ctx) error { return filo.Error(409, "") }, 409},
		{"panic", large, 1, func(c *filo.Ctx) error { panic("no") }, 500},
		{"close", large, 1, func(c *filo.Ctx) error { c.Response.SetClose(); return nil }, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
				form, err := c.Request.MultipartForm()
				if err != nil {
					return err
				}
				if again, _ := c.Request.MultipartForm(); again != form {
					t.Error("a second call returned another form")
				}
				file, err := form.File["file"][0].Open()
				if err != nil {
					return err
				}
				defer file.Close()
				content, err := io.ReadAll(file)
				if err != nil || string(content) != test.file || form.Value["name"][0] != "gopher" {
					t.Errorf("the form came as %d bytes, %v, and %q", len(content), err, form.Value)
				}
				if n := temporary(); n != test.files {
					t.Errorf("%d temporary files, want %d", n, test.files)
				}
				return test.end(c)
			}})
			contentType, body := answerMultipart(t, test.file)
			c := h.Connect(t)
			c.Send(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", contentType, len(body)))
			c.Send(t, body)
			if m := c.Receive(t, "POST"); m.Status != test.want {
				t.Errorf("got %d %q, want %d", m.Status, m.Body, test.want)
			}
			filotest.Await(t, "the temporary files to be gone", func() bool { return temporary() == 0 })
		})
	}
}

func TestRequestMultipartErrors(t *testing.T) {
	contentType, body := answerMultipart(t, "file")
	for _, test := range []struct {
		rule, contentType, body string
		want                    int
	}{
		{"another Content-Type is a 415", "application/json", "{}", 415},
		{"a missing boundary is a 400", "multipart/form-data", body, 400},
		{"a malformed form is a 400", contentType, "nonsense", 400},
		{"a form that ends early is a 400", contentType, body[:len(body)/2], 400},
		{"too many parts are a 413", contentType, strings.Repeat(body[:strings.Index(body[2:], "--")+2], 1001) + body, 413},
	} {
		m := answerRequest(t, func(c *filo.Ctx) error {
			_, err := c.Request.MultipartForm()
			return err
		}, answerPost(test.contentType, test.body))
		if m.Status != test.want {
			t.Errorf("%s: got %d %q, want %d", test.rule, m.Status, m.Body, test.want)
		}
	}
}

// answerPost is a request with a body.
func answerPost(contentType, body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
}

// MultipartReader returns each part as soon as it arrives.
func TestRequestMultipartReader(t *testing.T) {
	contentType, body := answerMultipart(t, "file")
	handler := func(c *filo.Ctx) error {
		reader, err := c.Request.MultipartReader()
		if err != nil {
			return err
		}
		var parts strings.Builder
		for {
			part, err := reader.NextPart()
			if err == io.EOF {
				return c.Text(200, parts.String())
			}
			if err != nil {
				return err
			}
			content, err := io.ReadAll(part)
			if err != nil {
				return err
			}
			fmt.Fprintf(&parts, "%s=%s;", part.FormName(), content)
		}
	}
	if m := answerRequest(t, handler, answerPost(contentType, body)); m.Body != "name=gopher;file=file;" {
		t.Errorf("got %d %q", m.Status, m.Body)
	}
	if m := answerRequest(t, handler, answerPost("text/plain", body)); m.Status != 415 {
		t.Errorf("got %d for another Content-Type, want 415", m.Status)
	}
}

const answerExpect = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

// answerEchoed answers with the request's body.
func answerEchoed(c *filo.Ctx) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.Text(200, string(body))
}

// answerExpectations lists requests with Expect, and the answers that they must get.
var answerExpectations = []struct {
	name, rule string
	handler    filo.Handler
	request    string
	asked      bool   // the server must send a 100
	body       string // sent after the 100
	status     int
	answer     string
	goesOn     bool
}{
	{"Body", "100 when the body is read", answerEchoed, answerExpect, true, "body", 200, "body", true},
	{"any case", "the value is case-insensitive", answerEchoed, strings.Replace(answerExpect, "100-c", "100-C", 1), true, "body", 200, "body", true},
	{"BodyReader", "100 when the body is first read, and not again", func(c *filo.Ctx) error {
		body, err := io.ReadAll(struct{ io.Reader }{c.BodyReader()})
		if err != nil {
			return err
		}
		return c.Text(200, string(body))
	}, answerExpect, true, "body", 200, "body", true},
	{"chunked", "100 when the body is first read", answerEchoed, strings.Replace(answerExpect, "Content-Length: 4", "Transfer-Encoding: chunked", 1),
		true, "4\r\nbody\r\n0\r\n\r\n", 200, "body", true},
	{"body came already", "a server may omit 100 if it has received some of the content", answerEchoed, answerExpect + "body", false, "", 200, "body", true},
	{"part of the body came already", "a server may omit 100 if it has received some of the content", answerEchoed, answerExpect + "bo", false, "dy", 200, "body", true},
	{"no body", "no 100 for a request without content", answerEchoed, "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", false, "", 200, "", true},
	{"empty body", "no 100 for a request without content", answerEchoed, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n", false, "", 200, "", true},
	{"HTTP/1.0", "a server must ignore the expectation of an HTTP/1.0 request", answerEchoed,
		"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", false, "body", 200, "body", false},
	{"not read", "a final status instead, and the connection closes, since what follows may be the body or not",
		func(c *filo.Ctx) error { return c.Text(403, "no") }, answerExpect, false, "", 403, "no", false},
	{"refused", "refused with the handler's own status", func(c *filo.Ctx) error { return filo.Error(401, "") }, answerExpect, false, "", 401, "Unauthorized\n", false},
	{"too large", "a body over the limit isn't asked for", answerEchoed, strings.Replace(answerExpect, "Content-Length: 4", "Content-Length: 5000000", 1),
		false, "", 413, "Content Too Large: request body too large\n", false},
	{"another expectation", "417 for an expectation that isn't known", answerEchoed, strings.Replace(answerExpect, "100-continue", "200-ok", 1),
		false, "", 417, "Expectation Failed: 100-continue is the only expectation supported here\n", false},
	{"streamed", "the body is asked for before the answer's head", func(c *filo.Ctx) error {
		_, err := io.Copy(c.Stream(), c.BodyReader())
		return err
	}, answerExpect, true, "body", 200, "body", true},
	{"body stream", "the body is asked for before the answer's head", func(c *filo.Ctx) error {
		c.Response.SetBodyStream(c.BodyReader(), -1)
		return nil
	}, answerExpect, true, "body", 200, "body", true},
}

// Expect: 100-continue (RFC 9110, section 10.1.1): the client sends the body only after the server's 100, which the server sends when the
// handler first reads the body.
func TestExpectContinue(t *testing.T) {
	for _, test := range answerExpectations {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server { return &filo.Server{Handler: test.handler} }, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, test.request)
				if test.asked {
					if m := c.Receive(t, "POST"); m.Line != "HTTP/1.1 100 Continue" || len(m.Fields) > 0 {
						t.Fatalf("%s: got %q, %q, want 100", test.rule, m.Line, m.Fields)
					}
				}
				c.Send(t, test.body)
				if m := c.Receive(t, "POST"); m.Status != test.status || m.Body != test.answer || (m.Get("Connection") == "close") == test.goesOn {
					t.Errorf("%s: got %d %q, Connection %q", test.rule, m.Status, m.Body, m.Get("Connection"))
				}
				if test.goesOn {
					c.Send(t, filotest.GetRequest)
					c.Receive(t, "GET")
					c.CloseWrite()
				}
				c.WantEnd(t)
			})
		})
	}
}

// A handler may read the body after the answer's head has been sent. The server must not send a 100 then, since the client would take it for
// a part of the answer. The client knows the final status, and decides by itself whether to send the body.
func TestExpectContinueBehindTheHead(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: answerStream(func(c *filo.Ctx, w *filo.StreamWriter) error {
			w.WriteString("head, ")
			w.Flush()
			_, err := io.Copy(w, c.BodyReader())
			return err
		})}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
		if line, err := filotest.ReadLine(c.In); err != nil || line != "HTTP/1.1 200 OK" {
			t.Fatalf("got %q, %v", line, err)
		}
		if _, err := filotest.ReadLines(c.In); err != nil {
			t.Fatal(err)
		}
		if chunk, err := filotest.ReadLine(c.In); err != nil || chunk != "6" {
			t.Fatalf("got %q, %v", chunk, err)
		}
		c.Send(t, "body")
		c.CloseWrite()
		rest, err := io.ReadAll(c.In)
		if want := "head, \r\n4\r\nbody\r\n0\r\n\r\n"; string(rest) != want || err != nil {
			t.Errorf("got %q, %v, want %q", rest, err, want)
		}
	})
}

// If a client doesn't wait for the 100, and the handler doesn't read the body, the server must not parse the body as the next request.
func TestExpectContinueBodyIsNoRequest(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(403, c.Path()) }}
	}, func(t *testing.T, h *filotest.Host) {
		all := h.Raw(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled))
		if strings.Count(all, "HTTP/1.1 ") != 1 {
			t.Errorf("got %q, want one answer", all)
		}
	})
}

// The handler of a request may change its header fields, as middleware does. The fields lie in the read buffer in front of the next
// request, whose bytes must stay unchanged.
func TestRequestHeaderSetByMiddleware(t *testing.T) {
	change := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			h := &c.Request.Header
			target := c.Request.TargetBytes()
			h.Set("X-Forwarded-For", strings.Repeat("192.0.2.1, ", 50))
			h.Set("Host", "changed.example")
			h.Add("X-New", "added")
			h.Del("X-Old")
			if string(target) != string(c.Request.TargetBytes()) {
				return fmt.Errorf("the target changed to %q", target)
			}
			return next(c)
		}
	}
	h := filotest.ServeMemory(t, &filo.Server{Handler: change(func(c *filo.Ctx) error {
		h := &c.Request.Header
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprintf("%s %s %s %v %d %s %s", c.Path(), c.Host(), h.Get("X-New"), h.Has("X-Old"),
			len(h.Get("X-Forwarded-For")), h.Get("X-Kept"), body))
	})})
	var requests strings.Builder
	for i := range 5 {
		fmt.Fprintf(&requests, "POST /%d HTTP/1.1\r\nHost: sent.example\r\nX-Old: 1\r\nX-Forwarded-For: x\r\nX-Kept: kept%d\r\nContent-Length: 5\r\n\r\nbody%d", i, i, i)
	}
	c := h.Connect(t)
	c.Send(t, requests.String())
	for i := range 5 {
		want := fmt.Sprintf("/%d changed.example added false 549 kept%d body%d", i, i, i)
		if m := c.Receive(t, "POST"); m.Body != want {
			t.Errorf("request %d: got %d %q, want %q", i, m.Status, m.Body, want)
		}
	}
}

// Header.Reset removes the request's header fields, and nothing else.
func TestRequestHeaderReset(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		c.Request.Header.Reset()
		c.Request.Header.Set("X-Own", "1")
		return c.Text(200, fmt.Sprint(c.Request.Header.Len(), c.Path()))
	}})
	if all := h.Raw(t, filotest.GetRequest+"GET /2 HTTP/1.1\r\nHost: b\r\n\r\n"); strings.Count(all, "1/") != 2 || !strings.HasSuffix(all, "1/2") {
		t.Errorf("got %q", all)
	}
}

// answerBehaviour is a handler, with the status and body that its answer must have.
type answerBehaviour struct {
	handle filo.Handler
	status int
	want   func(path, body string) string
}

// answerBehaviours maps the last part of a request's path to its behaviour.
var answerBehaviours = map[string]answerBehaviour{
	"text": {func(c *filo.Ctx) error { return c.Text(200, c.Path()) }, 200, func(path, _ string) string { return path }},
	"large": {func(c *filo.Ctx) error { return c.Bytes(200, "text/x", bytes.Repeat([]byte(c.Path()), 3000)) }, 200,
		func(path, _ string) string { return strings.Repeat(path, 3000) }},
	"body": {func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/x", body)
	}, 200, func(_, body string) string { return body }},
	"reader": {func(c *filo.Ctx) error {
		n, err := io.Copy(io.Discard, c.BodyReader())
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(n))
	}, 200, func(_, body string) string { return fmt.Sprint(len(body)) }},
	"part": {func(c *filo.Ctx) error {
		io.ReadFull(c.BodyReader(), make([]byte, 5))
		return c.Text(200, "part")
	}, 200, func(_, _ string) string { return "part" }},
	"stream": {func(c *filo.Ctx) error {
		w := c.Stream()
		w.WriteString(c.Path())
		w.Flush()
		_, err := io.Copy(w, c.BodyReader())
		return err
	}, 200, func(path, body string) string { return path + body }},
	"bodystream": {func(c *filo.Ctx) error { c.Response.SetBodyStream(c.BodyReader(), -1); return nil }, 200,
		func(_, body string) string { return body }},
	"context": {func(c *filo.Ctx) error {
		ctx := c.Context()
		if _, err := c.Body(); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		return c.Text(200, "context")
	}, 200, func(_, _ string) string { return "context" }},
	"watched": {func(c *filo.Ctx) error { c.Context().Done(); return c.Text(200, "watched") }, 200,
		func(_, _ string) string { return "watched" }},
	"error": {func(c *filo.Ctx) error { return filo.Error(418, c.Path()) }, 418,
		func(path, _ string) string { return "Status 418: " + path + "\n" }},
	"panic":   {func(c *filo.Ctx) error { panic(c.Path()) }, 500, func(_, _ string) string { return "Internal Server Error\n" }},
	"nothing": {func(c *filo.Ctx) error { return c.NoContent() }, 204, func(_, _ string) string { return "" }},
	"headers": {func(c *filo.Ctx) error {
		c.Request.Header.Set("X-Pad", strings.Repeat("y", 300))
		return c.Text(200, c.Request.Header.Get("X-Tail"))
	}, 200, func(path, _ string) string { return "tail of " + path }},
}

// Each request gets its own answer, whatever the handlers do, for random sequences of requests, sent in pieces of random sizes.
func TestRandomExchanges(t *testing.T) {
	names := slices.Sorted(maps.Keys(answerBehaviours))
	h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
		path := c.Path()
		return answerBehaviours[path[strings.LastIndexByte(path, '/')+1:]].handle(c)
	}})
	for range 60 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		var input strings.Builder
		type expected struct{ method, path, body, name string }
		var want []expected
		for i := range 25 {
			name := names[random.IntN(len(names))]
			e := expected{method: "POST", path: fmt.Sprintf("/%d/%s", i, name), name: name, body: strings.Repeat("b", random.IntN(20)*random.IntN(2)*random.IntN(600))}
			if random.IntN(8) == 0 {
				e.method, e.body = "HEAD", ""
			}
			fmt.Fprintf(&input, "%s %s HTTP/1.1\r\nHost: a\r\nX-Pad: %s\r\n", e.method, e.path, strings.Repeat("x", random.IntN(3)*random.IntN(500)))
			switch {
			case e.body != "" && random.IntN(2) == 0:
				half := len(e.body) / 2
				fmt.Fprintf(&input, "X-Tail: tail of %s\r\nTransfer-Encoding: chunked\r\n\r\n", e.path)
				for _, piece := range []string{e.body[:half], e.body[half:]} {
					if piece != "" {
						fmt.Fprintf(&input, "%x\r\n%s\r\n", len(piece), piece)
					}
				}
				input.WriteString("0\r\nX-T: 1\r\n\r\n")
			default:
				fmt.Fprintf(&input, "Content-Length: %d\r\nX-Tail: tail of %s\r\n\r\n%s", len(e.body), e.path, e.body)
			}
			want = append(want, e)
		}
		c := h.Connect(t)
		go answerSendInPieces(c, input.String(), random)
		for i, e := range want {
			b := answerBehaviours[e.name]
			body := b.want(e.path, e.body)
			if e.method == "HEAD" {
				body = ""
			}
			if m := c.Receive(t, e.method); m.Status != b.status || m.Body != body {
				t.Fatalf("seed %d, request %d, %s %s: got %d %.100q, want %d %.100q", seed, i, e.method, e.path, m.Status, m.Body, b.status, body)
			}
		}
		c.WantEnd(t)
		c.Close()
	}
}

// answerSendInPieces sends the input in pieces of random sizes, and then closes the client's writing half.
func answerSendInPieces(c filotest.StrictConn, input string, random *rand.Rand) {
	for input != "" {
		n := min(1+random.IntN(1<<random.IntN(13)), len(input))
		if _, err := io.WriteString(c, input[:n]); err != nil {
			return
		}
		input = input[n:]
	}
	c.CloseWrite()
}
