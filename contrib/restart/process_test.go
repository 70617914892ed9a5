//go:build unix

package restart_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/restart"
	"github.com/filohttp/filo/health"
)

// bound is how long the tests wait for an event that must happen. A passing test never waits that long.
const bound = time.Minute

// drainTime is how long the program drains when it is told to end.
const drainTime = 200 * time.Millisecond

// The environment variables of the program that the tests restart. The program is this test binary.
const (
	addressesVariable = "RESTART_TEST_ADDRESSES" // "tcp ADDRESS", "tls ADDRESS" or "unix PATH", with semicolons between them
	modeVariable      = "RESTART_TEST_MODE"      // a file that says how the program behaves before it is ready
	timeoutVariable   = "RESTART_TEST_TIMEOUT"   // Options.ReadyTimeout
	drainVariable     = "RESTART_TEST_DRAIN"     // a duration that replaces drainTime
)

func TestMain(m *testing.M) {
	if addresses := os.Getenv(addressesVariable); addresses != "" {
		os.Exit(serveProgram(strings.Split(addresses, ";")))
	}
	os.Exit(m.Run())
}

// serveProgram is the program. Each line that it prints begins with starting, ready or done and the process's number, or is a record of the
// log. The program and its successors print to the same pipe.
func serveProgram(addresses []string) (code int) {
	fmt.Println("starting", os.Getpid())
	if code, ended := prepare(); ended {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := runProgram(ctx, addresses)
	fmt.Println("done", os.Getpid(), err)
	if err != nil {
		return 1
	}
	return 0
}

// prepare behaves as the mode in the file says.
func prepare() (code int, ended bool) {
	mode, _ := os.ReadFile(os.Getenv(modeVariable))
	switch mode := string(mode); {
	case mode == "fail":
		return 3, true
	case mode == "hang":
		for {
			time.Sleep(time.Hour)
		}
	case mode == "garbage":
		os.NewFile(3, "link").WriteString("Hello")
		for {
			time.Sleep(time.Hour)
		}
	case mode == "slow":
		for mode == "slow" {
			time.Sleep(5 * time.Millisecond)
			content, _ := os.ReadFile(os.Getenv(modeVariable))
			mode = string(content)
		}
	}
	return 0, false
}

func runProgram(ctx context.Context, addresses []string) error {
	timeout, _ := time.ParseDuration(os.Getenv(timeoutVariable))
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))
	mode, _ := os.ReadFile(os.Getenv(modeVariable))
	if string(mode) == "ended" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	r, err := restart.New(restart.Options{ReadyTimeout: timeout, Logger: logger})
	if err != nil {
		return err
	}
	probes := health.New()
	s := &filo.Server{
		Logger: logger, IdleGrace: 5 * time.Second, HTTP2: filo.HTTP2Options{Unencrypted: true}, TLSConfig: certificate(),
		Handler: func(c *filo.Ctx) error {
			if c.Path() == "/readyz" {
				return probes.Ready(c)
			}
			return c.Text(200, strconv.Itoa(os.Getpid()))
		},
	}
	probes.Attach(s)
	var serves []func(context.Context) error
	for _, each := range addresses {
		network, address, _ := strings.Cut(each, " ")
		listen := r.Listen
		if network == "unix" {
			listen = func(path string) (net.Listener, error) { return r.ListenUnix(path, 0o600) }
		}
		listener, err := listen(address)
		if err != nil {
			return err
		}
		serves = append(serves, func(ctx context.Context) error {
			if string(mode) == "key" {
				return s.RunListenerTLS(ctx, listener, os.Args[0], "none.pem")
			}
			if network == "tls" {
				return s.RunListenerTLS(ctx, listener, "", "")
			}
			return s.RunListener(ctx, listener)
		})
	}
	if err := spoil(string(mode), s, r); err != nil {
		return err
	}
	return r.Run(ctx, func(ctx context.Context) error {
		fmt.Println("ready", os.Getpid())
		drain, err := time.ParseDuration(os.Getenv(drainVariable))
		if err != nil {
			drain = drainTime
		}
		ctx, cancel := probes.DrainContext(ctx, drain)
		defer cancel()
		ended := make(chan error, len(serves))
		for _, serve := range serves {
			go func() { ended <- serve(ctx) }()
		}
		var all error
		for range serves {
			all = errors.Join(all, <-ended)
		}
		return all
	})
}

