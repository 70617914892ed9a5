package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/filohttp/filo/bench/internal/stat"
)

// figures are the results of one run, or the medians of several.
type figures struct {
	perSecond float64 // requests
	cpu       float64 // µs of the server's CPU time per request
	p99       float64 // ms
	memory    float64 // peak, MB
}

func (f figures) String() string {
	return fmt.Sprintf("%8.0f requests/s  %6.2f µs CPU  p99 %7.2f ms  %6.1f MB", f.perSecond, f.cpu, f.p99, f.memory)
}

// table holds the runs at one number of connections.
type table struct {
	peers       []*peer
	connections int
	rounds      int
	runs        [][]figures // by peer, without those that don't count
}

func newTable(peers []*peer, connections, rounds int) *table {
	return &table{peers, connections, rounds, make([][]figures, len(peers))}
}

// rows are the lines of the table.
var rows = []struct {
	name   string
	format string
	of     func(figures) float64
}{
	{"requests/s", "%.0f", func(f figures) float64 { return f.perSecond }},
	{"CPU µs per request", "%.2f", func(f figures) float64 { return f.cpu }},
	{"p99 ms", "%.2f", func(f figures) float64 { return f.p99 }},
	{"peak memory MB", "%.1f", func(f figures) float64 { return f.memory }},
}

// print writes the medians and, behind those of every peer but the first, how many times the first one's
// they are.
func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d connections\t", t.connections)
	for _, p := range t.peers {
		fmt.Fprintf(w, "%s\t", p.name)
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t", row.name)
		base, hasBase := t.median(0, row.of)
		for i := range t.peers {
			value, ok := t.median(i, row.of)
			switch {
			case !ok:
				fmt.Fprint(w, "-\t")
			case i == 0 || !hasBase:
				fmt.Fprintf(w, row.format+"\t", value)
			default:
				fmt.Fprintf(w, row.format+" (%.2f×)\t", value, value/base)
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "rounds that count\t")
	for i := range t.peers {
		fmt.Fprintf(w, "%d of %d\t", len(t.runs[i]), t.rounds)
	}
	fmt.Fprint(w, "\n\n")
	w.Flush()
}

// median is of the runs that count; ok is false if there are none.
func (t *table) median(peer int, of func(figures) float64) (value float64, ok bool) {
	values := make([]float64, 0, len(t.runs[peer]))
	for _, f := range t.runs[peer] {
		values = append(values, of(f))
	}
	return stat.Median(values), len(values) > 0
}
