//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if is, err := part(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// need skips a test on a machine that can't run the trials. If FILO_CI is set, the programs must be installed, so a missing one fails the test.
func need(t *testing.T) {
	t.Helper()
	if err := lacks(t.Context()); err != nil {
		if errors.Is(err, exec.ErrNotFound) && os.Getenv("FILO_CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("this machine can't run the trials: %v", err)
	}
}

// All trials that the flag -short selects pass, and each fault has really occurred.
func TestShort(t *testing.T) {
	need(t)
	o := options{seed: 1, short: true}
	for _, each := range o.trials() {
		t.Run(each.fault, func(t *testing.T) {
			t.Parallel() // a trial mostly waits for the server's workers to end
			switch row, err := each.run(t.Context(), o); {
			case errors.Is(err, errUnrun):
				t.Skip(err)
			case err != nil:
				t.Errorf("%v\n%s", err, row)
			}
		})
	}
}

// A trial fails if a client gets a wrong byte, or neither an answer nor an error, or an error that isn't allowed. It also fails if one of the
// protocols has no answer.
func TestAttemptFails(t *testing.T) {
	fine := func() outcome {
		o := outcome{Right: map[string]int{}, Errors: map[string]int{}}
		for _, protocol := range protocols {
			o.Right[protocol.name] = 1
		}
		return o
	}
	for name, spoil := range map[string]func(*outcome){
		"":                        func(*outcome) {},
		"neither an answer":       func(o *outcome) { o.Lost = 1 },
		"unexpected":              func(o *outcome) { o.Errors["reset"] = 1 },
		"an answer by HTTP/2":     func(o *outcome) { delete(o.Right, "HTTP/2") },
		"by HTTP/1.1 over TLS":    func(o *outcome) { o.Right = map[string]int{"HTTP/1.1": 1} }, // only HTTP/1.1
		"an answer by HTTP/1.1\n": func(o *outcome) { clear(o.Right) },
	} {
		a := &attempt{outcome: outcome{Right: map[string]int{}, Errors: map[string]int{}}}
		o := fine()
		spoil(&o)
		a.perfect(o, "then")
		if got := fmt.Sprint(errors.Join(a.failed...)); name == "" && len(a.failed) > 0 || name != "" && !strings.Contains(got, name) {
			t.Errorf("%q: %s", name, got)
		}
	}
}

// An answer is wrong if a byte differs, or if it belongs to another request. An error that the client notices isn't a wrong answer.
func TestKinds(t *testing.T) {
	q := &request{target: "/content", number: "7", want: []byte("content")}
	for name, err := range map[string]error{
		"":            q.check(200, "7", []byte("contenT")),
		"status 503":  q.check(503, "", nil),
		"closed":      fmt.Errorf("after 3 of 7 bytes of a body: %w", io.ErrUnexpectedEOF),
		"reset":       os.NewSyscallError("read", syscall.ECONNRESET),
		nothing:       os.ErrDeadlineExceeded,
		"stream ID N": fmt.Errorf("reading: %w", errors.New("stream ID 7")),
	} {
		if kind := kindOf(err); kind != name {
			t.Errorf("%v is of the kind %q instead of %q", err, kind, name)
		}
	}
	for _, err := range []error{q.check(200, "8", q.want), q.check(200, "7", q.want[:6])} {
		if kindOf(err) != "" {
			t.Errorf("%v isn't wrong", err)
		}
	}
}

// A link drops the given fraction of packets, and with the same seed the same packets. It carries the others unchanged, with their delay.
func TestLink(t *testing.T) {
	const n = 400
	carried := func(p path) (got []int) {
		var ends [2]*os.File
		var near, far *os.File
		for i, mine := range []**os.File{&near, &far} {
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			ends[i], *mine = os.NewFile(uintptr(pair[0]), "end"), os.NewFile(uintptr(pair[1]), "mine")
			defer (*mine).Close()
		}
		l := newLink(p, 5, ends[0], ends[1])
		defer l.close()
		content := make([]byte, 1000)
		rand.NewChaCha8([32]byte{1}).Read(content)
		go func() {
			for i := range n {
				near.Write(append([]byte{byte(i >> 8), byte(i)}, content...))
			}
		}()
		buffer := make([]byte, 2000)
		for l.carried.Load()+l.harmed.Load() < n || len(got) < int(l.carried.Load()) {
			far.SetReadDeadline(time.Now().Add(time.Second))
			m, err := far.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue // the last packets may have been dropped
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(buffer[2:m], content) {
				t.Fatal("a packet has changed")
			}
			got = append(got, int(buffer[0])<<8|int(buffer[1]))
		}
		return got
	}
	all := carried(path{})
	first, second := carried(path{loss: 0.1}), carried(path{loss: 0.1})
	if len(all) != n || len(first) > n*95/100 || len(first) < n*80/100 || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("%d of %d packets without loss, and with one of ten %d, then %d", len(all), n, len(first), len(second))
	}
	start := time.Now()
	if carried(path{delay: 50 * time.Millisecond}); time.Since(start) < 50*time.Millisecond {
		t.Error("delayed packets came early")
	}
}

// A signal ends a run between two steps, and leaves nothing behind: no process, file or mount.
func TestInterrupted(t *testing.T) {
	need(t)
	mounts := func() string {
		text, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	for _, fault := range []string{"vanishes", "the disk is full"} {
		t.Run(fault, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun := func() {
				if fault == "the disk is full" && !strings.Contains(mounts(), dir) {
					t.Error("the disk isn't mounted")
				}
				if len(children(t)) == 0 {
					t.Error("no program runs")
				}
				cancel()
			}
			if err := run(ctx, options{seed: 1, only: fault, output: io.Discard, begun: begun}); !errors.Is(err, context.Canceled) {
				t.Errorf("an interrupted run ends with %v", err)
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("processes are left: %s", left)
			}
			if strings.Contains(mounts(), dir) {
				t.Error("the disk is still mounted")
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		})
	}
}

// children returns the IDs of this process's children.
func children(t *testing.T) (all []string) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lists {
		list, _ := os.ReadFile(name) // the file is missing if its thread has ended
		all = append(all, strings.Fields(string(list))...)
	}
	return all
}
