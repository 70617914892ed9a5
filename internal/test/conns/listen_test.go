package conns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// lifeFailing is a listener whose Accept first fails with each of errs.
type lifeFailing struct {
	net.Listener
	mu    sync.Mutex
	errs  []error     // guarded by mu
	calls []time.Time // the times of the calls of Accept; guarded by mu
}

func (l *lifeFailing) Accept() (net.Conn, error) {
	l.mu.Lock()
	l.calls = append(l.calls, time.Now())
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	return l.Listener.Accept()
}

func (l *lifeFailing) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.errs)
}

// After a temporary error of Accept, such as EMFILE, the server tries again after growing pauses. It logs one line, not one for each attempt.
func TestAcceptBacksOff(t *testing.T) {
	// accept(2) lists these errors: limits, lack of memory, and errors of a connection before it was accepted.
	for _, errno := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM,
	} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tries = 20
				listener, log := servertest.NewListener(), new(filotest.Log)
				failing := &lifeFailing{Listener: listener}
				for range tries {
					failing.errs = append(failing.errs, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", errno)})
				}
				s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: log.Logger()}
				served := make(chan error, 1)
				go func() { served <- s.Serve(failing) }()
				conn, err := listener.Dial()
				if err != nil {
					t.Fatal(err)
				}
				c := filotest.NewClient(t, conn)
				c.SetDeadline(time.Now().Add(time.Hour))
				c.Get("/")
				if response, _, err := c.TryAnswer(); err != nil || response.StatusCode != 200 {
					t.Errorf("a client that came meanwhile: %v", err)
				}
				if lines := log.Lines("accept"); len(lines) != 2 || !strings.Contains(lines[0], "ERROR") || !strings.Contains(lines[0], errno.Error()) {
					t.Errorf("log lines, one error and one recovery wanted: %q", lines)
				}
				if n := s.Stats().AcceptFailures; n != tries {
					t.Errorf("%d failures are counted, want %d", n, tries)
				}
				s.Close()
				listener.Close()
				if err := <-served; err != filo.ErrServerClosed {
					t.Errorf("Serve returned %v", err)
				}
				wantBackOff(t, failing.calls[:tries+1])
			})
		})
	}
}

// wantBackOff checks that the times between calls grow, up to a second.
func wantBackOff(t *testing.T, calls []time.Time) {
	t.Helper()
	previous := time.Millisecond
	for i := range calls[1:] {
		pause := calls[i+1].Sub(calls[i])
		if pause < previous || pause > time.Second {
			t.Errorf("try %d came %v after the one before it, which had waited %v", i+1, pause, previous)
		}
		previous = pause
	}
}

// A server ends at once, even during a pause between two calls of Accept.
func TestAcceptBackOffEnds(t *testing.T) {
	for name, end := range map[string]func(*filo.Server) error{
		"Shutdown": func(s *filo.Server) error { return s.Shutdown(context.Background()) },
		"Close":    (*filo.Server).Close,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failing := &lifeFailing{Listener: servertest.NewListener()}
				for range 1000 {
					failing.errs = append(failing.errs, syscall.EMFILE)
				}
				s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: slog.New(slog.DiscardHandler)}
				served := make(chan error, 1)
				go func() { served <- s.Serve(failing) }()
				time.Sleep(10*time.Second + time.Millisecond)
				start := time.Now()
				if err := end(s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := <-served; err != filo.ErrServerClosed {
					t.Errorf("Serve returned %v", err)
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %v to end", took)
				}
				if failing.failures() == 0 {
					t.Error("Accept wasn't failing any more")
				}
			})
		})
	}
}

// "The error is … the error with which accepting failed permanently." The server continues to serve its open connections.
func TestAcceptFailsForGood(t *testing.T) {
	reason := errors.New("the listener is broken")
	gate := filotest.NewGate()
	defer gate.Open()
	working, broken := filotest.Listen(t, "tcp", "127.0.0.1:0"), filotest.Listen(t, "tcp", "127.0.0.1:0")
	s := filotest.Serve(t, &filo.Server{Handler: gate.Handle}, working)
	held := s.Dial(t)
	gate.Hold(t, held)
	if err := s.Serve(&lifeFailing{Listener: broken, errs: []error{reason}}); err != reason {
		t.Errorf("Serve returned %v, want %v", err, reason)
	}
	if _, err := net.Dial("tcp", broken.Addr().String()); err == nil {
		t.Error("the broken listener wasn't closed")
	}
	fresh := s.Dial(t)
	fresh.Get("/")
	fresh.Want(200, "quick", false)
	gate.Open()
	held.Want(200, "held", false)
}

