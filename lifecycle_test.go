package filo_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// lifeBound is how long the tests wait for what has to come. A passing test never waits so long.
const lifeBound = 60 * time.Second

// lifeLabel is the pprof label that the goroutines of a server under test carry: a goroutine inherits it from the
// one that starts it.
const lifeLabel = "filo.life"

var lifeLabels atomic.Int64

// lifeServer is a server that a test has started, and what Serve returned of it.
type lifeServer struct {
	*filo.Server
	addr   string
	label  string
	served chan error
}

// lifeServe serves on the listeners, a loopback socket if there are none. At the end of the test the server is closed,
// Serve must have returned ErrServerClosed, and no goroutine may be left.
func lifeServe(t testing.TB, config *filo.Server, listeners ...net.Listener) *lifeServer {
	t.Helper()
	if len(listeners) == 0 {
		listeners = append(listeners, lifeListen(t, "tcp", "127.0.0.1:0"))
	}
	s := lifeNew(config, len(listeners))
	s.addr = listeners[0].Addr().String()
	for _, listener := range listeners {
		s.run(func() { s.served <- config.Serve(listener) })
	}
	s.closeAtEnd(t, len(listeners))
	return s
}

// lifeNew returns a server under test, before the calls that it serves by.
func lifeNew(config *filo.Server, calls int) *lifeServer {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &lifeServer{
		Server: config,
		label:  fmt.Sprint(lifeLabels.Add(1)),
		served: make(chan error, calls),
	}
}

// closeAtEnd closes the server at the end of the test: its calls must have returned ErrServerClosed, no goroutine may be left, and nothing may
// be counted that has ended.
func (s *lifeServer) closeAtEnd(t testing.TB, calls int) {
	t.Cleanup(func() {
		s.Close()
		for range calls {
			s.wantServed(t, filo.ErrServerClosed)
		}
		s.wantNoGoroutine(t)
		var left string
		if !lifeTry(func() bool { left = inside.Leftover(s.Server); return left == "" }) {
			t.Errorf("these are counted:\n%s", left)
		}
	})
}

// lifeBlocking reports whether a server whose Driver is DriverAuto serves sockets by the blocking driver here: these tests run with
// either driver, by FILO_DRIVER.
func lifeBlocking() bool {
	return runtime.GOOS != "linux" || os.Getenv(driverVariable) == filo.DriverBlocking.String()
}

// workersOf returns how many workers that many idle connections take.
func workersOf(idleConns int) int {
	if lifeBlocking() {
		return idleConns
	}
	return 0
}

// run calls f on a goroutine that counts as one of the server's.
func (s *lifeServer) run(f func()) {
	go pprof.Do(context.Background(), pprof.Labels(lifeLabel, s.label), func(context.Context) { f() })
}

// wantServed checks what one call of Serve returned. The result stays there for the end of the test.
func (s *lifeServer) wantServed(t testing.TB, want error) {
	t.Helper()
	select {
	case err := <-s.served:
		if !errors.Is(err, want) {
			t.Errorf("Serve returned %v, want %v", err, want)
		}
		s.served <- err
	case <-time.After(lifeBound):
		t.Error("Serve didn't return")
	}
}

// wantNoGoroutine checks that no goroutine of the server is left, or will be left in a moment.
func (s *lifeServer) wantNoGoroutine(t testing.TB) {
	t.Helper()
	var left string
	if !lifeTry(func() bool { left = s.goroutines(); return left == "" }) {
		t.Errorf("goroutines are left:\n%s", left)
	}
}

// goroutines returns the stacks of the server's goroutines.
func (s *lifeServer) goroutines() string {
	var profile bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&profile, 1)
	label := fmt.Sprintf("%q:%q", lifeLabel, s.label)
	var left strings.Builder
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, label) {
			left.WriteString(stack + "\n\n")
		}
	}
	return left.String()
}

// shutdown shuts the server down in a bounded time.
func (s *lifeServer) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), lifeBound)
	defer cancel()
	return s.Shutdown(ctx)
}

// shutdownBegun starts a shutdown on another goroutine, waits until it has begun, and returns its result to come.
func (s *lifeServer) shutdownBegun(t testing.TB, begun <-chan struct{}) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- s.shutdown() }()
	lifeRecv(t, begun, "the shutdown to begin")
	return result
}

