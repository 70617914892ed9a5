//go:build unix

package restart_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/filotest"
)

// client makes requests on one connection after another. It never repeats a request.
type client struct {
	network, address string
	secure           bool
	keeps            bool          // it keeps its connection open as long as the server does
	probes           bool          // it asks whether the server is ready
	pause            time.Duration // before the first request of a connection
	conn             net.Conn
	reader           *bufio.Reader
}

// promptly is the time within which a client must send the first request on a new connection. A server that shuts down waits a second for that
// request.
const promptly = 700 * time.Millisecond

// errLate is the error of a client that wasn't prompt, since the machine is too busy. Its first request may be lost.
var errLate = errors.New("the client was late")

// ask makes a request, and returns the number of the process that has answered.
func (c *client) ask() (pid int, err error) {
	begin, first, sent := time.Now(), c.conn == nil, time.Now()
	defer func() {
		if err != nil && first && sent.Sub(begin) > promptly {
			err = errLate
		}
	}()
	if first {
		if err := c.dial(); err != nil {
			return 0, err
		}
	}
	defer func() {
		if err != nil || !c.keeps {
			c.close()
		}
	}()
	path, last := "/", ""
	if c.probes {
		path = "/readyz"
	}
	if !c.keeps {
		last = "Connection: close\r\n"
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + last + "\r\n"
	_, err = io.WriteString(c.conn, request)
	sent = time.Now()
	if err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		return 0, fmt.Errorf("got %d %q, %v", response.StatusCode, body, err)
	}
	if response.Close {
		c.close()
	}
	if c.probes {
		return 0, nil
	}
	return strconv.Atoi(string(body))
}

func (c *client) dial() error {
	conn, err := net.Dial(c.network, c.address)
	if err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(bound))
	time.Sleep(c.pause)
	if c.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// load is a group of clients that send requests continuously.
type load struct {
	answered, lost atomic.Int64
	first          atomic.Pointer[error] // the first error with which a request was lost
	done           sync.WaitGroup
}

