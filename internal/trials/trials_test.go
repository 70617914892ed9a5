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

// The short form passes, and each of its faults has happened.
func TestShort(t *testing.T) {
	if err := lacks(t.Context()); err != nil {
		t.Skipf("this machine can't run the trials: %v", err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), options{seed: 1, short: true, output: &out}); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	if strings.Contains(out.String(), errUnrun.Error()) {
		t.Skipf("%s", &out)
	}
}

// A trial fails if a client gets a wrong byte, no word, or an error where none may come, or nothing by one of the protocols.
func TestAttemptFails(t *testing.T) {
	fine := func() outcome {
		o := outcome{Right: map[string]int{}, Errors: map[string]int{}}
		for _, protocol := range protocols {
			o.Right[protocol.name] = 1
		}
		return o
	}
	for name, spoil := range map[string]func(*outcome){
		"":                       func(*outcome) {},
		"neither an answer":      func(o *outcome) { o.Lost = 1 },
		"though none was":        func(o *outcome) { o.Errors["reset"] = 1 },
		"an answer by HTTP/2":    func(o *outcome) { delete(o.Right, "HTTP/2") },
		"nobody has got an answ": func(o *outcome) { clear(o.Right) },
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

// An answer with a byte that differs, or that is another's, is wrong. What a client was told isn't.
func TestKinds(t *testing.T) {
	q := &request{target: "/content", number: "7", want: []byte("content")}
	for name, err := range map[string]error{
		"":           q.check(200, "7", []byte("contenT")),
		"status 503": q.check(503, "", nil),
		"closed":     fmt.Errorf("after 3 of 7 bytes of a body: %w", io.ErrUnexpectedEOF),
		"reset":      os.NewSyscallError("read", syscall.ECONNRESET),
		nothing:      os.ErrDeadlineExceeded,
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

// A link drops as many packets as it is told to, the same ones by the same seed, and carries the others unchanged, when they are due.
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
				continue // the last ones may have been dropped
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

// A signal ends a run between two steps, and nothing stays behind.
func TestInterrupted(t *testing.T) {
	if err := lacks(t.Context()); err != nil {
		t.Skipf("this machine can't run the trials: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	if err := run(ctx, options{seed: 1, only: "vanishes", output: io.Discard}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted run ends with %v", err)
	}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lists {
		if children, _ := os.ReadFile(name); len(children) > 0 { // a thread may have ended
			t.Errorf("processes are left: %s", children)
		}
	}
}
