package shutdown

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
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
	"github.com/filohttp/filo/servertest"
)

// runServer is a server that runs on a listener until end is called.
type runServer struct {
	*filotest.Server
	gate   *filotest.Gate
	end    context.CancelFunc // ends the context of Run
	result chan error         // receives the result of Run
}

// runListener runs a server on a listener. The default handler is a gate. At the end of the test, no goroutine may be left.
func runListener(t *testing.T, config *filo.Server, listener net.Listener) *runServer {
	t.Helper()
	gate := filotest.NewGate()
	if config.Handler == nil {
		config.Handler = gate.Handle
	}
	s := &runServer{Server: filotest.New(config, 1), gate: gate, result: make(chan error, 1)}
	s.Addr = listener.Addr().String()
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.Background())
	s.Go(func() { s.result <- config.RunListener(ctx, listener) })
	t.Cleanup(func() {
		gate.Open()
		s.end()
		s.Close()
		s.WantNoGoroutine(t)
	})
	return s
}

func runTCP(t *testing.T, config *filo.Server) *runServer {
	t.Helper()
	return runListener(t, config, filotest.Listen(t, "tcp", "127.0.0.1:0"))
}

// wantRuns checks that Run hasn't returned.
func (s *runServer) wantRuns(t *testing.T) {
	t.Helper()
	select {
	case err := <-s.result:
		t.Fatalf("Run has returned %v", err)
	default:
	}
}

func (s *runServer) wantResult(t *testing.T, want error) {
	t.Helper()
	if err := filotest.Recv(t, s.result, "Run to return"); !errors.Is(err, want) {
		t.Errorf("Run returned %v, want %v", err, want)
	}
}

// Run "serves until ctx is done. It then shuts the server down and waits", even if another call has begun the shutdown.
func TestRunReturnsAtTheEnd(t *testing.T) {
	for name, begin := range map[string]func(*runServer) error{
		"the context ends":    func(s *runServer) error { s.end(); return nil },
		"somebody shuts down": func(s *runServer) error { return s.ShutdownInTime() },
		"somebody gives up": func(s *runServer) error {
			done, cancel := context.WithCancel(context.Background())
			cancel()
			if err := s.Shutdown(done); err != context.Canceled {
				return err
			}
			return nil
		},
		"both": func(s *runServer) error { s.end(); return s.ShutdownInTime() },
	} {
		t.Run(name, func(t *testing.T) {
			taskRuns, endTask := make(chan struct{}), make(chan struct{})
			config := &filo.Server{GracePeriod: filotest.Bound}
			gate := filotest.NewGate()
			config.Handler = func(c *filo.Ctx) error {
				if c.Path() == "/task" {
					if err := c.Go(func(context.Context) { close(taskRuns); <-endTask }); err != nil {
						return err
					}
				}
				return gate.Handle(c)
			}
			s := runTCP(t, config)
			called := make(chan struct{})
			s.RegisterOnShutdown(func() { close(called) })
			held, other := s.Dial(t), s.Dial(t)
			other.Get("/task")
			other.Want(200, "quick", false)
			filotest.Recv(t, taskRuns, "the task")
			begun := gate.Hold(t, held).ShuttingDown()
			s.wantRuns(t)

			begins := make(chan error, 1)
			go func() { begins <- begin(s) }()
			filotest.Recv(t, begun, "the shutdown to begin")
			filotest.Recv(t, called, "the function of RegisterOnShutdown")
			other.WantEOF()
			s.wantRuns(t)
			gate.Open()
			held.Want(200, "held", true)
			held.WantEOF()
			s.wantRuns(t) // because Run waits for the task
			close(endTask)
			s.wantResult(t, nil)
			if err := filotest.Recv(t, begins, "what has begun the shutdown"); err != nil {
				t.Error(err)
			}
			s.WantNoGoroutine(t)
			if conn, err := net.Dial("tcp", s.Addr); err == nil {
				conn.Close()
				t.Error("the server still listens")
			}
		})
	}
}

