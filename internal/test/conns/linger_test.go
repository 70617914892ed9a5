package conns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// lifeLingering is a handler. Each of its paths ends the connection early for another reason.
func lifeLingering(c *filo.Ctx) error {
	switch c.Path() {
	case "/ignore":
		return c.Text(200, "ignored")
	case "/refuse":
		return filo.Error(403, "not here")
	case "/close":
		c.Response.SetClose()
		return c.Text(200, "enough")
	}
	_, err := c.Body()
	if err != nil {
		return err
	}
	return c.NoContent()
}

// After the answer to an error, the server closes its writing half, and continues to read for a while (a lingering close). So the client
// receives the answer and no reset, even if it sends everything before it reads.
func TestLingeringClose(t *testing.T) {
	const size = 10 << 20
	body := strings.Repeat("x", size)
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", size)
	chunked := "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", size)
	for _, test := range []struct {
		name, head string
		status     string
	}{
		{"413 for the announced length", "POST / HTTP/1.1\r\nHost: a\r\n" + length, "413"},
		{"413 in the middle of chunks", "POST / HTTP/1.1\r\nHost: a\r\n" + chunked, "413"},
		{"a handler that refuses without reading", "POST /refuse HTTP/1.1\r\nHost: a\r\n" + length, "403"},
		{"a handler that doesn't read", "POST /ignore HTTP/1.1\r\nHost: a\r\n" + chunked, "200"},
		{"a handler that closes", "POST /close HTTP/1.1\r\nHost: a\r\n" + length, "200"},
		{"400 for a request line", "POST /\r\n\r\n", "400"},
		{"400 for a field", "POST / HTTP/1.1\r\nHost: a\r\nX : y\r\n" + length, "400"},
		{"400 for a chunk size", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "400"},
		{"414", "POST /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: a\r\n" + length, "414"},
		{"431", "POST / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20000) + "\r\n" + length, "431"},
		{"pipelined requests behind a close", "GET /close HTTP/1.1\r\nHost: a\r\n\r\n" + "POST / HTTP/1.1\r\nHost: a\r\n" + length, "200"},
	} {
		t.Run(test.name, func(t *testing.T) {
			// In a bubble, the time for lingering doesn't pass while a busy machine delays the test.
			synctest.Test(t, func(t *testing.T) {
				s := servertest.NewServer(t, &filo.Server{Handler: lifeLingering})
				c := filotest.NewClient(t, s.Dial(t))
				c.Send(test.head)
				c.Send(body)
				answer, err := io.ReadAll(c)
				if got := filotest.Statuses(string(answer)); err != nil || got != test.status {
					t.Errorf("got %q, %v; want %s", answer, err, test.status)
				}
				// The server learns the length of a chunked body only after the answer.
				mayKnow := !strings.Contains(test.head, "/ignore")
				if mayKnow && !bytes.Contains(answer, []byte("\r\nConnection: close\r\n")) {
					t.Errorf("got %q, want Connection: close", answer)
				}
				c.Close()
			})
		})
	}
}

// The same holds for sockets, where the system sends a reset if a socket with unread bytes is closed, and for a refused connection.
func TestLingeringCloseOfSockets(t *testing.T) {
	body := strings.Repeat("x", 3<<20)
	head := fmt.Sprintf(" HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body))
	gate := filotest.NewGate()
	s := filotest.Serve(t, &filo.Server{Concurrency: 2, Driver: filo.DriverBlocking, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return gate.Handle(c)
		}
		return lifeLingering(c)
	}, MaxBodyBytes: 1 << 20})
	defer gate.Open()
	gate.Hold(t, s.Dial(t))
	// A connection ends shortly before its worker's place is free.
	free := func() bool { return s.Stats().WorkersRunning == 1 }
	for path, status := range map[string]string{"/": "413", "/refuse": "403", "/close": "200", "bad": "400"} {
		filotest.Await(t, "the place to be free", free)
		wantAnswerAfter(s, t, "POST "+path+head+body, status)
	}
	filotest.Await(t, "the place to be free", free)
	gate.Hold(t, s.Dial(t))
	wantAnswerAfter(s, t, "POST /"+head+body, "503")
}

// When an answer ends the connection, a client that pipelines may already have sent further requests, which haven't arrived yet. The client
// must see an orderly end, because a reset might destroy the answer.
func TestLingeringAfterPipelining(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: lifeLingering})
	for range 20 {
		c := s.Dial(t)
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /close HTTP/1.1\r\nHost: a\r\n\r\n")
		filotest.Await(t, "the connection to be over", func() bool { return s.Stats().ConnsOpen == 0 })
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		answer, err := io.ReadAll(c)
		if got := filotest.Statuses(string(answer)); err != nil || got != "204 200" {
			t.Fatalf("got %q, %v", answer, err)
		}
		c.Close()
	}
}

// wantAnswerAfter sends the whole request before it reads the answer.
func wantAnswerAfter(s *filotest.Server, t *testing.T, request, status string) {
	t.Helper()
	c := s.Dial(t)
	c.Send(request)
	answer, err := io.ReadAll(c)
	if got := filotest.Statuses(string(answer)); err != nil || got != status {
		t.Errorf("got %q, %v; want %s", answer, err, status)
	}
}

