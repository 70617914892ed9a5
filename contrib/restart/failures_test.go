//go:build linux

package restart_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/restart"
	"github.com/filohttp/filo/internal/filotest"
)

// A program that can't serve never takes over. In each case something goes wrong in a restart while clients continuously send requests. The
// cases are those of the table in docs/OPERATIONS.md.
func TestFailures(t *testing.T) {
	type replaced struct {
		*program
		file     string // the program's file
		old, new int    // processes; new is 0 until awaitNew
	}
	awaitNew := func(r *replaced) { r.new = r.await("starting") }
	for _, test := range []struct {
		name   string
		mode   string                          // the mode of the new program
		before func(t *testing.T, r *replaced) // the restart
		after  func(r *replaced)               // runs when the restart has begun
		logged string                          // a record at the end of the restart; "" if after has awaited one
		serves string                          // old, new or nobody
		kept   bool                            // clients keep their connections
	}{
		{name: "the new program fails at its start", mode: "fail", logged: "ended before it was ready: exit status 3", serves: "old"},
		{name: "its file is garbage", before: func(t *testing.T, r *replaced) {
			// The file is replaced by a new one, since a program's file can't be written while the program runs.
			if err := os.WriteFile(r.file+".new", []byte("garbage"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(r.file+".new", r.file); err != nil {
				t.Fatal(err)
			}
		}, logged: "exec format error", serves: "old"},
		{name: "it writes garbage to the link", mode: "garbage", logged: "has said 'H' instead of being ready", serves: "old"},
		{name: "it is never ready", mode: "hang", logged: "wasn't ready after 3s", serves: "old"},
		{name: "it serves one listener of two", mode: "half", logged: "wasn't ready after 3s", serves: "old"},
		{name: "its key can't be read", mode: "key", logged: "ended before it was ready: exit status 1", serves: "old"},
		{name: "it has no handler", mode: "handler", logged: "ended before it was ready: exit status 1", serves: "old"},
		{name: "another port that it wants is taken", mode: "taken", logged: "ended before it was ready: exit status 1", serves: "old"},
		{name: "it has no descriptors left", mode: "descriptors", logged: "ended before it was ready: exit status 1", serves: "old"},
		{name: "it is killed before it is ready", mode: "slow", after: func(r *replaced) {
			awaitNew(r)
			r.signal(r.new, syscall.SIGKILL)
		}, logged: "ended before it was ready: signal: killed", serves: "old"},
		{name: "the old one has no descriptors left", before: func(t *testing.T, r *replaced) {
			if err := limitDescriptors(r.old); err != nil {
				t.Fatal(err)
			}
		}, logged: "too many open files", serves: "old", kept: true},
		{name: "the old one is killed before the new one is ready", mode: "slow", after: func(r *replaced) {
			awaitNew(r)
			r.signal(r.old, syscall.SIGKILL)
			r.first.Wait()
			r.setMode("")
		}, logged: "the program that started this one has vanished", serves: "new"},
		{name: "the old one is killed after the new one was ready", after: func(r *replaced) {
			awaitNew(r)
			r.awaitLine("a new program has taken over")
			r.signal(r.old, syscall.SIGKILL)
			r.first.Wait()
		}, serves: "new"},
		{name: "the new one is killed before the old one has ended", after: func(r *replaced) {
			awaitNew(r)
			r.awaitLine("a new program has taken over")
			r.signal(r.new, syscall.SIGKILL)
		}, serves: "nobody"},
		{name: "the new one is killed after the old one has ended", after: func(r *replaced) {
			awaitNew(r)
			r.awaitLine(fmt.Sprintf("done %d <nil>", r.old))
			r.signal(r.new, syscall.SIGKILL)
		}, logged: "a new program has taken over", serves: "nobody"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // most of the time the cases wait for programs that aren't ready
			address, file := filotest.FreeAddress(t), filepath.Join(t.TempDir(), "program")
			if err := os.Symlink(os.Args[0], file); err != nil {
				t.Fatal(err)
			}
			r := &replaced{program: newProgram(t), file: file}
			r.first = exec.Command(file)
			timeout := "1m"
			if strings.Contains(test.logged, "after 3s") { // not shorter, since a busy machine starts a program slowly
				timeout = "3s"
			}
			r.old = r.start("tcp "+address, timeoutVariable+"="+timeout, "FILO_DRIVER=loop")
			var l load
			var here atomic.Int64 // the process that has sent the last answer
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, keeps := range []bool{true, test.kept} {
				l.run(ctx, 4, 2*time.Millisecond, func() func() (int, error) {
					c := &client{network: "tcp", address: address, keeps: keeps}
					return func() (int, error) {
						pid, err := c.ask()
						if err == nil {
							here.Store(int64(pid))
						}
						return pid, err
					}
				})
			}
			answers := func(n int64) { // waits for n more answers
				t.Helper()
				for want, late := l.answered.Load()+n, time.Now().Add(bound); l.answered.Load() < want; time.Sleep(time.Millisecond) {
					if time.Now().After(late) {
						t.Fatalf("no answers, and %d lost", l.lost.Load())
					}
				}
			}
			answers(100)
			if test.before != nil {
				test.before(t, r)
			}
			r.setMode(test.mode)
			r.signal(r.old, syscall.SIGUSR2)
			if test.after != nil {
				test.after(r)
			}
			if test.logged != "" {
				r.awaitLine(test.logged)
			}
			if test.serves != "nobody" {
				answers(100)
			}
			cancel()
			l.done.Wait()
			t.Logf("%d answers, %d lost; %s serves", l.answered.Load(), l.lost.Load(), test.serves)
			// A process that is killed loses the requests that it is serving.
			if killed := strings.Contains(test.name, "the old one is killed"); test.serves != "nobody" && l.lost.Load() > 0 && !killed || killed && l.lost.Load() > 8 {
				t.Errorf("%d requests were lost, the first one by %v", l.lost.Load(), *l.first.Load())
			}
			conn, err := net.Dial("tcp", address)
			for late := time.Now().Add(bound); err == nil && test.serves == "nobody" && time.Now().Before(late); conn, err = net.Dial("tcp", address) {
				conn.Close() // the process hasn't ended yet
			}
			if err == nil {
				conn.Close()
			}
			if (err == nil) != (test.serves != "nobody") {
				t.Errorf("connecting afterwards: %v", err)
			}
			if want := map[string]int{"old": r.old, "new": r.new}[test.serves]; want != 0 && int(here.Load()) != want {
				t.Errorf("process %d has answered last, want %d", here.Load(), want)
			}
		})
	}
}

// A new program that fails or is ended after it has begun to serve doesn't remove the file of a Unix socket, which the old program needs.
func TestNewProgramFailsAtUnixSocket(t *testing.T) {
	for mode, test := range map[string]struct{ timeout, reason string }{
		"key":  {"1m", "ended before it was ready: exit status 1"},
		"half": {"3s", "wasn't ready after 3s"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "socket")
			p, pid := start(t, "unix "+path, timeoutVariable+"="+test.timeout)
			p.setMode(mode)
			p.signal(pid, syscall.SIGUSR2)
			p.awaitLine(test.reason)
			c := client{network: "unix", address: path}
			if got, err := c.ask(); err != nil || got != pid {
				t.Errorf("process %d has answered, want %d: %v", got, pid, err)
			}
		})
	}
}

func init() { spoil = spoilForFailures }

// spoilForFailures is the function spoil of TestFailures.
func spoilForFailures(mode string, s *filo.Server, r *restart.Restarter) error {
	switch mode {
	case "half":
		_, err := r.Listen("127.0.0.1:0")
		return err
	case "handler":
		s.Handler = nil
	case "descriptors":
		return limitDescriptors(os.Getpid())
	case "taken":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		_, err = r.Listen(listener.Addr().String())
		return err
	}
	return nil
}

// limitDescriptors lowers a process's limit so that it can open no further descriptor.
func limitDescriptors(pid int) error {
	var limit syscall.Rlimit
	for {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, limit.Cur)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		limit.Cur++
	}
	limit.Max = limit.Cur
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("prlimit", errno)
	}
	return nil
}
