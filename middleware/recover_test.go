package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleRecover() {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	count := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			fmt.Println("counted:", c.Status())
			return err
		}
	}
	h := mwtest.Wrap(func(*filo.Ctx) error { panic("out of luck") }, count, middleware.Recover(middleware.RecoverOptions{Logger: quiet}))
	mwtest.Show(h, nil, "GET /")
	// Output:
	// counted: 500
	// 500 Internal Server Error
}

func TestRecover(t *testing.T) {
	for _, test := range []struct {
		sentence string
		handler  filo.Handler
		status   int // as seen by middleware outside; 0 is a closed connection
		logged   int
		is       func(error) bool
	}{
		{"what doesn't panic goes through", mwtest.Hello, 200, 0, func(err error) bool { return err == nil }},
		{"an error goes through", func(*filo.Ctx) error { return io.EOF }, 200, 1, func(err error) bool { return err == io.EOF }},
		{"a panic is a PanicError with its stack", func(*filo.Ctx) error { panic("secret\r\nvalue") }, 500, 1, func(err error) bool {
			var panicError *filo.PanicError
			return errors.As(err, &panicError) && panicError.Value == "secret\r\nvalue" && strings.Contains(string(panicError.Stack), "recover_test.go")
		}},
		{"an error that is panicked with can be told", func(*filo.Ctx) error { panic(io.ErrUnexpectedEOF) }, 500, 1,
			func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"nil is a value, too", func(*filo.Ctx) error { panic(nil) }, 500, 1, func(err error) bool { return err != nil }},
		{"ErrAbort closes the connection and isn't logged", func(*filo.Ctx) error { panic(filo.ErrAbort) }, 0, 0,
			func(err error) bool { return errors.Is(err, filo.ErrAbort) }},
		{"a body that was set before is dropped", func(c *filo.Ctx) error { mwtest.Hello(c); panic(1) }, 500, 1, func(err error) bool { return err != nil }},
		{"behind a head that was sent the connection is closed", func(c *filo.Ctx) error {
			w := c.Stream()
			w.WriteString("half")
			w.Flush()
			panic("late")
		}, 200, 1, func(err error) bool { return err != nil }},
	} {
		var log bytes.Buffer
		var status int
		var err error
		outside := func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				err = next(c)
				status = c.Status()
				return err
			}
		}
		s := servertest.NewServer(t, &filo.Server{
			Handler: mwtest.Wrap(test.handler, outside, middleware.Recover()),
			Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		raw := s.Raw(t, servertest.Request("GET /", ""))
		if !test.is(err) || test.status != 0 && status != test.status || test.status == 0 && raw != "" {
			t.Errorf("%s: status %d, error %v, answer %q", test.sentence, status, err, raw)
		}
		if got := strings.Count(log.String(), "\n"); got != test.logged {
			t.Errorf("%s: %d records, want %d: %s", test.sentence, got, test.logged, &log)
		}
		if strings.Contains(raw, "secret") || test.status == 500 && strings.Contains(raw, "hello") {
			t.Errorf("%s: the client gets %q", test.sentence, raw)
		}
	}
}

// If Recover has a logger of its own, this logger gets the record, and the server's logger gets none.
func TestRecoverLogger(t *testing.T) {
	var own, server bytes.Buffer
	s := servertest.NewServer(t, &filo.Server{
		Handler: middleware.Recover(middleware.RecoverOptions{Logger: slog.New(slog.NewTextHandler(&own, nil))})(
			func(*filo.Ctx) error { panic("lost") }),
		Logger: slog.New(slog.NewTextHandler(&server, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	s.Do(t, "GET /path")
	if !strings.Contains(own.String(), "value=lost method=GET path=/path") || server.Len() > 0 {
		t.Errorf("own: %s server: %s", &own, &server)
	}
}

func BenchmarkRecover(b *testing.B) {
	mwtest.Benchmark(b, middleware.Recover()(mwtest.Hello), "GET /")
}