// "… or an *UnfinishedError if GracePeriod ended first."
func TestRunCutsOff(t *testing.T) {
	endTask := make(chan struct{})
	gate := filotest.NewGate()
	s := runTCP(t, &filo.Server{GracePeriod: time.Millisecond, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/task" {
			if err := c.Go(func(context.Context) { <-endTask }); err != nil {
				return err
			}
		}
		return gate.Handle(c)
	}})
	t.Cleanup(gate.Open)
	first, second, third := s.Dial(t), s.Dial(t), s.Dial(t)
	third.Get("/task")
	third.Want(200, "quick", false)
	ctx := gate.Hold(t, first).Context()
	gate.Hold(t, second)
	s.end()
	err := filotest.Recv(t, s.result, "Run to return")
	var unfinished *filo.UnfinishedError
	if !errors.As(err, &unfinished) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Run returned %v", err)
	}
	// After such a short time, the idle connection may still be open.
	if unfinished.Conns < 2 || unfinished.Conns > 3 || unfinished.Tasks != 1 || unfinished.GracePeriod != time.Millisecond {
		t.Errorf("Run returned %#v", unfinished)
	}
	first.WantEnd()
	second.WantEnd()
	filotest.Recv(t, ctx.Done(), "the request's context to end")
	close(endTask)
}

