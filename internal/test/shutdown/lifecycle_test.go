package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// Shutdown "closes idle connections at once after a last look for a request on its way". It also closes new connections that stay silent.
func TestShutdownClosesIdleConnections(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*filotest.Client){
		"silent": func(*filotest.Client) {},
		"idle":   func(c *filotest.Client) { c.Get("/"); c.Want(200, "quick", false) },
		// RFC 9112, section 2.2: an empty line before a request line isn't part of a request.
		"only an empty line": func(c *filotest.Client) { c.Send("\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := filotest.ServeGated(t, &filo.Server{})
			var clients []*filotest.Client
			for range 20 {
				c := s.Dial(t)
				prepare(c)
				clients = append(clients, c)
			}
			filotest.Await(t, "the connections to be served", func() bool { return s.Stats().ConnsIdle == len(clients) })
			if err := s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			for _, c := range clients {
				c.WantEOF()
			}
			s.WantServed(t, filo.ErrServerClosed)
			s.WantNoGoroutine(t)
			if _, err := net.Dial("tcp", s.Addr); err == nil {
				t.Error("the server still listens")
			}
		})
	}
}

// "Running requests may finish, with Connection: close in their answers".
func TestShutdownFinishesRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string // what the client sends before the shutdown and after it has begun
		want          func(*filotest.Client)
	}{
		"a running request": {
			before: "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
			want:   func(c *filotest.Client) { c.Want(200, "held", true) },
		},
		"an HTTP/1.0 request that asked for keep-alive": {
			before: "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			want:   func(c *filotest.Client) { c.Want(200, "held", true) },
		},
		"pipelined requests, the last of which closes": {
			before: "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
			want: func(c *filotest.Client) {
				c.Want(200, "held", false)
				c.Want(200, "quick", false)
				c.Want(200, "quick", true)
			},
		},
		"a body that its handler doesn't read": {
			before: "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
			want:   func(c *filotest.Client) { c.Want(200, "held", true) },
		},
		"a body that comes later and isn't read": {
			// The body is so long that the server calls the handler before it has arrived.
			before: "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 20002\r\n\r\nbo", after: strings.Repeat("d", 20_000),
			want: func(c *filotest.Client) { c.Want(200, "held", true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, gate := filotest.ServeGated(t, &filo.Server{})
			c := s.Dial(t)
			c.Send(test.before)
			begun := filotest.Recv(t, gate.Entered, "the handler to run").ShuttingDown()
			result := s.BeginShutdown(t, begun)
			c.Send(test.after)
			gate.Open()
			test.want(c)
			c.WantEOF()
			if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			s.WantNoGoroutine(t)
		})
	}
}

// If a request's first bytes arrived before the shutdown, the request counts as running.
func TestShutdownFinishesWhatHasBegun(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
	}{
		"the rest of a head": {"GET / HTTP/1.1\r\nHo", "st: a\r\n\r\n"},
		"the rest of a body": {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nqu", "ick"},
		"the rest of chunks": {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nqu", "i\r\n2\r\nck\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			gate := filotest.NewGate()
			s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				if c.Path() != "/echo" {
					return gate.Handle(c)
				}
				body, err := c.Body()
				if err != nil {
					return err
				}
				return c.Bytes(200, "text/plain", body)
			}})
			defer gate.Open()
			begun := gate.Begun(t, s)
			c := s.Dial(t)
			c.Send(test.before)
			filotest.Await(t, "the beginning to be read", func() bool { return s.Stats().ConnsActive == 2 })
			result := s.BeginShutdown(t, begun)
			c.Send(test.after)
			c.Want(200, "quick", true)
			c.WantEOF()
			gate.Open()
			if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
}

// "Shutdown ends the server without losing requests that clients have sent": it answers the requests that clients of idle and new connections
// have sent before its call.
func TestShutdownAnswersWhatWasSent(t *testing.T) {
	s, _ := filotest.ServeGated(t, &filo.Server{})
	var clients []*filotest.Client
	for i := range 200 {
		c := s.Dial(t)
		if i%2 == 0 {
			c.Get("/")
			c.Want(200, "quick", false)
		}
		clients = append(clients, c)
	}
	filotest.Await(t, "the connections to be served", func() bool { return s.Stats().ConnsIdle == len(clients) })
	for _, c := range clients {
		c.Get("/")
	}
	if err := s.ShutdownInTime(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, c := range clients {
		// If the server has read a request before the shutdown began, the answer doesn't say Connection: close.
		if response, body := c.Answer(); response.StatusCode != 200 || body != "quick" {
			t.Fatalf("got %d %q", response.StatusCode, body)
		}
		c.WantEOF()
	}
}

// Shutdown also answers requests on connections that only the kernel, and not the server, has accepted before its call.
func TestShutdownAnswersTheBacklog(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			listener := filotest.Listen(t, network, address)
			wantBacklogAnswered(t, &filo.Server{}, listener)
		})
	}
}

