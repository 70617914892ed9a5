package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Every pool runs every task that it was given, and as many at once as it should.
func TestEachPool(t *testing.T) {
	for _, p := range peers {
		for _, submitters := range []int{1, 3} {
			const size, total = 2, 300
			pool, err := p.start(size)
			if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			var runs, atOnce, most atomic.Int64
			l := &load{submitters: submitters, total: total, sampleEvery: 7, task: func() {
				if n := atOnce.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Microsecond)
				runs.Add(1)
				atOnce.Add(-1)
			}}
			got, err := l.drive(pool.submit)
			pool.stop()
			if err != nil || got.tasks != total || runs.Load() != total {
				t.Errorf("%s, %d submitters: %d of %d tasks, %d were run, %v", p.name, submitters, got.tasks, total, runs.Load(), err)
			}
			// gopool compares and raises its number of workers in two steps, so that submitters pass each other there.
			if most.Load() > size && (p.name != "gopool" || submitters == 1) {
				t.Errorf("%s, %d submitters: ran %d at once, should run at most %d", p.name, submitters, most.Load(), size)
			}
			if l.waits.max() <= 0 || got.cpu <= 0 {
				t.Errorf("%s, %d submitters: longest wait %v, CPU %v: nothing was measured", p.name, submitters, l.waits.max(), got.cpu)
			}
		}
	}
}

// A tiny cell of each pool and kind of task gives figures that can be.
func TestMeasure(t *testing.T) {
	for _, p := range peers {
		for _, k := range kinds {
			c := cell{k, 2, 3}
			const length = 4 * time.Millisecond
			o := c.order(p, length, 100)
			o.Time = length
			f, err := measure(o)
			if err != nil {
				t.Errorf("%s, %v: %v", p.name, c, err)
				continue
			}
			if f.Tasks < 1 || f.Wall <= 0 || f.CPU <= 0 || f.WaitP50 > f.WaitP99 || f.WaitP99 > f.WaitMax || f.Bytes < 0 || f.Memory < 1 {
				t.Errorf("%s, %v: %+v", p.name, c, f)
			}
			if (f.Fairness < 0) != p.unbounded || f.Fairness > 1 {
				t.Errorf("%s, %v: fairness %v, unbounded is %v", p.name, c, f.Fairness, p.unbounded)
			}
		}
	}
}

func TestServeRun(t *testing.T) {
	var out bytes.Buffer
	order := `{"Pool":"filo","Kind":"empty","Submitters":1,"Capacity":2,"Loops":1,"Total":100,"SampleEvery":64}`
	if err := serveRun(strings.NewReader(order), &out); err != nil || !strings.Contains(out.String(), `"Tasks":100`) {
		t.Errorf("answered %q, %v", out.String(), err)
	}
	for _, bad := range []string{"", `{"Pool":"none","Kind":"empty"}`, `{"Pool":"filo","Kind":"none"}`} {
		if err := serveRun(strings.NewReader(bad), &out); err == nil {
			t.Errorf("the order %q is carried out", bad)
		}
	}
}

// A task that is refused makes the run fail: its figures would flatter the pool.
func TestRefused(t *testing.T) {
	pool, err := startFilo(1)
	if err != nil {
		t.Fatal(err)
	}
	pool.stop()
	l := &load{submitters: 2, total: 10, sampleEvery: 1, task: func() {}}
	if _, err := l.drive(pool.submit); err == nil {
		t.Error("a released pool is measured")
	}
}

func TestRunStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := run(ctx, nil, &out); !errors.Is(err, context.Canceled) || strings.Contains(out.String(), "geometric means") {
		t.Errorf("got %v after %q; want that it was cancelled, and no summary of nothing", err, out.String())
	}
}

