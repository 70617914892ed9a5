package shutdown

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/linger"
)

// lateConn is a client's connection that calls before() ahead of each Write.
type lateConn struct {
	net.Conn
	before func()
}

func (c *lateConn) Write(p []byte) (int, error) {
	c.before()
	return c.Conn.Write(p)
}

// promptly is the time after connecting within which a client of these tests must have sent its request. The server allows a second. If the
// client takes longer than promptly, the machine is too busy, and the test repeats the case.
const promptly = 700 * time.Millisecond

// "A connection opened less than a second ago has one more second for its TLS handshake and its first request."
func TestShutdownAwaitsNewConnections(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		secure  bool
		prepare func(t *testing.T, client *tls.Conn) // called before the shutdown
		writes  int                                  // the client's writes before the shutdown
	}{
		"plain":               {},
		"TLS, silent":         {secure: true},
		"TLS, hello sent":     {secure: true, writes: 1},
		"TLS, handshake made": {secure: true, writes: 2},
	} {
		serves := map[string]func(testing.TB, *filo.Server) *filotest.Server{"": func(t testing.TB, config *filo.Server) *filotest.Server {
			return filotest.Serve(t, config)
		}}
		if test.secure {
			serves = map[string]func(testing.TB, *filo.Server) *filotest.Server{", listener's": filotest.ServeTLS, ", server's": filotest.ListenTLS}
		}
		for suffix, serve := range serves {
			t.Run(name+suffix, func(t *testing.T) {
				for !shutdownAnswersNew(t, serve, test.secure, test.writes) {
				}
			})
		}
	}
}

// shutdownAnswersNew shuts a server down after a new client has made some of its writes, and checks that the client's request is answered. It
// returns false if the client took longer than promptly.
func shutdownAnswersNew(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server, secure bool, writes int) (prompt bool) {
	gate := filotest.NewGate()
	s := serve(t, &filo.Server{Handler: gate.Handle})
	defer gate.Open()
	held := func() *filotest.Client {
		if secure {
			return s.DialTLS(t)
		}
		return s.Dial(t)
	}()
	begun := gate.Hold(t, held).ShuttingDown()
	reached, goOn, made := make(chan struct{}), make(chan struct{}), 0
	start := time.Now() // the server allows another second if the client has connected less than a second ago
	conn := net.Conn(&lateConn{s.Dial(t).Conn, func() {
		if made == writes {
			close(reached)
			<-goOn
		}
		made++
	}})
	if secure {
		conn = tls.Client(conn, filotest.ClientTLS())
	}
	sent, answered := make(chan time.Time, 1), make(chan string, 1)
	client := filotest.NewClient(t, conn)
	go func() {
		io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		sent <- time.Now()
		answer, _ := io.ReadAll(client)
		answered <- string(answer)
	}()
	filotest.Recv(t, reached, "the client to come so far")
	filotest.Await(t, "the connection", func() bool { return s.Stats().ConnsOpen == 2 })
	result := s.BeginShutdown(t, begun)
	time.Sleep(200 * time.Millisecond) // the client may take so long
	close(goOn)
	prompt = filotest.Recv(t, sent, "the request to be sent").Sub(start) < promptly
	answer := filotest.Recv(t, answered, "the answer")
	gate.Open()
	if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if prompt && filotest.Statuses(answer) != "200" {
		t.Errorf("got %q", answer)
	}
	return prompt
}

// Shutdown waits for a handshake that makes progress, but not for a stalled one, even without a time-out for handshakes.
func TestShutdownEndsStalledHandshakes(t *testing.T) {
	t.Parallel()
	filotest.EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server) {
		s := serve(t, &filo.Server{Handler: filotest.NewGate().Handle, ReadHeaderTimeout: -1})
		silent := s.Dial(t)
		stalled, stall := make(chan struct{}), make(chan struct{})
		defer close(stall)
		writes := 0
		client := filotest.NewClient(t, &lateConn{s.Dial(t).Conn, func() {
			if writes++; writes == 2 { // the server has answered the ClientHello
				close(stalled)
				<-stall
			}
		}})
		go func() { tls.Client(client, filotest.ClientTLS()).Handshake() }()
		filotest.Recv(t, stalled, "the handshake to stall")
		if err := s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		silent.WantEnd()
	})
}

