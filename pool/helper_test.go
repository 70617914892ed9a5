package pool

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if stacks := leaked(time.Minute); code == 0 && stacks != "" {
		os.Stderr.WriteString("goroutines of pools are left:\n" + stacks)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of workers that don't end within the given time.
func leaked(patience time.Duration) string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		var workers []string
		for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "/pool.(*core[") {
				workers = append(workers, stack)
			}
		}
		if len(workers) == 0 || time.Now().After(end) {
			return strings.Join(workers, "\n\n")
		}
	}
}

// newPool makes a pool that is released at the test's end.
func newPool(t testing.TB, size int, options ...Option) *Pool {
	t.Helper()
	p, err := NewPool(size, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

// bubble runs f in a synctest bubble, which has its own clock.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// must fails the test for an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless got equals wanted.
func want[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s: got %v, want %v", what, got, wanted)
	}
}

// occupy submits n tasks that run until release is called.
func occupy(t testing.TB, p *Pool, n int) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	for range n {
		must(t, p.Submit(func() { <-gate }))
	}
	return func() { close(gate) }
}

// eventually polls until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func drain(t testing.TB, p interface{ ReleaseContext(context.Context) error }) {
	t.Helper()
	must(t, p.ReleaseContext(context.Background()))
}
