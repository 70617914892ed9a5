package exchange

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
)

// The client gets e as the answer, "or a 503 if e is nil, in plain text and with Connection: close. A later answer of the handler is
// dropped." Late writes return ErrHandlerTimeout.
func TestTimeoutAnswersForTheHandler(t *testing.T) {
	for name, late := range map[string]func(t *testing.T, c *filo.Ctx) error{
		"a text":   func(t *testing.T, c *filo.Ctx) error { return c.Text(200, "late") },
		"an error": func(t *testing.T, c *filo.Ctx) error { return errors.New("late") },
		"the time-out": func(t *testing.T, c *filo.Ctx) error {
			<-c.Context().Done()
			return c.RenderError(c.Context().Err())
		},
		"a panic":  func(t *testing.T, c *filo.Ctx) error { panic("late") },
		"an abort": func(t *testing.T, c *filo.Ctx) error { return filo.ErrAbort },
		"a stream": func(t *testing.T, c *filo.Ctx) error {
			_, err := c.Stream().Write(bytes.Repeat([]byte("late"), 9000))
			if !errors.Is(err, filo.ErrHandlerTimeout) || !errors.Is(c.Stream().Flush(), filo.ErrHandlerTimeout) {
				t.Errorf("a late write: %v", err)
			}
			return err
		},
		"a reader": func(t *testing.T, c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("late"), -1)
			return nil
		},
		"early hints": func(t *testing.T, c *filo.Ctx) error {
			if err := c.EarlyHints(); !errors.Is(err, filo.ErrHandlerTimeout) {
				t.Errorf("late hints: %v", err)
			}
			return nil
		},
		"a hijack": func(t *testing.T, c *filo.Ctx) error {
			if _, _, err := c.Hijack(); !errors.Is(err, filo.ErrHandlerTimeout) {
				t.Errorf("a late hijack: %v", err)
			}
			if _, err := c.Park("", nil); !errors.Is(err, filo.ErrHandlerTimeout) {
				t.Errorf("a late Park: %v", err)
			}
			return nil
		},
		"what middleware sees": func(t *testing.T, c *filo.Ctx) error {
			if _, ok := c.Response.WholeBody(); ok || c.Status() != 503 || !c.Committed() || c.BytesWritten() != int64(len(filotest.TimedOutBody)) {
				t.Errorf("status %d, committed %v, %d bytes, a body %v", c.Status(), c.Committed(), c.BytesWritten(), ok)
			}
			c.SetTimeout(time.Hour, nil)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
				answered, returned := make(chan struct{}), make(chan struct{})
				s, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
					if c.Path() != "/slow" {
						return c.Text(200, "quick")
					}
					defer close(returned)
					c.SetTimeout(time.Millisecond, nil)
					<-answered
					return late(t, c)
				}})
				// Pipelined requests before this one are answered first, and later ones get no answer.
				client.Send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
				client.Want(200, "quick", false)
				client.Want(503, filotest.TimedOutBody, true)
				close(answered)
				filotest.Recv(t, returned, "the handler to return")
				client.WantEOF()
				filotest.Await(t, "the connection to be over", func() bool { return s.Stats().ConnsOpen == 0 })
				if requests := s.Stats().Requests; requests[2] != 1 || requests[5] != 1 {
					t.Errorf("answers by class: %v; want one of 2xx and one of 5xx", requests)
				}
			})
		})
	}
}

// If a handler answers in time, or cancels its time-out in time, the server sends only the handler's answer, and keeps the connection open.
func TestTimeoutThatDoesNotCome(t *testing.T) {
	for name, handler := range map[string]filo.Handler{
		"an answer in time": func(c *filo.Ctx) error { c.SetTimeout(time.Hour, nil); return c.Text(200, "hi") },
		"none any more": func(c *filo.Ctx) error {
			c.SetTimeout(time.Hour, nil)
			c.SetTimeout(0, nil)
			return c.Text(200, "hi")
		},
		"a later one": func(c *filo.Ctx) error {
			c.SetTimeout(time.Minute, nil)
			c.SetTimeout(time.Hour, nil)
			if deadline, ok := c.Context().Deadline(); !ok || time.Until(deadline) < 59*time.Minute {
				return fmt.Errorf("the context's deadline is %v, %v", deadline, ok)
			}
			return c.Text(200, "hi")
		},
		"hints, and then an answer": func(c *filo.Ctx) error {
			c.SetTimeout(time.Hour, nil)
			return errors.Join(c.EarlyHints(), c.Text(200, "hi"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
				_, client := serve(&filo.Server{Handler: handler})
				for range 3 {
					client.Get("/")
					response, body := client.Answer()
					for response.StatusCode == 103 {
						response, body = client.Answer()
					}
					if response.StatusCode != 200 || body != "hi" || response.Close {
						t.Fatalf("%d %q, close %v", response.StatusCode, body, response.Close)
					}
				}
			})
		})
	}
}

