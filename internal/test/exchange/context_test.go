package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// answerCause waits until a context is done, and returns the cause. If the context isn't done after a minute of the bubble's time, it
// returns errAnswerNotDone.
func answerCause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		return errAnswerNotDone
	}
}

var errAnswerNotDone = errors.New("the context isn't done")

// armedContext returns a request's context, and calls its Done. From then on, the server watches for the client's end.
func armedContext(c *filo.Ctx) context.Context {
	ctx := c.Context()
	ctx.Done()
	return ctx
}

func TestContextEnds(t *testing.T) {
	for _, test := range []struct {
		name, rule string
		client     func(c *servertest.Conn)
		answered   bool
	}{
		{"close", "done when the client has closed the connection", func(c *servertest.Conn) { c.Close() }, false},
		{"reset", "done when the client has closed the connection", func(c *servertest.Conn) { c.Reset() }, false},
		{"half-close", "RDHUP during a handler cancels the context but the answer is still written",
			func(c *servertest.Conn) { c.CloseWrite() }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				causes := make(chan error, 1)
				s := servertest.New(t, func(c *filo.Ctx) error {
					causes <- answerCause(c.Context())
					return c.Text(200, "answered")
				})

				c := s.Dial(t)
				io.WriteString(c, filotest.GetRequest)
				time.Sleep(time.Second)
				test.client(c)
				if cause := <-causes; !errors.Is(cause, filo.ErrClientGone) {
					t.Errorf("%s: cause %v, want ErrClientGone", test.rule, cause)
				}
				if all, err := io.ReadAll(c); test.answered && (err != nil || !strings.HasSuffix(string(all), "answered")) {
					t.Errorf("%s: got %q, %v", test.rule, all, err)
				}
			})
		})
	}
}

// A client that half-closes its connection after its request may wait for the answer, or may have disconnected. "If it has done so before the
// watch began, or soon after, its context lasts 5 more seconds, and longer if the client takes a part of the answer meanwhile. The answer is
// sent in any case". So "printf … | nc -N" gets its answer.
func TestContextAfterAnEarlyHalfClose(t *testing.T) {
	const second = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
	for _, test := range []struct {
		name, request string
		ask           func(c *filo.Ctx) context.Context
	}{
		{"watched at once", filotest.GetRequest, armedContext},
		{"watched late", filotest.GetRequest, func(c *filo.Ctx) context.Context { time.Sleep(time.Second); return armedContext(c) }},
		{"asked before the body was read", second, func(c *filo.Ctx) context.Context {
			ctx := armedContext(c)
			time.Sleep(time.Second)
			c.Body()
			return ctx
		}},
		{"body not read", second, armedContext},
		{"pipelined", filotest.GetRequest + "GET / HTTP/1.1\r\nHost: a\r\nX: y", armedContext},
	} {
		for _, writes := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, ", writes ", writes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := servertest.New(t, func(c *filo.Ctx) error {
						ctx := test.ask(c)
						time.Sleep(3 * time.Second)
						if cause := context.Cause(ctx); cause != nil {
							t.Errorf("cause %v of a client that waits for its answer", cause)
						}
						if !writes {
							if cause := answerCause(ctx); !errors.Is(cause, filo.ErrClientGone) {
								t.Errorf("cause %v of a client of which nothing is heard, want ErrClientGone", cause)
							}
							return c.Text(200, "answered")
						}
						w := c.Stream()
						w.WriteString("ans")
						w.Flush()
						if cause := answerCause(ctx); cause != errAnswerNotDone {
							t.Errorf("cause %v of a client that takes its answer", cause)
						}
						_, err := w.WriteString("wered")
						return err
					})

					c := answerClientOf(s.Dial(t))
					c.Send(t, test.request)
					c.CloseWrite()
					if m := c.Receive(t, test.request[:4]); m.Body != "answered" {
						t.Errorf("got %q", m.Body)
					}
				})
			})
		}
	}
}

