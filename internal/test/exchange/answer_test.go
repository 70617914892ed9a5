package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// shoutingJSON is a codec whose output differs from that of encoding/json.
type shoutingJSON struct{}

func (shoutingJSON) Marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return []byte(strings.ToUpper(string(b))), err
}

func (shoutingJSON) Unmarshal(data []byte, v any) error {
	return json.Unmarshal([]byte(strings.ToLower(string(data))), v)
}

// greeter renders one template.
type greeter struct{}

func (greeter) Render(w io.Writer, name string, data any) error {
	fmt.Fprintf(w, "<p>%v", data)
	if name != "greeting" {
		return errors.New("no template " + name)
	}
	return nil
}

func TestAnswersOfEachKind(t *testing.T) {
	type point struct {
		X int `json:"x" xml:"x"`
	}
	for name, test := range map[string]struct {
		handler filo.Handler
		server  *filo.Server // nil: a Server with only the handler
		status  int
		fields  map[string]string
		body    string
	}{
		"html": {handler: func(c *filo.Ctx) error { return c.HTML(201, "<p>hi") },
			status: 201, fields: map[string]string{"Content-Type": "text/html; charset=utf-8"}, body: "<p>hi"},
		"xml": {handler: func(c *filo.Ctx) error { return c.XML(200, point{7}) },
			status: 200, fields: map[string]string{"Content-Type": "application/xml; charset=utf-8"},
			body: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<point><x>7</x></point>"},
		"xml that can't be": {handler: func(c *filo.Ctx) error {
			if c.XML(200, func() {}) == nil {
				t.Error("a func was encoded as XML")
			}
			return c.NoContent()
		}, status: 204},
		"json by a codec": {handler: func(c *filo.Ctx) error {
			var p point
			if err := c.DecodeJSON([]byte(`{"X":7}`), &p); err != nil {
				return err
			}
			return c.JSON(200, p)
		}, server: &filo.Server{JSON: shoutingJSON{}},
			status: 200, fields: map[string]string{"Content-Type": "application/json"}, body: `{"X":7}`},
		"json by a codec that fails": {handler: func(c *filo.Ctx) error {
			if c.JSON(200, func() {}) == nil {
				t.Error("a func was encoded as JSON")
			}
			return c.NoContent()
		}, server: &filo.Server{JSON: shoutingJSON{}}, status: 204},
		"json without": {handler: func(c *filo.Ctx) error {
			var p point
			if err := c.DecodeJSON([]byte(`{"x":7}`), &p); err != nil {
				return err
			}
			return c.JSON(200, p)
		}, status: 200, body: `{"x":7}` + "\n"},
		"a template": {handler: func(c *filo.Ctx) error { return c.Render(200, "greeting", "hi") },
			server: &filo.Server{Renderer: greeter{}},
			status: 200, fields: map[string]string{"Content-Type": "text/html; charset=utf-8"}, body: "<p>hi"},
		"a template that there isn't": {handler: func(c *filo.Ctx) error {
			if c.Render(200, "farewell", "bye") == nil {
				t.Error("no error")
			}
			return nil
		}, server: &filo.Server{Renderer: greeter{}}, status: 200},
		"no renderer": {handler: func(c *filo.Ctx) error {
			if c.Render(200, "greeting", "hi") == nil {
				t.Error("no error")
			}
			return nil
		}, status: 200},
		"a reader with a size": {handler: func(c *filo.Ctx) error {
			return c.Reader(200, "text/csv", strings.NewReader("a,b,c"), 3)
		}, status: 200, fields: map[string]string{"Content-Type": "text/csv", "Content-Length": "3"}, body: "a,b"},
		"a reader without": {handler: func(c *filo.Ctx) error {
			return c.Reader(200, "text/csv", strings.NewReader("a,b,c"), -1)
		}, status: 200, body: "a,b,c"},
	} {
		t.Run(name, func(t *testing.T) {
			config := test.server
			if config == nil {
				config = &filo.Server{}
			}
			config.Handler = test.handler
			s := servertest.NewServer(t, config)
			response, err := s.Client().Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.status || string(body) != test.body {
				t.Errorf("%d %q, %v; want %d %q", response.StatusCode, body, err, test.status, test.body)
			}
			for field, want := range test.fields {
				if got := response.Header.Get(field); got != want {
					t.Errorf("%s: %q, want %q", field, got, want)
				}
			}
		})
	}
}

// An answer method that gets no type keeps the Content-Type that the handler has set before. Otherwise the answer has no Content-Type.
func TestAnswersWithoutType(t *testing.T) {
	for name, answer := range map[string]func(*filo.Ctx) error{
		"Bytes":       func(c *filo.Ctx) error { return c.Bytes(200, "", []byte("a")) },
		"BytesNoCopy": func(c *filo.Ctx) error { return c.BytesNoCopy(200, "", []byte("a")) },
		"Reader":      func(c *filo.Ctx) error { return c.Reader(200, "", strings.NewReader("a"), 1) },
	} {
		for _, before := range [][]string{nil, {"text/csv"}} {
			s := servertest.NewServer(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				for _, contentType := range before {
					c.Response.Header.Set("Content-Type", contentType)
				}
				return answer(c)
			}})
			response, err := s.Client().Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if got := response.Header["Content-Type"]; !slices.Equal(got, before) {
				t.Errorf("%s after %q: Content-Type is %q", name, before, got)
			}
		}
	}
}

