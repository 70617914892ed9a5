package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// withSteps calls f with short steps and, as long as f fails, with longer ones. On a busy machine, several short steps may pass before a server
// notices that a connection was closed.
func withSteps(f func(step time.Duration) error) (err error) {
	for step := 20 * time.Millisecond; step < 10*time.Second; step *= 4 {
		if err = f(step); err == nil {
			return nil
		}
	}
	return err
}

func TestTheClaim(t *testing.T) {
	var out bytes.Buffer
	if err := withSteps(func(step time.Duration) error {
		out.Reset()
		return run(t.Context(), []string{"-clients", "3", "-steps", "40", "-step", step.String(), "-leave", "4"}, &out)
	}); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"\nfilo ", "\nnet/http ", "\nfasthttp ", "108 of 108", "didn't end", "PASS: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

// Each server behaves as the report says: net/http ends the context as filo does, and fasthttp doesn't.
func TestEachServer(t *testing.T) {
	for _, s := range servers {
		if err := withSteps(func(step time.Duration) error {
			cfg := config{clients: 3, steps: 40, step: step, leave: 4}
			r, err := ask(t.Context(), cfg, s)
			if err == nil && (r.stopped(cfg) == nil) != (s.name != "fasthttp") {
				err = fmt.Errorf("%+v", r)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	cfg := config{clients: 2, steps: 12, leave: 2}
	for _, test := range []struct {
		r    result
		good bool
	}{
		{result{cancelled: 2}, true},
		{result{cancelled: 2, wasted: 2}, true},
		{result{cancelled: 2, wasted: 3}, false},
		{result{cancelled: 1}, false},
	} {
		goesOn := &result{wasted: 20}
		if err := verdict([]*result{&test.r, goesOn}, cfg); (err == nil) != test.good {
			t.Errorf("%+v: %v", test.r, err)
		}
	}
	stops := &result{cancelled: 2}
	if verdict([]*result{stops, stops}, cfg) == nil {
		t.Error("the claim holds of a fasthttp that stops the work")
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-clients", "0"}, {"-steps", "6"}, {"-step", "0s"}, {"-leave", "0"}, {"-step", "5ms", "-leave", "7"}, {"more"}, {"-none"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("run takes %q", args)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{"-step", "1h"}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("run returned %v", err)
	}
}