// Before a restarted program shuts down, it passes its listening socket to the new process. A client that has just connected, and hasn't sent
// anything yet, doesn't notice the restart. FILO_RESTART is a longer duration for each case, which then also has more clients.
func TestRollingRestart(t *testing.T) {
	span, rate := 600*time.Millisecond, 200
	if text := os.Getenv("FILO_RESTART"); text != "" {
		longer, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		span, rate = longer, 500
	}
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		for driver, kind := range map[string]filo.Driver{"auto": filo.DriverAuto, "blocking": filo.DriverBlocking} {
			t.Run(name+", "+driver, func(t *testing.T) {
				r := &restarts{t: t, secure: secure, driver: kind, listener: filotest.Listen(t, "tcp", "127.0.0.1:0").(*net.TCPListener)}
				r.address = r.listener.Addr().String()
				running := r.start()
				var clients sync.WaitGroup
				clients.Go(func() { r.connect(span, rate) })
				lifetime := time.NewTicker(50 * time.Millisecond)
				defer lifetime.Stop()
				for end := time.Now().Add(span); time.Now().Before(end); <-lifetime.C {
					next := r.start()
					if err := running.ShutdownInTime(); err != nil {
						t.Errorf("Shutdown: %v", err)
					}
					running = next
					r.generations++
				}
				clients.Wait()
				t.Logf("%d answers over %d restarts, %d lost; %d were too late", r.answered.Load(), r.generations, r.lost.Load(), r.late.Load())
				if r.lost.Load() > 0 {
					t.Errorf("lost requests, the first one by %v", *r.first.Load())
				}
			})
		}
	}
}

// restarts is a server that is restarted repeatedly, with its clients.
type restarts struct {
	t           *testing.T
	secure      bool
	driver      filo.Driver
	listener    *net.TCPListener // of the last server
	address     string
	generations int

	answered, lost, late atomic.Int64
	first                atomic.Pointer[error] // the error of the first lost request
}

// start starts a server on the previous server's socket.
func (r *restarts) start() *filotest.Server {
	r.t.Helper()
	file, err := r.listener.File()
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	inherited, err := net.FileListener(file)
	if err != nil {
		r.t.Fatal(err)
	}
	config := &filo.Server{Driver: r.driver, Handler: func(c *filo.Ctx) error { return c.Text(200, "quick") }}
	config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
	s := filotest.New(config, 1)
	s.Go(func() {
		if r.secure {
			s.Served <- config.ServeTLS(inherited, "", "")
		} else {
			s.Served <- config.Serve(inherited)
		}
	})
	s.CloseAtEnd(r.t, 1)
	return s
}

// connect starts rate clients a second.
func (r *restarts) connect(span time.Duration, rate int) {
	var clients sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for end := time.Now().Add(span); time.Now().Before(end); <-ticker.C {
		clients.Go(func() {
			start := time.Now()
			sent, err := r.request()
			switch {
			case err == nil:
				r.answered.Add(1)
			case sent.Sub(start) > promptly:
				r.late.Add(1)
			default:
				r.lost.Add(1)
				r.first.CompareAndSwap(nil, &err)
			}
		})
	}
	clients.Wait()
}