func lifeListen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// lifeTry asks again and again whether a condition holds, until it does or a long time has passed.
func lifeTry(condition func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(lifeBound); !condition(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// lifeAwait fails the test if a condition doesn't come true.
func lifeAwait(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !lifeTry(condition) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// lifeRecv receives from a channel, or waits until it is closed.
func lifeRecv[T any](t testing.TB, channel <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-channel:
	case <-time.After(lifeBound):
		t.Fatalf("waited in vain for %s", what)
	}
	return value
}

// lifeClient is a client's end of a connection.
type lifeClient struct {
	net.Conn
	t      testing.TB
	reader *bufio.Reader
}

func (s *lifeServer) dial(t testing.TB) *lifeClient {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	return newLifeClient(t, conn)
}

func newLifeClient(t testing.TB, conn net.Conn) *lifeClient {
	conn.SetDeadline(time.Now().Add(lifeBound))
	t.Cleanup(func() { conn.Close() })
	return &lifeClient{conn, t, bufio.NewReader(conn)}
}

func (c *lifeClient) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatalf("sending %.40q: %v", text, err)
	}
}

func (c *lifeClient) get(path string) {
	c.t.Helper()
	c.send("GET " + path + " HTTP/1.1\r\nHost: filo.test\r\n\r\n")
}

// answer reads a whole answer.
func (c *lifeClient) answer() (response *http.Response, body string) {
	c.t.Helper()
	response, body, err := c.tryAnswer()
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	return response, body
}

func (c *lifeClient) tryAnswer() (*http.Response, string, error) {
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// want reads an answer and checks its status, its body, and whether it says that the connection closes.
func (c *lifeClient) want(status int, body string, closes bool) {
	c.t.Helper()
	response, got := c.answer()
	if response.StatusCode != status || got != body || response.Close != closes {
		c.t.Errorf("got %d %q, close %v; want %d %q, close %v", response.StatusCode, got, response.Close, status, body, closes)
	}
}

// wantEOF checks that the server closes the connection without another byte, and without a reset.
func (c *lifeClient) wantEOF() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.reader); err != nil || len(rest) > 0 {
		c.t.Errorf("at the end of the connection: %q, %v; want nothing", rest, err)
	}
}

// wantEnd checks that the server ends the connection in whatever way, without another byte.
func (c *lifeClient) wantEnd() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil && !lifeReset(err) {
		c.t.Errorf("at the end of the connection: %q, %v; want nothing", rest, err)
	}
}

func lifeReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// reset closes the connection so that the other end gets a reset.
func (c *lifeClient) reset() {
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// lifeGate is a handler that holds the requests for /hold until it is told to let them go.
type lifeGate struct {
	entered chan *filo.Ctx // gets each request that is held; its handler waits until that is received
	release chan struct{}  // closed to let them go
	once    sync.Once
}

func newLifeGate() *lifeGate {
	return &lifeGate{entered: make(chan *filo.Ctx), release: make(chan struct{})}
}

func (g *lifeGate) handle(c *filo.Ctx) error {
	if c.Path() != "/hold" {
		return c.Text(200, "quick")
	}
	select {
	case g.entered <- c:
		<-g.release
	case <-g.release:
	}
	return c.Text(200, "held")
}

func (g *lifeGate) open() { g.once.Do(func() { close(g.release) }) }

// hold sends a request that is held, and returns its context when its handler runs.
func (g *lifeGate) hold(t testing.TB, c *lifeClient) *filo.Ctx {
	t.Helper()
	c.get("/hold")
	return lifeRecv(t, g.entered, "the handler to run")
}

// lifeGated is a server whose handler is a gate, which opens at the end of the test.
func lifeGated(t testing.TB, config *filo.Server) (*lifeServer, *lifeGate) {
	t.Helper()
	gate := newLifeGate()
	config.Handler = gate.handle
	s := lifeServe(t, config)
	t.Cleanup(gate.open)
	return s, gate
}

// begun returns a channel that is closed when the server starts to shut down. It costs a held request.
func (g *lifeGate) begun(t testing.TB, s *lifeServer) <-chan struct{} {
	t.Helper()
	return g.hold(t, s.dial(t)).ShuttingDown()
}

// "Shutdown closes idle connections at once (silent new ones too)."
func TestShutdownClosesIdleConnections(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*lifeClient){
		"silent": func(*lifeClient) {},
		"idle":   func(c *lifeClient) { c.get("/"); c.want(200, "quick", false) },
		// RFC 9112, section 2.2: an empty line before a request line is no part of a request.
		"only an empty line": func(c *lifeClient) { c.send("\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := lifeGated(t, &filo.Server{})
			var clients []*lifeClient
			for range 20 {
				c := s.dial(t)
				prepare(c)
				clients = append(clients, c)
			}
			lifeAwait(t, "the connections to be served", func() bool { return s.Stats().ConnsIdle == len(clients) })
			if err := s.shutdown(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			for _, c := range clients {
				c.wantEOF()
			}
			s.wantServed(t, filo.ErrServerClosed)
			s.wantNoGoroutine(t)
			if _, err := net.Dial("tcp", s.addr); err == nil {
				t.Error("the server still listens")
			}
		})
	}
}

// "Shutdown lets running requests finish and tells them Connection: close."
func TestShutdownFinishesRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string // what the client sends before the shutdown and after it has begun
		want          func(*lifeClient)
	}{
		"a running request": {
			before: "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
			want:   func(c *lifeClient) { c.want(200, "held", true) },
		},
		"an HTTP/1.0 request that asked for keep-alive": {
			before: "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			want:   func(c *lifeClient) { c.want(200, "held", true) },
		},
		"pipelined requests, the last of which closes": {
			before: "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
			want: func(c *lifeClient) {
				c.want(200, "held", false)
				c.want(200, "quick", false)
				c.want(200, "quick", true)
			},
		},
		"a body that its handler doesn't read": {
			before: "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
			want:   func(c *lifeClient) { c.want(200, "held", true) },
		},
		"a body that comes later and isn't read": {
			// More than what is waited for before the handler runs.
			before: "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 20002\r\n\r\nbo", after: strings.Repeat("d", 20_000),
			want: func(c *lifeClient) { c.want(200, "held", true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, gate := lifeGated(t, &filo.Server{})
			c := s.dial(t)
			c.send(test.before)
			begun := lifeRecv(t, gate.entered, "the handler to run").ShuttingDown()
			result := s.shutdownBegun(t, begun)
			c.send(test.after)
			gate.open()
			test.want(c)
			c.wantEOF()
			if err := lifeRecv(t, result, "Shutdown to return"); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			s.wantNoGoroutine(t)
		})
	}
}

// A request whose first bytes had come by the time of the shutdown is a running one.
func TestShutdownFinishesWhatHasBegun(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
	}{
		"the rest of a head": {"GET / HTTP/1.1\r\nHo", "st: a\r\n\r\n"},
		"the rest of a body": {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nqu", "ick"},
		"the rest of chunks": {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nqu", "i\r\n2\r\nck\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			gate := newLifeGate()
			s := lifeServe(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				if c.Path() != "/echo" {
					return gate.handle(c)
				}
				body, err := c.Body()
				if err != nil {
					return err
				}
				return c.Bytes(200, "text/plain", body)
			}})
			defer gate.open()
			begun := gate.begun(t, s)
			c := s.dial(t)
			c.send(test.before)
			lifeAwait(t, "the beginning to be read", func() bool { return s.Stats().ConnsActive == 2 })
			result := s.shutdownBegun(t, begun)
			c.send(test.after)
			c.want(200, "quick", true)
			c.wantEOF()
			gate.open()
			if err := lifeRecv(t, result, "Shutdown to return"); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
}

// "Shutdown loses nothing that was sent": requests that idle and new connections had sent by the time that it was
// called are answered.
func TestShutdownAnswersWhatWasSent(t *testing.T) {
	s, _ := lifeGated(t, &filo.Server{})
	var clients []*lifeClient
	for i := range 200 {
		c := s.dial(t)
		if i%2 == 0 {
			c.get("/")
			c.want(200, "quick", false)
		}
		clients = append(clients, c)
	}
	lifeAwait(t, "the connections to be served", func() bool { return s.Stats().ConnsIdle == len(clients) })
	for _, c := range clients {
		c.get("/")
	}
	if err := s.shutdown(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, c := range clients {
		// One that was read before the shutdown began doesn't say that the connection closes.
		if response, body := c.answer(); response.StatusCode != 200 || body != "quick" {
			t.Fatalf("got %d %q", response.StatusCode, body)
		}
		c.wantEOF()
	}
}

// … and so are those of connections that only the system has accepted by then.
func TestShutdownAnswersTheBacklog(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			listener := lifeListen(t, network, address)
			wantBacklogAnswered(t, &filo.Server{}, listener)
		})
	}
}

