package filo_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/filohttp/filo"
)

// lifeChild names the environment variable that makes the test binary the server of TestOutOfDescriptors.
const lifeChild = "FILO_TEST_OUT_OF_DESCRIPTORS"

// A server that runs out of descriptors says so once, goes on serving those that it has, and accepts again when some
// are free.
func TestOutOfDescriptors(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^TestOutOfDescriptorsChild$", "-test.count=1")
	child.Env = append(os.Environ(), lifeChild+"=1")
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	until := func(text string) (line string) {
		for !strings.Contains(line, text) {
			line = lifeRecv(t, lines, "the child to say "+text)
		}
		return line
	}
	defer child.Wait()
	defer stdin.Close()
	s := &lifeServer{addr: strings.TrimPrefix(until("listening on "), "listening on ")}

	const some = 60 // more than the child has descriptors for
	var clients []*lifeClient
	for range some {
		c := s.dial(t)
		c.get("/")
		clients = append(clients, c)
	}
	until("accepting connections fails")
	clients[0].want(200, "quick", false) // the first of the backlog
	for range 10 {
		clients[0].get("/")
		clients[0].want(200, "quick", false)
	}
	for _, c := range clients[:some*2/3] {
		c.Close()
	}
	for _, c := range clients[some*2/3:] {
		c.want(200, "quick", false)
	}
	until("accepting connections again")
	stdin.Close()
	for line := range lines {
		if strings.Contains(line, "accepting connections fails") {
			t.Errorf("said again: %s", line)
		}
	}
	if err := child.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
}

// TestOutOfDescriptorsChild is the server of TestOutOfDescriptors. It serves until its standard input ends.
func TestOutOfDescriptorsChild(t *testing.T) {
	if os.Getenv(lifeChild) == "" {
		t.Skip("it is a part of TestOutOfDescriptors")
	}
	listener := lifeListen(t, "tcp", "127.0.0.1:0")
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	// 40 more than are open; the read of the directory itself is one of them, and each loop needs some.
	limit := syscall.Rlimit{Cur: uint64(len(open) + 40), Max: uint64(len(open) + 40)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	s := &filo.Server{Handler: newLifeGate().handle, Loops: 2, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	fmt.Printf("listening on %s\n", listener.Addr())
	io.Copy(io.Discard, os.Stdin)
	s.Close()
	if err := <-served; err != filo.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
}

// A socket that somebody listens on stays theirs when its backlog is full, too.
func TestUnixSocketBusy(t *testing.T) { lifeUnixInUse(t, lifeBusySocket) }

// lifeBusySocket listens on a Unix socket that accepts nothing, and fills its backlog: a connect fails with EAGAIN.
func lifeBusySocket(t *testing.T, path string) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("the backlog can't be filled here")
}
