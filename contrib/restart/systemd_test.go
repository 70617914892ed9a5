//go:build linux

package restart_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/filohttp/filo/contrib/restart"
	"github.com/filohttp/filo/internal/filotest"
)

// systemd is a socket that receives the messages that programs send to systemd. Like systemd, it reads all the time, because a program that
// sends a message waits while the socket is full.
type systemd struct {
	t     *testing.T
	heard chan string // closed at the end of the test
}

func newSystemd(t *testing.T) (s *systemd, variable string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s = &systemd{t: t, heard: make(chan string, 100_000)}
	go func() {
		defer close(s.heard)
		buffer := make([]byte, 1000)
		for n, err := conn.Read(buffer); err == nil; n, err = conn.Read(buffer) {
			s.heard <- string(buffer[:n])
		}
	}()
	return s, "NOTIFY_SOCKET=" + path
}

// want checks the next message that isn't the watchdog's.
func (s *systemd) want(text string) {
	s.t.Helper()
	for {
		message := s.next()
		if message == "WATCHDOG=1" {
			continue
		}
		if !strings.HasPrefix(message, text) {
			s.t.Errorf("systemd was told %q, want %q", message, text)
		}
		return
	}
}

func (s *systemd) next() string {
	s.t.Helper()
	select {
	case message := <-s.heard:
		return message
	case <-time.After(bound):
		s.t.Fatal("systemd was told nothing")
		return ""
	}
}

// "Run tells systemd when the program is ready, when it reloads and when it stops. It … says which process is the main one after a restart".
// All messages come from the process that systemd considers the main one, since by default systemd ignores messages from other processes.
func TestNotify(t *testing.T) {
	s, variable := newSystemd(t)
	p, pid := start(t, "tcp "+filotest.FreeAddress(t), variable)
	s.want(fmt.Sprintf("MAINPID=%d\nREADY=1", pid))
	p.setMode("fail")
	p.signal(pid, syscall.SIGUSR2)
	s.want("RELOADING=1\nMONOTONIC_USEC=")
	s.want("READY=1")
	p.setMode("")
	p.signal(pid, syscall.SIGUSR2)
	next := p.await("ready")
	s.want("RELOADING=1\nMONOTONIC_USEC=")
	s.want(fmt.Sprintf("MAINPID=%d\nREADY=1", next))
	p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
	p.signal(next, syscall.SIGTERM)
	s.want("STOPPING=1")
}

// Run "also sends the watchdog's messages", before a restart and after it.
func TestWatchdog(t *testing.T) {
	s, variable := newSystemd(t)
	p, pid := start(t, "tcp "+filotest.FreeAddress(t), variable, "WATCHDOG_USEC=20000")
	beats := func() {
		t.Helper()
		for range 3 {
			for s.next() != "WATCHDOG=1" {
			}
		}
	}
	beats()
	p.signal(pid, syscall.SIGUSR2)
	p.await("ready")
	p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
	for quiet := false; !quiet; {
		select {
		case <-s.heard: // the first program may have sent messages, too
		case <-time.After(time.Millisecond):
			quiet = true
		}
	}
	beats()
}

// "Listen takes a socket that systemd has opened (LISTEN_FDS), if there is one for the address." A restart hands the socket over, and a
// socket for which Listen isn't called is named in the log. FILO_DRIVER=loop makes serving fail if the loops can't accept from the socket.
func TestSocketActivation(t *testing.T) {
	activate, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatal(err)
		}
		t.Skip("systemd-socket-activate isn't installed: make deps")
	}
	address, other, path := filotest.FreeAddress(t), filotest.FreeAddress(t), filepath.Join(t.TempDir(), "socket")
	p := newProgram(t)
	p.first = exec.Command(activate, "-l", address, "-l", path, "-l", other,
		"-E", addressesVariable, "-E", modeVariable, "-E", "FILO_DRIVER", os.Args[0])
	asked := make(chan error, 1)
	pids := make(chan int, 1)
	go func() { // the first connection starts the program
		c := client{network: "tcp", address: address}
		for end := time.Now().Add(bound); ; time.Sleep(5 * time.Millisecond) {
			pid, err := c.ask()
			if err == nil || time.Now().After(end) {
				pids <- pid
				asked <- err
				return
			}
		}
	}()
	pid := p.start("tcp "+address+";unix "+path, "FILO_DRIVER=loop")
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if got := <-pids; got != pid {
		t.Errorf("process %d has answered, want %d", got, pid)
	}
	if line := p.awaitLine("a socket was passed on that this program doesn't use"); !strings.Contains(line, other) {
		t.Errorf("logged %s", line)
	}
	p.signal(pid, syscall.SIGUSR2)
	next := p.await("ready")
	p.awaitLine(fmt.Sprintf("done %d <nil>", pid))
	for _, c := range []client{{network: "tcp", address: address}, {network: "unix", address: path}} {
		if got, err := c.ask(); err != nil || got != next {
			t.Errorf("%s: process %d has answered, want %d: %v", c.network, got, next, err)
		}
	}
	p.signal(next, syscall.SIGTERM)
	p.awaitLine(fmt.Sprintf("done %d <nil>", next))
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of systemd's socket: %v", err)
	}
	if records := strings.Split(p.printed(), "\n"); slices.ContainsFunc(records, func(line string) bool { return strings.Contains(line, "level=ERROR") }) {
		t.Errorf("printed:\n%s", p.printed())
	}
}

// A program that doesn't serve by RunListener calls Ready when it is ready: "Further calls do nothing."
func TestReady(t *testing.T) {
	s, variable := newSystemd(t)
	name, path, _ := strings.Cut(variable, "=")
	t.Setenv(name, path)
	r, err := restart.New()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := r.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := r.Run(t.Context(), func(context.Context) error {
		if _, err := daemon.SdNotify(false, "STATUS=serving"); err != nil {
			t.Error(err)
		}
		r.Ready()
		r.Ready()
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"STATUS=serving", fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()), "STOPPING=1"} {
		s.want(want)
	}
}