// If the server can't listen at an address, it returns an error at once.
func TestListenErrors(t *testing.T) {
	taken := filotest.Listen(t, "tcp", "127.0.0.1:0")
	defer taken.Close()
	address := taken.Addr().String()
	handler := filotest.NewGate().Handle
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		serve func() error
		want  error
	}{
		"an address in use":          {func() error { return filo.ListenAndServe(address, handler) }, syscall.EADDRINUSE},
		"an address in use, TLS":     {func() error { return filo.ListenAndServeTLS(address, "", "", handler) }, syscall.EADDRINUSE},
		"no certificate":             {func() error { return filo.ListenAndServeTLS("127.0.0.1:0", missing, missing, handler) }, fs.ErrNotExist},
		"no directory for a socket":  {func() error { return filo.ListenAndServeUnix(missing+"/socket", 0o600, handler) }, fs.ErrNotExist},
		"a path that is too long":    {func() error { return filo.ListenAndServeUnix(strings.Repeat("x", 200), 0o600, handler) }, syscall.EINVAL},
		"a listener that was closed": {func() error { return filo.Serve(lifeClosedListener(t), handler) }, net.ErrClosed},
	} {
		if err := test.serve(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// The error for a malformed address differs from the error for an address in use, and describes the form of an address.
func TestListenSaysWhatAnAddressIs(t *testing.T) {
	for _, address := range []string{"8080", "localhost", "http://localhost:8080", "::1:80:"} {
		err := filo.ListenAndServe(address, filotest.NewGate().Handle)
		var wrong *net.AddrError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), `filo: an address is a host, which may be empty, and a port, such as ":8080"`) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func lifeClosedListener(t *testing.T) net.Listener {
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	listener.Close()
	return listener
}

// ListenAndServe listens at the given address.
func TestListenAndServe(t *testing.T) {
	s := &filo.Server{Handler: filotest.NewGate().Handle}
	served := make(chan error, 1)
	address := filotest.Listening(t, func(address string) error {
		err := s.ListenAndServe(address)
		served <- err
		return err
	})
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "quick" {
		t.Errorf("got %q, %v", body, err)
	}
	s.Close()
	if err := filotest.Recv(t, served, "ListenAndServe to return"); err != filo.ErrServerClosed {
		t.Errorf("ListenAndServe returned %v", err)
	}
}

// lifeUnix serves on a Unix socket, and returns a channel that will receive the result of ListenAndServeUnix.
func lifeUnix(t *testing.T, s *filo.Server, path string, mode fs.FileMode) <-chan error {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- s.ListenAndServeUnix(path, mode) }()
	t.Cleanup(func() { s.Close() })
	filotest.Await(t, "the socket to be served", func() bool {
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != mode {
			return false
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			return false
		}
		c := filotest.NewClient(t, conn)
		c.Get("/")
		c.Want(200, "quick", false)
		return true
	})
	return served
}

// "ListenAndServeUnix listens on a Unix socket and serves", and the file has the given permissions. It "removes its own file
// at the end".
func TestUnixSocket(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o777} {
		for name, end := range map[string]func(*filo.Server) error{
			"Shutdown": func(s *filo.Server) error { return s.Shutdown(context.Background()) },
			"Close":    (*filo.Server).Close,
		} {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "socket")
				s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: slog.New(slog.DiscardHandler)}
				served := lifeUnix(t, s, path, mode)
				if err := end(s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := filotest.Recv(t, served, "the server to end"); err != filo.ErrServerClosed {
					t.Errorf("ListenAndServeUnix returned %v", err)
				}
				if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the socket's file is still there: %v", err)
				}
			})
		}
	}
}

// "It replaces a socket file that no process listens on".
func TestUnixSocketStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false) // a killed process leaves its socket file, too
	killed.Close()
	lifeUnix(t, &filo.Server{Handler: filotest.NewGate().Handle, Logger: slog.New(slog.DiscardHandler)}, path, 0o640)
}

// A server removes only a stale socket file, to which no process listens.
func TestUnixSocketInUse(t *testing.T) {
	for name, occupy := range map[string]func(*testing.T, string){
		"a live server": func(t *testing.T, path string) {
			listener := filotest.Listen(t, "unix", path)
			t.Cleanup(func() { listener.Close() })
		},
		"a regular file": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a directory": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"a symbolic link to nothing": func(t *testing.T, path string) {
			if err := os.Symlink("nothing", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { lifeUnixInUse(t, occupy) })
	}
}

// lifeUnixInUse checks that a server doesn't change or remove the file that occupy has created at the server's path.
func lifeUnixInUse(t *testing.T, occupy func(*testing.T, string)) {
	path := filepath.Join(t.TempDir(), "socket")
	occupy(t, path)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: filotest.NewGate().Handle}
	served := make(chan error, 1)
	go func() { served <- s.ListenAndServeUnix(path, 0o666) }()
	select {
	case err := <-served:
		if err == nil || errors.Is(err, filo.ErrServerClosed) {
			t.Errorf("ListenAndServeUnix returned %v", err)
		}
	case <-time.After(filotest.Bound):
		t.Error("ListenAndServeUnix serves")
	}
	after, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
		t.Errorf("%v became %v, %v", before, after, err)
	}
	s.Close()
}
