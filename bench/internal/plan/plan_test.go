package plan

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/row"
)

const warmup = 250 * time.Millisecond

func size(t *testing.T, name string) Size {
	i := slices.IndexFunc(Sizes, func(s Size) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no size %s", name)
	}
	return Sizes[i]
}

func makePlan(t *testing.T, name string, c Choice) []Group {
	groups, err := Make(size(t, name), c)
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// The quick size has three servers in five rows, and ends within five minutes.
func TestQuick(t *testing.T) {
	groups := makePlan(t, "quick", Choice{})
	if len(groups) != 5 {
		t.Errorf("there are %d groups", len(groups))
	}
	for _, g := range groups {
		if !slices.Equal(g.Peers, []string{"filo", "fasthttp", "nethttp"}) || g.Cell.Kind != measure.Peak {
			t.Errorf("%s has %s of %v", g.Name(), g.Cell.Kind, g.Peers)
		}
	}
	if _, took := Estimate(groups, warmup); took > 290*time.Second {
		t.Errorf("it takes %v", took)
	}
}

// The default size has the three servers of the quick size in every row that they can serve, and the other Go servers in four rows. The rounds of a
// row are interleaved. The whole plan takes about 55 minutes.
func TestDefault(t *testing.T) {
	groups := makePlan(t, "default", Choice{})
	rows, others := map[string]bool{}, map[string][]string{}
	for _, g := range groups {
		if g.Cell.Kind != measure.Peak || g.Cell.Pinned || g.Cell.Procs > 0 {
			continue
		}
		rows[g.Row.ID] = true
		for _, name := range row.Core() {
			if !slices.Contains(g.Peers, name) && (g.Row.Streams == 0 || name != "fasthttp") {
				t.Errorf("%s lacks %s", g.Name(), name)
			}
		}
		for _, name := range []string{"filo-blocking", "fiber", "hertz", "gin", "echo"} {
			if slices.Contains(g.Peers, name) {
				others[name] = append(others[name], g.Row.ID)
			}
		}
	}
	if len(rows) != len(row.All()) {
		t.Errorf("there are %d rows of %d", len(rows), len(row.All()))
	}
	for name, in := range others {
		if len(in) != 4 {
			t.Errorf("%s is in %v", name, in)
		}
	}
	if _, took := Estimate(groups, warmup); took > 55*time.Minute {
		t.Errorf("it takes %v", took)
	}
}

// The default size also has pinned groups for the rows of row.Quick and row.Grown, and groups with each value of GOMAXPROCS for the rows of
// row.Grown.
func TestBeyond(t *testing.T) {
	pinned, grown := map[string]bool{}, map[string]int{}
	for _, g := range makePlan(t, "default", Choice{}) {
		if g.Cell.Pinned {
			pinned[g.Row.ID] = true
		}
		if g.Cell.Procs > 0 {
			grown[g.Row.ID]++
		}
	}
	for _, id := range slices.Concat(row.Quick, row.Grown) {
		if !pinned[id] && runtime.NumCPU() > 1 {
			t.Errorf("%s isn't pinned", id)
		}
	}
	for _, id := range row.Grown {
		if grown[id] != len(doublings(runtime.NumCPU())) {
			t.Errorf("%s has %d values of GOMAXPROCS", id, grown[id])
		}
	}
	if len(grown) != len(row.Grown) {
		t.Errorf("the rows with values of GOMAXPROCS are %v", grown)
	}
}

// The size http2 has at least ten rounds of each row with all HTTP/2 servers, and latencies for some rows.
func TestHTTP2(t *testing.T) {
	var peaks, rates []string
	for _, g := range makePlan(t, "http2", Choice{}) {
		switch g.Cell.Kind {
		case measure.Peak:
			peaks = append(peaks, g.Row.ID)
			if !slices.Equal(g.Peers, []string{"filo", "nethttp", "nghttpd", "h2o", "nginx"}) || g.Rounds < 10 {
				t.Errorf("%s has %d rounds of %v", g.Name(), g.Rounds, g.Peers)
			}
		case measure.Rate:
			rates = append(rates, g.Name())
			if !slices.Equal(g.Peers, []string{"filo", "nethttp"}) || g.Rounds < 10 {
				t.Errorf("%s has %d rounds of %v", g.Name(), g.Rounds, g.Peers)
			}
		}
	}
	if !slices.Equal(peaks, row.HTTP2) || !slices.Contains(rates, "h2c-10 at 70 %") {
		t.Errorf("there are the peaks %q and the rates %q", peaks, rates)
	}
}

// A measurement at a percentage of a peak comes after the peak, and no measurement is in a plan twice.
func TestOrder(t *testing.T) {
	for _, s := range Sizes {
		peaks, seen := map[string]bool{}, map[measure.Cell]bool{}
		for _, g := range makePlan(t, s.Name, Choice{}) {
			if seen[g.Cell] {
				t.Errorf("%s: %s is there twice", s.Name, g.Name())
			}
			seen[g.Cell] = true
			if g.Cell.Kind == measure.Peak {
				peaks[g.Row.ID] = true
			}
			if g.Cell.Kind == measure.Rate && !peaks[g.Row.ID] {
				t.Errorf("%s: %s comes before its peak", s.Name, g.Name())
			}
		}
	}
}

func TestChoice(t *testing.T) {
	for _, c := range []struct {
		name   string
		choice Choice
		want   string // the groups' names and their peers
	}{
		{"a row", Choice{Rows: []string{"json"}, Kinds: []measure.Kind{measure.Peak}, Peers: []string{"filo", "gin"}}, "json filo gin"},
		{"a row by everybody", Choice{Rows: []string{"mixed"}, Kinds: []measure.Kind{measure.Peak}}, "mixed filo fasthttp nethttp"},
		{"latencies", Choice{Rows: []string{"json"}, Kinds: []measure.Kind{measure.Rate}, Peers: []string{"filo"}},
			"json at 50 % filo, json at 70 % filo, json at 90 % filo"},
		{"pinned", Choice{Rows: []string{"json"}, Pinned: true, Peers: []string{"filo"}}, "json, pinned filo"},
		{"GOMAXPROCS", Choice{Rows: []string{"json"}, Procs: []int{1, 3}, Peers: []string{"filo"}},
			"json, GOMAXPROCS=1 filo, json, GOMAXPROCS=3 filo"},
	} {
		var got []string
		for _, g := range makePlan(t, "default", c.choice) {
			got = append(got, strings.Join(append([]string{g.Name()}, g.Peers...), " "))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if _, err := Make(Sizes[0], Choice{Rows: []string{"jsn"}}); err == nil || !strings.Contains(err.Error(), "keepalive-64") {
		t.Errorf("a row that there isn't: %v", err)
	}
	groups := makePlan(t, "default", Choice{Rows: []string{"json"}, Rounds: 2, Seconds: 3})
	if groups[0].Rounds != 2 || groups[0].Cell.Seconds != 3 {
		t.Errorf("rounds and seconds that were chosen: %+v", groups[0].Cell)
	}
}

func TestDoublings(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 2: {1, 2}, 6: {1, 2, 4, 6}, 8: {1, 2, 4, 8}} {
		if got := doublings(n); !slices.Equal(got, want) {
			t.Errorf("of %d: %v, want %v", n, got, want)
		}
	}
}