// Shutdown answers these requests even if it is called a second time before it has ended.
func TestShutdownAgainAnswersTheBacklog(t *testing.T) {
	s := &filo.Server{}
	listener := &lifePatient{TCPListener: filotest.Listen(t, "tcp", "127.0.0.1:0").(*net.TCPListener), woken: make(chan struct{})}
	listener.last = func() {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Shutdown(done); err != context.Canceled {
			t.Errorf("the second Shutdown: %v", err)
		}
	}
	wantBacklogAnswered(t, s, listener)
	if listener.deadlines.Load() < 3 {
		t.Error("Shutdown wasn't called a second time")
	}
}

// lifePatient is a listener that accepts one connection, and then none until a shutdown sets a deadline.
type lifePatient struct {
	*net.TCPListener
	accepts, deadlines atomic.Int64
	woken              chan struct{} // closed by the first deadline
	last               func()        // called after the third deadline has been set, while connections are still waiting
}

func (l *lifePatient) Accept() (net.Conn, error) {
	if l.accepts.Add(1) > 1 {
		<-l.woken
	}
	return l.TCPListener.Accept()
}

func (l *lifePatient) SetDeadline(at time.Time) error {
	err := l.TCPListener.SetDeadline(at)
	switch l.deadlines.Add(1) {
	case 1:
		close(l.woken)
	case 3:
		l.last()
	}
	return err
}

// wantBacklogAnswered sends many requests on connections that the server hasn't accepted yet. It shuts the server down as soon as the server
// has accepted one connection, and checks that all requests are answered.
func wantBacklogAnswered(t *testing.T, config *filo.Server, listener net.Listener) {
	t.Helper()
	const waiting = 100 // so few that even a busy machine accepts them within lastAcceptLimit
	var clients []*filotest.Client
	for range waiting {
		conn, err := net.Dial(listener.Addr().Network(), listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := filotest.NewClient(t, conn)
		c.Get("/")
		clients = append(clients, c)
	}
	config.Handler = filotest.NewGate().Handle
	s := filotest.Serve(t, config, listener)
	filotest.Await(t, "the first connection", func() bool { return s.Stats().ConnsAccepted > 0 })
	if err := s.ShutdownInTime(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for i, c := range clients {
		if response, body, err := c.TryAnswer(); err != nil || response.StatusCode != 200 || body != "quick" {
			t.Fatalf("client %d of %d: %v %q, %v", i, waiting, response, body, err)
		}
		c.WantEOF()
	}
}

// Shutdown "doesn't wait for hijacked connections", and Close ends "all connections except hijacked ones", whether or not their handlers
// have returned.
func TestHijackedLiveOn(t *testing.T) {
	for name, end := range map[string]func(*filotest.Server) error{
		"Shutdown": (*filotest.Server).ShutdownInTime,
		"Close":    func(s *filotest.Server) error { return s.Close() },
	} {
		for _, handlerStays := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, handler stays %v", name, handlerStays), func(t *testing.T) {
				taken := make(chan struct{})
				var echo sync.WaitGroup
				s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
					conn, _, err := c.Hijack()
					if err != nil {
						return err
					}
					echo.Go(func() {
						io.Copy(conn, conn)
						conn.Close()
					})
					close(taken)
					if handlerStays {
						echo.Wait()
					}
					return nil
				}})
				c := s.Dial(t)
				c.Get("/")
				filotest.Recv(t, taken, "the hijack")
				if err := end(s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				c.Send("still here")
				c.Conn.(*net.TCPConn).CloseWrite()
				if rest, err := io.ReadAll(c.Reader); string(rest) != "still here" || err != nil {
					t.Errorf("got %q, %v of the hijacked connection", rest, err)
				}
			})
		}
	}
}

