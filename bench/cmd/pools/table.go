package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/filohttp/filo/bench/internal/stat"
)

// printer writes text or Markdown.
type printer struct {
	out      io.Writer
	markdown bool
}

// line writes a line, or a paragraph.
func (p printer) line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
	if p.markdown {
		fmt.Fprintln(p.out)
	}
}

// table writes rows, the first being the head. The first column has names, the others have figures.
func (p printer) table(rows [][]string) {
	if p.markdown {
		for i, row := range rows {
			fmt.Fprintf(p.out, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(p.out, "| --- |%s\n", strings.Repeat(" ---: |", len(row)-1))
			}
		}
	} else {
		w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		w.Flush()
	}
	fmt.Fprintln(p.out)
}

// result holds the runs of a cell.
type result struct {
	cell  cell
	pools []*peer
	runs  [][]figures // by pool, without those that don't count
}

// median returns NaN if no run of the pool counts.
func (r *result) median(pool int, of func(figures) float64) float64 {
	values := make([]float64, 0, len(r.runs[pool]))
	for _, f := range r.runs[pool] {
		values = append(values, of(f))
	}
	return stat.Median(values)
}

// of returns the same by the pool's name.
func (r *result) of(name string, of func(figures) float64) float64 {
	for i, p := range r.pools {
		if p.name == name {
			return r.median(i, of)
		}
	}
	return math.NaN()
}

// ratio is the pool's figure by that of the baseline; NaN if either is missing.
func (r *result) ratio(name string, of func(figures) float64) float64 {
	return r.of(name, of) / r.of(baseline, of)
}

func cpuOf(f figures) float64     { return f.CPU }
func wallOf(f figures) float64    { return f.Wall }
func waitP50Of(f figures) float64 { return f.WaitP50 }
func waitP99Of(f figures) float64 { return f.WaitP99 }
func waitMaxOf(f figures) float64 { return f.WaitMax }

// columns are those of a cell's table, behind the pool's name.
var columns = []struct {
	name   string
	format func(float64) string
	of     func(figures) float64
}{
	{"wall ns", number, wallOf},
	{"wait p50", duration, waitP50Of},
	{"p99", duration, waitP99Of},
	{"max", duration, waitMaxOf},
	{"fairness", fraction, func(f figures) float64 { return f.Fairness }},
	{"B", number, func(f figures) float64 { return f.Bytes }},
	{"peak MB", number, func(f figures) float64 { return f.Memory }},
	{"tasks", number, func(f figures) float64 { return f.Tasks }},
}

func (r *result) print(p printer) {
	head := []string{r.cell.String(), "CPU ns", "by " + baseline}
	for _, column := range columns {
		head = append(head, column.name)
	}
	rows := [][]string{head}
	for i, pool := range r.pools {
		row := []string{pool.name, number(r.median(i, cpuOf)), fraction(r.ratio(pool.name, cpuOf))}
		for _, column := range columns {
			row = append(row, column.format(r.median(i, column.of)))
		}
		rows = append(rows, row)
	}
	p.table(rows)
}

// missing stands for what wasn't measured.
const missing = "-"

func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return missing
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func fraction(v float64) string {
	if math.IsNaN(v) || v < 0 {
		return missing
	}
	return fmt.Sprintf("%.2f", v)
}

// duration of so many nanoseconds, with three digits.
func duration(v float64) string {
	if math.IsNaN(v) {
		return missing
	}
	d := time.Duration(v)
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
