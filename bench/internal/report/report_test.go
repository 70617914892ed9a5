package report

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/row"
)

// sample is a report in which filo is ahead in JSON, tied with fasthttp in pipelining and behind it in uploads.
func sample(t *testing.T) *Report {
	store, err := measure.Open("", false)
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{
		Peers: map[string]*peer.Peer{
			"filo": {Name: "filo", Version: "abc123", Hash: "1"}, "fasthttp": {Name: "fasthttp", Version: "v1.77.0", Hash: "2"},
			"nethttp": {Name: "nethttp", Version: "go1.26", Hash: "3"}, "haproxy": nil,
		},
		Store: store, Command: "go run ./cmd/compare", Time: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Warmup: time.Second / 4,
		Causes: map[string]string{"upload-20m": "smaller reads"},
	}
	cpus := map[string]map[string][]float64{
		"json":        {"filo": {5, 6, 7}, "fasthttp": {8, 9, 10}, "nethttp": {1800, 1900, 2000}},
		"pipeline-16": {"filo": {5, 6, 7}, "fasthttp": {6, 5, 4}},
		"upload-20m":  {"filo": {50, 60, 70}, "fasthttp": {30, 35, 40}, "haproxy": {1}},
	}
	for _, id := range []string{"json", "pipeline-16", "upload-20m"} {
		r.add(t, measure.Cell{Kind: measure.Peak, Row: id}, cpus[id])
	}
	for _, percent := range plan.Percents {
		r.add(t, measure.Cell{Kind: measure.Rate, Row: "json", Percent: percent}, map[string][]float64{"filo": {1}, "fasthttp": {2}})
	}
	return r
}

// add adds a group whose records have these CPU times, and otherwise the same figures for all peers.
func (r *Report) add(t *testing.T, cell measure.Cell, cpus map[string][]float64) {
	of, err := row.Find(cell.Row)
	if err != nil {
		t.Fatal(err)
	}
	g := plan.Group{Cell: cell, Row: of, Rounds: 3, Peers: []string{"filo", "fasthttp", "nethttp", "haproxy"}}
	r.Groups = append(r.Groups, g)
	for name, values := range cpus {
		if r.Peers[name] == nil {
			continue
		}
		for round, v := range values {
			record := measure.Record{Cell: g.Of(r.Peers[name]), Round: round, Figures: map[string]float64{
				measure.CPU: v, measure.P50: 0.5, measure.P99: v / 4, measure.P999: v, measure.Objects: 0,
				measure.Offered: 100 * float64(cell.Percent),
			}}
			if err := r.Store.Add(record); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		figure figure
		s      measure.Spread
		want   string
	}{
		{throughput, measure.Spread{Median: 1234567, Min: 999, Max: 2000000}, "1,234,567 [999–2,000,000]"},
		{cpu, measure.Spread{Median: 1234.5, Min: 1234.5, Max: 1234.5}, "1,234.50"},
		{throughput, measure.Spread{Median: 100, Min: 100, Max: 100}, "100"},
	} {
		if got := c.figure.text(c.s); got != c.want {
			t.Errorf("%+v is %q, want %q", c.s, got, c.want)
		}
	}
}

// A ratio compares runs of the same round: here all servers are twice as slow in the second round, and one of filo's runs is missing.
func TestRatio(t *testing.T) {
	r := sample(t)
	r.add(t, measure.Cell{Kind: measure.Peak, Row: "post-1k"}, map[string][]float64{"filo": {5, 10}, "fasthttp": {6, 12, 12, 12}})
	g := &r.Groups[len(r.Groups)-1]
	if got := r.ratio(g, cpu, "fasthttp", "filo"); got != " ×1.20" {
		t.Errorf("the ratio is %q", got)
	}
	for name, got := range map[string]string{
		"one that wasn't measured": r.ratio(g, cpu, "fasthttp", "nethttp"), "0": r.ratio(g, objects, "fasthttp", "filo"),
	} {
		if got != "" {
			t.Errorf("the ratio to %s is %q", name, got)
		}
	}
}

// filo loses exactly where another server is ahead in each round. The recorded cause for a row doesn't apply to the pinned measurement of that row.
func TestLosses(t *testing.T) {
	r := sample(t)
	r.add(t, measure.Cell{Kind: measure.Peak, Row: "upload-20m", Pinned: true},
		map[string][]float64{"filo": {50, 60, 70}, "fasthttp": {30, 35, 40}})
	losses := r.Losses()
	if len(losses) != 2 {
		t.Fatalf("%d losses: %+v", len(losses), losses)
	}
	if pinned := losses[1]; pinned.Group != "upload-20m, pinned" || pinned.Cause != "" {
		t.Errorf("the loss with a processor each is %+v", pinned)
	}
	l := losses[0]
	if l.Group != "upload-20m" || l.Peer != "fasthttp" || l.Figure != cpu.title ||
		l.Cause != "smaller reads" || l.Times < 1.71 || l.Times > 1.72 {
		t.Errorf("the loss is %+v", l)
	}
}

// A p99 isn't compared in rounds in which the host took much processor time from one of the two servers. Figures that differ by less than 1 % are
// tied.
func TestLossesThatAreNone(t *testing.T) {
	r := sample(t)
	r.add(t, measure.Cell{Kind: measure.Peak, Row: "post-1k"}, map[string][]float64{"filo": {100.8, 100.9, 100.8}, "fasthttp": {100, 100, 100}})
	late := measure.Cell{Kind: measure.Rate, Row: "post-1k", Percent: 70}
	r.add(t, late, map[string][]float64{"filo": {2, 2, 2}, "fasthttp": {1, 1, 1}})
	g := &r.Groups[len(r.Groups)-1]
	of := func(name string, round int) map[string]float64 {
		return r.Store.Records(r.cell(g, name))[round].Figures
	}
	losses := func() (all []string) {
		for _, l := range r.Losses() {
			all = append(all, l.Group+": "+l.Figure)
		}
		return all
	}
	none := []string{"upload-20m: " + cpu.title, "post-1k at 70 %: " + openCPU.title}
	one := append(slices.Clone(none), "post-1k at 70 %: "+openP99.title)
	if got := losses(); !slices.Equal(got, one) || r.Tails() != "1 of 2" {
		t.Errorf("with all rounds calm: %q, %s", got, r.Tails())
	}
	of("filo", 0)[measure.Stolen], of("fasthttp", 1)[measure.Stolen] = 1, 0.5
	if got := losses(); !slices.Equal(got, one) {
		t.Errorf("with a little stolen: %q", got)
	}
	of("filo", 0)[measure.Stolen], of("fasthttp", 1)[measure.Stolen] = 1.5, 9
	if got := losses(); !slices.Equal(got, none) || r.Tails() != "0 of 2" {
		t.Errorf("with two rounds stolen: %q, %s", got, r.Tails())
	}
	if got := r.Taken(); got != "5.2 [1.5–9.0] % of a run" {
		t.Errorf("taken by the host: %q", got)
	}
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	sample(t).Print(&out)
	for _, want := range []string{
		`JSON, small +6.00 \[5.00–7.00\] +9.00 \[8.00–10.00\] ×1.50 +1,900.00 \[1,800.00–2,000.00\] ×316.67`,
		`13 bytes, pipelined ×16 +6.00 \[5.00–7.00\] +5.00 \[4.00–6.00\] ×0.83 +–`,
		`p50 / p99 / p99.9 in ms at 70 %`, `JSON, small +7,000 +0.50 / 0.25 / 1.00 +0.50 / 0.50 / 2.00 +not kept`,
		`not first: upload-20m, Server CPU time per request, µs: fasthttp has 35.00 \[30.00–40.00\], filo 60.00`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("there is no %s in\n%s", want, out.String())
		}
	}
	for _, no := range []string{"NaN", "Inf", "haproxy", "Memory per idle"} {
		if strings.Contains(out.String(), no) {
			t.Errorf("there is %s in\n%s", no, out.String())
		}
	}
}

