package middleware_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// If a handler sleeps past its deadline, the client gets the time-out's answer at the deadline, and the handler's context is done. What the
// handler writes later is discarded.
func TestTimeoutSleeping(t *testing.T) {
	for _, test := range []struct {
		why     string
		options middleware.TimeoutOptions
		sleep   time.Duration
		status  string
		after   time.Duration
		want    string
	}{
		{"in time", middleware.TimeoutOptions{Timeout: time.Second}, 0, "200", 0, "hello"},
		{"too late", middleware.TimeoutOptions{Timeout: time.Second}, 3 * time.Second, "503", time.Second, "Connection: close\r\n"},
		{"too late, with an error of its own", middleware.TimeoutOptions{Timeout: time.Second, Error: filo.Error(504, "no answer")}, 3 * time.Second, "504", time.Second, "no answer"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var cause error
			var committed bool
			ended := make(chan struct{})
			s := servertest.New(t, middleware.Timeout(test.options)(func(c *filo.Ctx) error {
				defer close(ended)
				ctx := c.Context()
				time.Sleep(test.sleep)
				cause, committed = ctx.Err(), c.Committed()
				return mwtest.Hello(c)
			}))
			start := time.Now()
			c := begin(t, s)
			if _, err := c.Read(make([]byte, 1)); err != nil || time.Since(start) != test.after {
				t.Errorf("%s: an answer after %v, %v, want it after %v", test.why, time.Since(start), err, test.after)
			}
			rest, err := io.ReadAll(c)
			text := string(rest)
			if err != nil || !strings.HasPrefix(text, "TTP/1.1 "+test.status) || !strings.Contains(text, test.want) || strings.Count(text, "Content-Length") != 1 {
				t.Errorf("%s: %q, %v, want %s", test.why, text, err, test.status)
			}
			<-ended
			if late := test.sleep > 0; errors.Is(cause, context.DeadlineExceeded) != late || committed && !late {
				t.Errorf("%s: the context's error is %v", test.why, cause)
			}
		})
	}
}

// A handler that begins to stream after the time-out gets ErrHandlerTimeout.
func TestTimeoutStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late error
		ended := make(chan struct{})
		s := servertest.New(t, middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Second})(func(c *filo.Ctx) error {
			defer close(ended)
			w := c.Stream()
			io.WriteString(w, "some")
			time.Sleep(2 * time.Second)
			_, err := w.Write([]byte("thing"))
			late = errors.Join(err, w.Flush())
			return late
		}))
		if status, text := statusOf(t, begin(t, s)); status != "503" || strings.Contains(text, "some") {
			t.Errorf("%q, want a 503 of its own", text)
		}
		if <-ended; !errors.Is(late, filo.ErrHandlerTimeout) {
			t.Errorf("a late write: %v, want ErrHandlerTimeout", late)
		}
	})
}

// An answer that has already begun continues after the time-out: only the context ends.
func TestTimeoutBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Second})(func(c *filo.Ctx) error {
			w, ctx := c.Stream(), c.Context()
			io.WriteString(w, "some")
			if err := w.Flush(); err != nil {
				return err
			}
			<-ctx.Done()
			_, err := io.WriteString(w, "thing")
			return err
		}))
		if status, text := statusOf(t, begin(t, s)); status != "200" || !strings.Contains(text, "some") || !strings.Contains(text, "thing") {
			t.Errorf("%q, want all of it", text)
		}
	})
}

func TestTimeoutOptions(t *testing.T) {
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"no Timeout":          func() { middleware.Timeout(middleware.TimeoutOptions{}) },
		"a negative Timeout":  func() { middleware.Timeout(middleware.TimeoutOptions{Timeout: -1}) },
		"an error of success": func() { middleware.Timeout(middleware.TimeoutOptions{Timeout: 1, Error: filo.Error(200, "")}) },
	})
}

// The time-out's answer has the fields that middleware has set before the handler, both outside of Timeout and inside of it.
func TestTimeoutKeepsFields(t *testing.T) {
	for name, use := range map[string]func(r *router.Router, o middleware.TimeoutOptions) filo.Handler{
		"outermost": func(r *router.Router, o middleware.TimeoutOptions) filo.Handler {
			r.Use(middleware.Timeout(o), middleware.RequestID(), middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.example"}}))
			return r.Serve
		},
		"innermost": func(r *router.Router, o middleware.TimeoutOptions) filo.Handler {
			r.Use(middleware.RequestID(), middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.example"}}), middleware.Timeout(o))
			return r.Serve
		},
		"around the router": func(r *router.Router, o middleware.TimeoutOptions) filo.Handler {
			cors := middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.example"}})
			return mwtest.Wrap(r.Serve, middleware.Timeout(o), middleware.RequestID(), cors)
		},
	} {
		r := router.New()
		h := use(r, middleware.TimeoutOptions{Timeout: time.Second}) // by the synctest bubble's clock
		r.GET("/", func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "text/csv")
			time.Sleep(2 * time.Second)
			c.Response.Header.Reset()
			return nil
		}, middleware.Secure())
		var got servertest.Answer
		synctest.Test(t, func(t *testing.T) { got = mwtest.Do(t, h, "GET /", "Origin: https://a.example") })
		if got.Status != 503 || got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %v", name, got)
		}
		for _, field := range []string{"X-Request-Id", "Access-Control-Allow-Origin", "Vary", "X-Content-Type-Options"} {
			if len(got.Header.Values(field)) != 1 {
				t.Errorf("%s: %s is %q", name, field, got.Header.Values(field))
			}
		}
	}
}

func ExampleTimeout() {
	timeout := middleware.Timeout(middleware.TimeoutOptions{Timeout: 5 * time.Millisecond})
	mwtest.Show(timeout(func(c *filo.Ctx) error {
		w := c.Stream()
		for range time.Tick(time.Millisecond) { // a report that takes long
			if _, err := io.WriteString(w, "."); err != nil {
				return err // filo.ErrHandlerTimeout
			}
		}
		return nil
	}), nil, "GET /")
	// Output:
	// 503 Service Unavailable: the handler took too long
}

// BenchmarkTimeout measures whole requests with a time-out, BenchmarkTimeoutNone without one.
func BenchmarkTimeout(b *testing.B) {
	mwtest.BenchmarkServer(b, middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Minute})(mwtest.Hello), "GET /", "")
}

func BenchmarkTimeoutNone(b *testing.B) { mwtest.BenchmarkServer(b, mwtest.Hello, "GET /", "") }