// If a client has half-closed its connection early, a timer ends the request's context. This timer must not end the context of a later request, nor
// that of a handler that has taken the connection over.
func TestContextOfAHijackerAfterAnEarlyHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error {
			ctx := armedContext(c)
			time.Sleep(time.Second)
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			if cause := answerCause(ctx); cause != errAnswerNotDone {
				t.Errorf("cause %v: the connection is the handler's own", cause)
			}
			_, err = io.WriteString(conn, "taken")
			return err
		})
		c := s.Dial(t)
		io.WriteString(c, filotest.GetRequest)
		c.CloseWrite()
		if all, err := io.ReadAll(c); string(all) != "taken" {
			t.Errorf("got %q, %v", all, err)
		}
	})
}

// The same holds for a socket, whether request and FIN arrive in one segment or two.
func TestContextOutlivesAnEarlyHalfCloseOfASocket(t *testing.T) {
	h := filotest.ServeSocket(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		c.Body()
		begin := time.Now()
		ctx := c.Context()
		select {
		case <-ctx.Done():
			if time.Since(begin) >= 20*time.Millisecond {
				return c.Text(200, "late") // after so late a half-close, the server assumes that the client has disconnected
			}
			return c.Text(500, "cancelled: "+context.Cause(ctx).Error())
		case <-time.After(5 * time.Millisecond): // time for a faulty watch to end the context
			return c.Text(200, "answered")
		}
	}})
	for inTime := 0; inTime < 20; {
		c := h.Connect(t)
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
		c.Send(t, "body")
		c.CloseWrite()
		switch m := c.Receive(t, "POST"); m.Body {
		case "answered":
			inTime++
		case "late": // the machine is busy; try again
		default:
			t.Fatalf("got %d %q", m.Status, m.Body)
		}
		c.WantEnd(t)
	}
}

// While the server watches for the client's end, it reads the beginning of the next request. These bytes must not be lost, or count as the
// client's end.
func TestContextWithPipelinedRequests(t *testing.T) {
	for _, test := range []struct {
		name  string
		count int // requests that arrive while the handler runs
		size  int // of each one
	}{
		{"one", 1, 0},
		{"several", 5, 0},
		{"more than the read buffer", 30, 1000},
		{"a head that is larger than the read buffer", 1, 9000},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.New(t, func(c *filo.Ctx) error {
					ctx := armedContext(c)
					time.Sleep(time.Second)
					if cause := context.Cause(ctx); cause != nil {
						t.Errorf("%s: cause %v while the client waits", c.Path(), cause)
					}
					return c.Text(200, c.Path())
				})

				c := answerClientOf(s.Dial(t))
				c.Send(t, "GET /0 HTTP/1.1\r\nHost: a\r\n\r\n")
				synctest.Wait()
				var all strings.Builder
				for i := range test.count {
					all.WriteString("GET /" + string(rune('A'+i)) + " HTTP/1.1\r\nHost: a\r\nPad: " + strings.Repeat("x", test.size) + "\r\n\r\n")
				}
				go io.WriteString(c, all.String())
				if m := c.Receive(t, "GET"); m.Body != "/0" {
					t.Errorf("got %q", m.Body)
				}
				for i := range test.count {
					if m := c.Receive(t, "GET"); m.Body != "/"+string(rune('A'+i)) {
						t.Errorf("pipelined request %d: got %d %q", i, m.Status, m.Body)
					}
				}
			})
		})
	}
}

func answerClientOf(c filotest.StrictConn) *filotest.StrictClient {
	return &filotest.StrictClient{StrictConn: c, In: bufio.NewReader(c)}
}

func TestContextDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error {
			if c.Path() == "/none" {
				_, ok := c.Context().Deadline()
				return c.Text(200, fmt.Sprint("deadline ", ok))
			}
			at := time.Now().Add(3 * time.Second)
			c.SetDeadline(at)
			ctx := c.Context()
			if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(at) {
				t.Errorf("deadline %v, %v, want %v", deadline, ok, at)
			}
			if cause := answerCause(ctx); !errors.Is(cause, context.DeadlineExceeded) || !time.Now().Equal(at) {
				t.Errorf("cause %v at %v, want DeadlineExceeded at %v", cause, time.Now(), at)
			}
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("Err is %v, want DeadlineExceeded", ctx.Err())
			}
			return c.Text(200, "late")
		})

		c := answerClientOf(s.Dial(t))
		// A deadline applies only to its request: the next request on the connection has another one.
		for range 2 {
			c.Send(t, filotest.GetRequest)
			if m := c.Receive(t, "GET"); m.Body != "late" {
				t.Errorf("got %q", m.Body)
			}
		}
		c.Send(t, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
		if m := c.Receive(t, "GET"); m.Body != "deadline false" {
			t.Errorf("a request that set none: %q", m.Body)
		}
	})
}

// "It is done ... when the handler has returned". This also holds if the handler panics or ends its goroutine.
func TestContextEndsWithTheHandler(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(c *filo.Ctx) error
	}{
		{"answer", func(c *filo.Ctx) error { return c.Text(200, "") }},
		{"error", func(c *filo.Ctx) error { return errors.New("no") }},
		{"panic", func(c *filo.Ctx) error { panic("no") }},
		{"abort", func(c *filo.Ctx) error { return filo.ErrAbort }},
		{"stream", func(c *filo.Ctx) error { return c.Stream().Flush() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				contexts := make(chan context.Context, 1)
				s := servertest.NewServer(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
					ctx := c.Context()
					if c.Context() != ctx {
						t.Error("a second call of Context returned another one")
					}
					contexts <- ctx
					if ctx.Err() != nil {
						t.Errorf("done at the start: %v", ctx.Err())
					}
					return test.end(c)
				}})
				io.WriteString(s.Dial(t), filotest.GetRequest)
				synctest.Wait()
				if ctx := <-contexts; !errors.Is(ctx.Err(), context.Canceled) {
					t.Errorf("Err is %v after the handler has returned, want Canceled", ctx.Err())
				}
			})
		})
	}
}

// The watch must not read the bytes of a body, so it begins when the body has been read.
func TestContextAskedBeforeTheBody(t *testing.T) {
	for _, test := range []struct {
		name, request string
		pieces        []string
		read          func(c *filo.Ctx) (string, error)
	}{
		{"Body", "Content-Length: 10", []string{"01234", "56789"}, answerReadBody},
		{"Body, chunked", "Transfer-Encoding: chunked", []string{"5\r\n01", "234\r\n5\r\n56789\r\n", "0\r\n\r\n"}, answerReadBody},
		{"Body, large", "Content-Length: 30010", []string{strings.Repeat("x", 30000), "0123456789"}, answerReadBody},
		{"BodyReader", "Content-Length: 10", []string{"01234", "56789"}, answerReadReader},
		{"BodyReader, chunked", "Transfer-Encoding: chunked", []string{"5\r\n01", "234\r\n5\r\n56789\r\n", "0\r\n\r\n"}, answerReadReader},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bodies, causes := make(chan string, 1), make(chan error, 1)
				s := servertest.New(t, func(c *filo.Ctx) error {
					ctx := armedContext(c)
					body, err := test.read(c)
					if err != nil {
						t.Errorf("reading the body: %v", err)
					}
					bodies <- body
					causes <- answerCause(ctx)
					return nil
				})

				c := s.Dial(t)
				io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+test.request+"\r\n\r\n")
				for _, piece := range test.pieces {
					time.Sleep(time.Second)
					io.WriteString(c, piece)
				}
				if body := <-bodies; !strings.HasSuffix(body, "0123456789") {
					t.Errorf("the body came as %q", body)
				}
				time.Sleep(time.Second)
				c.Close()
				if cause := <-causes; !errors.Is(cause, filo.ErrClientGone) {
					t.Errorf("cause %v, want ErrClientGone: the body is read, so the client is watched", cause)
				}
			})
		})
	}
}