// If a stream has begun before the time-out, it continues after the time-out, and the connection stays open.
func TestTimeoutAfterTheHead(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		for limit, answered := 50*time.Millisecond, 0; answered < 3; limit *= 2 {
			begun := make(chan error, 1)
			_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
				c.SetTimeout(limit, nil)
				c.Stream().WriteString("h")
				err := c.Stream().Flush()
				if begun <- err; err != nil {
					return err
				}
				<-c.Context().Done()
				if err := c.Context().Err(); err != context.DeadlineExceeded {
					return err
				}
				_, err = c.Stream().WriteString("i")
				return err
			}})
			for answered = 0; answered < 3; answered++ {
				client.Get("/")
				if err := filotest.Recv(t, begun, "the stream to begin"); errors.Is(err, filo.ErrHandlerTimeout) {
					break // the machine is too busy for this limit
				}
				client.Want(200, "hi", false)
			}
		}
	})
}

// The context tells a handler that its time is over, usually before the time-out's timer has fired. The client still gets the time-out's
// answer, and the handler's error isn't logged as the server's fault.
func TestTimeoutByContext(t *testing.T) {
	var log filotest.Log
	for name, handler := range map[string]filo.Handler{
		"returned": func(c *filo.Ctx) error { <-c.Context().Done(); return c.Context().Err() },
		"rendered": func(c *filo.Ctx) error { <-c.Context().Done(); return c.RenderError(c.Context().Err()) },
		"written": func(c *filo.Ctx) error {
			<-c.Context().Done()
			if _, err := c.Stream().WriteString("late"); !errors.Is(err, filo.ErrHandlerTimeout) {
				t.Errorf("a late write: %v", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Logger: log.Logger(), Handler: func(c *filo.Ctx) error {
				c.SetTimeout(100*time.Microsecond, nil)
				return handler(c)
			}})
			for range 200 {
				client := s.Dial(t)
				client.Get("/")
				client.Want(503, filotest.TimedOutBody, true)
				client.Close()
			}
		})
	}
	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("logged: %q", lines)
	}
}

// The time-out also ends a context that the handler has obtained before it called SetTimeout.
func TestTimeoutEndsEarlierContext(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		ctx := armedContext(c)
		c.SetTimeout(time.Millisecond, &filo.HTTPError{Status: 504, Detail: "no answer from behind"})
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != context.DeadlineExceeded {
			t.Errorf("the context ended by %v", cause)
		}
		return nil
	}})
	client := s.Dial(t)
	client.Get("/")
	client.Want(504, "Gateway Timeout: no answer from behind\n", true)
	client.WantEOF()
}

// If the time-out expires while the handler waits for a body, it ends the wait. Bytes of the body that arrive later aren't parsed as a request.
func TestTimeoutInBody(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		returned := make(chan error, 2)
		_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			c.SetTimeout(10*time.Millisecond, nil)
			_, err := io.ReadAll(c.BodyReader())
			returned <- err
			return err
		}})
		client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nGET /")
		client.Want(503, filotest.TimedOutBody, true)
		if err := filotest.Recv(t, returned, "the handler to return"); !errors.Is(err, filo.ErrHandlerTimeout) {
			t.Errorf("the handler's read: %v", err)
		}
		io.WriteString(client, strings.Repeat(" HTTP/1.1\r\nHost: a\r\n\r\nGET /", 9000)[:100000-len("GET /")]) // the server may have closed the connection
		client.WantEnd()
		if len(returned) > 0 {
			t.Error("another request was read")
		}
	})
}

// The time-out ends the context even while the handler waits for a client that doesn't read an interim answer.
func TestTimeoutWhileClientIsSlow(t *testing.T) {
	ended := make(chan struct{})
	s := &filo.Server{WriteTimeout: -1, Handler: func(c *filo.Ctx) error {
		done := c.Context().Done()
		c.SetTimeout(10*time.Millisecond, nil)
		go func() {
			<-done
			close(ended)
		}()
		return c.EarlyHints()
	}}
	client, conn := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeConn(conn) }()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	filotest.Recv(t, ended, "the end of the context")
	client.Close()
	filotest.Recv(t, served, "the connection's end")
	s.Close()
}

