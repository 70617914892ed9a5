package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/filohttp/filo/bench/internal/alike"
	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/row"
)

// Executor measures groups.
type Executor struct {
	Runner *measure.Runner
	Peers  map[string]*peer.Peer // by name; peers that aren't in the map aren't measured
	Store  *measure.Store
	Log    io.Writer

	checked map[string]bool // rows whose answers are equal
}

// Execute checks that the peers send the same answers, and makes the runs that the store doesn't have yet: the first round of all groups, then the
// second, and so on. A machine's speed changes from minute to minute. In this order every group has runs at each speed. Rates are measured last,
// since they depend on peaks. A run with errors is discarded, and made once more. The error names the cells that couldn't be measured.
func (e *Executor) Execute(ctx context.Context, groups []Group) error {
	e.checked = map[string]bool{}
	for i := range groups {
		if err := e.check(ctx, &groups[i]); err != nil {
			return err
		}
	}
	failed := errors.Join(e.rounds(ctx, groups, false), e.rounds(ctx, groups, true))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed
}

// rounds measures either the groups of kind Rate or all other groups, round by round.
func (e *Executor) rounds(ctx context.Context, groups []Group, rates bool) (failed error) {
	for round, left := 0, true; left; round++ {
		left = false
		for i := range groups {
			g := &groups[i]
			if ctx.Err() == nil && round < g.Rounds && (g.Cell.Kind == measure.Rate) == rates {
				left = true
				failed = errors.Join(failed, e.measure(ctx, g, round))
			}
		}
	}
	return failed
}

// present returns the group's peers that could be built.
func (e *Executor) present(g *Group) (peers []*peer.Peer) {
	for _, name := range g.Peers {
		if p := e.Peers[name]; p != nil {
			peers = append(peers, p)
		}
	}
	return peers
}

// check compares the answers of all peers of a row's group, unless nothing is left to measure. It skips rows with WebSockets, whose answers the load
// generator checks.
func (e *Executor) check(ctx context.Context, g *Group) error {
	peers := e.present(g)
	left := slices.ContainsFunc(peers, func(p *peer.Peer) bool {
		for round := range g.Rounds {
			if !e.has(g, p, round) {
				return true
			}
		}
		return false
	})
	if e.checked[g.Row.ID] || g.Row.Message > 0 || !left {
		return nil
	}
	e.checked[g.Row.ID] = true
	var first []alike.Answer
	for _, p := range peers {
		answers, err := e.answers(ctx, p, &g.Row)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", g.Row.ID, p.Name, err)
		}
		if first == nil {
			first = answers
			continue
		}
		if err := alike.Compare(&g.Row, first, answers, p.Peculiarities...); err != nil {
			return fmt.Errorf("%s: %s and %s don't answer alike: %w", g.Row.ID, peers[0].Name, p.Name, err)
		}
	}
	return nil
}

func (e *Executor) answers(ctx context.Context, p *peer.Peer, r *row.Row) ([]alike.Answer, error) {
	s, err := p.Start(ctx, e.Runner.Options(r))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	return alike.Fetch(s.Base, r)
}

// Of returns the group's cell for one peer.
func (g *Group) Of(p *peer.Peer) measure.Cell {
	c := g.Cell
	c.Peer, c.Hash = p.Name, p.Hash
	return c
}

// has reports whether a peer's run of a round is in the store.
func (e *Executor) has(g *Group, p *peer.Peer, round int) bool {
	return slices.ContainsFunc(e.Store.Records(g.Of(p)), func(r measure.Record) bool { return r.Round == round })
}

// measure makes the missing runs of a round.
func (e *Executor) measure(ctx context.Context, g *Group, round int) (failed error) {
	rate := 0.0
	if g.Cell.Kind == measure.Rate {
		if rate = e.slowest(g) * float64(g.Cell.Percent) / 100; rate == 0 {
			if round > 0 {
				return nil // the first round has already reported the error
			}
			return fmt.Errorf("%s at %d %%: there is no peak of all servers", g.Cell.Row, g.Cell.Percent)
		}
	}
	for _, p := range e.present(g) {
		if e.has(g, p, round) {
			continue
		}
		err := e.once(ctx, g, p, round, rate)
		if err != nil && ctx.Err() == nil {
			err = e.once(ctx, g, p, round, rate)
		}
		// A server that can't sustain a rate isn't an error, but a result.
		if err != nil && g.Cell.Kind != measure.Rate {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (e *Executor) once(ctx context.Context, g *Group, p *peer.Peer, round int, rate float64) error {
	record, err := e.Runner.Run(ctx, p, &g.Row, g.Of(p), rate)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	name := fmt.Sprintf("%-30s round %d  %-13s", g.Name(), round+1, p.Name)
	if err != nil {
		fmt.Fprintf(e.Log, "%s doesn't count: %v\n", name, err)
		return fmt.Errorf("%s, round %d, %s: %w", g.Name(), round+1, p.Name, err)
	}
	record.Round = round
	fmt.Fprintf(e.Log, "%s %s\n", name, summary(record.Figures))
	return e.Store.Add(record)
}

// summary formats the main figures of a run for the log.
func summary(f map[string]float64) (text string) {
	for _, name := range []string{measure.Throughput, measure.CPU, measure.P99, measure.PeakMemory, measure.Calls} {
		if v, ok := f[name]; ok {
			text += fmt.Sprintf("  %9.2f %s", v, name)
		}
	}
	return text
}

// Name describes what the group measures.
func (g *Group) Name() string {
	name := g.Cell.Row
	switch {
	case g.Cell.Kind == measure.Rate:
		name += fmt.Sprintf(" at %d %%", g.Cell.Percent)
	case g.Cell.Kind == measure.Syscalls:
		name += " under strace"
	case g.Cell.Pinned:
		name += ", pinned"
	case g.Cell.Procs > 0:
		name += fmt.Sprintf(", GOMAXPROCS=%d", g.Cell.Procs)
	}
	return name
}

// slowest returns the smallest of the medians of the peers' peaks, or 0 if a peer has no peak.
func (e *Executor) slowest(g *Group) float64 {
	least := math.Inf(1)
	for _, p := range e.present(g) {
		c := g.Of(p)
		c.Kind, c.Percent = measure.Peak, 0
		spread, ok := e.Store.Spread(c, measure.Throughput)
		if !ok {
			return 0
		}
		least = min(least, spread.Median)
	}
	return least
}