// "If ctx is done first, Shutdown cancels the contexts of the requests and tasks that still run, and returns ctx's error. Shutdown or
// Close may be called again afterwards."
func TestShutdownGivesUp(t *testing.T) {
	for name, again := range map[string]func(*filotest.Server) error{
		"Shutdown again": (*filotest.Server).ShutdownInTime,
		"Close":          func(s *filotest.Server) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, gate := filotest.ServeGated(t, &filo.Server{})
			c := s.Dial(t)
			ctx := gate.Hold(t, c).Context()
			done, cancel := context.WithCancel(context.Background())
			cancel()
			for range 2 {
				if err := s.Shutdown(done); err != context.Canceled {
					t.Errorf("Shutdown with a context that is done: %v", err)
				}
			}
			filotest.Recv(t, ctx.Done(), "the request's context to be cancelled")
			if cause := context.Cause(ctx); cause != filo.ErrServerClosed {
				t.Errorf("the context's cause is %v", cause)
			}
			s.WantServed(t, filo.ErrServerClosed)
			gate.Open()
			if err := again(s); err != nil {
				t.Errorf("then: %v", err)
			}
			s.WantNoGoroutine(t)
		})
	}
}

// Until Shutdown's own context is done, a request's context isn't cancelled.
func TestShutdownKeepsContexts(t *testing.T) {
	s, gate := filotest.ServeGated(t, &filo.Server{})
	held := gate.Hold(t, s.Dial(t))
	ctx := held.Context()
	result := s.BeginShutdown(t, held.ShuttingDown())
	if err := ctx.Err(); err != nil {
		t.Errorf("the context of a running request is done: %v", err)
	}
	gate.Open()
	if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// "Close ends the server at once. It closes the listeners and all connections …, and cancels the contexts of the running requests."
func TestClose(t *testing.T) {
	s, gate := filotest.ServeGated(t, &filo.Server{})
	silent, idle, head, running := s.Dial(t), s.Dial(t), s.Dial(t), s.Dial(t)
	idle.Get("/")
	idle.Want(200, "quick", false)
	head.Send("GET / HT")
	ctx := gate.Hold(t, running).Context()
	filotest.Await(t, "the connections to be served", func() bool {
		stats := s.Stats()
		return stats.ConnsIdle == 2 && stats.ConnsActive == 2
	})
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, c := range []*filotest.Client{silent, idle, head, running} {
		c.WantEnd()
	}
	filotest.Recv(t, ctx.Done(), "the request's context to be cancelled")
	if cause := context.Cause(ctx); cause != filo.ErrServerClosed {
		t.Errorf("the context's cause is %v", cause)
	}
	s.WantServed(t, filo.ErrServerClosed)
	gate.Open()
	s.WantNoGoroutine(t)
}

// lifeCurious is a listener whose Close calls a method of the server.
type lifeCurious struct {
	net.Listener
	s *filo.Server
}

func (l lifeCurious) Close() error {
	l.s.Stats()
	return l.Listener.Close()
}

func (l lifeCurious) SetDeadline(time.Time) error {
	l.s.Stats()
	return errors.ErrUnsupported
}

// The server holds no lock when it calls the Close of a user's listener.
func TestListenerMayAskTheServer(t *testing.T) {
	for name, end := range map[string]func(*filotest.Server) error{
		"Shutdown": (*filotest.Server).ShutdownInTime,
		"Close":    func(s *filotest.Server) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			config := &filo.Server{Handler: filotest.NewGate().Handle}
			s := filotest.Serve(t, config, lifeCurious{filotest.Listen(t, "tcp", "127.0.0.1:0"), config})
			c := s.Dial(t) // wait until the server serves
			c.Get("/")
			c.Want(200, "quick", false)
			ended := make(chan error, 1)
			s.Go(func() { ended <- end(s) })
			if err := filotest.Recv(t, ended, name+" to return"); err != nil {
				t.Error(err)
			}
			s.WantServed(t, filo.ErrServerClosed)
			s.WantNoGoroutine(t)
		})
	}
}

