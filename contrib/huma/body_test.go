package humafilo_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/filohttp/filo"
	humafilo "github.com/filohttp/filo/contrib/huma"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type rawInput struct {
	RawBody []byte
}

func TestBodyLimits(t *testing.T) {
	r, api := newAPI()
	size := func(_ context.Context, input *rawInput) (*text, error) {
		return &text{fmt.Append(nil, len(input.RawBody))}, nil
	}
	for path, limit := range map[string]int64{"/server": 0, "/small": 100, "/large": 6000, "/any": -1} {
		huma.Register(api, huma.Operation{Method: "POST", Path: path, MaxBodyBytes: limit}, size)
	}
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, MaxBodyBytes: 2000})
	chunked := func(n int) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("x", n)) }
	for _, tc := range []struct {
		sentence, path string
		size, status   int
	}{
		{"within both limits", "/small", 99, 200},
		{"over the operation's", "/small", 101, 413},
		{"over both", "/small", 3000, 413},
		{"within the server's, where the operation has none", "/server", 2000, 200},
		{"over the server's, where the operation has none", "/server", 2001, 413},
		{"over the server's, within the operation's", "/large", 5999, 200},
		{"over the operation's, which is over the server's", "/large", 6001, 413},
		{"where the operation wants no limit", "/any", 100_000, 200},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			got := ask(t, s, "POST "+tc.path, strings.Repeat("x", tc.size))
			if got.status != tc.status || tc.status == 200 && got.body != fmt.Sprint(tc.size) {
				t.Errorf("got %d %q", got.status, got.body)
			}
			raw := s.Raw(t, "POST "+tc.path+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+chunked(tc.size))
			if got := parse(t, "POST", raw); got.status != tc.status {
				t.Errorf("chunked: got %d %q", got.status, got.body)
			}
		})
	}
}

func TestBrokenBodies(t *testing.T) {
	r, api := newAPI()
	called := false
	huma.Post(api, "/", func(context.Context, *rawInput) (*text, error) { called = true; return &text{}, nil })
	s := serve(t, r.Serve)
	for sentence, tc := range map[string]struct {
		framing string
		status  int
	}{
		"a chunk without a size": {"Transfer-Encoding: chunked\r\n\r\nz\r\n", 400},
		"an early end":           {"Content-Length: 10\r\n\r\nabc", 400},
	} {
		if got := parse(t, "POST", s.Raw(t, "POST / HTTP/1.1\r\nHost: x\r\n"+tc.framing)); got.status != tc.status || called {
			t.Errorf("%s: got %d %q, called %v", sentence, got.status, got.body, called)
		}
	}
}

func TestBodyReadTimeout(t *testing.T) {
	r, api := newAPI()
	huma.Register(api, huma.Operation{Method: "POST", Path: "/", BodyReadTimeout: 20 * time.Millisecond},
		func(context.Context, *rawInput) (*text, error) { return &text{}, nil })
	s := serve(t, r.Serve)
	if got := parse(t, "POST", s.RawOpen(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")); got.status != 408 {
		t.Errorf("got %d %q", got.status, got.body)
	}
}

// form makes a multipart body and its Content-Type.
func form(t *testing.T, values map[string]string, files map[string]string) (string, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, value := range values {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		part, err := w.CreateFormFile(name, name+".txt")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, content)
	}
	w.Close()
	return b.String(), "Content-Type: " + w.FormDataContentType()
}

func TestMultipart(t *testing.T) {
	r, api := newAPI()
	type upload struct {
		RawBody huma.MultipartFormFiles[struct {
			File  huma.FormFile `form:"file" contentType:"text/plain" required:"true"`
			Title string        `form:"title" minLength:"3"`
		}]
	}
	read := func(_ context.Context, input *upload) (*text, error) {
		data := input.RawBody.Data()
		content, err := io.ReadAll(data.File)
		return &text{fmt.Appendf(nil, "%s %s %s", data.Title, data.File.Filename, content)}, err
	}
	huma.Post(api, "/", read)
	huma.Register(api, huma.Operation{OperationID: "small", Method: "POST", Path: "/small", MaxBodyBytes: 1000}, read)
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, MaxBodyBytes: 10_000})
	note := map[string]string{"file": "so long"}
	for _, tc := range []struct {
		sentence, path string
		values, files  map[string]string
		status         int
		want           string
	}{
		{"values and files arrive", "/", map[string]string{"title": "Note"}, note, 200, "Note file.txt so long"},
		{"values are validated", "/", map[string]string{"title": "No"}, note, 422, `"location":"form.title"`},
		{"files are asked for", "/", map[string]string{"title": "Note"}, nil, 422, "File required"},
		{"a file over the server's limit", "/", nil, map[string]string{"file": strings.Repeat("x", 11_000)}, 413, "too large"},
		{"a file over the operation's limit", "/small", nil, map[string]string{"file": strings.Repeat("x", 1000)}, 413, "too large"},
	} {
		t.Run(tc.sentence, func(t *testing.T) {
			body, contentType := form(t, tc.values, tc.files)
			if got := ask(t, s, "POST "+tc.path, body, contentType); got.status != tc.status || !strings.Contains(got.body, tc.want) {
				t.Errorf("got %d %q", got.status, got.body)
			}
		})
	}
	if got := ask(t, s, "POST /", "a=b", "Content-Type: application/x-www-form-urlencoded"); got.status != 415 {
		t.Errorf("another type: got %d %q", got.status, got.body)
	}
	if got := ask(t, s, "POST /", "--b\r\nnonsense", "Content-Type: multipart/form-data; boundary=b"); got.status != 400 {
		t.Errorf("a malformed form: got %d %q", got.status, got.body)
	}
}