// The lingering is bounded: the server ends the connection of a client that sends for ever, slowly or as fast as it can, or does nothing. A
// connection that lingers occupies no worker.
func TestLingeringEnds(t *testing.T) {
	for name, send := range map[string]func(*servertest.Conn) error{
		"as fast as it can": func(c *servertest.Conn) error {
			for block := make([]byte, 32<<10); ; time.Sleep(time.Microsecond) {
				if _, err := c.Write(block); err != nil {
					return err
				}
			}
		},
		"slowly": func(c *servertest.Conn) error {
			for {
				time.Sleep(100 * time.Millisecond)
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
			}
		},
		"not at all": func(c *servertest.Conn) error {
			time.Sleep(10 * time.Second)
			_, err := c.Write([]byte("x"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.NewServer(t, &filo.Server{Handler: lifeLingering, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
				c := s.Dial(t)
				io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n")
				// The answer and the end of the server's writing half arrive at once.
				start := time.Now()
				answer, err := io.ReadAll(c)
				if err != nil || filotest.Statuses(string(answer)) != "413" || time.Since(start) > 0 {
					t.Errorf("after %v: %q, %v", time.Since(start), answer, err)
				}
				other := filotest.NewClient(t, s.Dial(t))
				other.Get("/")
				if response, _ := other.Answer(); response.StatusCode != 204 {
					t.Errorf("another connection: %s", response.Status)
				}
				other.Close()
				if err := send(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the client was not cut: %v", err)
				}
				if took := time.Since(start); took > 11*time.Second {
					t.Errorf("the client was cut after %v", took)
				}
			})
		})
	}
}

// Shutdown waits until the lingering connections have ended, or its context is done. Close ends them.
func TestLingeringAtTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*filotest.Server) error
		most time.Duration
	}{
		"Shutdown": {(*filotest.Server).ShutdownInTime, time.Second},
		"Close":    {func(s *filotest.Server) error { return s.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := servertest.NewListener()
				s := filotest.Serve(t, &filo.Server{Handler: lifeLingering}, listener)
				var clients []net.Conn
				for range 5 {
					conn, err := listener.Dial()
					if err != nil {
						t.Fatal(err)
					}
					io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n")
					clients = append(clients, conn)
				}
				for _, conn := range clients {
					if answer, err := io.ReadAll(conn); err != nil || filotest.Statuses(string(answer)) != "413" {
						t.Errorf("got %q, %v", answer, err)
					}
				}
				start := time.Now()
				if err := test.end(s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(start); took > test.most {
					t.Errorf("%s took %v", name, took)
				}
				s.WantNoGoroutine(t)
				for _, conn := range clients {
					if _, err := conn.Write([]byte("x")); err == nil {
						t.Error("a connection is still open")
					}
					conn.Close()
				}
			})
		})
	}
}

// If a client has closed its writing half before the server answers with an error, it can't send more, so the server closes the connection at once.
func TestNoLingeringAfterEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, lifeLingering)
		start := time.Now()
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: a\r\n", "GET /\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n",
			"GET /close HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		} {
			if answer := s.Raw(t, request); !strings.Contains(answer, "\r\nConnection: close\r\n") {
				t.Errorf("got %q for %q", answer, request)
			}
		}
		synctest.Wait()
		if stats := s.Config.Stats(); stats.ConnsOpen > 0 || time.Since(start) > 0 {
			t.Errorf("after %v: %+v", time.Since(start), stats)
		}
	})
}

// stallingListener accepts connections whose CloseWrite calls stall first.
type stallingListener struct {
	*servertest.Listener
	stall func()
}

func (l *stallingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return stallingConn{conn, l.stall}, nil
}

type stallingConn struct {
	net.Conn
	stall func()
}

func (c stallingConn) CloseWrite() error {
	c.stall()
	return c.Conn.(*servertest.Conn).CloseWrite()
}

// If the CloseWrite of a user's net.Conn takes long, it doesn't delay other connections that linger. The type of such a connection need not
// be comparable.
func TestLingerStallingConn(t *testing.T) {
	listener, goOn := servertest.NewListener(), make(chan struct{})
	var stalled atomic.Int32
	s := filotest.Serve(t, &filo.Server{Handler: filotest.NewGate().Handle, MaxConns: 1}, &stallingListener{listener, func() {
		if stalled.Add(1) == 1 {
			<-goOn
		}
	}})
	dial := func() *filotest.Client {
		conn, err := listener.Dial()
		if err != nil {
			t.Fatal(err)
		}
		return filotest.NewClient(t, conn)
	}
	client := dial()
	client.Get("/")
	client.Want(200, "quick", false)
	client.Send("G") // it isn't idle
	filotest.Await(t, "its next request to begin", func() bool { return s.Stats().ConnsActive == 1 })
	first := dial()
	first.Get("/")
	filotest.Await(t, "the first to linger", func() bool { return stalled.Load() == 1 })
	dial().WantRefusal(503)
	close(goOn)
	first.WantRefusal(503)
	filotest.Await(t, "both to be counted", func() bool { return s.Stats().ConnsRefused == 2 })
}