// "The error is ErrServerClosed after Shutdown or Close", in whatever order and how often they are called.
func TestLifecycleOrders(t *testing.T) {
	shutdown := func(t *testing.T, s *filotest.Server) {
		if err := s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
	closeNow := func(t *testing.T, s *filotest.Server) {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	refused := func(t *testing.T, s *filotest.Server) {
		listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
		if err := s.Serve(listener); err != filo.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
		if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			t.Error("Serve left its listener open")
		}
		client, server := net.Pipe()
		client.SetDeadline(time.Now().Add(filotest.Bound))
		if err := s.ServeConn(server); err != filo.ErrServerClosed {
			t.Errorf("ServeConn: %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("ServeConn left its connection open: %v", err)
		}
	}
	type act func(*testing.T, *filotest.Server)
	for name, acts := range map[string][]act{
		"Shutdown, Shutdown": {shutdown, shutdown, refused},
		"Shutdown, Close":    {shutdown, closeNow, refused},
		"Close, Shutdown":    {closeNow, shutdown, refused},
		"Close, Close":       {closeNow, closeNow, refused},
	} {
		t.Run(name+" of a server that serves", func(t *testing.T) {
			s, _ := filotest.ServeGated(t, &filo.Server{})
			c := s.Dial(t)
			c.Get("/")
			c.Want(200, "quick", false)
			for _, act := range acts {
				act(t, s)
			}
			s.WantServed(t, filo.ErrServerClosed)
		})
		t.Run(name+" of a server that never did", func(t *testing.T) {
			s := filotest.New(&filo.Server{Handler: filotest.NewGate().Handle}, 0)
			done := make(chan struct{})
			s.Go(func() {
				defer close(done)
				for _, act := range acts {
					act(t, s)
				}
			})
			filotest.Recv(t, done, "the calls to return")
			s.WantNoGoroutine(t)
		})
	}
}

// Shutdown, Close, Serve and ServeConn may be called at the same time: no call hangs, and the server releases all resources.
func TestLifecycleAtOnce(t *testing.T) {
	for round := range 30 {
		gate := filotest.NewGate()
		first := filotest.Listen(t, "tcp", "127.0.0.1:0")
		second := filotest.Listen(t, "tcp", "127.0.0.1:0")
		s := filotest.Serve(t, &filo.Server{Handler: gate.Handle}, first, second)
		var clients []*filotest.Client
		for range 4 {
			if conn, err := net.Dial("tcp", s.Addr); err == nil {
				clients = append(clients, filotest.NewClient(t, conn))
			}
		}
		go func() { // it may fail when the server ends
			for _, c := range clients {
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
		}()
		var group sync.WaitGroup
		group.Go(func() {
			_, server := net.Pipe()
			s.ServeConn(server)
		})
		for range 2 {
			group.Go(func() {
				if err := s.ShutdownInTime(); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			})
		}
		if round%2 == 0 {
			group.Go(func() { s.Close() })
		}
		group.Wait()
		s.WantServed(t, filo.ErrServerClosed)
		s.WantNoGoroutine(t)
		for _, c := range clients {
			c.Close()
		}
	}
}

// "ShuttingDown returns a channel that is closed when the server starts to shut down."
func TestShuttingDown(t *testing.T) {
	for name, end := range map[string]func(*filotest.Server) error{
		"Shutdown": (*filotest.Server).ShutdownInTime,
		"Close":    func(s *filotest.Server) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			streaming, told := make(chan struct{}), make(chan struct{})
			s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				stream := c.Stream()
				stream.WriteString("first ")
				if err := stream.Flush(); err != nil {
					return err
				}
				select {
				case <-c.ShuttingDown():
					t.Error("shutting down, before anybody asked for it")
				default:
				}
				close(streaming)
				<-c.ShuttingDown()
				close(told)
				_, err := stream.WriteString("last")
				return err
			}})
			c := s.Dial(t)
			c.Get("/")
			filotest.Recv(t, streaming, "the stream to begin")
			if err := end(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			filotest.Recv(t, told, "the handler to be told")
			if name == "Shutdown" {
				if _, body := c.Answer(); body != "first last" {
					t.Errorf("got %q", body)
				}
			}
		})
	}
}