// streamed registers an operation in which f writes the response.
func streamed(api huma.API, path string, f func(huma.Context)) {
	huma.Register(api, huma.Operation{Method: "GET", Path: path}, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: f}, nil
	})
}

func TestStreamResponse(t *testing.T) {
	r, api := newAPI()
	large := strings.Repeat("0123456789abcdef", 20<<10) // 320 KB
	write := func(w io.Writer, s string) {
		if n, err := io.WriteString(w, s); n != len(s) || err != nil {
			t.Errorf("Write returned %d, %v", n, err)
		}
	}
	streamed(api, "/whole", func(ctx huma.Context) {
		ctx.SetStatus(202)
		ctx.SetHeader("Content-Type", "text/plain")
		write(ctx.BodyWriter(), "so ")
		write(ctx.BodyWriter(), "long")
	})
	streamed(api, "/large", func(ctx huma.Context) { write(ctx.BodyWriter(), large[:1000]); write(ctx.BodyWriter(), large[1000:]) })
	streamed(api, "/length", func(ctx huma.Context) {
		ctx.SetHeader("Content-Length", fmt.Sprint(len(large)))
		write(ctx.BodyWriter(), large)
	})
	streamed(api, "/none", func(ctx huma.Context) { ctx.SetStatus(204) })
	s := serve(t, r.Serve)
	for _, tc := range []struct {
		request string
		status  int
		body    string
		length  int64
	}{
		{"GET /whole", 202, "so long", 7},
		{"HEAD /whole", 202, "", 7},
		{"GET /large", 200, large, -1},
		{"GET /length", 200, large, int64(len(large))},
		{"HEAD /length", 200, "", int64(len(large))},
		{"GET /none", 204, "", 0},
	} {
		if got := ask(t, s, tc.request, ""); got.status != tc.status || got.body != tc.body || got.length != tc.length {
			t.Errorf("%s: got %d, %d bytes, length %d", tc.request, got.status, len(got.body), got.length)
		}
	}
}

// The client gets the written bytes when Flush is called, while the operation goes on.
func TestFlush(t *testing.T) {
	r, api := newAPI()
	goOn := make(chan struct{})
	streamed(api, "/", func(ctx huma.Context) {
		w := ctx.BodyWriter()
		for _, s := range []string{"one\n", "two\n"} {
			io.WriteString(w, s[:2])
			io.WriteString(w, s[2:])
			w.(http.Flusher).Flush()
			<-goOn
		}
	})
	s := serve(t, r.Serve)
	response, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if line, err := lines.ReadString('\n'); line != want || err != nil {
			t.Errorf("got %q, %v", line, err)
		}
		goOn <- struct{}{}
	}
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

type tick struct {
	N int `json:"n"`
}

func TestServerSentEvents(t *testing.T) {
	r, api := newAPI()
	left := make(chan error, 1)
	sse.Register(api, huma.Operation{OperationID: "ticks", Method: "GET", Path: "/ticks"}, map[string]any{"tick": tick{}},
		func(ctx context.Context, _ *struct{}, send sse.Sender) {
			for n := range 3 {
				if err := send.Data(tick{n}); err != nil {
					t.Error(err)
				}
			}
			<-ctx.Done()
			left <- context.Cause(ctx)
		})
	conn := serve(t, r.Serve).Dial(t)
	io.WriteString(conn, "GET /ticks HTTP/1.1\r\nHost: x\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the Content-Type is %q", got)
	}
	lines := bufio.NewReader(response.Body)
	for n := range 3 {
		for _, want := range []string{"event: tick\n", fmt.Sprintf("data: {\"n\":%d}\n", n), "\n"} {
			if line, err := lines.ReadString('\n'); line != want || err != nil {
				t.Fatalf("got %q, %v, want %q", line, err, want)
			}
		}
	}
	// The context of the operation ends, because the client has left.
	conn.Reset()
	select {
	case cause := <-left:
		if cause != filo.ErrClientGone {
			t.Errorf("the cause is %v", cause)
		}
	case <-time.After(time.Minute):
		t.Fatal("the operation's context isn't done")
	}
}

// Middleware of the router sees the answer of an operation.
func TestMiddlewareSeesTheBody(t *testing.T) {
	r := router.New()
	type seen struct {
		status int
		body   string
	}
	result := make(chan seen, 1)
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			body, _ := c.Response.WholeBody()
			result <- seen{c.Status(), string(body)}
			return err
		}
	})
	api := humafilo.New(r, plainConfig())
	operation(api, "GET", "/", func(context.Context) (string, error) { return "so long", nil })
	ask(t, serve(t, r.Serve), "GET /", "")
	if got := <-result; got != (seen{200, "so long"}) {
		t.Errorf("got %+v", got)
	}
}
