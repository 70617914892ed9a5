// Package plan determines which measurements are made, and in which order, and executes them.
package plan

import (
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/row"
)

// Size says how much is measured.
type Size struct {
	Name    string
	Rows    []string // IDs; nil for all
	Rounds  int
	Seconds int // the duration of one run, before it is multiplied by the row's Seconds
	// RateRounds is the number of rounds for latencies at constant rates; 0 means that these aren't measured.
	RateRounds int
	// All measures every peer in every row that it supports, and not only in rows that list it.
	All bool
	// Beyond adds groups to the unpinned rows: pinned rows, rows with several values of GOMAXPROCS, and counts of system calls.
	Beyond bool
}

// Sizes are the available sizes.
var Sizes = []Size{
	{Name: "quick", Rows: row.Quick, Rounds: 13, Seconds: 1},
	{Name: "http2", Rows: row.HTTP2, Rounds: 11, Seconds: 1, RateRounds: 11},
	{Name: "default", Rounds: 5, Seconds: 1, RateRounds: 5, Beyond: true},
	{Name: "all", Rounds: 9, Seconds: 2, RateRounds: 5, All: true, Beyond: true},
}

// Percents are the rates at which latencies are measured, as percentages of the slowest server's peak.
var Percents = []int{50, 70, 90}

// lowPercent is the additional rate for row.Low.
const lowPercent = 5

// Group is the same measurement of several peers, one cell for each peer. In each round the peers take turns.
type Group struct {
	Cell   measure.Cell // without a peer
	Row    row.Row
	Peers  []string
	Rounds int
}

// Choice narrows a size down. A nil field doesn't narrow it.
type Choice struct {
	Rows, Peers []string
	Kinds       []measure.Kind
	Pinned      bool  // only pinned runs
	Procs       []int // only with these values of GOMAXPROCS
	Rounds      int
	Seconds     int
}

// Make returns the groups of a size in the order in which each round measures them.
func Make(size Size, c Choice) ([]Group, error) {
	if c.Rounds > 0 {
		size.Rounds = c.Rounds
		size.RateRounds = min(size.RateRounds, c.Rounds)
	}
	if c.Seconds > 0 {
		size.Seconds = c.Seconds
	}
	if c.Rows != nil {
		size.Rows = c.Rows
	}
	rows := row.All()
	if size.Rows != nil {
		rows = nil
	}
	for _, id := range size.Rows {
		r, err := row.Find(id)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	var groups []Group
	pinned := func(c *measure.Cell) { c.Pinned = true }
	values := c.Procs
	switch {
	case c.Pinned:
		groups = varied(rows, size, pinned)
	case values == nil:
		groups = unpinned(rows, size)
		if size.Beyond && c.Rows == nil {
			most := slices.Concat(row.Quick, row.Grown)
			rows = slices.DeleteFunc(rows, func(r row.Row) bool { return r.Kind != row.Closed || !size.All && !slices.Contains(most, r.ID) })
			if runtime.NumCPU() > 1 {
				groups = append(groups, varied(rows, size, pinned)...)
			}
			rows = slices.DeleteFunc(rows, func(r row.Row) bool { return !slices.Contains(row.Grown, r.ID) })
			values = doublings(runtime.NumCPU())
		}
	}
	for _, n := range values {
		groups = append(groups, varied(rows, size, func(c *measure.Cell) { c.Procs = n })...)
	}
	return narrow(groups, c), nil
}

// narrow drops the peers and the kinds that weren't chosen.
func narrow(groups []Group, c Choice) []Group {
	var left []Group
	for _, g := range groups {
		if c.Kinds != nil && !slices.Contains(c.Kinds, g.Cell.Kind) {
			continue
		}
		if c.Peers != nil {
			g.Peers = slices.DeleteFunc(slices.Clone(g.Peers), func(name string) bool { return !slices.Contains(c.Peers, name) })
		}
		if len(g.Peers) > 0 {
			left = append(left, g)
		}
	}
	return left
}

// group makes one group of a row.
func group(r row.Row, size Size, kind measure.Kind, peers []string, rounds int) Group {
	cell := measure.Cell{Kind: kind, Row: r.ID, Seconds: size.Seconds * r.Seconds}
	return Group{Cell: cell, Row: r, Peers: peers, Rounds: rounds}
}

// unpinned returns the groups for the rows: peaks, latencies, and system calls.
func unpinned(rows []row.Row, size Size) (groups []Group) {
	for _, r := range rows {
		peers := r.Peers
		if size.All {
			peers = append(slices.Clone(peers), r.More...)
		}
		if size.Name == "quick" {
			peers = r.Core()
		}
		groups = append(groups, group(r, size, measure.Peak, peers, size.Rounds))
	}
	for _, r := range rows {
		if !r.Latency || size.RateRounds == 0 {
			continue
		}
		percents := Percents
		if slices.Contains(row.Low, r.ID) {
			percents = append([]int{lowPercent}, percents...)
		}
		for _, percent := range percents {
			g := group(r, size, measure.Rate, r.Core(), size.RateRounds)
			g.Cell.Percent = percent
			groups = append(groups, g)
		}
	}
	_, missing := exec.LookPath("strace")
	for _, r := range rows {
		if size.Beyond && r.Kind == row.Closed && missing == nil {
			g := group(r, size, measure.Syscalls, r.Core(), 1)
			g.Cell.Seconds *= 2 // tracing is slow
			groups = append(groups, g)
		}
	}
	return groups
}

// varied returns the groups of rows with changed cells.
func varied(rows []row.Row, size Size, change func(*measure.Cell)) (groups []Group) {
	for _, r := range rows {
		g := group(r, size, measure.Peak, r.Core(), size.Rounds)
		change(&g.Cell)
		groups = append(groups, g)
	}
	return groups
}

// doublings returns 1, 2, 4 and so on, up to and including n.
func doublings(n int) (values []int) {
	for i := 1; i < n; i *= 2 {
		values = append(values, i)
	}
	return append(values, n)
}

// Estimate returns how many runs the groups have, and about how long these take.
func Estimate(groups []Group, warmup time.Duration) (runs int, took time.Duration) {
	const overhead = 150 * time.Millisecond // for starting and ending the server and the generator
	for _, g := range groups {
		one := time.Duration(g.Cell.Seconds)*time.Second + warmup + overhead
		if g.Row.Kind == row.Idle {
			one = 4 * time.Second
		}
		runs += len(g.Peers) * g.Rounds
		took += one * time.Duration(len(g.Peers)*g.Rounds)
	}
	return runs, took
}