// RFC 6266, section 4.3: the file name is a quoted string, and filename* if it isn't ASCII. No name can break out of the field, or name a
// directory.
func TestAttachment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.txt")
	if err := os.WriteFile(path, []byte("figures"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"":                    "report.txt",
		"Q3 report.txt":       "Q3 report.txt",
		`say "hi".txt`:        `say "hi".txt`,
		"Übersicht €.txt":     "Übersicht €.txt",
		"../../etc/passwd":    ".._.._etc_passwd",
		`C:\x`:                "C:_x",
		"a\r\nSet-Cookie: b":  "a__Set-Cookie: b",
		"nul\x00\x7f":         "nul__",
		"100% – sure; x=y.md": "100% – sure; x=y.md",
		"100%25.txt":          "100%25.txt",
		"100%2.txt":           "100%2.txt",
	} {
		s := servertest.New(t, func(c *filo.Ctx) error { return c.Attachment(path, name) })
		response, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		disposition := response.Header.Get("Content-Disposition")
		kind, parameters, err := mime.ParseMediaType(disposition)
		if err != nil || kind != "attachment" || parameters["filename"] != want {
			t.Errorf("%q became %s, which is %q, %v; want %q", name, disposition, parameters["filename"], err, want)
		}
		if encoded := name == "100%25.txt"; encoded && !strings.HasSuffix(disposition, "; filename*=UTF-8''100%2525.txt") || name == "100%2.txt" && strings.Contains(disposition, "*") {
			t.Errorf("%q became %s", name, disposition)
		}
		if string(body) != "figures" || response.Header.Get("Set-Cookie") != "" {
			t.Errorf("%q: the body is %q, with fields %v", name, body, response.Header)
		}
	}
	s := servertest.New(t, func(c *filo.Ctx) error { return c.Attachment(path+"x", "a") })
	response, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 404 || response.Header.Get("Content-Disposition") != "" {
		t.Errorf("a file that isn't there: %d, Content-Disposition %q", response.StatusCode, response.Header.Get("Content-Disposition"))
	}
}

func TestFormFile(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		header, err := c.FormFile("picture")
		if err != nil {
			return err
		}
		file, err := header.Open()
		if err != nil {
			return err
		}
		defer file.Close()
		content, err := io.ReadAll(file)
		return errors.Join(err, c.Text(200, header.Filename+": "+string(content)))
	})
	for _, test := range []struct {
		field  string
		status int
		body   string
	}{{"picture", 200, "a.png: pixels"}, {"other", 400, `"picture"`}} {
		var form strings.Builder
		w := multipart.NewWriter(&form)
		part, _ := w.CreateFormFile(test.field, "a.png")
		io.WriteString(part, "pixels")
		w.Close()
		response, err := s.Client().Post(s.URL, w.FormDataContentType(), strings.NewReader(form.String()))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != test.status || !strings.Contains(string(body), test.body) {
			t.Errorf("a file called %q: %d %s; want %d %s", test.field, response.StatusCode, body, test.status, test.body)
		}
	}
	response, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("no form at all: %d, want 415", response.StatusCode)
	}
}