func answerReadBody(c *filo.Ctx) (string, error) {
	body, err := c.Body()
	return string(body), err
}

func answerReadReader(c *filo.Ctx) (string, error) {
	body, err := io.ReadAll(c.BodyReader())
	return string(body), err
}

// "It is done when … Close ended the server, or Shutdown gave up waiting (ErrServerClosed)".
func TestContextEndsWithTheServer(t *testing.T) {
	for _, test := range []struct {
		name string
		stop func(s *filo.Server)
	}{
		{"Close", func(s *filo.Server) { s.Close() }},
		{"Shutdown that gave up", func(s *filo.Server) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s.Shutdown(ctx)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				causes := make(chan error, 1)
				s := servertest.New(t, func(c *filo.Ctx) error {
					causes <- answerCause(c.Context())
					return nil
				})

				io.WriteString(s.Dial(t), filotest.GetRequest)
				synctest.Wait()
				test.stop(s.Config)
				if cause := <-causes; !errors.Is(cause, filo.ErrServerClosed) {
					t.Errorf("cause %v, want ErrServerClosed", cause)
				}
			})
		})
	}
}

// While Shutdown waits for a handler, the handler's context isn't done.
func TestContextDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, func(c *filo.Ctx) error {
			ctx := c.Context()
			<-c.ShuttingDown()
			time.Sleep(time.Second)
			if ctx.Err() != nil {
				t.Errorf("cause %v during a Shutdown that waits", context.Cause(ctx))
			}
			return c.Text(200, "finished")
		})

		c := answerClientOf(s.Dial(t))
		c.Send(t, filotest.GetRequest)
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- s.Config.Shutdown(context.Background()) }()
		if m := c.Receive(t, "GET"); m.Body != "finished" || m.Get("Connection") != "close" {
			t.Errorf("got %q, Connection %q", m.Body, m.Get("Connection"))
		}
		if err := <-ended; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// A context lasts until the handler has returned, even if the handler takes the connection over.
func TestContextOutlivesHijack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 1)
		s := servertest.New(t, func(c *filo.Ctx) error {
			ctx := armedContext(c)
			contexts <- ctx
			conn, _, err := c.Hijack()
			if err != nil {
				t.Error(err)
				return err
			}
			defer conn.Close()
			if ctx.Err() != nil {
				t.Errorf("cause %v while the handler runs", context.Cause(ctx))
			}
			return nil
		})

		c := s.Dial(t)
		io.WriteString(c, filotest.GetRequest)
		io.ReadAll(c)
		synctest.Wait()
		if ctx := <-contexts; ctx.Err() == nil {
			t.Error("not done after the handler has returned")
		}
	})
}

// The watch for an ErrorHandler's context may read bytes of the next request. If the connection ends, the worker's next connection must not
// find these bytes in the read buffer.
func TestContextOfErrorHandlerKeepsInputApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.NewServer(t, &filo.Server{
			Handler: func(c *filo.Ctx) error {
				if c.Path() == "/fail" {
					return filo.Error(400, "no")
				}
				return c.Text(200, c.Path())
			},
			ErrorHandler: func(c *filo.Ctx, err error) {
				ctx := armedContext(c)
				time.Sleep(time.Second) // the client's next bytes arrive in this time
				if ctx.Err() != nil {
					t.Errorf("cause %v in the ErrorHandler", context.Cause(ctx))
				}
				filo.DefaultErrorHandler(c, err)
			},
		})
		first := s.Dial(t)
		io.WriteString(first, "GET /fail HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		synctest.Wait()
		io.WriteString(first, "GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
		io.ReadAll(first)
		synctest.Wait()
		answers := s.Raw(t, "GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
		if strings.Count(answers, "HTTP/1.1 ") != 1 || !strings.HasSuffix(answers, "/second") {
			t.Errorf("the second connection's answer: %q", answers)
		}
	})
}

