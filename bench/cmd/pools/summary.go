package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/stat"
)

// subject is the pool that the summary is about.
const subject = "filo"

// margin is how much less CPU per task makes a pool count as ahead.
const margin = 0.05

// summarize prints what all cells together show.
func summarize(out printer, o *options, results []*result) {
	if len(results) == 0 {
		return
	}
	printMeans(out, o, results, "CPU", cpuOf)
	printMeans(out, o, results, "wall time", wallOf)
	printWaits(out, results)

	ahead := whereAhead(results)
	if len(ahead) == 0 {
		out.line("No measured pool but %s has over %.0f %% less CPU per task than %s in any cell.", baseline, 100*margin, subject)
		return
	}
	out.line("Where a pool but %s has over %.0f %% less CPU per task than %s, its ratio to %s's:", baseline, 100*margin, subject, subject)
	for _, line := range ahead {
		fmt.Fprintf(out.out, "- %s\n", line)
	}
}

// printMeans has a row for each kind of task: each pool's geometric mean by the baseline's, and the subject's worst cell.
func printMeans(out printer, o *options, results []*result, name string, of func(figures) float64) {
	rows := [][]string{{name + " per task by " + baseline + "'s, geometric means"}}
	for _, p := range o.pools {
		rows[0] = append(rows[0], p.name)
	}
	rows[0] = append(rows[0], subject+"'s worst cell")
	for _, k := range o.kinds {
		var cells []*result
		for _, r := range results {
			if r.cell.kind == k {
				cells = append(cells, r)
			}
		}
		row := []string{fmt.Sprintf("%s (%d cells)", k.name, len(cells))}
		for _, p := range o.pools {
			row = append(row, fraction(meanRatio(cells, p.name, of)))
		}
		rows = append(rows, append(row, worst(cells, of)))
	}
	out.table(rows)
}

// meanRatio is the geometric mean over the cells in which the pool and the baseline have both been measured.
func meanRatio(results []*result, name string, of func(figures) float64) float64 {
	var ratios []float64
	for _, r := range results {
		if ratio := r.ratio(name, of); !math.IsNaN(ratio) {
			ratios = append(ratios, ratio)
		}
	}
	return stat.GeometricMean(ratios)
}

// worst names the cell in which the subject's ratio is largest.
func worst(results []*result, of func(figures) float64) string {
	worst, where := math.Inf(-1), missing
	for _, r := range results {
		if ratio := r.ratio(subject, of); ratio > worst {
			worst = ratio
			where = fmt.Sprintf("%.2f: cap %d, submitters %d", ratio, r.cell.capacity, r.cell.submitters)
		}
	}
	return where
}

// printWaits tells how even the subject's waits are where many wait and what they wait for outweighs the pool's own work.
func printWaits(out printer, results []*result) {
	const many, long = 100, 10 * time.Microsecond
	rows := [][]string{{"waits of " + subject, "p50", "p99 by p50", "max by " + baseline + "'s"}}
	for _, r := range results {
		p50 := r.of(subject, waitP50Of)
		if r.cell.submitters < many || r.cell.kind.lasts < long || math.IsNaN(p50) {
			continue
		}
		rows = append(rows, []string{
			r.cell.String(), duration(p50), fraction(r.of(subject, waitP99Of) / p50), fraction(r.ratio(subject, waitMaxOf)),
		})
	}
	if len(rows) > 1 {
		out.table(rows)
	}
}

// whereAhead has a line for each cell in which pools other than the baseline take less CPU per task than the subject.
func whereAhead(results []*result) []string {
	var lines []string
	for _, r := range results {
		var ahead []string
		for i, p := range r.pools {
			if p.name == subject || p.name == baseline {
				continue
			}
			if ratio := r.median(i, cpuOf) / r.of(subject, cpuOf); ratio < 1-margin {
				ahead = append(ahead, fmt.Sprintf("%s %.2f (wall %.2f)", p.name, ratio, r.median(i, wallOf)/r.of(subject, wallOf)))
			}
		}
		if len(ahead) > 0 {
			lines = append(lines, fmt.Sprintf("%v: %s", r.cell, strings.Join(ahead, ", ")))
		}
	}
	return lines
}
