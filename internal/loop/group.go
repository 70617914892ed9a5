//go:build linux

package loop

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo/internal/apart"
)

// Group holds the loops of a server and what they share. A server makes its group when it begins to serve the first listener from which
// loops can accept. Stop, Await, Counts and Waiting may be called on a nil Group, which has no loops.
type Group struct {
	loops     []*Loop        // immutable
	seats     []*Seat        // the seats of all loops, in the order of the loops; immutable
	draining  *atomic.Bool   // the server's; immutable
	inUse     atomic.Int32   // leaders that haven't left their loops, plus other holders of the loops' descriptors
	ended     chan struct{}  // closed when inUse is 0
	monitors  sync.WaitGroup // the goroutines of the loops' monitors
	maxPolled int32          // immutable
	polled    atomic.Int32   // sockets that the runtime's poller watches
	_         apart.Lines
	waiting   atomic.Int64 // goroutines that wait for clients: how many parked bits are set in all sockets
	_         apart.Lines
}

// maxSeats is the largest number of leaders that share a loop. More leaders would compete for the loop's batch.
const maxSeats = 8

// Count returns the number of loops for the given number of leaders.
func Count(leaders int) int { return (leaders + maxSeats - 1) / maxSeats }

// NewGroup makes loops that together have a seat for each element of workers. It fails if the process runs out of descriptors.
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

// Start starts the monitor of each loop and a leader for each seat.
func (g *Group) Start() {
	for _, l := range g.loops {
		g.monitors.Add(1)
		go l.monitor.run(l, &g.monitors)
	}
	for _, s := range g.seats {
		s.workers.Lead(s)
	}
}

// Stop makes each loop end when it has no connections left.
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
	g.monitors.Wait() // closeFiles, which release has called, makes them end
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

// release undoes a call of hold. The leader of each seat also calls it, when its loop has ended. The last call closes the loops'
// descriptors.
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