// run makes n clients send requests, with a pause after each answer, until ctx ends.
func (l *load) run(ctx context.Context, n int, pause time.Duration, ask func() func() (int, error)) {
	for range n {
		l.done.Go(func() {
			for ask := ask(); ctx.Err() == nil; time.Sleep(pause) {
				switch _, err := ask(); {
				case err == nil:
					l.answered.Add(1)
				case err != errLate:
					l.lost.Add(1)
					l.first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
}

// Package restart "replaces a running server with a new version of its program without losing a request": the test does so five times, for
// clients of all kinds at once, in both drivers. FILO_DRIVER=loop makes the server fail where its loops can't accept.
func TestRestartUnderLoad(t *testing.T) {
	for _, driver := range []string{"loop", "blocking"} {
		t.Run(driver, func(t *testing.T) {
			plain, secure, path := filotest.FreeAddress(t), filotest.FreeAddress(t), filepath.Join(t.TempDir(), "socket")
			p, pid := start(t, "tcp "+plain+";tls "+secure+";unix "+path, "FILO_DRIVER="+driver)
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			loads := map[string]*load{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			run := func(name string, n int, pause time.Duration, ask func() func() (int, error)) {
				loads[name] = new(load)
				loads[name].run(ctx, n, pause, ask)
			}
			by := func(c client) func() func() (int, error) {
				return func() func() (int, error) { mine := c; return mine.ask }
			}
			run("kept", 8, 4*time.Millisecond, by(client{network: "tcp", address: plain, keeps: true}))
			run("kept, seldom used", 8, 300*time.Millisecond, by(client{network: "tcp", address: plain, keeps: true}))
			run("new", 4, 0, by(client{network: "tcp", address: plain}))
			run("new, late", 8, 0, by(client{network: "tcp", address: plain, pause: 50 * time.Millisecond}))
			run("probes", 4, 10*time.Millisecond, by(client{network: "tcp", address: plain, probes: true}))
			run("probes, kept", 4, 10*time.Millisecond, by(client{network: "tcp", address: plain, probes: true, keeps: true}))
			run("TLS", 2, 20*time.Millisecond, by(client{network: "tcp", address: secure, secure: true}))
			run("TLS, kept", 4, 5*time.Millisecond, by(client{network: "tcp", address: secure, secure: true, keeps: true}))
			run("Unix", 4, 2*time.Millisecond, by(client{network: "unix", address: path}))
			run("HTTP/2", 10, 2*time.Millisecond, func() func() (int, error) {
				return func() (int, error) {
					response, err := (&http.Client{Transport: transport}).Get("http://" + plain)
					if err != nil {
						return 0, err
					}
					defer response.Body.Close()
					body, err := io.ReadAll(response.Body)
					if err != nil || response.StatusCode != 200 || response.ProtoMajor != 2 {
						return 0, fmt.Errorf("got %s %d %q, %w", response.Proto, response.StatusCode, body, err)
					}
					return strconv.Atoi(string(body))
				}
			})
			for range 5 {
				p.signal(pid, syscall.SIGUSR2)
				next := p.await("ready")
				if done := p.awaitLine("done"); done != fmt.Sprintf("done %d <nil>", pid) {
					t.Fatalf("process %d was replaced: %s", pid, done)
				}
				pid = next
			}
			cancel()
			for name, l := range loads {
				l.done.Wait()
				t.Logf("%s: %d answers, %d lost", name, l.answered.Load(), l.lost.Load())
				if l.lost.Load() > 0 {
					t.Errorf("%s: the first request was lost by %v", name, *l.first.Load())
				}
				if l.answered.Load() == 0 {
					t.Errorf("%s: no answers", name)
				}
			}
			if n := p.count("ready"); n != 6 {
				t.Errorf("%d programs were ready", n)
			}
			p.signal(pid, syscall.SIGTERM)
			p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the Unix socket's file is left: %v", err)
			}
		})
	}
}

// "If the new program ends before that, … or isn't ready after Options.ReadyTimeout, the old program logs why and continues." The next
// restart may succeed.
func TestNewProgramFails(t *testing.T) {
	for mode, test := range map[string]struct{ timeout, reason string }{
		"fail": {"1m", "ended before it was ready: exit status 3"},
		"hang": {"3s", "wasn't ready after 3s"}, // not shorter, since a busy machine starts a program slowly
	} {
		t.Run(mode, func(t *testing.T) {
			address := filotest.FreeAddress(t)
			p, pid := start(t, "tcp "+address, timeoutVariable+"="+test.timeout)
			kept, fresh := client{network: "tcp", address: address, keeps: true}, client{network: "tcp", address: address}
			defer kept.close()
			conn := func() net.Conn { return kept.conn }
			wantSame := func() {
				t.Helper()
				for _, c := range []*client{&kept, &fresh} {
					if got, err := c.ask(); err != nil || got != pid {
						t.Errorf("process %d has answered, want %d: %v", got, pid, err)
					}
				}
			}
			wantSame()
			before := conn()
			p.setMode(mode)
			for range 2 {
				p.signal(pid, syscall.SIGUSR2)
				failed := p.await("starting")
				if line := p.awaitLine("the restart failed"); !strings.Contains(line, test.reason) {
					t.Errorf("logged %s", line)
				}
				wantGone(t, failed)
				wantSame()
			}
			if conn() != before {
				t.Error("the kept connection was closed")
			}
			p.setMode("")
			p.signal(pid, syscall.SIGUSR2)
			next := p.await("ready")
			p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
			if got, err := fresh.ask(); err != nil || got != next {
				t.Errorf("then process %d has answered, want %d: %v", got, next, err)
			}
		})
	}
}

// wantGone checks that a process has ended and was reaped.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

// "While serve runs, Options.Signal starts a new program. While the new program starts, further such signals do nothing."
func TestTwoSignals(t *testing.T) {
	address := filotest.FreeAddress(t)
	p, pid := start(t, "tcp "+address)
	p.setMode("slow")
	p.signal(pid, syscall.SIGUSR2)
	next := p.await("starting")
	p.signal(pid, syscall.SIGUSR2)
	p.awaitLine("a restart is under way already")
	p.setMode("")
	if ready := p.await("ready"); ready != next {
		t.Errorf("process %d is ready, want %d", ready, next)
	}
	p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
	c := client{network: "tcp", address: address}
	if got, err := c.ask(); err != nil || got != next {
		t.Errorf("process %d has answered, want %d: %v", got, next, err)
	}
	if n := p.count("starting"); n != 2 {
		t.Errorf("%d programs were started", n)
	}
}

// "If ctx ends before the new program is ready, that program is ended."
func TestTerminatedDuringRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	p, pid := start(t, "unix "+path)
	p.setMode("slow")
	p.signal(pid, syscall.SIGUSR2)
	next := p.await("starting")
	p.signal(pid, syscall.SIGTERM)
	p.awaitLine("this program stops, and has ended the new one")
	p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
	wantGone(t, next)
	if err := p.first.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file is left: %v", err)
	}
}

// A program whose predecessor was killed in the middle of a restart serves nevertheless.
func TestPredecessorVanishes(t *testing.T) {
	address := filotest.FreeAddress(t)
	p, pid := start(t, "tcp "+address)
	p.setMode("slow")
	p.signal(pid, syscall.SIGUSR2)
	next := p.await("starting")
	p.signal(pid, syscall.SIGKILL)
	p.first.Wait()
	p.setMode("")
	p.awaitLine("the program that started this one has vanished")
	p.await("ready")
	c := client{network: "tcp", address: address}
	if got, err := c.ask(); err != nil || got != next {
		t.Errorf("process %d has answered, want %d: %v", got, next, err)
	}
}
