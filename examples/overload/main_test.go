package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTheShow(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-concurrency", "8", "-crowd", "40", "-work", "10ms", "-storm", "500ms"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"6 regular clients", "503 × ", "Afterwards, one new client: 200 × 1", "So: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

// What the clients count as refused and served is what the server counts.
func TestCountersAgree(t *testing.T) {
	cfg, err := parseFlags([]string{"-concurrency", "4", "-crowd", "20", "-work", "5ms", "-storm", "200ms"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := play(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := r.calm.count(200) + r.storm.count(200) + r.crowd.count(200) + r.after.count(200)
	if got := r.stats.Requests[2]; got != uint64(served) {
		t.Errorf("the server counts %d answers 2xx, the clients %d", got, served)
	}
	// The client that comes afterwards may be refused before it is served.
	if got, seen := r.stats.ConnsRefused, uint64(r.crowd.count(503)); got < seen {
		t.Errorf("the server counts %d refused, the crowd saw %d", got, seen)
	}
}

func TestVerdict(t *testing.T) {
	fill := func(t *tally, outcomes []outcome) {
		for _, o := range outcomes {
			t.add(o)
		}
	}
	ok, refused, failed := outcome{status: 200}, outcome{status: 503}, outcome{err: io.ErrUnexpectedEOF}
	for _, tc := range []struct {
		name                string
		storm, crowd, after []outcome
		good                bool
	}{
		{"as promised", []outcome{ok}, []outcome{ok, refused}, []outcome{ok}, true},
		{"a regular client is refused", []outcome{ok, refused}, []outcome{refused}, []outcome{ok}, false},
		{"a regular client fails", []outcome{ok, failed}, []outcome{refused}, []outcome{ok}, false},
		{"the regular clients are starved", nil, []outcome{refused}, []outcome{ok}, false},
		{"one of the crowd gets no whole answer", []outcome{ok}, []outcome{refused, failed}, []outcome{ok}, false},
		{"nobody is refused", []outcome{ok}, []outcome{ok}, []outcome{ok}, false},
		{"refused for ever", []outcome{ok}, []outcome{refused}, []outcome{refused}, false},
	} {
		r := &result{}
		fill(&r.storm, tc.storm)
		fill(&r.crowd, tc.crowd)
		fill(&r.after, tc.after)
		if err := r.verdict(); (err == nil) != tc.good {
			t.Errorf("%s: the verdict is %v", tc.name, err)
		}
	}
}

func TestLatency(t *testing.T) {
	var tl tally
	for i := range 100 {
		tl.add(outcome{status: http.StatusOK, took: time.Duration(100-i) * time.Millisecond})
	}
	if got, want := tl.latency(200), "half within 50.0 ms, 99 % within 99.0 ms, all within 100.0 ms"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := tl.latency(503); got != "-" {
		t.Errorf("no answers give %q", got)
	}
}

func TestRunRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-concurrency", "3"}, {"-crowd", "0"}, {"surplus"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("run(%q) takes them", args)
		}
	}
}

func TestRunStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := run(ctx, []string{"-storm", "1h"}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("run returned %v", err)
	}
}