// After the time-out's answer, the server no longer sends the 100 (Continue) that the client has requested.
func TestTimeoutBeforeContinue(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		answered, returned := make(chan struct{}), make(chan error, 1)
		_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			c.SetTimeout(time.Millisecond, nil)
			<-answered
			_, err := c.Body()
			returned <- err
			return err
		}})
		client.Send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
		client.Want(503, filotest.TimedOutBody, true)
		close(answered)
		if err := filotest.Recv(t, returned, "the handler to return"); !errors.Is(err, filo.ErrHandlerTimeout) {
			t.Errorf("the body is asked for: %v", err)
		}
		client.WantEnd()
	})
}

// If the handler answers just as the time-out expires, the client gets exactly one of the two answers, complete. After a time-out's answer,
// the server serves no further request on the connection.
func TestTimeoutRaces(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		const clients, requests = 8, 100
		var turn atomic.Int64
		// Handshakes of many clients at once may take long.
		s, first := serve(&filo.Server{ReadHeaderTimeout: time.Hour, Handler: func(c *filo.Ctx) error {
			d := time.Duration(turn.Add(1)%8) * 50 * time.Microsecond
			c.SetTimeout(200*time.Microsecond, nil)
			time.Sleep(d)
			if c.Path() == "/stream" {
				c.Stream().WriteString("in ")
				if err := c.Stream().Flush(); err != nil {
					return err
				}
				_, err := c.Stream().WriteString("time")
				return err
			}
			return c.Text(200, "in time")
		}})
		if first.Conn.LocalAddr().Network() != "tcp" {
			return // the test has only one connection
		}
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				var client *filotest.Client
				for n := range requests {
					if client == nil {
						conn, err := net.Dial("tcp", s.Addr)
						if err != nil {
							t.Error(err)
							return
						}
						if _, ok := first.Conn.(*tls.Conn); ok {
							conn = tls.Client(conn, filotest.ClientTLS())
						}
						client = filotest.NewClient(t, conn)
					}
					path := [...]string{"/", "/stream"}[(i+n)%2]
					io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
					response, body, err := client.TryAnswer()
					switch {
					case err != nil:
						t.Errorf("%s: %v", path, err)
						return
					case response.StatusCode == 200 && body == "in time" && !response.Close:
						continue
					case response.StatusCode == 503 && body == filotest.TimedOutBody && response.Close:
						client.WantEOF()
						client.Close()
					default:
						t.Errorf("%s: %d %q, close %v", path, response.StatusCode, body, response.Close)
						return
					}
					client = nil
				}
			})
		}
		all.Wait()
	})
}

// A time-out that is still set when the handler has returned doesn't affect the next request. A time-out that the ErrorHandler sets has no
// effect, and the connection stays open.
func TestTimeoutAfterTheHandler(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		_, client := serve(&filo.Server{
			ErrorHandler: func(c *filo.Ctx, err error) {
				c.SetTimeout(time.Millisecond, nil)
				c.Text(404, "no such page")
			},
			Handler: func(c *filo.Ctx) error {
				if c.Path() == "/none" {
					return filo.Error(404, "")
				}
				time.Sleep(5 * time.Millisecond)
				return c.Text(200, "slow")
			},
		})
		for range 3 {
			client.Get("/none")
			client.Want(404, "no such page", false)
			time.Sleep(3 * time.Millisecond)
			client.Get("/slow")
			client.Want(200, "slow", false)
		}
	})
}

// A status that isn't an error status becomes 500, as for other errors.
func TestTimeoutStatus(t *testing.T) {
	for _, status := range []int{-1, 0, 200, 600, 1 << 20} {
		s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
			c.SetTimeout(time.Microsecond, filo.Error(status, "x"))
			<-c.Context().Done()
			return c.Context().Err()
		}})
		client := s.Dial(t)
		client.Get("/")
		if response, _ := client.Answer(); response.StatusCode != 500 {
			t.Errorf("%d became %d", status, response.StatusCode)
		}
		if got := s.Stats().Timeouts; got != (filo.Timeouts{Handler: 1}) {
			t.Errorf("%+v", got)
		}
	}
}