// "Serve may be called for several listeners at once": they end together, but if one of them fails, the others continue.
func TestServeSeveralListeners(t *testing.T) {
	first, second := filotest.Listen(t, "tcp", "127.0.0.1:0"), filotest.Listen(t, "tcp", "127.0.0.1:0")
	gate := filotest.NewGate()
	s := filotest.Serve(t, &filo.Server{Handler: gate.Handle}, first, second)
	third := filotest.Listen(t, "tcp", "127.0.0.1:0")
	failed := make(chan error, 1)
	s.Go(func() { failed <- s.Serve(third) })
	var clients []*filotest.Client
	for _, listener := range []net.Listener{first, second, third} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := filotest.NewClient(t, conn)
		c.Get("/")
		c.Want(200, "quick", false)
		clients = append(clients, c)
	}
	third.Close()
	if err := filotest.Recv(t, failed, "Serve to return"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve on a listener that was closed: %v", err)
	}
	for _, c := range clients {
		c.Get("/")
		c.Want(200, "quick", false)
	}
	if err := s.ShutdownInTime(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, c := range clients {
		c.WantEOF()
	}
}

// Serve may be called several times for one listener.
func TestServeOneListenerTwice(t *testing.T) {
	for name, end := range map[string]func(*filotest.Server) error{
		"Shutdown": (*filotest.Server).ShutdownInTime,
		"Close":    func(s *filotest.Server) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
			s := filotest.Serve(t, &filo.Server{Handler: filotest.NewGate().Handle}, listener, listener)
			for range 10 {
				c := s.Dial(t)
				c.Get("/")
				c.Want(200, "quick", false)
			}
			// When one accept loop ends, it closes the listener, which ends the other loop. The 10 requests have ensured that both were running.
			if err := end(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s.WantServed(t, filo.ErrServerClosed)
			s.WantServed(t, filo.ErrServerClosed)
			s.WantNoGoroutine(t)
		})
	}
}

// "ServeConn serves one connection on the caller's goroutine, and closes it unless a handler hijacks it. The connection doesn't count
// against Concurrency."
func TestServeConn(t *testing.T) {
	gate := filotest.NewGate()
	s := filotest.Serve(t, &filo.Server{Handler: gate.Handle, Concurrency: 1})
	defer gate.Open()
	gate.Hold(t, s.Dial(t))
	client, server := net.Pipe()
	result := make(chan error, 1)
	s.Go(func() { result <- s.ServeConn(server) })
	c := filotest.NewClient(t, client)
	c.Get("/")
	c.Want(200, "quick", false)
	if stats := s.Stats(); stats.ConnsOpen != 2 || stats.ConnsAccepted != 2 || stats.ConnsRefused != 0 {
		t.Errorf("with one connection served beside the worker's: %+v", stats)
	}
	c.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	c.Want(200, "quick", true)
	c.WantEOF()
	if err := filotest.Recv(t, result, "ServeConn to return"); err != nil {
		t.Errorf("ServeConn: %v", err)
	}
}

// ServeConn has no other worker, so it runs handlers of any class on its caller's goroutine.
func TestServeConnClasses(t *testing.T) {
	quick := func(c *filo.Ctx) error { return c.Text(200, "quick") }
	for name, handler := range map[string]filo.Handler{"offload": filo.Offload(quick), "inline": filo.Inline(quick)} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Handler: handler})
			client, server := net.Pipe()
			result := make(chan error, 1)
			s.Go(func() { result <- s.ServeConn(server) })
			c := filotest.NewClient(t, client)
			for range 2 {
				c.Get("/")
				c.Want(200, "quick", false)
			}
			client.Close()
			if err := filotest.Recv(t, result, "ServeConn to return"); err != nil {
				t.Errorf("ServeConn: %v", err)
			}
		})
	}
}

// Shutdown waits for a connection that ServeConn serves, and closes it when it is idle.
func TestServeConnShutdown(t *testing.T) {
	s, gate := filotest.ServeGated(t, &filo.Server{})
	idleClient, idleServer := net.Pipe()
	busyClient, busyServer := net.Pipe()
	results := make(chan error, 2)
	for _, server := range []net.Conn{idleServer, busyServer} {
		s.Go(func() { results <- s.ServeConn(server) })
	}
	idle, busy := filotest.NewClient(t, idleClient), filotest.NewClient(t, busyClient)
	idle.Get("/")
	idle.Want(200, "quick", false)
	held := gate.Hold(t, busy)
	result := s.BeginShutdown(t, held.ShuttingDown())
	idle.WantEOF()
	gate.Open()
	busy.Want(200, "held", true)
	busy.WantEOF()
	if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for range 2 {
		if err := filotest.Recv(t, results, "ServeConn to return"); err != nil {
			t.Errorf("ServeConn: %v", err)
		}
	}
}

