package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
)

// TestMain runs one of the servers in the child processes that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheClaim(t *testing.T) {
	var out bytes.Buffer
	// On a busy machine filo has a few more workers. With this many connections, the workers' memory doesn't matter.
	err := run(t.Context(), []string{"-conns", "600"}, &out)
	if runtime.GOOS != "linux" {
		if err == nil || !strings.Contains(err.Error(), runtime.GOOS) {
			t.Errorf("run returned %v", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"\nfilo ", "\nnet/http ", "\nfasthttp ", "PASS: 600 connections"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

// The measurement shows a difference between the servers: net/http has a goroutine for each connection.
func TestMeasure(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from Linux's /proc")
	}
	const n = 200
	for _, name := range names {
		f, err := measure(t.Context(), name, n)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if each := f.goroutines >= n; each != (name != "filo") || f.before <= 0 || f.with <= 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if _, err := measure(t.Context(), "nobody", n); err == nil {
		t.Error("a server that there isn't was measured")
	}
}

func TestVerdict(t *testing.T) {
	const n = 9000
	others := []figures{{before: 10 << 20, with: 180 << 20, goroutines: 9005}, {before: 10 << 20, with: 150 << 20, goroutines: 9007}}
	for _, test := range []struct {
		f    figures
		good bool
	}{
		{figures{before: 10 << 20, with: 15 << 20, goroutines: 13}, true},
		{figures{before: 10 << 20, with: 18 << 20, goroutines: 64}, true},
		{figures{before: 10 << 20, with: 19 << 20, goroutines: 13}, false},
		{figures{before: 10 << 20, with: 15 << 20, goroutines: 65}, false},
	} {
		if err := verdict(append([]figures{test.f}, others...), n); (err == nil) != test.good {
			t.Errorf("%+v: %v", test.f, err)
		}
	}
	few := []figures{{before: 10 << 20, with: 13 << 20, goroutines: 13}, {before: 10 << 20, with: 21 << 20, goroutines: 105}}
	if err := verdict(few, 100); err == nil {
		t.Error("3 MB is less than a quarter of 11")
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-conns", "99"}, {"more"}, {"-none"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("run takes %q", args)
		}
	}
}

func TestMoreThanAProcessMayHave(t *testing.T) {
	if err := run(t.Context(), []string{"-conns", "100000000"}, io.Discard); err == nil {
		t.Error("run takes more connections than a process may have")
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, nil, io.Discard); err == nil {
		t.Error("run goes on though it was interrupted")
	}
}