// "When that time is over, the request's context is done": this also holds for a context that was obtained earlier, and for a handler that
// streams. If the context has an earlier deadline, the deadline stays.
func TestTimeoutAndContext(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/stream":
			ctx := armedContext(c)
			c.SetTimeout(time.Millisecond, nil)
			if err := c.Stream().Flush(); err != nil {
				return nil // the time-out has come already
			}
			<-ctx.Done()
			_, err := c.Stream().WriteString(context.Cause(ctx).Error())
			return err
		case "/deadline":
			c.SetDeadline(time.Now().Add(time.Minute))
			c.SetTimeout(time.Hour, nil)
		case "/timeout":
			c.SetDeadline(time.Now().Add(time.Hour))
			c.SetTimeout(time.Minute, nil)
		case "/none":
			c.SetDeadline(time.Now().Add(time.Minute))
			c.SetTimeout(10*time.Second, nil)
			c.SetTimeout(0, nil)
		}
		deadline, _ := c.Context().Deadline()
		return c.Text(200, time.Until(deadline).Round(time.Minute).String())
	}})
	client := s.Dial(t)
	for _, path := range []string{"/deadline", "/timeout", "/none"} {
		client.Get(path)
		client.Want(200, "1m0s", false)
	}
	for range 20 {
		client = s.Dial(t)
		client.Get("/stream")
		if response, body := client.Answer(); response.StatusCode == 200 && body != context.DeadlineExceeded.Error() {
			t.Errorf("got %q", body)
		}
	}
}

// If a handler's time is over when it enters its class, Enter returns an error.
func TestTimeoutBeforeEnter(t *testing.T) {
	var class class.Class
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() == "/quick" {
			return c.Text(200, "quick")
		}
		c.SetTimeout(time.Millisecond, nil)
		time.Sleep(5 * time.Millisecond)
		return inside.Enter(c, &class)
	}})
	for range 10 {
		client := s.Dial(t)
		client.Send("GET /quick HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		client.Want(200, "quick", false)
		client.Want(503, filotest.TimedOutBody, true)
	}
}

// If a handler parks its connection just as the time-out expires, exactly one of the two succeeds, and the client gets one complete answer.
// (The race detector checks that they don't use the connection at the same time.)
func TestTimeoutAgainstPark(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		for _, path := range []string{"/park", "/stream"} {
			for spin := range 6 {
				parked := make(chan error, 1)
				_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
					start := time.Now()
					c.SetTimeout(time.Millisecond, nil)
					for time.Since(start) < time.Duration(spin)*time.Millisecond/2 {
					}
					end := func(*filo.ParkedConn, filo.Wake) error { return io.EOF }
					park := func() (*filo.ParkedConn, error) { return c.Park("echo", end) }
					if path == "/stream" {
						park = func() (*filo.ParkedConn, error) { return c.ParkStream(end) }
					}
					p, err := park()
					if err == nil {
						p.End()
					}
					parked <- err
					return err
				}})
				client.Send("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				answer, err := io.ReadAll(client.Reader)
				if err != nil {
					t.Errorf("reading: %v", err)
				}
				want := "503"
				if err := filotest.Recv(t, parked, "the handler to return"); err == nil {
					want = map[string]string{"/park": "101", "/stream": "200"}[path]
				} else if !errors.Is(err, filo.ErrHandlerTimeout) {
					t.Errorf("%s: %v", path, err)
				}
				if got := filotest.Statuses(string(answer)); got != want {
					t.Errorf("%s: got %q, want %s", path, answer, want)
				}
			}
		}
	})
}

// panickyConn is a user's net.Conn whose Write panics.
type panickyConn struct{ net.Conn }

func (panickyConn) Write([]byte) (int, error) { panic("a write") }

// If a connection panics while the server writes earlier answers to it, only this connection is lost. The panic propagates to the caller of
// ServeConn, which must not deadlock on the lock of a time-out.
func TestEnterWithAWriteThatPanics(t *testing.T) {
	var class class.Class
	quick := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "quick") })
	s := &filo.Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
		if c.Path() == "/quick" {
			return quick(c) // a quick answer isn't sent at once, so Enter must send it
		}
		c.SetTimeout(time.Hour, nil)
		return inside.Enter(c, &class)
	}}
	defer s.Close()
	client, conn := net.Pipe()
	defer client.Close()
	served := make(chan any, 1)
	go func() {
		defer func() { served <- recover() }()
		s.ServeConn(panickyConn{conn})
	}()
	io.WriteString(client, "GET /quick HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if value := filotest.Recv(t, served, "ServeConn to end"); value != "a write" {
		t.Errorf("ServeConn panics with %v", value)
	}
}