// The function ServeConn serves a connection without a Server, and leaves no goroutine behind. A hijacked connection stays open.
func TestPackageServeConn(t *testing.T) {
	s := filotest.New(&filo.Server{}, 0)
	for name, hijack := range map[string]bool{"closed": false, "hijacked": true} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			result := make(chan error, 1)
			s.Go(func() {
				result <- filo.ServeConn(server, func(c *filo.Ctx) error {
					if hijack {
						_, _, err := c.Hijack()
						return err
					}
					return c.Text(200, "quick")
				})
			})
			c := filotest.NewClient(t, client)
			c.Send("GET / HTTP/1.0\r\n\r\n")
			if hijack {
				if err := filotest.Recv(t, result, "ServeConn to return"); err != nil {
					t.Errorf("ServeConn: %v", err)
				}
				go io.WriteString(server, "HTTP/1.0 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine")
				c.Want(200, "mine", true)
			} else {
				c.Want(200, "quick", true)
				c.WantEOF()
				if err := filotest.Recv(t, result, "ServeConn to return"); err != nil {
					t.Errorf("ServeConn: %v", err)
				}
			}
			s.WantNoGoroutine(t)
		})
	}
}

// A server without a handler returns an error at once, and closes the listener or connection that it was given.
func TestServeWithoutHandler(t *testing.T) {
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	if err := (&filo.Server{}).Serve(listener); err == nil || errors.Is(err, filo.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// lifeResettable returns a handler that waits for the client's reset, for each path in a different call. The handler sends the error of this
// call, or the cause with which the context has ended, to the channel ended.
func lifeResettable(file string, ended chan<- error) filo.Handler {
	return func(c *filo.Ctx) error {
		switch c.Path() {
		case "/context":
			ctx := c.Context()
			c.Response.Header.Set("Link", "</>")
			if err := c.EarlyHints(); err != nil { // tell the client that the handler runs
				return err
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
		case "/body":
			_, err := c.Body()
			ended <- err
			return err
		case "/reader":
			_, err := io.Copy(io.Discard, c.BodyReader())
			ended <- err
			return err
		case "/huge":
			ended <- nil
			return c.BytesNoCopy(200, "text/plain", filotest.Huge())
		case "/file":
			ended <- nil
			return c.File(file)
		case "/stream":
			for stream := c.Stream(); ; {
				if _, err := stream.Write(filotest.Huge()[:100_000]); err != nil {
					ended <- err
					return err
				}
			}
		}
		return c.Text(200, "quick")
	}
}

// If a client resets a connection in any state, the server releases the worker and all resources, logs nothing, and continues to serve other
// connections.
func TestResets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, filotest.Huge(), 0o600); err != nil {
		t.Fatal(err)
	}
	const post = " HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf"
	for _, test := range []struct {
		name, send string
		read       string // the client reads this beginning of the answer before the reset
		active     bool   // the connection must be active before the reset
		handler    bool   // the handler sends its error to ended
		want       error  // the handler's error
	}{
		{name: "new"},
		{name: "idle", send: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", read: "HTTP/1.1 200"},
		{name: "head", send: "GET / HTTP/1.1\r\nHo", active: true},
		{name: "pipelined head", send: "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /", read: "HTTP/1.1 200", active: true},
		{name: "body", send: "POST /body" + post, active: true, handler: true, want: syscall.ECONNRESET},
		{name: "body reader", send: "POST /reader" + post, active: true, handler: true, want: syscall.ECONNRESET},
		{name: "chunks", send: "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", active: true, handler: true, want: syscall.ECONNRESET},
		{name: "rest of a body", send: "POST /" + post, read: "HTTP/1.1 200", active: true},
		{name: "handler", send: "GET /context HTTP/1.1\r\nHost: a\r\n\r\n", read: "HTTP/1.1 103", active: true, handler: true, want: filo.ErrClientGone},
		{name: "answer", send: "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n", read: "HTTP/1.1 200", active: true, handler: true},
		{name: "file", send: "GET /file HTTP/1.1\r\nHost: a\r\n\r\n", read: "HTTP/1.1 200", active: true, handler: true},
		{name: "stream", send: "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", read: "HTTP/1.1 200", active: true, handler: true, want: syscall.ECONNRESET},
		{name: "linger", send: "GET /\r\n\r\n", read: "HTTP/1.1 400"},
	} {
		t.Run(test.name, func(t *testing.T) {
			log, ended := new(filotest.Log), make(chan error, 1)
			s := filotest.Serve(t, &filo.Server{Handler: lifeResettable(file, ended), Logger: log.Logger()})
			other := s.Dial(t)
			filotest.Await(t, "the other connection", func() bool { return s.Stats().ConnsOpen == 1 })
			c := s.Dial(t)
			c.Send(test.send)
			begin := make([]byte, len(test.read))
			if _, err := io.ReadFull(c, begin); err != nil || string(begin) != test.read {
				t.Fatalf("got %q, %v", begin, err)
			}
			filotest.Await(t, "the state", func() bool {
				stats := s.Stats()
				return stats.ConnsAccepted == 2 && (test.name == "linger" || stats.ConnsOpen == 2 && stats.ConnsActive == 1 == test.active)
			})
			c.Reset()
			if test.handler {
				if err := filotest.Recv(t, ended, "the handler to end"); test.want == nil && err != nil || !errors.Is(err, test.want) && !filotest.IsReset(err) {
					t.Errorf("the handler's end: %v, want %v", err, test.want)
				}
			}
			filotest.Await(t, "the connection to go", func() bool {
				stats := s.Stats()
				return stats.ConnsOpen == 1 && stats.WorkersRunning == filotest.WorkersOf(1)
			})
			other.Get("/")
			other.Want(200, "quick", false)
			if lines := log.Lines(""); len(lines) > 0 {
				t.Errorf("log: %q", lines)
			}
		})
	}
}

// timelessListener is a listener whose connections support no deadlines, like those of some multiplexers.
type timelessListener struct{ net.Listener }

func (l timelessListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return timelessConn{conn}, nil
}

type timelessConn struct{ net.Conn }

func (timelessConn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (timelessConn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (timelessConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
func (c timelessConn) CloseWrite() error              { return c.Conn.(*net.TCPConn).CloseWrite() }

// The server also serves connections that don't support deadlines, whatever methods their handlers call. They end with the server, or after a
// time-out.
func TestConnsWithoutDeadlines(t *testing.T) {
	ends := map[string]func(s *filotest.Server, c *filotest.Client) error{
		"Shutdown": func(s *filotest.Server, _ *filotest.Client) error { return s.ShutdownInTime() },
		"Close":    func(s *filotest.Server, _ *filotest.Client) error { return s.Close() },
		"the time": nil,
	}
	prepares := map[string]func(c *filotest.Client){
		"silent": func(*filotest.Client) {},
		"idle":   func(c *filotest.Client) { c.Get("/"); c.Want(200, "quick", false) },
		"watched": func(c *filotest.Client) {
			for range 2 {
				c.Get("/watch")
				c.Want(200, "watched", false)
			}
		},
		"lingering": func(c *filotest.Client) {
			c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n")
			c.Want(200, "quick", true)
		},
		"parked": func(c *filotest.Client) {
			c.Get("/park")
			if _, err := c.Reader.ReadString('p'); err != nil {
				c.T.Error(err)
			}
		},
	}
	for end, endWith := range ends {
		for name, prepare := range prepares {
			if name == "parked" && endWith == nil {
				continue // this handler may wait for ever
			}
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				config := &filo.Server{Handler: func(c *filo.Ctx) error {
					switch c.Path() {
					case "/watch":
						select {
						case <-c.Context().Done():
						default:
						}
						return c.Text(200, "watched")
					case "/park":
						p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
						if err == nil {
							_, err = p.Write([]byte("p"))
						}
						return err
					}
					return c.Text(200, "quick")
				}}
				if endWith == nil {
					config.ReadHeaderTimeout, config.IdleTimeout = 3*time.Second, 3*time.Second // long enough for prepare, even on a busy machine
				}
				s := filotest.Serve(t, config, timelessListener{filotest.Listen(t, "tcp", "127.0.0.1:0")})
				c := s.Dial(t)
				prepare(c)
				filotest.Await(t, "the connection", func() bool { return s.Stats().ConnsAccepted == 1 })
				if endWith != nil {
					if err := endWith(s, c); err != nil {
						t.Error(err)
					}
				}
				io.Copy(io.Discard, c.Reader) // until the end
				if _, err := c.Reader.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection doesn't end")
				}
			})
		}
	}
}
