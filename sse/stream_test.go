package sse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// stream returns a handler that opens a stream and runs f.
func stream(options sse.Options, f func(*sse.Stream) error) filo.Handler {
	return func(c *filo.Ctx) error {
		s, err := sse.Open(c, options)
		if err != nil {
			return err
		}
		defer s.Close()
		return f(s)
	}
}

// wait blocks like a handler that has nothing to send.
func wait(s *sse.Stream) error {
	<-s.Context().Done()
	return nil
}

func TestStream(t *testing.T) {
	each(t, func(t *testing.T) filo.Handler {
		return stream(sse.Options{Retry: 2 * time.Second}, func(s *sse.Stream) error {
			for _, data := range []string{"last was " + s.LastEventID(), "two\nlines", strings.Repeat("x", 100_000)} {
				if err := s.Send(sse.Event{ID: "1", Data: data}); err != nil {
					return err
				}
			}
			return nil
		})
	}, func(t *testing.T, h *host) {
		c := h.get(t, "/", "Last-Event-ID: 0\t0", "Accept: text/html")
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Length": "",
		} {
			if got := c.response.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		c.want(t, "last was 0\t0", "two\nlines", strings.Repeat("x", 100_000))
		c.wantEnd(t, false)
		if c.retry != "2000" {
			t.Errorf("retry: %q", c.retry)
		}
	})
}

// The head is sent at once, with the fields that the handler and its middleware have set.
func TestStreamHead(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		c.Response.Header.Set("Access-Control-Allow-Origin", "https://a.example")
		c.Response.Header.Set("Cache-Control", "private")
		c.Response.Header.Set("Content-Type", "text/plain")
		return stream(sse.Options{}, wait)(c)
	})
	c := exchange(t, s.Dial(t), "GET / HTTP/1.1")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "private", "Access-Control-Allow-Origin": "https://a.example",
	} {
		if got := c.response.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// HEAD gets the head of GET's answer, and the handler gets a stream whose context has ended.
func TestStreamHEAD(t *testing.T) {
	failed := make(chan error, 2)
	s := servertest.New(t, stream(sse.Options{Retry: time.Second}, func(s *sse.Stream) error {
		failed <- s.Send(sse.Event{Data: "x"})
		return wait(s)
	}))
	got := s.Raw(t, "HEAD / HTTP/1.1\r\nHost: filo.test\r\n\r\nHEAD / HTTP/1.1\r\nHost: filo.test\r\nConnection: close\r\n\r\n")
	for range 2 {
		if err := <-failed; !errors.Is(err, filo.ErrBodyNotAllowed) {
			t.Errorf("Send returned %v", err)
		}
	}
	if strings.Count(got, "HTTP/1.1 200 OK\r\n") != 2 || strings.Contains(got, "Content-Length") || strings.Contains(got, "retry") {
		t.Errorf("got %q", got)
	}
}

// An HTTP/1.0 client gets the events without chunked framing.
func TestStreamOld(t *testing.T) {
	s := servertest.New(t, stream(sse.Options{}, func(s *sse.Stream) error { return s.Send(sse.Event{Data: "x"}) }))
	if got := s.Raw(t, "GET / HTTP/1.0\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\ndata: x\n\n") {
		t.Errorf("got %q", got)
	}
}

// The stream's context ends, with its cause, when the handler should return.
func TestStreamEnds(t *testing.T) {
	causes := make(chan error, 1)
	handler := func(*testing.T) filo.Handler {
		return stream(sse.Options{}, func(s *sse.Stream) error {
			if err := s.Send(sse.Event{Data: "begin"}); err != nil {
				return err
			}
			wait(s)
			causes <- context.Cause(s.Context())
			s.Send(sse.Event{Data: "bye"})
			return nil
		})
	}
	t.Run("client", func(t *testing.T) {
		each(t, handler, func(t *testing.T, h *host) {
			c := h.get(t, "/")
			c.want(t, "begin")
			time.Sleep(50 * time.Millisecond) // if a client leaves at once, the server takes that for a half-close after the request
			c.Close()
			if cause := <-causes; !errors.Is(cause, filo.ErrClientGone) {
				t.Errorf("the cause is %v", cause)
			}
		})
	})
	t.Run("shutdown", func(t *testing.T) {
		each(t, handler, func(t *testing.T, h *host) {
			c := h.get(t, "/")
			c.want(t, "begin")
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if cause := <-causes; !errors.Is(cause, filo.ErrServerClosed) {
				t.Errorf("the cause is %v", cause)
			}
			c.want(t, "bye")
			c.wantEnd(t, false)
		})
	})
}

// A stream whose events have an end continues during a shutdown, and is aborted if the shutdown gives up waiting.
func TestStreamWithAnEnd(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient %t", patient), func(t *testing.T) {
			each(t, func(*testing.T) filo.Handler {
				return func(c *filo.Ctx) error {
					s, err := sse.Open(c)
					if err != nil {
						return err
					}
					defer s.Close()
					if err := s.Send(sse.Event{Data: "begin"}); err != nil {
						return err
					}
					<-s.Context().Done() // the shutdown has begun
					if patient {
						return s.Send(sse.Event{Data: "end"})
					}
					<-c.Context().Done()
					return context.Cause(c.Context())
				}
			}, func(t *testing.T, h *host) {
				c := h.get(t, "/")
				c.want(t, "begin")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if !patient {
					cancel()
				}
				if err := h.Shutdown(ctx); patient && err != nil {
					t.Error(err)
				}
				if patient {
					c.want(t, "end")
				}
				c.wantEnd(t, !patient)
			})
		})
	}
}