// request makes one request on a new connection, with pauses.
func (r *restarts) request() (sent time.Time, err error) {
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		return time.Now(), err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	if r.secure {
		conn = tls.Client(&lateConn{conn, func() { time.Sleep(20 * time.Millisecond) }}, filotest.ClientTLS())
	} else {
		conn = &lateConn{conn, func() { time.Sleep(50 * time.Millisecond) }}
	}
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	sent = time.Now()
	if err != nil {
		return sent, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return sent, err
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 || string(body) != "quick" {
		return sent, fmt.Errorf("got %d %q, %w", response.StatusCode, body, err)
	}
	return sent, nil
}

// "If ctx is done first, Shutdown … returns ctx's error", even while a user's function blocks a loop.
func TestShutdownGivesUpOnALoop(t *testing.T) {
	for range 10 {
		closing, release := make(chan struct{}), make(chan struct{})
		s := filotest.Serve(t, &filo.Server{Handler: filotest.NewGate().Handle, ConnState: func(_ net.Conn, state filo.ConnState) {
			if state == filo.StateClosed {
				close(closing)
				<-release
			}
		}})
		c := s.Dial(t)
		c.Get("/")
		c.Want(200, "quick", false)
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- s.Shutdown(ctx) }()
		filotest.Recv(t, closing, "ConnState to be called")
		time.Sleep(20 * time.Millisecond) // let Shutdown reach the loops; the test doesn't depend on it
		cancel()
		if err := filotest.Recv(t, result, "Shutdown to give up"); err != context.Canceled {
			t.Errorf("Shutdown: %v", err)
		}
		close(release)
		if err := s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown once more: %v", err)
		}
	}
}

// steadyListener is a listener to which a new client connects every two milliseconds.
type steadyListener struct {
	net.Listener // its methods are never called
	accepted     atomic.Int64

	mu       sync.Mutex
	next     time.Time     // when the next client connects; guarded by mu
	deadline time.Time     // guarded by mu
	changed  chan struct{} // closed when a deadline is set; guarded by mu
}

func (l *steadyListener) Addr() net.Addr { return &net.TCPAddr{} }
func (l *steadyListener) Close() error   { return nil }

func (l *steadyListener) SetDeadline(at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = at
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

func (l *steadyListener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		deadline, changed, wait := l.deadline, l.changed, time.Until(l.next)
		if wait <= 0 {
			l.next = l.next.Add(2 * time.Millisecond)
		}
		l.mu.Unlock()
		switch {
		case !deadline.IsZero() && !time.Now().Before(deadline):
			return nil, os.ErrDeadlineExceeded
		case wait <= 0:
			l.accepted.Add(1)
			client, server := net.Pipe()
			client.Close()
			return server, nil
		case !deadline.IsZero():
			wait = min(wait, time.Until(deadline))
		}
		select {
		case <-time.After(wait):
		case <-changed:
		}
	}
}

// A shutdown ends even if clients keep connecting.
func TestShutdownUnderSteadyDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := &steadyListener{next: time.Now(), changed: make(chan struct{})}
		s := filotest.Serve(t, &filo.Server{Handler: filotest.NewGate().Handle}, listener)
		time.Sleep(time.Second)
		before := listener.accepted.Load()
		if err := s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if before < 400 {
			t.Errorf("only %d connections came before", before)
		}
		if n := listener.accepted.Load() - before; n > 20 {
			t.Errorf("%d connections were accepted after the shutdown had begun", n)
		}
	})
}

// unhashable is a listener of a type that isn't comparable, so it can't be a key of a map.
type unhashable struct {
	net.Listener
	_ []byte
}

type unhashableConn struct {
	net.Conn
	_ []byte
}

func (l unhashable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return unhashableConn{Conn: conn}, nil
}

