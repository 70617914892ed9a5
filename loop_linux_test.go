package filo

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/sock"
)

// Only one loop accepts from a listener that the user supplies, and gives each loop its share of the connections. Connections that are
// accepted after the close of the listener aren't served.
func TestOneListenerForAllLoops(t *testing.T) {
	if asksForBlocking() {
		t.Skip("the blocking driver is under test")
	}
	const loops, each = 4, 5 // with eight leaders each
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Leaders: 8 * loops, Logger: slog.New(slog.DiscardHandler), Handler: Inline(func(c *Ctx) error { return c.Text(200, "served") })}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	ask := func() (net.Conn, string, error) {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return c, "", err
		}
		body, err := io.ReadAll(response.Body)
		return c, string(body), err
	}
	for range loops * each {
		if _, body, err := ask(); err != nil || body != "served" {
			t.Fatalf("got %q, %v", body, err)
		}
	}
	for _, l := range s.loops.Load().Loops() {
		if n := l.Conns(); n != each {
			t.Errorf("a loop has %d connections, want %d", n, each)
		}
	}
	listener.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
	if _, body, err := ask(); err == nil {
		t.Errorf("got %q from a listener that is closed", body)
	}
	s.Close()
}

// While no connection arrives at a listener that the user supplies, no loop polls the listener: only a goroutine waits in Accept, in the
// runtime's poller. A connection that this goroutine accepts is served like any other, and Serve returns when the user closes the listener.
func TestQuietListenerIsNotPolled(t *testing.T) {
	if asksForBlocking() {
		t.Skip("the blocking driver is under test")
	}
	quiet := func() bool {
		stacks := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if header, _, _ := strings.Cut(stack, "\n"); strings.Contains(stack, ".acceptUser(") && strings.Contains(header, "[IO wait") {
				return true
			}
		}
		return false
	}
	await := func(what string, so func() bool) {
		t.Helper()
		for range 6000 {
			if so() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("waited in vain for %s", what)
	}
	inherited := func(listener net.Listener) net.Listener {
		file, err := listener.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		defer listener.Close()
		if listener, err = net.FileListener(file); err != nil {
			t.Fatal(err)
		}
		return listener
	}
	for name, test := range map[string]struct {
		network, address string
		end              func(*Server, net.Listener) error
		want             error
	}{
		"closed":           {"tcp", "127.0.0.1:0", func(_ *Server, listener net.Listener) error { return listener.Close() }, net.ErrClosed},
		"shut down":        {"tcp", "127.0.0.1:0", func(s *Server, _ net.Listener) error { return s.Shutdown(context.Background()) }, ErrServerClosed},
		"server closed":    {"tcp", "127.0.0.1:0", func(s *Server, _ net.Listener) error { return s.Close() }, ErrServerClosed},
		"Unix socket":      {"unix", t.TempDir() + "/socket", func(_ *Server, listener net.Listener) error { return listener.Close() }, net.ErrClosed},
		"inherited socket": {"tcp", "127.0.0.1:0", func(_ *Server, listener net.Listener) error { return listener.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen(test.network, test.address)
			if err != nil {
				t.Fatal(err)
			}
			if name == "inherited socket" {
				listener = inherited(listener)
			}
			s := &Server{Leaders: 2, Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error { return c.Text(200, c.RemoteAddr().Network()) }}
			served := make(chan error, 1)
			go func() { served <- s.Serve(listener) }()
			await("the goroutine to wait", quiet)
			// The loop doesn't watch the socket any more, so the goroutine must accept the connection.
			s.life.Hold(func() {
				for _, listener := range reflect.ValueOf(&s.life).Elem().FieldByName("listeners").MapKeys() {
					entry := listener.Elem().Elem().Elem().FieldByName("entries").Index(0).Elem()
					epfd := entry.FieldByName("loop").Elem().FieldByName("epoll").Int()
					sock.EpollControl(int(epfd), syscall.EPOLL_CTL_DEL, int(entry.FieldByName("fd").Int()), 0, 0, 0)
				}
			})
			c, err := net.Dial(test.network, listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			for range 3 {
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				response, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				if body, _ := io.ReadAll(response.Body); string(body) != test.network {
					t.Errorf("got %q", body)
				}
			}
			await("the goroutine to wait again", quiet)
			if err := test.end(s, listener); err != nil {
				t.Error(err)
			}
			select {
			case err := <-served:
				if !errors.Is(err, test.want) {
					t.Errorf("Serve returned %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("Serve doesn't return")
			}
			s.Close()
			await("the loops to end", func() bool { return s.Stats().WorkersLeading == 0 })
		})
	}
}

// Every connection makes progress even if the leaders are always busy.
func TestBusyLeaders(t *testing.T) {
	if asksForBlocking() {
		t.Skip("the blocking driver is under test")
	}
	s := &Server{Leaders: 2, Logger: slog.New(slog.DiscardHandler), Handler: Inline(func(c *Ctx) error {
		for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
		}
		return c.Text(200, c.Path())
	})}
	listener, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	const bound = time.Minute
	deadline := time.Now().Add(bound)
	await := func(what string, condition func() bool) {
		t.Helper()
		for !condition() {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %s", what)
			}
			time.Sleep(time.Millisecond)
		}
	}
	await("the leaders", func() bool { return s.Stats().WorkersLeading == 2 })
	const requests = 32
	var conns []net.Conn
	for len(conns) < 48 {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(deadline)
		conns = append(conns, c)
	}
	progress := make([]atomic.Int32, len(conns))
	enough := make(chan struct{})
	var clients sync.WaitGroup
	for i, c := range conns {
		clients.Go(func() {
			reader := bufio.NewReader(c)
			for {
				select {
				case <-enough:
					return
				default:
				}
				if _, err := io.WriteString(c, strings.Repeat("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n", requests)); err != nil {
					t.Error(err)
					return
				}
				for range requests {
					response, err := http.ReadResponse(reader, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if body, err := io.ReadAll(response.Body); err != nil || string(body) != "/busy" {
						t.Errorf("got %q, %v", body, err)
						return
					}
				}
				progress[i].Add(1)
			}
		})
	}
	await("every connection to get on", func() bool {
		for i := range progress {
			if progress[i].Load() < 3 {
				return t.Failed()
			}
		}
		return true
	})
	close(enough)
	clients.Wait()
	s.Close()
	if err := <-served; err != ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
	await("the loops to end", func() bool { return s.Stats().WorkersLeading == 0 })
}

// After the time-out of a handshake, crypto/tls may close its connection long after the owner has ended it. This late close must not close
// the descriptor, which the owner or the lingerer still uses.
func TestLateCloseOfAHandshake(t *testing.T) {
	if asksForBlocking() {
		t.Skip("of the loop driver")
	}
	ended := make(chan bool, 1)
	s := &Server{Leaders: 1, Handler: func(c *Ctx) error {
		c.Response.Header.Set("Connection", "close")
		return c.NoContent()
	}, ConnState: func(observed net.Conn, state ConnState) {
		if state == StateClosed { // called by the owner, before the connection is closed
			lc := observed.(*observedConn).driver.(*loopConn)
			lc.Close()
			ended <- lc.LocalAddr().String() != (&net.TCPAddr{}).String()
		}
	}}
	listener, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(listener)
	defer s.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if open := <-ended; !open {
		t.Error("who doesn't own the connection has closed its descriptor")
	}
}

// As many leaders may be replaced beyond Concurrency as there are seats and places for quick handlers. A huge Concurrency has the effect of
// no limit.
func TestMayRetake(t *testing.T) {
	for _, test := range []struct {
		most   int
		beyond int
		want   bool
	}{{math.MaxInt, 1000, true}, {1, 0, true}, {1, admit.MaxQuick + 1, true}, {1, admit.MaxQuick + 2, false}} {
		p := &loopWorkers{pool: &workerPool{MaxWorkersCount: test.most, clock: new(coarseClock)}}
		p.pool.init()
		for range test.beyond + min(test.most, 1) {
			p.pool.places.TakeBeyond()
		}
		if got := p.MayRetake(2); got != test.want {
			t.Errorf("with %d workers beyond %d: %v", test.beyond, test.most, got)
		}
	}
}

// asksForBlocking reports whether FILO_DRIVER asks for the blocking driver.
func asksForBlocking() bool { return os.Getenv(driverVariable) == DriverBlocking.String() }