// A comment is sent if there was no event since the last comment was due, and only then.
func TestStreamHeartbeat(t *testing.T) {
	for _, test := range []struct {
		holds     string
		heartbeat time.Duration
		events    []time.Duration // from the beginning
		until     time.Duration
		want      int
	}{
		{"every 15 seconds", 0, nil, 46 * time.Second, 3},
		{"as often as it is set", time.Second, nil, 3500 * time.Millisecond, 3},
		{"never", -1, nil, time.Hour, 0},
		{"not when there was an event", 10 * time.Second, []time.Duration{5 * time.Second, 25 * time.Second}, 41 * time.Second, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := servertest.NewServer(t, &filo.Server{IdleTimeout: -1, Logger: quiet, Handler: stream(sse.Options{Heartbeat: test.heartbeat}, func(s *sse.Stream) error {
				begin := time.Now()
				for _, at := range test.events {
					time.Sleep(time.Until(begin.Add(at)))
					s.Send(sse.Event{Data: "x"})
				}
				time.Sleep(time.Until(begin.Add(test.until)))
				return nil
			})})
			c := exchange(t, s.Dial(t), "GET / HTTP/1.1")
			for range test.events {
				c.want(t, "x")
			}
			c.wantEnd(t, false)
			if len(c.comments) != test.want {
				t.Errorf("%s: %d heartbeats, want %d", test.holds, len(c.comments), test.want)
			}
		})
	}
}

// fragile is a layer around answers that breaks when it gets its first heartbeat, if breaks is set.
type fragile struct {
	io.Writer
	breaks func()
}

func (f *fragile) Write(p []byte) (int, error) {
	if breaks := f.breaks; breaks != nil && string(p) == ":\n\n" {
		f.breaks = nil
		breaks()
	}
	return f.Writer.Write(p)
}

func (*fragile) Close() error { return nil }

// If a layer of middleware panics or exits while a heartbeat is sent, only the stream fails, and its client doesn't take it for complete. A panic
// is logged, unless it only aborts the answer.
func TestStreamHeartbeatPanic(t *testing.T) {
	for _, test := range []struct {
		what   string
		breaks func()
		logged bool
	}{
		{"a panic", func() { panic("broken") }, true},
		{"a panic that aborts", func() { panic(filo.ErrAbort) }, false},
		{"a Goexit", runtime.Goexit, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var records strings.Builder
			handle := stream(sse.Options{Heartbeat: time.Second}, func(s *sse.Stream) error {
				<-s.Context().Done()
				err := s.Send(sse.Event{Data: "x"})
				if err == nil || context.Cause(s.Context()) == nil {
					t.Errorf("%s: Send succeeds afterwards", test.what)
				}
				return nil
			})
			s := servertest.NewServer(t, &filo.Server{IdleTimeout: -1, Logger: slog.New(slog.NewTextHandler(&records, nil)), Handler: func(c *filo.Ctx) error {
				c.Response.WrapBody(func(_ *filo.Ctx, body io.Writer, _ int64) io.WriteCloser { return &fragile{body, test.breaks} })
				return handle(c)
			}})
			exchange(t, s.Dial(t), "GET / HTTP/1.1").wantEnd(t, true)
			synctest.Wait()
			if logged := strings.Contains(records.String(), "panic while a heartbeat"); logged != test.logged {
				t.Errorf("%s: logged %t: %s", test.what, logged, &records)
			}
		})
	}
}

