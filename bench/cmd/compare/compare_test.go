package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/row"
)

func TestParseFlags(t *testing.T) {
	for _, c := range []struct {
		args            string
		results, report string
		resume          bool
	}{
		{"", "../.bench/default.jsonl", "../docs", false},
		{"-size quick", "../.bench/quick.jsonl", "", false},
		{"-size http2", "../.bench/http2.jsonl", "", false},
		{"-size all", "../.bench/all.jsonl", "../docs", true},
		{"-rows json", "", "", false},
		{"-pinned", "", "", false},
		{"-base main", "", "", false},
		{"-rows json -results x.jsonl -resume -report docs", "x.jsonl", "docs", true},
		{"-results - -report -", "", "", false},
	} {
		o, err := parseFlags(strings.Fields(c.args))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if o.results != c.results || o.report != c.report || o.resume != c.resume {
			t.Errorf("%s: results %q, report %q, resume %t", c.args, o.results, o.report, o.resume)
		}
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-size huge": "quick, http2, default and all", "-peers apache": "fasthttp", "-kinds p99": "syscalls", "-procs 0": "-procs", "-procs x": "-procs",
		"-seconds -1": "negative", "-rounds -1": "negative", "-max-lateness 0s": "negative", "-rows json -resume": "-results", "json": "only flags",
	} {
		if _, err := parseFlags(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"-rows", "no-such-row"}, io.Discard); err == nil || !strings.Contains(err.Error(), "keepalive-64") {
		t.Errorf("a row that there isn't: %v", err)
	}
	if _, err := parseFlags([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

// A comparison of two revisions has few rows with many rounds, and no other peers.
func TestBase(t *testing.T) {
	o, err := parseFlags([]string{"-base", "main"})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := plan.Make(o.size, o.choice)
	if err != nil {
		t.Fatal(err)
	}
	groups = filoTwice(groups)
	if len(groups) != len(row.Quick) {
		t.Errorf("there are %d groups", len(groups))
	}
	for _, g := range groups {
		if !slices.Equal(g.Peers, []string{"filo-base", "filo"}) || g.Rounds < 10 {
			t.Errorf("%s has %d rounds of %v", g.Name(), g.Rounds, g.Peers)
		}
	}
}

// A whole comparison runs, with two servers and one row.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds servers")
	}
	t.Chdir("../..")
	var out strings.Builder
	args := strings.Fields("-rows json -kinds peak -peers filo,nethttp -rounds 2 -seconds 1 -warmup 20ms -report " + t.TempDir())
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"4 runs", "Requests per second", "JSON, small", "nethttp", "×"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}
