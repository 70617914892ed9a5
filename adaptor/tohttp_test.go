package adaptor_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
)

// A handler of filo sees the path values of http.ServeMux. A router replaces them by its own.
func TestToHTTPPathValues(t *testing.T) {
	show := func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprint(c.Param("id"), " ", c.Param("path"), " ", c.Route()))
	}
	r := router.New()
	r.GET("/routed/{path...}", show)
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}/{path...}", adaptor.ToHTTP(show))
	mux.Handle("GET /home/{$}", adaptor.ToHTTP(show))
	mux.Handle("/routed/{id}/", adaptor.ToHTTP(r.Serve))
	for path, want := range map[string]string{
		"/users/a%2Fb/c/d": "a/b c/d ",
		"/home/":           "  ",
		"/routed/1/2":      " 1/2 GET /routed/{path...}",
	} {
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, httptest.NewRequest("GET", path, nil))
		if got := recorder.Body.String(); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// The bodies that httptest.NewRequest makes of readers in memory have a length.
func TestToHTTPLengthInMemory(t *testing.T) {
	h := adaptor.ToHTTP(func(c *filo.Ctx) error {
		body, err := c.Body()
		return c.Text(200, fmt.Sprint(c.Request.ContentLength(), " ", c.Request.Header.Get("Transfer-Encoding"), " ", string(body), " ", err))
	})
	for _, body := range []io.Reader{strings.NewReader("hello"), bytes.NewReader([]byte("hello")), bytes.NewBufferString("hello")} {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequest("POST", "/", body))
		if got := recorder.Body.String(); got != "5  hello <nil>" {
			t.Errorf("%T: got %q", body, got)
		}
	}
	// Middleware that has replaced the body, and not the length.
	request := httptest.NewRequest("POST", "/", strings.NewReader("hello"))
	request.Body = io.NopCloser(strings.NewReader("hello, world"))
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	if got := recorder.Body.String(); got != "-1 chunked hello, world <nil>" {
		t.Errorf("replaced: got %q", got)
	}
}

// A program that was written for net/http recognizes the end of Serve.
func TestErrServerClosed(t *testing.T) {
	if !errors.Is(filo.ErrServerClosed, http.ErrServerClosed) || errors.Is(filo.ErrServerClosed, http.ErrHandlerTimeout) {
		t.Error("filo.ErrServerClosed isn't http.ErrServerClosed")
	}
}

// A Content-Length with a sign isn't a length.
func TestContentLengthWithSign(t *testing.T) {
	var log strings.Builder
	h := adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "+3")
		io.WriteString(w, "hello")
	}))
	recorder := httptest.NewRecorder()
	logger := slog.New(slog.NewTextHandler(&log, nil))
	adaptor.ToHTTPServer(&filo.Server{Handler: h, Logger: logger}).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	if recorder.Body.String() != "hello" || !strings.Contains(log.String(), "invalid Content-Length") {
		t.Errorf("got %q, the log is %q", recorder.Body, log.String())
	}
}

// A request without a body has none for filo either if middleware limits bodies, as http.MaxBytesHandler does. Nor has one of httptest with an
// empty body. A body that middleware sets without a length is whole.
func TestNoBody(t *testing.T) {
	show := func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprintf("%d %q", c.Request.ContentLength(), body))
	}
	limit := func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 100) }
	set := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(iotest.OneByteReader(strings.NewReader("set")))
			h.ServeHTTP(w, r)
		})
	}
	for name, test := range map[string]struct {
		around func(http.Handler) http.Handler
		want   string
	}{"limited": {limit, `0 ""`}, "set": {set, `-1 "set"`}} {
		outer := httptest.NewServer(test.around(adaptor.ToHTTP(show)))
		defer outer.Close()
		for where, url := range map[string]string{"ToHTTP": outer.URL, "Middleware": "http://" + tcptest.Serve(t, &filo.Server{Handler: adaptor.Middleware(test.around)(show)})} {
			response, err := http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if string(body) != test.want {
				t.Errorf("%s, %s: %s", name, where, body)
			}
		}
	}
	w := httptest.NewRecorder()
	adaptor.ToHTTP(show).ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("")))
	if got := w.Body.String(); got != `0 ""` {
		t.Errorf("an empty body of httptest: %s", got)
	}
}

// A body that middleware has read, and set again, is whole, although the form was parsed.
func TestFormReadBefore(t *testing.T) {
	signed := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.ParseForm()
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(w, r)
		})
	}
	h := signed(adaptor.ToHTTP(func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", body)
	}))
	r := httptest.NewRequest("POST", "/", strings.NewReader("token=abc&b=2"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Body.String(); got != "token=abc&b=2" {
		t.Errorf("got %q", got)
	}
}