// If a client has left unnoticed before the stream was opened, a heartbeat detects that.
func TestStreamHeartbeatNotices(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverLoop, filo.DriverBlocking} {
		if driver == filo.DriverLoop && runtime.GOOS != "linux" {
			continue
		}
		opened, over := make(chan bool), make(chan bool)
		h := serve(t, &filo.Server{Driver: driver, Logger: quiet, Handler: func(c *filo.Ctx) error {
			opened <- true
			<-opened
			defer close(over)
			return stream(sse.Options{Heartbeat: 5 * time.Millisecond}, wait)(c)
		}}, false)
		conn, _, err := h.dial(t)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: filo.test\r\n\r\n")
		<-opened
		conn.Close()
		opened <- true
		select {
		case <-over:
		case <-time.After(patience):
			t.Fatal("the stream goes on without its client")
		}
	}
}

// Events that several goroutines send don't mix.
func TestStreamConcurrent(t *testing.T) {
	const senders, events = 8, 50
	long := strings.Repeat("0123456789\n", 200)
	each(t, func(*testing.T) filo.Handler {
		return stream(sse.Options{Heartbeat: time.Millisecond}, func(s *sse.Stream) error {
			var group sync.WaitGroup
			for range senders {
				group.Go(func() {
					for range events {
						if err := s.Send(sse.Event{Data: long}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			return nil
		})
	}, func(t *testing.T, h *host) {
		c := h.get(t, "/")
		for range senders * events {
			c.want(t, long)
		}
		c.wantEnd(t, false)
	})
}

// An event that isn't valid harms nothing, and nothing is sent after Close.
func TestStreamErrors(t *testing.T) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		if _, err := sse.Open(c, sse.Options{Retry: -1}); err == nil || c.Committed() {
			t.Errorf("a negative retry: %v", err)
		}
		s, err := sse.Open(c)
		if err != nil {
			return err
		}
		if _, err := sse.Open(c); !errors.Is(err, filo.ErrHeadSent) {
			t.Errorf("twice: %v", err)
		}
		if err := s.Send(sse.Event{ID: "1\n2"}); !errors.Is(err, sse.ErrInvalidEvent) {
			t.Errorf("Send returned %v", err)
		}
		if err := s.Send(sse.Event{Data: "x"}); err != nil {
			t.Error(err)
		}
		s.Close()
		s.Close()
		if err := s.Send(sse.Event{Data: "y"}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Send after Close returned %v", err)
		}
		if s.Context().Err() == nil {
			t.Error("the context goes on after Close")
		}
		return nil
	})
	if answer := s.Do(t, "GET /"); answer.Status != http.StatusOK || answer.Body != "data: x\n\n" {
		t.Errorf("got %d %q", answer.Status, answer.Body)
	}
}

// If the client doesn't read for as long as the server's time-out, Send returns an error, and the stream ends.
func TestStreamStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan error, 1)
		s := servertest.NewServer(t, &filo.Server{Logger: quiet, WriteTimeout: 5 * time.Second, Handler: stream(sse.Options{}, func(s *sse.Stream) error {
			for {
				if err := s.Send(sse.Event{Data: strings.Repeat("x", 10_000)}); err != nil {
					if s.Context().Err() == nil {
						t.Error("the context goes on")
					}
					over <- s.Send(sse.Event{Data: "x"})
					return err
				}
			}
		})})
		conn := s.Dial(t)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: filo.test\r\n\r\n")
		if err := <-over; err == nil {
			t.Error("Send works again")
		}
	})
}