// … whether or not Shutdown is called once more meanwhile.
func TestShutdownAgainAnswersTheBacklog(t *testing.T) {
	s := &filo.Server{}
	listener := &lifePatient{TCPListener: lifeListen(t, "tcp", "127.0.0.1:0").(*net.TCPListener), woken: make(chan struct{})}
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

// lifePatient is a listener that accepts one connection and then no more until a shutdown wakes it.
type lifePatient struct {
	*net.TCPListener
	accepts, deadlines atomic.Int64
	woken              chan struct{} // closed by the first deadline
	last               func()        // called when the third one has been set, while there is more to accept
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

// wantBacklogAnswered lets many requests wait for a server that doesn't accept yet, and shuts it down as soon as it has
// accepted one.
func wantBacklogAnswered(t *testing.T, config *filo.Server, listener net.Listener) {
	t.Helper()
	const waiting = 100 // a busy machine accepts as many within lastAcceptLimit
	var clients []*lifeClient
	for range waiting {
		conn, err := net.Dial(listener.Addr().Network(), listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := newLifeClient(t, conn)
		c.get("/")
		clients = append(clients, c)
	}
	config.Handler = newLifeGate().handle
	s := lifeServe(t, config, listener)
	lifeAwait(t, "the first connection", func() bool { return s.Stats().ConnsAccepted > 0 })
	if err := s.shutdown(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for i, c := range clients {
		if response, body, err := c.tryAnswer(); err != nil || response.StatusCode != 200 || body != "quick" {
			t.Fatalf("client %d of %d: %v %q, %v", i, waiting, response, body, err)
		}
		c.wantEOF()
	}
}

// "Hijacked connections are not waited for", and Close ends "every connection but hijacked ones", whether or not their
// handlers have returned.
func TestHijackedLiveOn(t *testing.T) {
	for name, end := range map[string]func(*lifeServer) error{
		"Shutdown": (*lifeServer).shutdown,
		"Close":    func(s *lifeServer) error { return s.Close() },
	} {
		for _, handlerStays := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, handler stays %v", name, handlerStays), func(t *testing.T) {
				taken := make(chan struct{})
				var echo sync.WaitGroup
				s := lifeServe(t, &filo.Server{Handler: func(c *filo.Ctx) error {
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
				c := s.dial(t)
				c.get("/")
				lifeRecv(t, taken, "the hijack")
				if err := end(s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				c.send("still here")
				c.Conn.(*net.TCPConn).CloseWrite()
				if rest, err := io.ReadAll(c.reader); string(rest) != "still here" || err != nil {
					t.Errorf("got %q, %v of the hijacked connection", rest, err)
				}
			})
		}
	}
}

// "If ctx is done before, it cancels the contexts of the requests that are still running and returns ctx's error; it
// can then be called again, or Close."
func TestShutdownGivesUp(t *testing.T) {
	for name, again := range map[string]func(*lifeServer) error{
		"Shutdown again": (*lifeServer).shutdown,
		"Close":          func(s *lifeServer) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, gate := lifeGated(t, &filo.Server{})
			c := s.dial(t)
			ctx := gate.hold(t, c).Context()
			done, cancel := context.WithCancel(context.Background())
			cancel()
			for range 2 {
				if err := s.Shutdown(done); err != context.Canceled {
					t.Errorf("Shutdown with a context that is done: %v", err)
				}
			}
			lifeRecv(t, ctx.Done(), "the request's context to be cancelled")
			if cause := context.Cause(ctx); cause != filo.ErrServerClosed {
				t.Errorf("the context's cause is %v", cause)
			}
			s.wantServed(t, filo.ErrServerClosed)
			gate.open()
			if err := again(s); err != nil {
				t.Errorf("then: %v", err)
			}
			s.wantNoGoroutine(t)
		})
	}
}

// A request's context goes on during a shutdown that still has time.
func TestShutdownKeepsContexts(t *testing.T) {
	s, gate := lifeGated(t, &filo.Server{})
	held := gate.hold(t, s.dial(t))
	ctx := held.Context()
	result := s.shutdownBegun(t, held.ShuttingDown())
	if err := ctx.Err(); err != nil {
		t.Errorf("the context of a running request is done: %v", err)
	}
	gate.open()
	if err := lifeRecv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// "Close ends the server now: it closes the listeners and every connection …, and cancels the contexts of the running
// requests."
func TestClose(t *testing.T) {
	s, gate := lifeGated(t, &filo.Server{})
	silent, idle, head, running := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	idle.get("/")
	idle.want(200, "quick", false)
	head.send("GET / HT")
	ctx := gate.hold(t, running).Context()
	lifeAwait(t, "the connections to be served", func() bool {
		stats := s.Stats()
		return stats.ConnsIdle == 2 && stats.ConnsActive == 2
	})
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, c := range []*lifeClient{silent, idle, head, running} {
		c.wantEnd()
	}
	lifeRecv(t, ctx.Done(), "the request's context to be cancelled")
	if cause := context.Cause(ctx); cause != filo.ErrServerClosed {
		t.Errorf("the context's cause is %v", cause)
	}
	s.wantServed(t, filo.ErrServerClosed)
	gate.open()
	s.wantNoGoroutine(t)
}

// lifeCurious is a listener that asks the server something when it is to be closed.
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

// A listener of the user's own is called with no lock held.
func TestListenerMayAskTheServer(t *testing.T) {
	for name, end := range map[string]func(*lifeServer) error{
		"Shutdown": (*lifeServer).shutdown,
		"Close":    func(s *lifeServer) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			config := &filo.Server{Handler: newLifeGate().handle}
			s := lifeServe(t, config, lifeCurious{lifeListen(t, "tcp", "127.0.0.1:0"), config})
			c := s.dial(t) // it serves
			c.get("/")
			c.want(200, "quick", false)
			ended := make(chan error, 1)
			s.run(func() { ended <- end(s) })
			if err := lifeRecv(t, ended, name+" to return"); err != nil {
				t.Error(err)
			}
			s.wantServed(t, filo.ErrServerClosed)
			s.wantNoGoroutine(t)
		})
	}
}

// "Serve returns ErrServerClosed after Shutdown or Close", whatever comes first and how often.
func TestLifecycleOrders(t *testing.T) {
	shutdown := func(t *testing.T, s *lifeServer) {
		if err := s.shutdown(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	}
	closeNow := func(t *testing.T, s *lifeServer) {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	refused := func(t *testing.T, s *lifeServer) {
		listener := lifeListen(t, "tcp", "127.0.0.1:0")
		if err := s.Serve(listener); err != filo.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
		if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			t.Error("Serve left its listener open")
		}
		client, server := net.Pipe()
		client.SetDeadline(time.Now().Add(lifeBound))
		if err := s.ServeConn(server); err != filo.ErrServerClosed {
			t.Errorf("ServeConn: %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("ServeConn left its connection open: %v", err)
		}
	}
	type act func(*testing.T, *lifeServer)
	for name, acts := range map[string][]act{
		"Shutdown, Shutdown": {shutdown, shutdown, refused},
		"Shutdown, Close":    {shutdown, closeNow, refused},
		"Close, Shutdown":    {closeNow, shutdown, refused},
		"Close, Close":       {closeNow, closeNow, refused},
	} {
		t.Run(name+" of a server that serves", func(t *testing.T) {
			s, _ := lifeGated(t, &filo.Server{})
			c := s.dial(t)
			c.get("/")
			c.want(200, "quick", false)
			for _, act := range acts {
				act(t, s)
			}
			s.wantServed(t, filo.ErrServerClosed)
		})
		t.Run(name+" of a server that never did", func(t *testing.T) {
			s := lifeNew(&filo.Server{Handler: newLifeGate().handle}, 0)
			done := make(chan struct{})
			s.run(func() {
				defer close(done)
				for _, act := range acts {
					act(t, s)
				}
			})
			lifeRecv(t, done, "the calls to return")
			s.wantNoGoroutine(t)
		})
	}
}

// Shutdown, Close, Serve and ServeConn may be called at once; nothing hangs and nothing is left.
func TestLifecycleAtOnce(t *testing.T) {
	for round := range 30 {
		gate := newLifeGate()
		first := lifeListen(t, "tcp", "127.0.0.1:0")
		second := lifeListen(t, "tcp", "127.0.0.1:0")
		s := lifeServe(t, &filo.Server{Handler: gate.handle}, first, second)
		var clients []*lifeClient
		for range 4 {
			if conn, err := net.Dial("tcp", s.addr); err == nil {
				clients = append(clients, newLifeClient(t, conn))
			}
		}
		go func() { // as far as it gets
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
				if err := s.shutdown(); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			})
		}
		if round%2 == 0 {
			group.Go(func() { s.Close() })
		}
		group.Wait()
		s.wantServed(t, filo.ErrServerClosed)
		s.wantNoGoroutine(t)
		for _, c := range clients {
			c.Close()
		}
	}
}

// "ShuttingDown returns a channel that is closed when the server starts to shut down."
func TestShuttingDown(t *testing.T) {
	for name, end := range map[string]func(*lifeServer) error{
		"Shutdown": (*lifeServer).shutdown,
		"Close":    func(s *lifeServer) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			streaming, told := make(chan struct{}), make(chan struct{})
			s := lifeServe(t, &filo.Server{Handler: func(c *filo.Ctx) error {
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
			c := s.dial(t)
			c.get("/")
			lifeRecv(t, streaming, "the stream to begin")
			if err := end(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			lifeRecv(t, told, "the handler to be told")
			if name == "Shutdown" {
				if _, body := c.answer(); body != "first last" {
					t.Errorf("got %q", body)
				}
			}
		})
	}
}

// "Serve may be called for several listeners at once": all end together, and one that fails ends alone.
func TestServeSeveralListeners(t *testing.T) {
	first, second := lifeListen(t, "tcp", "127.0.0.1:0"), lifeListen(t, "tcp", "127.0.0.1:0")
	gate := newLifeGate()
	s := lifeServe(t, &filo.Server{Handler: gate.handle}, first, second)
	third := lifeListen(t, "tcp", "127.0.0.1:0")
	failed := make(chan error, 1)
	s.run(func() { failed <- s.Serve(third) })
	var clients []*lifeClient
	for _, listener := range []net.Listener{first, second, third} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := newLifeClient(t, conn)
		c.get("/")
		c.want(200, "quick", false)
		clients = append(clients, c)
	}
	third.Close()
	if err := lifeRecv(t, failed, "Serve to return"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve on a listener that was closed: %v", err)
	}
	for _, c := range clients {
		c.get("/")
		c.want(200, "quick", false)
	}
	if err := s.shutdown(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, c := range clients {
		c.wantEOF()
	}
}

// One listener may have several accept loops.
func TestServeOneListenerTwice(t *testing.T) {
	for name, end := range map[string]func(*lifeServer) error{
		"Shutdown": (*lifeServer).shutdown,
		"Close":    func(s *lifeServer) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			listener := lifeListen(t, "tcp", "127.0.0.1:0")
			s := lifeServe(t, &filo.Server{Handler: newLifeGate().handle}, listener, listener)
			for range 10 {
				c := s.dial(t)
				c.get("/")
				c.want(200, "quick", false)
			}
			// The end of one loop, which closes the listener, is that of the other: both were there before.
			if err := end(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s.wantServed(t, filo.ErrServerClosed)
			s.wantServed(t, filo.ErrServerClosed)
			s.wantNoGoroutine(t)
		})
	}
}

// "ServeConn serves one connection … on the caller's goroutine, and closes it unless a handler hijacks it. It doesn't
// count against Concurrency."
func TestServeConn(t *testing.T) {
	gate := newLifeGate()
	s := lifeServe(t, &filo.Server{Handler: gate.handle, Concurrency: 1})
	defer gate.open()
	gate.hold(t, s.dial(t))
	client, server := net.Pipe()
	result := make(chan error, 1)
	s.run(func() { result <- s.ServeConn(server) })
	c := newLifeClient(t, client)
	c.get("/")
	c.want(200, "quick", false)
	if stats := s.Stats(); stats.ConnsOpen != 2 || stats.ConnsAccepted != 2 || stats.ConnsRefused != 0 {
		t.Errorf("with one connection served beside the worker's: %+v", stats)
	}
	c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	c.want(200, "quick", true)
	c.wantEOF()
	if err := lifeRecv(t, result, "ServeConn to return"); err != nil {
		t.Errorf("ServeConn: %v", err)
	}
}

// ServeConn has no worker to give anything away: it runs a handler of any class.
func TestServeConnClasses(t *testing.T) {
	quick := func(c *filo.Ctx) error { return c.Text(200, "quick") }
	for name, handler := range map[string]filo.Handler{"offload": filo.Offload(quick), "inline": filo.Inline(quick)} {
		t.Run(name, func(t *testing.T) {
			s := lifeServe(t, &filo.Server{Handler: handler})
			client, server := net.Pipe()
			result := make(chan error, 1)
			s.run(func() { result <- s.ServeConn(server) })
			c := newLifeClient(t, client)
			for range 2 {
				c.get("/")
				c.want(200, "quick", false)
			}
			client.Close()
			if err := lifeRecv(t, result, "ServeConn to return"); err != nil {
				t.Errorf("ServeConn: %v", err)
			}
		})
	}
}

// Shutdown waits for a connection that ServeConn serves, and closes it when it is idle.
func TestServeConnShutdown(t *testing.T) {
	s, gate := lifeGated(t, &filo.Server{})
	idleClient, idleServer := net.Pipe()
	busyClient, busyServer := net.Pipe()
	results := make(chan error, 2)
	for _, server := range []net.Conn{idleServer, busyServer} {
		s.run(func() { results <- s.ServeConn(server) })
	}
	idle, busy := newLifeClient(t, idleClient), newLifeClient(t, busyClient)
	idle.get("/")
	idle.want(200, "quick", false)
	held := gate.hold(t, busy)
	result := s.shutdownBegun(t, held.ShuttingDown())
	idle.wantEOF()
	gate.open()
	busy.want(200, "held", true)
	busy.wantEOF()
	if err := lifeRecv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for range 2 {
		if err := lifeRecv(t, results, "ServeConn to return"); err != nil {
			t.Errorf("ServeConn: %v", err)
		}
	}
}

// The package's ServeConn serves without a Server, and leaves nothing behind; a hijacked connection lives on.
func TestPackageServeConn(t *testing.T) {
	s := lifeNew(&filo.Server{}, 0)
	for name, hijack := range map[string]bool{"closed": false, "hijacked": true} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			result := make(chan error, 1)
			s.run(func() {
				result <- filo.ServeConn(server, func(c *filo.Ctx) error {
					if hijack {
						_, _, err := c.Hijack()
						return err
					}
					return c.Text(200, "quick")
				})
			})
			c := newLifeClient(t, client)
			c.send("GET / HTTP/1.0\r\n\r\n")
			if hijack {
				if err := lifeRecv(t, result, "ServeConn to return"); err != nil {
					t.Errorf("ServeConn: %v", err)
				}
				go io.WriteString(server, "HTTP/1.0 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine")
				c.want(200, "mine", true)
			} else {
				c.want(200, "quick", true)
				c.wantEOF()
				if err := lifeRecv(t, result, "ServeConn to return"); err != nil {
					t.Errorf("ServeConn: %v", err)
				}
			}
			s.wantNoGoroutine(t)
		})
	}
}

