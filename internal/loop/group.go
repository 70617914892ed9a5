//go:build linux

package loop

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo/internal/apart"
)

// Group holds the loops of a server and what they share. A server has a group from the first listener on that its loops accept from.
// Stop, Await and Counts may be called on nil, which has no loops.
type Group struct {
	loops     []*Loop        // immutable
	seats     []*Seat        // of all loops, one loop's after the other's; immutable
	draining  *atomic.Bool   // the server's; immutable
	inUse     atomic.Int32   // leaders that haven't left their loops, plus other holders of the loops' descriptors
	ended     chan struct{}  // closed when inUse is 0
	monitors  sync.WaitGroup // the loops' monitors that run
	maxPolled int32          // immutable
	polled    atomic.Int32   // sockets that the runtime's poller watches
	_         apart.Lines
	waiting   atomic.Int64 // goroutines that wait for clients: parked bits of sockets
	_         apart.Lines
}

// maxSeats is how many leaders share a loop at most. More would compete for its batch.
const maxSeats = 8

// Count returns the number of loops that this number of leaders shares.
func Count(leaders int) int { return (leaders + maxSeats - 1) / maxSeats }

// NewGroup makes loops with a seat for each element of workers. It fails when descriptors run out.
func NewGroup(workers []Workers, draining *atomic.Bool) (*Group, error) {
	g := &Group{draining: draining, ended: make(chan struct{}), maxPolled: maxPolled()}
	for i, loops := 0, Count(len(workers)); i < loops; i++ {
		l, err := newLoop(g, workers[i*len(workers)/loops:(i+1)*len(workers)/loops])
		if err != nil {
			g.closeFiles()
			return nil, err
		}
		g.loops = append(g.loops, l)
		g.seats = append(g.seats, l.seats...)
	}
	g.inUse.Store(int32(len(g.seats)))
	return g, nil
}

// Loops returns the loops.
func (g *Group) Loops() []*Loop { return g.loops }

// Start gives each seat a leader.
func (g *Group) Start() {
	for _, l := range g.loops {
		g.monitors.Add(1)
		go l.monitor.run(l, &g.monitors)
	}
	for _, s := range g.seats {
		s.workers.Lead(s)
	}
}

// Stop makes the loops end when they have no connections left.
func (g *Group) Stop() {
	if g == nil || !g.hold() {
		return
	}
	for _, l := range g.loops {
		l.stop()
	}
	g.release()
}

// Await waits until the loops have ended. If ctx ends first, it returns ctx's error.
func (g *Group) Await(ctx context.Context) error {
	if g == nil {
		return nil
	}
	select {
	case <-g.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.monitors.Wait() // release has told them to end
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

// release ends the hold on the loops' descriptors that a leader or a caller of hold has. The last release closes them.
func (g *Group) release() {
	if g.inUse.Add(-1) > 0 {
		return
	}
	g.closeFiles()
	close(g.ended)
}

func (g *Group) closeFiles() {
	for _, each := range g.loops {
		each.closeFiles()
	}
}