// If an ErrorHandler uses its context, the next request on the connection is still answered.
func TestContextOfErrorHandlerLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.NewServer(t, &filo.Server{
			Handler: func(c *filo.Ctx) error { return filo.Error(400, c.Path()) },
			ErrorHandler: func(c *filo.Ctx, err error) {
				c.Context().Done()
				time.Sleep(time.Second)
				filo.DefaultErrorHandler(c, err)
			},
		})
		c := answerClientOf(s.Dial(t))
		c.Send(t, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()
		c.Send(t, "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
		for _, path := range []string{"/1", "/2"} {
			if m := c.Receive(t, "GET"); !strings.HasSuffix(m.Body, path+"\n") {
				t.Errorf("got %q, want %s", m.Body, path)
			}
		}
	})
}

// The context also ends if the client disconnects while the handler streams to it.
func TestContextWhileStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		s := servertest.New(t, func(c *filo.Ctx) error {
			ctx, w := c.Context(), c.Stream()
			for i := 0; ctx.Err() == nil; i++ {
				w.WriteString("tick\n")
				w.Flush()
				time.Sleep(time.Second)
			}
			causes <- context.Cause(ctx)
			return ctx.Err()
		})

		c := s.Dial(t)
		io.WriteString(c, filotest.GetRequest)
		time.Sleep(3 * time.Second)
		c.Close()
		if cause := <-causes; !errors.Is(cause, filo.ErrClientGone) {
			t.Errorf("cause %v, want ErrClientGone", cause)
		}
	})
}

// Over a socket, a client disconnects with a FIN or a reset. If a FIN arrives within the first 20 ms of the watch, the watch treats it like a
// FIN that came with the request. The test can't observe when the watch begins, so the client waits longer in each round, until the server
// notices that it has disconnected.
func TestContextEndsOverASocket(t *testing.T) {
	causes, running, giveUp := make(chan error, 1), make(chan bool, 1), make(chan bool)
	h := filotest.ServeSocket(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		ctx := armedContext(c)
		running <- true
		select {
		case <-ctx.Done():
		case <-giveUp:
		}
		causes <- context.Cause(ctx)
		return nil
	}})
	leave := func(t *testing.T, wait time.Duration, leave func(c *net.TCPConn)) error {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		filotest.Recv(t, running, "the handler")
		time.Sleep(wait)
		leave(c.StrictConn.(*net.TCPConn))
		select {
		case cause := <-causes:
			return cause
		case <-time.After(100*time.Millisecond + 10*wait):
			select {
			case giveUp <- true:
				return filotest.Recv(t, causes, "the handler's end")
			case cause := <-causes:
				return cause
			}
		}
	}
	for name, end := range map[string]func(c *net.TCPConn){
		"FIN":   func(c *net.TCPConn) { c.Close() },
		"reset": func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	} {
		var cause error
		for wait := 5 * time.Millisecond; cause == nil && wait < time.Second; wait *= 2 {
			cause = leave(t, wait, end)
		}
		if !errors.Is(cause, filo.ErrClientGone) {
			t.Errorf("%s: cause %v, want ErrClientGone", name, cause)
		}
	}
}

// The context ends even if the client has reset the connection before the handler called Context, although the kernel reports the reset to
// only one call.
func TestContextAfterAReset(t *testing.T) {
	running, left, causes := make(chan bool, 1), make(chan bool), make(chan error, 1)
	h := filotest.ServeSocket(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		running <- true
		<-left
		ctx := c.Context()
		select {
		case <-ctx.Done():
		case <-time.After(4 * time.Second): // only less than 5 seconds, since the context would then end after a half-close, too
		}
		causes <- context.Cause(ctx)
		return nil
	}})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	filotest.Recv(t, running, "the handler")
	client := c.StrictConn.(*net.TCPConn)
	client.SetLinger(0)
	client.Close()
	time.Sleep(5 * time.Millisecond)
	left <- true
	if cause := filotest.Recv(t, causes, "the handler's end"); !errors.Is(cause, filo.ErrClientGone) {
		t.Errorf("cause %v, want ErrClientGone", cause)
	}
}

