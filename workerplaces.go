package filo

import (
	"math"
	"net"
	"sync/atomic"
)

// workerPlaces counts a pool's workers.
type workerPlaces struct {
	taken atomic.Int64 // places of workers that are ready or serving; only retakes exceed MaxWorkersCount

	kept     atomic.Int64 // workers in places reserved for quick handlers
	keptMost int64        // limit of kept; immutable

	always atomic.Int64 // workers in the reserve of alwaysPlaces

	appointed atomic.Pointer[workerChan] // the last worker appointed to lead, which may have started by now
}

// keptPlaces is how many workers a server may have beyond Concurrency, to find out whether a handler is quick. Quick handlers, such as
// a health check's, are called whatever the load.
const keptPlaces = 32

// alwaysPlaces is how many workers a server may have beyond Concurrency and the kept places for handlers that are always answered, such as
// those of probes that wait for checks, and of operators' pages. The limit bounds what such a route costs when everybody calls it.
const alwaysPlaces = 16

// takeBelow adds one to a count, unless that has reached most.
func takeBelow(count *atomic.Int64, most int64) bool {
	for {
		n := count.Load()
		if n >= most {
			return false
		}
		if count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// serveKept is Serve by a new worker in a reserved place. The worker runs quick handlers, and others only if it gets an ordinary place:
// see MayRun.
func (wp *workerPool) serveKept(c net.Conn) bool {
	wp.mu.Lock()
	ok := wp.started && !wp.stopped && takeBelow(&wp.places.kept, wp.places.keptMost)
	if ok {
		wp.countSpawnLocked()
		wp.closing++
	}
	wp.mu.Unlock()
	if ok {
		w := wp.spawn()
		w.kept = true
		w.send(c)
	}
	return ok
}

// handOverKept is handOver, but w gets a reserved place and not an ordinary one.
func (wp *workerPool) handOverKept(w *workerChan, l *leadership) bool {
	if !takeBelow(&wp.places.kept, wp.places.keptMost) {
		return false
	}
	wp.mu.Lock()
	wp.countSpawnLocked()
	wp.closing++
	wp.mu.Unlock()
	next := wp.spawn()
	w.place, w.kept = placeClosing, true
	next.appoint(l)
	return true
}

// ExchangeForKept implements loop.Owner: a serving worker gives up its place for a reserved one. It returns false if none is free.
func (w *workerChan) ExchangeForKept() bool {
	if places := &w.pool.places; !takeBelow(&places.kept, places.keptMost) {
		return false
	}
	w.vacate(math.MaxInt)
	w.kept = true
	return true
}

// leaveAlways gives away w's loop, its place and its kept place, and makes w one of those in the reserve. It returns false, and changes
// nothing, if the reserve is full.
func (w *workerChan) leaveAlways() bool {
	if !takeBelow(&w.pool.places.always, alwaysPlaces) {
		return false
	}
	w.LeaveWithoutPlace()
	w.EndKept()
	w.always = true
	return true
}

// EndKept gives back w's place among those kept for quick handlers or in the reserve, if w has one.
func (w *workerChan) EndKept() {
	if w.kept {
		w.kept = false
		w.pool.places.kept.Add(-1)
	}
	if w.always {
		w.always = false
		w.pool.places.always.Add(-1)
	}
}

// HasKept reports whether w has a reserved place.
func (w *workerChan) HasKept() bool { return w.kept }

// MayRun reports whether w may run a handler that may take long. In a reserved place w must get an ordinary place first.
func (w *workerChan) MayRun() bool { return !w.kept || w.occupy() }

// Vacate implements loop.Owner.
func (w *workerChan) Vacate() { w.vacate(math.MaxInt) }