// A server without a handler says so at once, and closes what it was given.
func TestServeWithoutHandler(t *testing.T) {
	listener := lifeListen(t, "tcp", "127.0.0.1:0")
	if err := (&filo.Server{}).Serve(listener); err == nil || errors.Is(err, filo.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// lifeHuge is an answer that no socket's buffers hold.
var lifeHuge = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 2<<20) }) // 32 MB

// lifeResettable is a handler with one place for each path where a reset can find it. It reports on ended how its
// request's context, or what it was doing, ended.
func lifeResettable(file string, ended chan<- error) filo.Handler {
	return func(c *filo.Ctx) error {
		switch c.Path() {
		case "/context":
			ctx := c.Context()
			c.Response.Header.Set("Link", "</>")
			if err := c.EarlyHints(); err != nil { // tells the client that the handler runs
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
			return c.BytesNoCopy(200, "text/plain", lifeHuge())
		case "/file":
			ended <- nil
			return c.File(file)
		case "/stream":
			for stream := c.Stream(); ; {
				if _, err := stream.Write(lifeHuge()[:100_000]); err != nil {
					ended <- err
					return err
				}
			}
		}
		return c.Text(200, "quick")
	}
}

// A reset in the middle of each state frees the worker, leaves nothing behind and no log record, and disturbs nobody
// else.
func TestResets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, lifeHuge(), 0o600); err != nil {
		t.Fatal(err)
	}
	const post = " HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf"
	for _, test := range []struct {
		name, send string
		read       string // what the answer begins with, before the reset
		active     bool   // the connection isn't idle before the reset
		handler    bool   // the handler says how it ended
		want       error  // and with this
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
			log, ended := new(lifeLog), make(chan error, 1)
			s := lifeServe(t, &filo.Server{Handler: lifeResettable(file, ended), Logger: log.logger()})
			other := s.dial(t)
			lifeAwait(t, "the other connection", func() bool { return s.Stats().ConnsOpen == 1 })
			c := s.dial(t)
			c.send(test.send)
			begin := make([]byte, len(test.read))
			if _, err := io.ReadFull(c, begin); err != nil || string(begin) != test.read {
				t.Fatalf("got %q, %v", begin, err)
			}
			lifeAwait(t, "the state", func() bool {
				stats := s.Stats()
				return stats.ConnsAccepted == 2 && (test.name == "linger" || stats.ConnsOpen == 2 && stats.ConnsActive == 1 == test.active)
			})
			c.reset()
			if test.handler {
				if err := lifeRecv(t, ended, "the handler to end"); test.want == nil && err != nil || !errors.Is(err, test.want) && !lifeReset(err) {
					t.Errorf("the handler's end: %v, want %v", err, test.want)
				}
			}
			lifeAwait(t, "the connection to go", func() bool {
				stats := s.Stats()
				return stats.ConnsOpen == 1 && stats.WorkersRunning == workersOf(1)
			})
			other.get("/")
			other.want(200, "quick", false)
			if lines := log.lines(""); len(lines) > 0 {
				t.Errorf("log: %q", lines)
			}
		})
	}
}