// When a handler returns, the server wakes the watch's Read, which must not break the state of a TLS connection. The client sends one request
// after the other, some cut in the middle of a record, and each handler watches for the client's end.
func TestContextTLS(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	causes := make(chan error, 1)
	filotest.ServeOn(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
		ctx := armedContext(c)
		if c.Path() == "/wait" {
			<-ctx.Done()
			causes <- context.Cause(ctx)
		}
		return c.Text(200, c.Path())
	}}, tls.NewListener(listener, &tls.Config{Certificates: certificates.TLS.Certificates}))
	client, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(filotest.Bound))
	c := answerClientOf(client)
	for i := range 20 {
		path := fmt.Sprint("/", i)
		c.Send(t, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\nGET /next")
		if m := c.Receive(t, "GET"); m.Body != path {
			t.Fatalf("got %q, want %s", m.Body, path)
		}
		c.Send(t, path+" HTTP/1.1\r\nHost: a\r\nPad: "+strings.Repeat("x", 20*i)+"\r\n\r\n")
		if m := c.Receive(t, "GET"); m.Body != "/next"+path {
			t.Fatalf("got %q, want /next%s", m.Body, path)
		}
	}
	c.Send(t, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
	client.NetConn().(*net.TCPConn).SetLinger(0) // the server takes a reset for the client's end at any time
	client.NetConn().Close()
	if cause := filotest.Recv(t, causes, "the handler"); !errors.Is(cause, filo.ErrClientGone) {
		t.Errorf("cause %v, want ErrClientGone", cause)
	}
}

// A deadline that has passed ends the context at once.
func TestContextDeadlineInThePast(t *testing.T) {
	m := answerRequest(t, func(c *filo.Ctx) error {
		c.SetDeadline(time.Now().Add(-time.Second))
		ctx := c.Context()
		if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("cause %v, want DeadlineExceeded", cause)
		}
		return c.Text(200, "answered")
	}, filotest.GetRequest)
	if m.Body != "answered" {
		t.Errorf("got %q", m.Body)
	}
}

// After middleware has added values, each later call of Context returns a context with these values. If a key was set twice, the last value
// counts. Each context ends when the client disconnects.
func TestContextOfMiddleware(t *testing.T) {
	type key string
	with := func(c *filo.Ctx, name, value string) {
		c.SetContext(context.WithValue(c.Context(), key(name), value))
	}
	value := func(ctx context.Context, name string) string {
		text, _ := ctx.Value(key(name)).(string)
		return text
	}
	task := make(chan string, 1)
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			with(c, "a", "1")
			with(c, "b", "1")
			with(c, "b", "2")
			first := c.Context()
			child, cancel := context.WithCancel(first)
			defer cancel()
			with(c, "c", "3") // added when the client is already being watched
			with(c, "a", "4")
			last := c.Context()
			if err := c.Go(func(ctx context.Context) { task <- value(ctx, "a") + value(ctx, "b") }); err != nil {
				t.Error(err)
			}
			text := fmt.Sprint(value(child, "a"), value(child, "b"), value(child, "c"), " ", value(last, "a"), value(last, "b"), value(last, "c"))
			if c.Path() == "/wait" {
				<-last.Done()
				<-child.Done()
				text = context.Cause(last).Error() + context.Cause(child).Error()
				task <- text
			}
			return c.Text(200, text)
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest+filotest.GetRequest) // the first request's values must not be visible to the second request
		for range 2 {
			if m := c.Receive(t, "GET"); m.Body != "12 423" {
				t.Errorf("got %q", m.Body)
			}
			if got := filotest.Recv(t, task, "the task"); got != "42" {
				t.Errorf("the task has %q", got)
			}
		}
		c.Send(t, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
		filotest.Recv(t, task, "the task")
		time.Sleep(50 * time.Millisecond) // after less time, the server would assume that the half-close came with the request
		c.Close()
		if got, want := filotest.Recv(t, task, "the contexts to end"), filo.ErrClientGone.Error(); got != want+want {
			t.Errorf("they ended with %q", got)
		}
	})
}