func TestUnfinishedError(t *testing.T) {
	for want, e := range map[string]filo.UnfinishedError{
		"filo: not finished within the grace period of 20s: 1 connection":                 {GracePeriod: 20 * time.Second, Conns: 1},
		"filo: not finished within the grace period of 1m0s: 2 connections, 1 task":       {GracePeriod: time.Minute, Conns: 2, Tasks: 1},
		"filo: not finished within the grace period of 1s: 3 tasks":                       {GracePeriod: time.Second, Tasks: 3},
		"filo: not finished within the grace period of 1s: handlers without a connection": {GracePeriod: time.Second},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Without a grace period, Run waits for requests without a limit.
func TestRunWithoutGracePeriod(t *testing.T) {
	s := runTCP(t, &filo.Server{GracePeriod: -1})
	held := s.gate.Hold(t, s.Dial(t))
	s.end()
	filotest.Recv(t, held.ShuttingDown(), "the shutdown to begin")
	s.gate.Open()
	s.wantResult(t, nil)
}

// If another goroutine calls Close, Run returns no error.
func TestRunClosed(t *testing.T) {
	s := runTCP(t, &filo.Server{GracePeriod: filotest.Bound})
	held := s.Dial(t)
	s.gate.Hold(t, held)
	s.Close()
	held.WantEnd()
	s.gate.Open()
	s.wantResult(t, nil)
}

// "ErrServerClosed if the server was shut down before": Run serves nothing, and closes the listener.
func TestRunAfterTheEnd(t *testing.T) {
	s := &filo.Server{Handler: filotest.NewGate().Handle}
	s.Close()
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	if err := s.RunListener(context.Background(), listener); err != filo.ErrServerClosed {
		t.Errorf("RunListener returned %v", err)
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was left open: %v", err)
	}
	if err := s.Run(context.Background(), "127.0.0.1:0"); err != filo.ErrServerClosed {
		t.Errorf("Run returned %v", err)
	}
}

// If Run's context is already done, the server ends immediately after its start.
func TestRunWithContextThatIsDone(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 {
		s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: slog.New(slog.DiscardHandler)}
		if err := s.Run(done, "127.0.0.1:0"); err != nil {
			t.Errorf("Run returned %v", err)
		}
	}
}

// "Run returns an error at once if it can't listen on the address", and the server may then serve another address.
func TestRunCannotListen(t *testing.T) {
	taken := filotest.Listen(t, "tcp", "127.0.0.1:0")
	defer taken.Close()
	s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: slog.New(slog.DiscardHandler)}
	ctx := context.Background()
	if err := s.Run(ctx, taken.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Run returned %v", err)
	}
	if err := s.RunTLS(ctx, taken.Addr().String(), "", ""); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("RunTLS returned %v", err)
	}
	if err := s.RunTLS(ctx, "127.0.0.1:0", filepath.Join(t.TempDir(), "none"), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("RunTLS without a certificate returned %v", err)
	}
	if err := s.RunUnix(ctx, filepath.Join(t.TempDir(), "none", "socket"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("RunUnix returned %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Run(done, "127.0.0.1:0"); err != nil {
		t.Errorf("then Run returned %v", err)
	}
	if err := (&filo.Server{}).Run(ctx, "127.0.0.1:0"); err == nil || errors.Is(err, filo.ErrServerClosed) {
		t.Errorf("without a handler Run returned %v", err)
	}
}

// runFailing is a listener whose Accept fails permanently after fail has been set.
type runFailing struct {
	net.Listener
	fail  atomic.Bool
	cause error
}

func (l *runFailing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if l.fail.Load() {
		if conn != nil {
			conn.Close()
		}
		return nil, l.cause
	}
	return conn, err
}

// "If accepting fails permanently, Run shuts the server down in the same way and returns that error."
func TestRunCannotAccept(t *testing.T) {
	listener := &runFailing{Listener: filotest.Listen(t, "tcp", "127.0.0.1:0"), cause: errors.New("no more")}
	s := runListener(t, &filo.Server{GracePeriod: filotest.Bound}, listener)
	held := s.Dial(t)
	begun := s.gate.Hold(t, held).ShuttingDown()
	listener.fail.Store(true)
	s.Dial(t)
	filotest.Recv(t, begun, "the shutdown to begin")
	s.wantRuns(t)
	s.gate.Open()
	held.Want(200, "held", true)
	s.wantResult(t, listener.cause)
}

// "A server may run on several addresses": the server offers the same protocols on all of them, and they end together.
func TestRunEach(t *testing.T) {
	certFile, keyFile := filotest.CertificateFiles(t)
	config := &filo.Server{Handler: filotest.NewGate().Handle}
	s := filotest.New(config, 0)
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path := filepath.Join(t.TempDir(), "socket")
	listeners := []net.Listener{filotest.Listen(t, "tcp", "127.0.0.1:0"), filotest.Listen(t, "tcp", "127.0.0.1:0")}
	results := make(chan error, 8)
	var calls sync.WaitGroup
	start := func(run func() error) {
		calls.Add(1)
		s.Go(func() { defer calls.Done(); results <- run() })
	}
	address := func(run func(address string) error) string {
		return filotest.Listening(t, func(address string) error {
			ended := make(chan error, 1)
			start(func() error {
				err := run(address)
				ended <- err
				if errors.Is(err, syscall.EADDRINUSE) {
					return nil
				}
				return err
			})
			return <-ended
		})
	}
	addresses := map[string]string{
		"Run":    "http://" + address(func(address string) error { return config.Run(ctx, address) }),
		"RunTLS": "https://" + address(func(address string) error { return config.RunTLS(ctx, address, certFile, keyFile) }),
	}
	start(func() error { return config.RunUnix(ctx, path, 0o600) })
	start(func() error { return config.RunListener(ctx, listeners[0]) })
	start(func() error { return config.RunListenerTLS(ctx, listeners[1], certFile, keyFile) })
	addresses["RunListener"] = "http://" + listeners[0].Addr().String()
	addresses["RunListenerTLS"] = "https://" + listeners[1].Addr().String()

	transport := &http.Transport{TLSClientConfig: filotest.ClientTLS()}
	defer transport.CloseIdleConnections()
	for name, at := range addresses {
		response, err := (&http.Client{Transport: transport}).Get(at)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if string(body) != "quick" || err != nil {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
	filotest.Await(t, "the Unix socket", func() bool {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return false
		}
		c := filotest.NewClient(t, conn)
		c.Get("/")
		c.Want(200, "quick", false)
		return true
	})
	cancel()
	calls.Wait()
	close(results)
	for err := range results {
		if err != nil {
			t.Errorf("a call returned %v", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file is still there: %v", err)
	}
	s.WantNoGoroutine(t)
}

// RunListenerTLS closes its listener if there is no certificate.
func TestRunListenerTLSWithoutCertificate(t *testing.T) {
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	s := &filo.Server{Handler: filotest.NewGate().Handle, TLSConfig: &tls.Config{}}
	if err := s.RunListenerTLS(context.Background(), listener, "none", "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("returned %v", err)
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was left open: %v", err)
	}
}

// "They call f with the address of their listener once they serve it."
func TestOnServing(t *testing.T) {
	certFile, keyFile := filotest.CertificateFiles(t)
	path := filepath.Join(t.TempDir(), "socket")
	for name, run := range map[string]func(ctx context.Context, s *filo.Server) error{
		"Run": func(ctx context.Context, s *filo.Server) error { return s.Run(ctx, "127.0.0.1:0") },
		"RunTLS": func(ctx context.Context, s *filo.Server) error {
			return s.RunTLS(ctx, "127.0.0.1:0", certFile, keyFile)
		},
		"RunUnix":  func(ctx context.Context, s *filo.Server) error { return s.RunUnix(ctx, path, 0o600) },
		"any kind": func(ctx context.Context, s *filo.Server) error { return s.RunListener(ctx, servertest.NewListener()) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			first, second := make(chan net.Addr, 2), make(chan net.Addr, 2)
			serving := filo.OnServing(filo.OnServing(ctx, func(address net.Addr) { first <- address }), func(address net.Addr) { second <- address })
			s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: slog.New(slog.DiscardHandler)}
			result := make(chan error, 1)
			go func() { result <- run(serving, s) }()
			address := filotest.Recv(t, second, "serving to begin")
			if earlier := filotest.Recv(t, first, "the function that the context had"); earlier != address {
				t.Errorf("the functions got %v and %v", earlier, address)
			}
			if name != "any kind" {
				conn, err := net.Dial(address.Network(), address.String())
				if err != nil {
					t.Fatal(err)
				}
				if name == "RunTLS" {
					conn = tls.Client(conn, filotest.ClientTLS())
				}
				c := filotest.NewClient(t, conn)
				c.Get("/")
				c.Want(200, "quick", false)
			}
			cancel()
			if err := filotest.Recv(t, result, "Run to end"); err != nil {
				t.Error(err)
			}
			if len(first)+len(second) > 0 {
				t.Error("a function was called twice")
			}
		})
	}
}

// If a start fails, no OnServing function is called, and the server logs the error.
func TestStartFails(t *testing.T) {
	certFile, keyFile := filotest.CertificateFiles(t)
	garbage, taken := filepath.Join(t.TempDir(), "garbage"), filotest.Listen(t, "tcp", "127.0.0.1:0")
	defer taken.Close()
	if err := os.WriteFile(garbage, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	type server = filo.Server
	begun := 0
	starting := func(t *testing.T) context.Context { return filo.OnServing(t.Context(), func(net.Addr) { begun++ }) }
	for name, run := range map[string]func(t *testing.T, s *server) error{
		"no key": func(t *testing.T, s *server) error {
			return s.RunTLS(starting(t), "127.0.0.1:0", certFile, garbage+".none")
		},
		"another file":   func(t *testing.T, s *server) error { return s.RunTLS(starting(t), "127.0.0.1:0", certFile, garbage) },
		"one file":       func(t *testing.T, s *server) error { return s.RunTLS(starting(t), "127.0.0.1:0", certFile, "") },
		"no certificate": func(t *testing.T, s *server) error { return s.RunTLS(starting(t), "127.0.0.1:0", "", "") },
		"taken":          func(t *testing.T, s *server) error { return s.Run(starting(t), taken.Addr().String()) },
		"taken, TLS": func(t *testing.T, s *server) error {
			return s.RunTLS(starting(t), taken.Addr().String(), certFile, keyFile)
		},
		"no address":   func(t *testing.T, s *server) error { return s.Run(starting(t), "nowhere") },
		"no directory": func(t *testing.T, s *server) error { return s.RunUnix(starting(t), garbage+"/socket", 0o600) },
		"no handler":   func(t *testing.T, s *server) error { s.Handler = nil; return s.Run(starting(t), "127.0.0.1:0") },
		"closed":       func(t *testing.T, s *server) error { s.Close(); return s.Run(starting(t), "127.0.0.1:0") },
		"closed, TLS": func(t *testing.T, s *server) error {
			s.Close()
			return s.RunTLS(starting(t), "127.0.0.1:0", certFile, keyFile)
		},
		"another driver": func(t *testing.T, s *server) error {
			t.Setenv("FILO_DRIVER", "nothing")
			return s.Run(starting(t), "127.0.0.1:0")
		},
		"no loop for it": func(t *testing.T, s *server) error {
			t.Setenv("FILO_DRIVER", "loop")
			return s.RunListener(starting(t), servertest.NewListener())
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(filotest.Log)
			err := run(t, &server{Handler: filotest.NewGate().Handle, Logger: log.Logger()})
			if err == nil || begun > 0 {
				t.Errorf("serving has begun %d times, and Run returned %v", begun, err)
			}
			got := log.String()
			if strings.Count(got, "level=ERROR msg=failed address=") != 1 || !strings.Contains(got, "error=") || strings.Contains(got, "msg=serving") {
				t.Errorf("logged %q of %v", got, err)
			}
		})
	}
}
