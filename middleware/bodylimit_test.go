package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleBodyLimit() {
	limit := middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 1 << 10})
	h := limit(func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, string(body))
	})
	mwtest.Show(h, nil, "POST /", "Content-Length: 1000000", "Expect: 100-continue")
	// Output:
	// 413 Content Too Large: request body too large
}

func TestBodyLimit(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked"
	for _, test := range []struct {
		sentence    string
		body, field string
		status      int
		called      bool
	}{
		{"a body of the size", "12345", "A: b", 200, true},
		{"no body", "", "A: b", 200, true},
		{"a larger one, when the handler would read it", "123456", "A: b", 413, true},
		{"one that turns out to be larger, when it is read", "3\r\n123\r\n3\r\n456\r\n0\r\n\r\n", chunked, 413, true},
		{"one in chunks of the size", "3\r\n123\r\n2\r\n45\r\n0\r\n\r\n", chunked, 200, true},
	} {
		called := false
		var limitErr error
		outside := func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				limitErr = next(c)
				return limitErr
			}
		}
		h := mwtest.Wrap(func(c *filo.Ctx) error {
			called = true
			_, err := io.Copy(io.Discard, c.BodyReader())
			return err
		}, outside, middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 5}))
		got := servertest.New(t, h).DoBody(t, "POST /", test.body, test.field)
		if got.Status != test.status || called != test.called || errors.Is(limitErr, filo.ErrBodyTooLarge) != (test.status == 413) {
			t.Errorf("%s: %d, called %v, error %v", test.sentence, got.Status, called, limitErr)
		}
	}
}

// The limit that is set nearest to the handler applies, since the handler knows best how much it needs.
func TestBodyLimitInner(t *testing.T) {
	limit := func(n int64) filo.Middleware {
		return middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: n})
	}
	read := func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(len(body)))
	}
	for _, test := range []struct {
		why    string
		h      filo.Handler
		status int
	}{
		{"the handler's is larger", mwtest.Wrap(func(c *filo.Ctx) error { c.SetMaxBodyBytes(100); return read(c) }, limit(10)), 200},
		{"the handler has none", mwtest.Wrap(func(c *filo.Ctx) error { c.SetMaxBodyBytes(-1); return read(c) }, limit(10)), 200},
		{"the handler's is smaller", mwtest.Wrap(func(c *filo.Ctx) error { c.SetMaxBodyBytes(10); return read(c) }, limit(100)), 413},
		{"the route's is larger than the group's", mwtest.Wrap(read, limit(10), limit(100)), 200},
		{"the route's is smaller", mwtest.Wrap(read, limit(100), limit(10)), 413},
	} {
		for field, body := range map[string]string{"A: b": strings.Repeat("x", 50), "Transfer-Encoding: chunked": "32\r\n" + strings.Repeat("x", 50) + "\r\n0\r\n\r\n"} {
			if got := servertest.New(t, test.h).DoBody(t, "POST /", body, field); got.Status != test.status {
				t.Errorf("%s: %v, want %d", test.why, got, test.status)
			}
		}
	}
}

// The limit may be larger than the server's, and doesn't apply to the next request.
func TestBodyLimitRaises(t *testing.T) {
	limit := middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 100})
	read := func(c *filo.Ctx) error {
		_, err := c.Body()
		return err
	}
	limited := limit(read)
	s := servertest.NewServer(t, &filo.Server{MaxBodyBytes: 10, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/upload" {
			return limited(c)
		}
		return read(c)
	}})
	body := strings.Repeat("a", 50)
	raw := s.Raw(t, servertest.Request("POST /upload", body)+servertest.Request("POST /", body))
	if !strings.HasPrefix(raw, "HTTP/1.1 200") || strings.Count(raw, "HTTP/1.1 413") != 1 {
		t.Errorf("%q", raw)
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"no limit":         func() { middleware.BodyLimit(middleware.BodyLimitOptions{}) },
		"a negative limit": func() { middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: -1}) },
	})
}

func BenchmarkBodyLimit(b *testing.B) {
	mwtest.Benchmark(b, middleware.BodyLimit(middleware.BodyLimitOptions{MaxBytes: 1 << 20})(mwtest.Hello), "GET /")
}