// timelessListener is a listener whose connections have no deadlines, as those of some multiplexers.
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

// Connections without deadlines are answered, whatever their handlers ask, and end with the server and when their time is over.
func TestConnsWithoutDeadlines(t *testing.T) {
	ends := map[string]func(s *lifeServer, c *lifeClient) error{
		"Shutdown": func(s *lifeServer, _ *lifeClient) error { return s.shutdown() },
		"Close":    func(s *lifeServer, _ *lifeClient) error { return s.Close() },
		"the time": nil,
	}
	prepares := map[string]func(c *lifeClient){
		"silent": func(*lifeClient) {},
		"idle":   func(c *lifeClient) { c.get("/"); c.want(200, "quick", false) },
		"watched": func(c *lifeClient) {
			for range 2 {
				c.get("/watch")
				c.want(200, "watched", false)
			}
		},
		"lingering": func(c *lifeClient) {
			c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n")
			c.want(200, "quick", true)
		},
		"parked": func(c *lifeClient) {
			c.get("/park")
			if _, err := c.reader.ReadString('p'); err != nil {
				c.t.Error(err)
			}
		},
	}
	for end, endWith := range ends {
		for name, prepare := range prepares {
			if name == "parked" && endWith == nil {
				continue // it may wait for ever
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
					config.ReadHeaderTimeout, config.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond
				}
				s := lifeServe(t, config, timelessListener{lifeListen(t, "tcp", "127.0.0.1:0")})
				c := s.dial(t)
				prepare(c)
				lifeAwait(t, "the connection", func() bool { return s.Stats().ConnsAccepted == 1 })
				if endWith != nil {
					if err := endWith(s, c); err != nil {
						t.Error(err)
					}
				}
				io.Copy(io.Discard, c.reader) // until the end
				if _, err := c.reader.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection doesn't end")
				}
			})
		}
	}
}