// spoil provokes the failure that a mode names in a program that is about to serve: see TestFailures.
var spoil = func(mode string, s *filo.Server, r *restart.Restarter) error { return nil }

var certificate = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"filo.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
})

// program is a running program, with the programs that replace it.
type program struct {
	t     *testing.T
	first *exec.Cmd
	mode  string      // the file that contains the mode
	lines chan string // the lines that the programs print; closed when none of them runs any more
	// pending are lines that were received but not awaited yet, since two processes print in any order.
	pending []string

	mu  sync.Mutex
	all []string // guarded by mu
}

// start starts the program, and waits until it is ready.
func start(t *testing.T, addresses string, environment ...string) (p *program, pid int) {
	t.Helper()
	p = newProgram(t)
	p.first = exec.Command(os.Args[0])
	return p, p.start(addresses, environment...)
}

func newProgram(t *testing.T) *program {
	return &program{t: t, mode: filepath.Join(t.TempDir(), "mode"), lines: make(chan string, 1000)}
}

func (p *program) start(addresses string, environment ...string) (pid int) {
	p.t.Helper()
	p.launch(addresses, environment...)
	return p.await("ready")
}

// launch starts the program. At the end of the test, no process of the program may be left.
func (p *program) launch(addresses string, environment ...string) {
	t := p.t
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.first.Env = append(os.Environ(), addressesVariable+"="+addresses, modeVariable+"="+p.mode)
	p.first.Env = append(p.first.Env, environment...)
	p.first.Stdout, p.first.Stderr = write, os.Stderr
	if err := p.first.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	go func() {
		defer read.Close()
		defer close(p.lines)
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			p.mu.Lock()
			p.all = append(p.all, scanner.Text())
			p.mu.Unlock()
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		p.first.Process.Signal(syscall.SIGTERM)
		told := 0 // the process that has received the last SIGTERM
		for late, ended := time.After(bound), false; !ended; {
			// A process may have been started before, but its line is read only now.
			if last := p.last("starting"); last != told {
				syscall.Kill(last, syscall.SIGTERM)
				told = last
			}
			select {
			case _, ok := <-p.lines:
				ended = !ok // true when the last process has ended
			case <-late:
				t.Error("a program didn't end")
				p.first.Process.Kill()
				syscall.Kill(p.last("starting"), syscall.SIGKILL)
			}
		}
		p.first.Wait()
		if t.Failed() {
			t.Logf("the programs printed:\n%s", p.printed())
		}
	})
	p.await("starting")
}

// await waits for a process that prints the word, and returns its number.
func (p *program) await(word string) (pid int) {
	p.t.Helper()
	line := p.awaitMatch(word, func(line string) bool { return strings.HasPrefix(line, word+" ") })
	pid, err := strconv.Atoi(strings.TrimPrefix(line, word+" "))
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// awaitLine waits for a line that contains this text and hasn't been awaited before.
func (p *program) awaitLine(text string) string {
	p.t.Helper()
	return p.awaitMatch(text, func(line string) bool { return strings.Contains(line, text) })
}

func (p *program) awaitMatch(text string, matches func(line string) bool) string {
	p.t.Helper()
	for i, line := range p.pending {
		if matches(line) {
			p.pending = slices.Delete(p.pending, i, i+1)
			return line
		}
	}
	for late := time.After(bound); ; {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the program ended before it printed %q:\n%s", text, p.printed())
			}
			if matches(line) {
				return line
			}
			p.pending = append(p.pending, line)
		case <-late:
			p.t.Fatalf("waited in vain for %q:\n%s", text, p.printed())
		}
	}
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.all, "\n")
}

// last returns the number of the last process that has printed this word, or 0 if none has.
func (p *program) last(word string) (pid int) {
	for line := range strings.Lines(p.printed()) {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			pid, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return pid
}

// count returns how many lines begin with the word.
func (p *program) count(word string) (n int) {
	for line := range strings.Lines(p.printed()) {
		if strings.HasPrefix(line, word+" ") {
			n++
		}
	}
	return n
}

func (p *program) setMode(mode string) {
	p.t.Helper()
	if err := os.WriteFile(p.mode+".new", []byte(mode), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.mode+".new", p.mode); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) signal(pid int, signal syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		p.t.Fatal(err)
	}
}
