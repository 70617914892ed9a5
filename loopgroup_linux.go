//go:build !386

package filo

import (
	"context"
	"fmt"
	"sync/atomic"
)

// loopGroup is the loops of a server, and what they share. A server has one from the first listener on that loops accept from. The
// methods for a shutdown and for statistics may be called on nil, which has no loops.
type loopGroup struct {
	loops    []*loop      // immutable
	draining *atomic.Bool // the server's; immutable
	inUse    atomic.Int32 // loops that have not ended, and who else needs their descriptors
	monitor  monitor
	hosting  hosting
}

// newLoopGroup makes a loop for each pool. It fails when descriptors are short.
func newLoopGroup(pools []*workerPool, draining *atomic.Bool) (*loopGroup, error) {
	g := &loopGroup{draining: draining}
	for i, pool := range pools {
		l, err := newLoop(g, i)
		if err != nil {
			g.closeFiles()
			return nil, fmt.Errorf("filo: starting the loops: %w", err)
		}
		l.pool = pool
		g.loops = append(g.loops, l)
	}
	g.inUse.Store(int32(len(g.loops)))
	return g, nil
}

// start gives each loop a leader. The first pool runs already.
func (g *loopGroup) start() {
	g.monitor.start(g)
	for _, l := range g.loops {
		if l.index > 0 {
			l.pool.Start()
		}
		l.pool.Lead(&l.leadership)
	}
}

// stop makes the loops end when they have no connections left.
func (g *loopGroup) stop() {
	if g == nil {
		return
	}
	g.hosting.close()
	for _, l := range g.loops {
		l.stop()
	}
}

// await returns when the loops have ended, or ctx has.
func (g *loopGroup) await(ctx context.Context) error {
	if g == nil {
		return nil
	}
	for _, l := range g.loops {
		select {
		case <-l.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-g.monitor.ended // which the last loop has told to
	return nil
}

// addTo fills in what the loops have counted.
func (g *loopGroup) addTo(st *Stats) {
	if g == nil {
		return
	}
	for _, l := range g.loops {
		st.Handoffs += l.handoffs.Load()
		st.Retakes += l.retakes.Load()
		st.Steals += l.steals.Load()
		if l.host.Load() != nil {
			st.LoopsHosted++
		}
	}
}

// hold keeps the loops' descriptors open until release is called. It reports false if they are closed.
func (g *loopGroup) hold() bool {
	for {
		n := g.inUse.Load()
		if n == 0 {
			return false
		}
		if g.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release takes note that a loop has ended, or something else that has held the loops' descriptors. The last one closes them.
func (g *loopGroup) release() {
	if g.inUse.Add(-1) > 0 {
		return
	}
	close(g.monitor.quit)
	g.closeFiles()
	for _, each := range g.loops {
		close(each.ended)
	}
}

func (g *loopGroup) closeFiles() {
	for _, each := range g.loops {
		each.closeFiles()
	}
}
