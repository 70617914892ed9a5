package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// contextHosts runs a test in both drivers, with TLS and without.
func contextHosts(t *testing.T, handler filo.Handler, test func(t *testing.T, dial func() filotest.StrictConn)) {
	for _, driver := range []filo.Driver{filo.DriverBlocking, filo.DriverAuto} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(driver, ", TLS ", secure), func(t *testing.T) {
				listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
				s := &filo.Server{Driver: driver, Logger: filotest.Quiet, Handler: handler}
				serve := func() error { return s.Serve(listener) }
				if secure {
					s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
					serve = func() error { return s.ServeTLS(listener, "", "") }
				}
				filotest.ServeBy(t, s, serve)
				test(t, func() filotest.StrictConn {
					conn, err := net.Dial("tcp", listener.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					if secure {
						conn = tls.Client(conn, filotest.ClientTLS())
					}
					conn.SetDeadline(time.Now().Add(filotest.Bound))
					return conn.(filotest.StrictConn)
				})
			})
		}
	}
}

// resetByClient ends a connection with a TCP reset. After a half-close, the context would last for halfCloseGrace.
func resetByClient(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// "Any goroutine may use it": here, not the handler's goroutine but another one is the first to call Done, and learns that the client disconnects.
func TestContextFirstAskedByAnotherGoroutine(t *testing.T) {
	running, causes := make(chan bool, 1), make(chan error, 1)
	contextHosts(t, func(c *filo.Ctx) error {
		if c.Path() != "/" {
			return c.NoContent()
		}
		ctx, asked, ended := c.Context(), make(chan bool), make(chan bool)
		go func() {
			done := ctx.Done()
			close(asked)
			<-done
			causes <- context.Cause(ctx)
			close(ended)
		}()
		<-asked
		running <- true
		<-ended
		return nil
	}, func(t *testing.T, dial func() filotest.StrictConn) {
		c := dial()
		io.WriteString(c, filotest.GetRequest)
		filotest.Recv(t, running, "the handler")
		resetByClient(c)
		if cause := filotest.Recv(t, causes, "the context to end"); !errors.Is(cause, filo.ErrClientGone) {
			t.Errorf("cause %v, want ErrClientGone", cause)
		}
	})
}

// Other goroutines call Done at any time: while the handler reads, writes or takes its connection over, and after it has returned. Each
// context ends, and the connection loses no bytes.
func TestContextAskedAtAnyTime(t *testing.T) {
	const requests = 60
	var askers sync.WaitGroup
	ask := func(ctx context.Context, late int) {
		askers.Go(func() {
			for range late {
				runtime.Gosched()
			}
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			select {
			case <-child.Done():
			case <-time.After(filotest.Bound):
				t.Error("the context doesn't end")
			}
			if ctx.Err() == nil || context.Cause(ctx) == nil || ctx.Value(answerKey{}) != nil {
				t.Errorf("%v, %v, when it has ended", ctx.Err(), context.Cause(ctx))
			}
		})
	}
	handler := func(c *filo.Ctx) error {
		ctx := c.Context()
		for i := range 4 {
			ask(ctx, i*i*10)
		}
		switch path := c.Path(); path {
		case "/body":
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Text(200, fmt.Sprint(len(body)))
		case "/stream":
			w := c.Stream()
			for range 5 {
				w.WriteString("1")
				if err := w.Flush(); err != nil {
					return err
				}
			}
			return nil
		case "/hijack":
			conn, buffered, err := c.Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			rest, err := io.ReadAll(io.LimitReader(conn, int64(5-len(buffered))))
			if err != nil {
				return err
			}
			_, err = conn.Write(append(buffered, rest...))
			return err
		case "/park":
			_, err := c.ParkStream(func(p *filo.ParkedConn, _ filo.Wake) error { return io.EOF })
			return err
		default:
			return c.Text(200, path[1:])
		}
	}
	contextHosts(t, handler, func(t *testing.T, dial func() filotest.StrictConn) {
		connect := func() *filotest.StrictClient {
			conn := dial()
			t.Cleanup(func() { conn.Close() })
			return answerClientOf(conn)
		}
		c := connect()
		for i := range requests {
			size := 20_000 * (i % 2)
			c.Send(t, "GET /at-once HTTP/1.1\r\nHost: a\r\n\r\n"+
				fmt.Sprintf("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size+5)+strings.Repeat("x", size))
			c.Send(t, "12345"+"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
			for _, want := range []string{"at-once", fmt.Sprint(size + 5), "11111"} {
				if m := c.Receive(t, "GET"); m.Body != want {
					t.Fatalf("request %d: got %d %q, want %q", i, m.Status, m.Body, want)
				}
			}
			if i%4 > 0 {
				continue
			}
			c.Send(t, "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n12")
			c.Send(t, "345")
			if all, err := io.ReadAll(c.In); string(all) != "12345" || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("hijacked: got %q, %v", all, err)
			}
			c = connect()
			c.Send(t, "GET /park HTTP/1.1\r\nHost: a\r\n\r\nx")
			c.Receive(t, "GET")
			c = connect()
		}
	})
	askers.Wait()
}

// If a handler sets a deadline after middleware has added values, the deadline applies to the context, unless a goroutine already waits for it.
func TestContextDeadlineSetLater(t *testing.T) {
	answerRequest(t, func(c *filo.Ctx) error {
		ctx := context.WithValue(c.Context(), answerKey{}, 1)
		c.SetContext(ctx)
		at := time.Now().Add(-time.Second)
		c.SetDeadline(at)
		if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(at) {
			t.Errorf("deadline %v, %v", deadline, ok)
		}
		if err := ctx.Err(); err != context.DeadlineExceeded {
			t.Errorf("Err is %v", err)
		}
		c.SetDeadline(time.Now().Add(time.Hour))
		if deadline, _ := ctx.Deadline(); !deadline.Equal(at) {
			t.Errorf("then %v", deadline)
		}
		return nil
	}, filotest.GetRequest)
	answerRequest(t, func(c *filo.Ctx) error {
		ctx := c.Context()
		c.SetTimeout(time.Millisecond, nil)
		<-ctx.Done()
		if err := ctx.Err(); err != context.DeadlineExceeded {
			t.Errorf("after the time-out Err is %v", err)
		}
		return nil
	}, filotest.GetRequest)
}

// If the client disconnects after the time-out's answer, the context's cause stays the same, whether Done was first called before or after
// SetTimeout.
func TestContextEndsByTheTimeout(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		for _, first := range []bool{true, false} {
			causes := make(chan error, 1)
			s := filotest.Serve(t, &filo.Server{Driver: driver, Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
				ctx := c.Context()
				if first {
					ctx.Done()
				}
				c.SetTimeout(time.Millisecond, nil)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}})
			for range 50 {
				c := s.Dial(t)
				c.Get("/")
				if response, _ := c.Answer(); response.StatusCode != 503 {
					t.Fatalf("status %d", response.StatusCode)
				}
				c.Reset()
				if cause := filotest.Recv(t, causes, "the context's end"); cause != context.DeadlineExceeded {
					t.Errorf("%v, asked before %t: the cause is %v", driver, first, cause)
				}
			}
		}
	}
}

// If the request or its parent context has ended before the first use of a context, the context is already done.
func TestContextEndedBeforeItIsAskedFor(t *testing.T) {
	errOver := errors.New("over")
	over, cancel := context.WithCancelCause(context.WithValue(context.Background(), answerKey{}, "value"))
	cancel(errOver)
	h := filotest.ServeMemory(t, &filo.Server{
		Logger:      filotest.Quiet,
		ConnContext: func(net.Conn) context.Context { return over },
		Handler: func(c *filo.Ctx) error {
			if cause := context.Cause(c.Context()); cause != errOver {
				t.Errorf("cause %v, want the connection's", cause)
			}
			return c.Text(200, fmt.Sprint(c.Context().Value(answerKey{})))
		},
	})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	if m := c.Receive(t, "GET"); m.Body != "value" {
		t.Errorf("got %q", m.Body)
	}
	serveTransport(t, over, filotest.GetRequest, func(c *filo.Ctx) error {
		if cause := context.Cause(c.Context()); cause != filo.ErrClientGone {
			t.Errorf("cause %v of another server's request, want ErrClientGone", cause)
		}
		return nil
	})
	kept := make(chan context.Context, 1)
	answerRequest(t, func(c *filo.Ctx) error { kept <- c.Context(); return nil }, filotest.GetRequest)
	ctx := <-kept
	if ctx.Err() == nil {
		t.Error("a context isn't done after its request")
	}
	if cause := context.Cause(ctx); cause != context.Canceled {
		t.Errorf("cause %v, want Canceled", cause)
	}
}

// A failed write shows that the client has disconnected, so a context whose Done is called only afterwards is done, too.
func TestContextOfALostClientIsAskedLate(t *testing.T) {
	causes, left := make(chan error, 1), make(chan bool)
	contextHosts(t, func(c *filo.Ctx) error {
		ctx, w := c.Context(), c.Stream()
		<-left
		for w.Flush() == nil {
			w.WriteString("some more")
		}
		causes <- context.Cause(ctx)
		return nil
	}, func(t *testing.T, dial func() filotest.StrictConn) {
		c := dial()
		io.WriteString(c, filotest.GetRequest)
		c.Close()
		left <- true
		if cause := filotest.Recv(t, causes, "the handler"); !errors.Is(cause, filo.ErrClientGone) {
			t.Errorf("cause %v, want ErrClientGone", cause)
		}
	})
}

// If a handler ends its goroutine after it has parked or hijacked its connection, its context ends nevertheless.
func TestContextEndsWithTheGoroutineOfATaker(t *testing.T) {
	kept := make(chan context.Context, 1)
	contextHosts(t, func(c *filo.Ctx) error {
		ctx := c.Context()
		if c.Path() == "/park" {
			c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
		} else if conn, _, err := c.Hijack(); err == nil {
			conn.Close()
		}
		kept <- ctx
		runtime.Goexit()
		return nil
	}, func(t *testing.T, dial func() filotest.StrictConn) {
		for _, path := range []string{"/hijack", "/park"} {
			c := dial()
			io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
			filotest.Recv(t, filotest.Recv(t, kept, path).Done(), path+": the end of the context")
			c.Close()
		}
	})
}
