//go:build !386

package loop

import (
	"context"
	"sync/atomic"
)

// Group holds the loops of a server and what they share. A server has a group from the first listener on that its loops accept from.
// Stop, Await and Counts may be called on nil, which has no loops.
type Group struct {
	loops    []*Loop      // immutable
	draining *atomic.Bool // the server's; immutable
	inUse    atomic.Int32 // loops that haven't ended, plus other holders of their descriptors
	monitor  monitor
	hosting  hosting
}

// NewGroup makes a loop for each element of workers. It fails when descriptors run out.
func NewGroup(workers []Workers, draining *atomic.Bool) (*Group, error) {
	g := &Group{draining: draining}
	for i, each := range workers {
		l, err := newLoop(g, i, each)
		if err != nil {
			g.closeFiles()
			return nil, err
		}
		g.loops = append(g.loops, l)
	}
	g.inUse.Store(int32(len(g.loops)))
	return g, nil
}

// Loops returns the loops, in the order of their workers.
func (g *Group) Loops() []*Loop { return g.loops }

// Start gives each loop a leader.
func (g *Group) Start() {
	g.monitor.start(g)
	for _, l := range g.loops {
		l.workers.Lead(l)
	}
}

// Stop makes the loops end when they have no connections left.
func (g *Group) Stop() {
	if g == nil {
		return
	}
	g.hosting.close()
	for _, l := range g.loops {
		l.stop()
	}
}

// Await waits until the loops have ended. If ctx ends first, it returns ctx's error.
func (g *Group) Await(ctx context.Context) error {
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
	<-g.monitor.ended // the last loop to end has told it to
	return nil
}

// Counts returns the sums over all loops.
func (g *Group) Counts() (c Counts) {
	if g == nil {
		return c
	}
	for _, l := range g.loops {
		c.Handoffs += l.handoffs.Load()
		c.Retakes += l.retakes.Load()
		c.Steals += l.steals.Load()
		if l.host.Load() != nil {
			c.Hosted++
		}
	}
	return c
}

// hold keeps the loops' descriptors open until release is called. It reports false if they are closed.
func (g *Group) hold() bool {
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

// release ends a loop's own hold on the loops' descriptors, or that of a caller of hold. The last release closes them.
func (g *Group) release() {
	if g.inUse.Add(-1) > 0 {
		return
	}
	close(g.monitor.quit)
	g.closeFiles()
	for _, each := range g.loops {
		close(each.ended)
	}
}

func (g *Group) closeFiles() {
	for _, each := range g.loops {
		each.closeFiles()
	}
}