// Listeners and connections may have any type, even one that isn't comparable.
func TestUnhashableListener(t *testing.T) {
	s, gate := filotest.New(&filo.Server{Concurrency: 1}, 1), filotest.NewGate()
	s.Handler = gate.Handle
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	s.Addr = listener.Addr().String()
	s.Go(func() { s.Served <- s.Serve(unhashable{Listener: listener}) })
	s.CloseAtEnd(t, 1)
	defer gate.Open()
	held := s.Dial(t)
	gate.Hold(t, held)
	s.Dial(t).WantRefusal(503) // the refused connection lingers
	gate.Open()
	held.Want(200, "held", false)
	if err := s.ShutdownInTime(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// closedListener counts how often it is closed.
type closedListener struct {
	net.Listener
	closed atomic.Int32
}

func (l *closedListener) Close() error {
	l.closed.Add(1)
	return l.Listener.Close()
}

// However serving ends, the server closes a listener once, because a user's listener may not support a second Close.
func TestListenerIsClosedOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*filo.Server, net.Listener)
	}{
		{"Shutdown", func(s *filo.Server, _ net.Listener) { s.Shutdown(context.Background()) }},
		{"Close", func(s *filo.Server, _ net.Listener) { s.Close() }},
		{"Shutdown and Close", func(s *filo.Server, _ net.Listener) { s.Shutdown(context.Background()); s.Close() }},
		{"a failing Accept", func(_ *filo.Server, inner net.Listener) { inner.Close() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ln := &closedListener{Listener: inner}
			s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }}
			served := make(chan error, 1)
			go func() { served <- s.Serve(ln) }()
			conn, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				t.Fatal(err)
			}
			test.end(s, inner)
			<-served
			s.Close()
			if n := ln.closed.Load(); n != 1 {
				t.Errorf("closed %d times", n)
			}
		})
	}
}

// A client that pipelines requests endlessly delays a shutdown by at most a second, and its last answer says Connection: close.
func TestShutdownEndsPipelining(t *testing.T) {
	requests := strings.Repeat("GET / HTTP/1.1\r\nHost: filo.test\r\n\r\n", 100)
	quick := func(c *filo.Ctx) error { return c.Text(200, "quick") }
	for name, test := range map[string]struct {
		secure  bool
		handler filo.Handler
	}{
		"requests":      {handler: quick},
		"requests, TLS": {secure: true, handler: quick},
		"requests that wait": {handler: filo.Offload(func(c *filo.Ctx) error {
			time.Sleep(time.Millisecond)
			return c.Text(200, "slow")
		})},
		"streams": {handler: func(c *filo.Ctx) error {
			stream := c.Stream()
			stream.WriteString("streamed")
			return stream.Flush()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve, dial := filotest.Serve, (*filotest.Server).Dial
			if test.secure {
				serve = func(t testing.TB, config *filo.Server, _ ...net.Listener) *filotest.Server {
					return filotest.ListenTLS(t.(*testing.T), config)
				}
				dial = func(s *filotest.Server, t testing.TB) *filotest.Client { return s.DialTLS(t.(*testing.T)) }
			}
			s := serve(t, &filo.Server{Handler: test.handler})
			c := dial(s, t)
			sent := make(chan error, 1)
			go func() {
				for {
					if _, err := io.WriteString(c, requests); err != nil {
						sent <- err
						return
					}
				}
			}()
			ended := make(chan bool, 1) // receives whether the last answer said Connection: close
			go func() {
				last := false
				for {
					response, _, err := c.TryAnswer()
					if err != nil {
						ended <- last || wasReset(err, sent)
						return
					}
					last = response.Close
				}
			}()
			filotest.Await(t, "the client to be served", func() bool { return s.Stats().Requests[2] > 0 })
			if err := s.ShutdownInTime(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if told := filotest.Recv(t, ended, "the end of the connection"); !told {
				t.Error("the last answer doesn't say that the connection closes")
			}
		})
	}
}

// wasReset reports whether a reset has cut off the answers of a client that read too slowly, after the server has lingered for the maximum
// time. err is the error that has ended the client's reads, and sent receives the error of its writes. The kernel reports a reset either to
// the reads or to the writes, and the others may only see the end of the connection. A truncated head gives a parse error.
func wasReset(err error, sent <-chan error) bool {
	var malformed textproto.ProtocolError
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.As(err, &malformed) {
		return true
	}
	select {
	case <-sent:
		return true
	case <-time.After(linger.Longest / 2): // the server still lingers, so it has ended the answers in an orderly way
		return false
	}
}