// Neither an idle connection nor an idle worker keeps the body of its last answer.
func TestIdleKeepsNoBody(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprint(driver, " HTTP/2 ", h2), func(t *testing.T) {
				freed := make(chan struct{})
				s := filotest.Serve(t, &filo.Server{Driver: driver, HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: filo.Offload(func(c *filo.Ctx) error {
					body := make([]byte, 1<<20)
					runtime.AddCleanup(&body[0], func(freed chan struct{}) { close(freed) }, freed)
					return c.BytesNoCopy(200, "text/plain", body)
				})})
				if h2 {
					filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil).Ask("GET", "/", nil)
				} else {
					c := s.Dial(t)
					c.Get("/")
					c.Answer()
				}
				filotest.Await(t, "the body to be collected", func() bool {
					runtime.GC()
					select {
					case <-freed:
						return true
					default:
						return false
					}
				})
			})
		}
	}
}

// The error of FormFile tells whether the form has no such file, since a form often may come without one.
func TestFormFileMissing(t *testing.T) {
	var err error
	s := servertest.New(t, func(c *filo.Ctx) error {
		_, err = c.FormFile("picture")
		return err
	})
	for contentType, missing := range map[string]bool{"multipart/form-data; boundary=b": true, "text/plain": false} {
		answer := s.DoBody(t, "POST /", "--b\r\nContent-Disposition: form-data; name=\"picture\"\r\n\r\ntext\r\n--b--\r\n", "Content-Type: "+contentType)
		if errors.Is(err, filo.ErrMissingFile) != missing || missing != (answer.Status == 400) {
			t.Errorf("%s: %d, %v", contentType, answer.Status, err)
		}
	}
}

// The last body that a handler sets is sent, even if it has written to Ctx.Stream before, as long as nothing of the stream was sent.
func TestBodyReplacesStream(t *testing.T) {
	for name, answer := range map[string]func(c *filo.Ctx) error{
		"Text":          func(c *filo.Ctx) error { return c.Text(200, "last") },
		"Bytes":         func(c *filo.Ctx) error { return c.Bytes(200, "text/plain", []byte("last")) },
		"BytesNoCopy":   func(c *filo.Ctx) error { return c.BytesNoCopy(200, "text/plain", []byte("last")) },
		"SetBodyStream": func(c *filo.Ctx) error { c.Response.SetBodyStream(strings.NewReader("last"), 4); return nil },
		"Write":         func(c *filo.Ctx) error { c.Response.WriteString("last"); return nil },
	} {
		for _, trailer := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " trailer ", trailer), func(t *testing.T) {
				s := filotest.Serve(t, &filo.Server{HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: func(c *filo.Ctx) error {
					if trailer {
						c.Response.Trailer.Set("A", "b")
					}
					c.Stream().WriteString("partial")
					return answer(c)
				}})
				c := s.Dial(t)
				for range 2 { // the next answer isn't affected
					c.Get("/")
					c.Want(200, "last", false)
				}
				filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil).Want("GET", "/", nil, 200, "last")
			})
		}
	}
}

// An answer without a body drops what the handler has written to Ctx.Stream, as long as nothing of it was sent.
func TestAnswerWithoutBodyDropsStream(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		answer func(c *filo.Ctx) error
	}{
		"Redirect":  {303, func(c *filo.Ctx) error { return c.Redirect(303, "/login") }},
		"NoContent": {204, (*filo.Ctx).NoContent},
	} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: func(c *filo.Ctx) error {
				c.Stream().WriteString("secret")
				return test.answer(c)
			}})
			c := s.Dial(t)
			for range 2 { // the next answer isn't affected
				c.Get("/")
				c.Want(test.status, "", false)
			}
			filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil).Want("GET", "/", nil, test.status, "")
		})
	}
}

// Only the target "*" of OPTIONS is answered without the handler. CONNECT may name a host that begins with a star.
func TestConnectToAStar(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		s := filotest.Serve(t, &filo.Server{Driver: driver, Handler: func(c *filo.Ctx) error { return c.Text(403, "handler") }})
		for _, target := range []string{"*:443", "*.example.com:443"} {
			c := s.Dial(t)
			c.Send("CONNECT " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
			if response, _ := c.Answer(); response.StatusCode != 403 {
				t.Errorf("%v, CONNECT %s: %d", driver, target, response.StatusCode)
			}
		}
	}
}
