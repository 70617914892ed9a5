package main

import (
	"context"
	"fmt"
	"time"
)

// The load of ants' own benchmark.
const (
	millionTasks    = 1_000_000
	millionCapacity = 50_000
)

// runMillion measures the whole life of a pool, beginning without workers, under one submitter.
func runMillion(ctx context.Context, o *options, loops int, out printer) error {
	k := findKind("sleep10")
	r, err := interleave(ctx, o, func(p *peer) order {
		return order{
			Pool: p.name, Kind: k.name, Submitters: 1, Capacity: millionCapacity, Loops: loops,
			Total: millionTasks, SampleEvery: 64,
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	// No pool can be faster than this.
	floor := k.lasts * millionTasks / millionCapacity
	million := []struct {
		name string
		of   func(figures) float64
	}{
		{fmt.Sprintf("wall ms over %d", floor.Milliseconds()), func(f figures) float64 {
			return (f.Wall*millionTasks - float64(floor)) / float64(time.Millisecond)
		}},
		{"CPU ms", func(f figures) float64 { return f.CPU * millionTasks / float64(time.Millisecond) }},
		{"peak MB", func(f figures) float64 { return f.Memory }},
	}
	rows := [][]string{{fmt.Sprintf("%d tasks of %v, cap %d", millionTasks, k.lasts, millionCapacity)}}
	for _, column := range million {
		rows[0] = append(rows[0], column.name, "by "+baseline)
	}
	for i, p := range r.pools {
		row := []string{p.name}
		for _, column := range million {
			row = append(row, number(r.median(i, column.of)), fraction(r.ratio(p.name, column.of)))
		}
		rows = append(rows, row)
	}
	out.table(rows)
	return err
}