// benchLinePattern is Go's benchmark format: a name, iterations, and values with units.
var benchLinePattern = regexp.MustCompile(`^Benchmark[^\s]+-\d+\t1(\t[-+.e\d]+ [^\s]+)+$`)

func TestWrite(t *testing.T) {
	r, folder := sample(t), t.TempDir()
	r.Failed = errors.New("mixed, round 1, filo: 3 errors")
	if err := r.Write(folder); err != nil {
		t.Fatal(err)
	}
	text := read(t, folder, "BENCHMARKS.md")
	for _, want := range []string{
		"| filo | abc123 |", "| Server CPU time per request, µs | ×0.83 [0.58–1.50] in 3 rows | ×316.67 |",
		"| upload-20m | Server CPU time per request, µs | 60.00 [50.00–70.00] | fasthttp: 35.00 [30.00–40.00] | 1.71 | smaller reads |",
		"`go run ./cmd/compare -rows json`", "mixed, round 1, filo: 3 errors",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	lines := strings.Split(strings.TrimSpace(read(t, folder, "bench/results.txt")), "\n")
	if len(lines) != 4+9+6+6+6 || !strings.HasPrefix(lines[0], "goos: ") {
		t.Errorf("there are %d lines", len(lines))
	}
	for _, line := range lines[4:] {
		if !benchLinePattern.MatchString(line) {
			t.Errorf("no line of Go's benchmark format: %q", line)
		}
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Error(err)
	}
	return string(content)
}

func TestReadCauses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "causes.txt")
	if causes, err := ReadCauses(name); err != nil || len(causes) > 0 {
		t.Errorf("no file: %v, %v", causes, err)
	}
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("# why\n\njson: it allocates: twice\njson, pinned: once\njson at 70 %: never\n")
	want := map[string]string{"json": "it allocates: twice", "json, pinned": "once", "json at 70 %": "never"}
	if causes, err := ReadCauses(name); err != nil || !maps.Equal(causes, want) {
		t.Errorf("got %v, %v", causes, err)
	}
	for _, bad := range []string{"json it allocates\n", "no-such-row: it allocates\n"} {
		write(bad)
		if causes, err := ReadCauses(name); err == nil {
			t.Errorf("%q is read as %v", bad, causes)
		}
	}
}