// "ConnContext … returns the parent context of a connection's requests: their contexts take their values from it and end with it. … The
// server calls it once per connection, when a handler first asks for a request's context".
func TestConnContext(t *testing.T) {
	type key struct{}
	errOver := errors.New("over")
	var calls atomic.Int32
	task := make(chan any, 1)
	end, causes := make(chan context.CancelCauseFunc, 1), make(chan error, 1)
	filotest.EachHost(t, func() *filo.Server {
		calls.Store(0)
		return &filo.Server{
			Logger: filotest.Quiet,
			ConnContext: func(conn net.Conn) context.Context {
				ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, calls.Add(1)))
				ctx, stop := context.WithTimeout(ctx, time.Hour)
				context.AfterFunc(ctx, stop)
				select {
				case end <- cancel:
				default:
				}
				if conn.RemoteAddr() == nil {
					t.Error("the connection has no address")
				}
				return ctx
			},
			Handler: func(c *filo.Ctx) error {
				switch c.Path() {
				case "/nothing":
					return c.Text(200, "")
				case "/wait":
					ctx := c.Context()
					task <- nil
					<-ctx.Done()
					causes <- context.Cause(ctx)
				}
				c.SetContext(context.WithValue(c.Context(), answerKey{}, "more"))
				ctx := c.Context()
				if _, ok := ctx.Deadline(); !ok {
					t.Error("the deadline is lost")
				}
				if err := c.Go(func(ctx context.Context) { task <- ctx.Value(key{}) }); err != nil {
					t.Error(err)
				}
				return c.Text(200, fmt.Sprint(ctx.Value(key{}), ctx.Value(answerKey{}), ctx.Err()))
			},
		}
	}, func(t *testing.T, h *filotest.Host) {
		for i := range int32(2) {
			c := h.Connect(t)
			c.Send(t, "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n")
			c.Receive(t, "GET")
			if n := calls.Load(); n != i {
				t.Errorf("%d calls, though nobody has asked on connection %d", n, i)
			}
			for range 2 {
				c.Send(t, filotest.GetRequest)
				if m := c.Receive(t, "GET"); m.Body != fmt.Sprint(i+1, "more", nil) {
					t.Errorf("connection %d: got %q", i, m.Body)
				}
				if value := filotest.Recv(t, task, "the task"); value != i+1 {
					t.Errorf("connection %d: the task has %v", i, value)
				}
			}
			if i == 0 {
				c.Send(t, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
				filotest.Recv(t, task, "the handler")
				(<-end)(errOver)
				if cause := filotest.Recv(t, causes, "the end"); cause != errOver {
					t.Errorf("cause %v, want the connection's", cause)
				}
				filotest.Recv(t, task, "the task")
			}
			c.Close()
		}
		<-end
	})
}

type answerKey struct{}

// If there is a ConnContext, the end of the server also ends the contexts. A ConnContext that returns nil is a mistake of the program, which
// the server logs.
func TestConnContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		s := servertest.NewServer(t, &filo.Server{
			ConnContext: func(net.Conn) context.Context { return t.Context() },
			Handler:     func(c *filo.Ctx) error { causes <- answerCause(c.Context()); return nil },
		})
		io.WriteString(s.Dial(t), filotest.GetRequest)
		synctest.Wait()
		s.Config.Close()
		if cause := <-causes; !errors.Is(cause, filo.ErrServerClosed) {
			t.Errorf("cause %v, want ErrServerClosed", cause)
		}
	})
	var log answerLog
	h := filotest.ServeMemory(t, &filo.Server{Logger: log.logger(), ConnContext: func(net.Conn) context.Context { return nil },
		Handler: func(c *filo.Ctx) error { c.Context(); return nil }})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	if m := c.Receive(t, "GET"); m.Status != 500 || !strings.Contains(strings.Join(log.all(), ""), "ConnContext has returned nil") {
		t.Errorf("got %d, logged %q", m.Status, log.all())
	}
}