func TestParseFlags(t *testing.T) {
	o, err := parseFlags(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.submitters, []int{1, 2, 1000}) || !slices.Equal(o.caps, []int{2, 20, 50000}) {
		t.Errorf("submitters %v, caps %v", o.submitters, o.caps)
	}
	if len(o.pools) != len(peers) || len(o.kinds) != 5 || o.rounds != 3 || o.time != 200*time.Millisecond || o.million || o.markdown {
		t.Errorf("defaults: %+v", o)
	}
	o, err = parseFlags([]string{"-pools", "go,ants", "-tasks", "deep", "-submitters", "1,P,3P", "-caps", "7", "-rounds", "9", "-time", "1s", "-md", "-million"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.pools) != 2 || o.pools[0].name != "go" || o.pools[1].name != "ants" || len(o.kinds) != 1 || o.kinds[0].name != "deep" ||
		!slices.Equal(o.submitters, []int{1, 3}) || !slices.Equal(o.caps, []int{7}) || o.rounds != 9 || o.time != time.Second || !o.million || !o.markdown {
		t.Errorf("read as %+v", o)
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-pools", "tunny"}, {"-pools", ""}, {"-tasks", "long"}, {"-submitters", "0"}, {"-submitters", "-1"}, {"-submitters", "p"},
		{"-caps", "1,"}, {"-caps", "PP"}, {"-caps", "0P"}, {"-caps", "1000001"}, {"-caps", "1000000P"}, {"-rounds", "0"}, {"-time", "0"}, {"more"},
	} {
		if o, err := parseFlags(args, 2); err == nil {
			t.Errorf("%q is read as %+v", args, o)
		}
	}
}

func TestWaits(t *testing.T) {
	w := &waits{}
	if w.quantile(0.5) != 0 || w.max() != 0 {
		t.Errorf("empty: %v, %v", w.quantile(0.5), w.max())
	}
	for n := range 1000 {
		w.add(time.Duration(n+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		if got := w.quantile(q); got < want || float64(got) > float64(want)*(1+1.0/steps) {
			t.Errorf("quantile %v is %v, want %v or up to 1.6 %% more", q, got, want)
		}
	}
	if w.max() != time.Millisecond {
		t.Errorf("longest %v", w.max())
	}
}

// Buckets follow each other without gaps, and each number is in the bucket whose top is the first that isn't below it.
func TestBuckets(t *testing.T) {
	for _, n := range []int64{0, 1, 63, 64, 127, 128, 129, 255, 256, 1000, 1 << 20, 1<<20 - 1, 1<<40 + 12345, math.MaxInt64} {
		b := bucketOf(n)
		if b < 0 || b >= len(new(waits).buckets) {
			t.Fatalf("%d is in bucket %d", n, b)
		}
		if top := topOf(b); top < n {
			t.Errorf("%d is in bucket %d, which ends at %d", n, b, top)
		}
		if b > 0 && topOf(b-1) >= n {
			t.Errorf("%d is in bucket %d, but that before ends at %d", n, b, topOf(b-1))
		}
	}
}

// A run is long enough for each submitter to be served several times.
func TestCell(t *testing.T) {
	const asked = 200 * time.Millisecond
	sleep := findKind("sleep")
	for _, c := range []struct {
		cell   cell
		length time.Duration
		every  int
	}{
		{cell{findKind("empty"), 1000, 50000}, asked, 64},
		{cell{sleep, 1000, 2}, 2500 * time.Millisecond, 1},
		{cell{sleep, 1, 2}, time.Second, 1},
		{cell{sleep, 1, 20}, asked, 1},
		{cell{sleep, 1000, 50000}, asked, 64},
	} {
		if got := c.cell.length(asked); got != c.length {
			t.Errorf("%v takes %v, want %v", c.cell, got, c.length)
		}
		if got := c.cell.sampleEvery(asked); got != c.every {
			t.Errorf("%v: 1 in %d, want 1 in %d", c.cell, got, c.every)
		}
	}
}

// resultOf has one run of each pool, with its CPU time.
func resultOf(cpu ...float64) *result {
	r := &result{cell: cell{findKind("empty"), 1, 2}, pools: peers[:len(cpu)], runs: make([][]figures, len(cpu))}
	for i, ns := range cpu {
		if ns > 0 {
			r.runs[i] = []figures{{CPU: ns, Wall: ns, Fairness: -1, WaitP50: 123456}}
		}
	}
	return r
}

func TestSummary(t *testing.T) {
	// filo, ants, pond, gopool
	results := []*result{resultOf(100, 200, 96, 94), resultOf(100, 50, 99, 0)}
	if got := meanRatio(results, "filo", cpuOf); math.Abs(got-1) > 1e-9 {
		t.Errorf("mean %v, want 1", got)
	}
	if got := meanRatio(results, "gopool", cpuOf); math.Abs(got-0.47) > 1e-9 {
		t.Errorf("mean %v, want 0.47 of the one cell that gopool has", got)
	}
	if got := worst(results, cpuOf); got != "2.00: cap 2, submitters 1" {
		t.Errorf("worst: %s", got)
	}
	got := whereAhead(results)
	if want := []string{"empty, cap 2, submitters 1: gopool 0.94 (wall 0.94)"}; !slices.Equal(got, want) {
		t.Errorf("ahead: %q, want %q", got, want)
	}
}

// Waits are summed up for cells in which many submit tasks that last.
func TestPrintWaits(t *testing.T) {
	r := resultOf(100, 200)
	r.cell = cell{findKind("10us"), 1000, 2}
	r.runs[0][0].WaitP50, r.runs[0][0].WaitP99, r.runs[0][0].WaitMax = 1e6, 1.5e6, 2e6
	r.runs[1][0].WaitMax = 4e6
	var out bytes.Buffer
	printWaits(printer{&out, true}, []*result{r, resultOf(100, 200)})
	if want := "| 10us, cap 2, submitters 1000 | 1ms | 1.50 | 0.50 |"; !strings.Contains(out.String(), want) || strings.Contains(out.String(), "empty") {
		t.Errorf("want %q alone, got\n%s", want, out.String())
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	resultOf(100, 200, 0).print(printer{&out, true})
	for _, want := range []string{
		"| empty, cap 2, submitters 1 | CPU ns | by ants |", "| filo | 100 | 0.50 | 100 | 123µs |", "| ants | 200 | 1.00 |", "| pond | - | - | - |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
