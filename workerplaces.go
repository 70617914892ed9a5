package filo

import (
	"math"
	"net"
	"sync/atomic"
)

// workerPlaces counts the workers of one pool, or of several: those of a server's loops each have a stack and a lock of their
// own, and MaxWorkersCount together.
type workerPlaces struct {
	taken atomic.Int64  // by workers that are ready or serving; beyond MaxWorkersCount only by those of retakes
	pools []*workerPool // that share it, if these are several; immutable

	kept     atomic.Int64 // workers that have one of the places which are kept for quick handlers
	keptMost int64        // of those; immutable

	appointed atomic.Pointer[workerChan] // the last worker that was appointed to lead; it may have come by now
}

// keptPlaces is how many workers a server may have beyond Concurrency to find out whether a handler is a quick one, such as a
// probe's, which is answered whatever the load.
const keptPlaces = 32

// take takes a place, if there is one.
func (p *workerPlaces) take(most int) bool { return takeBelow(&p.taken, int64(most)) }

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

// serveKept is Serve by a worker that gets one of the places that are kept. It runs quick handlers, and others if it gets another
// place: see mayRun.
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
		w.ch <- c
	}
	return ok
}

// handOverKept is handOver for a worker that gets one of the places that are kept.
func (wp *workerPool) handOverKept(w *workerChan, l *leadership) bool {
	if !takeBelow(&wp.places.kept, wp.places.keptMost) {
		return false
	}
	wp.mu.Lock()
	wp.countSpawnLocked()
	wp.mu.Unlock()
	next := wp.spawn()
	if next.pool != w.pool {
		w.pool.countLeaders(-1)
		next.pool.countLeaders(+1)
	}
	w.pool.mu.Lock()
	w.pool.closing++
	w.pool.mu.Unlock()
	w.loop, w.place, w.kept = nil, placeClosing, true
	next.appoint(l)
	return true
}

// exchangeForKept gives a serving worker one of the places that are kept for its own.
func (wp *workerPool) exchangeForKept(w *workerChan) bool {
	if !takeBelow(&wp.places.kept, wp.places.keptMost) {
		return false
	}
	wp.vacate(w, math.MaxInt)
	w.kept = true
	return true
}

// endKept gives a place that was kept back, if w has one.
func (w *workerChan) endKept() {
	if w.kept {
		w.kept = false
		w.pool.places.kept.Add(-1)
	}
}

// mayRun reports whether a worker may run a handler that may take its time.
func (w *workerChan) mayRun() bool { return !w.kept || w.pool.occupy(w) }

// borrow is get for a pool that has no ready worker, and no place for a new one either: a sibling's may be ready. A refusal
// is decided with all of them locked: at that moment there was neither a ready worker nor a place.
func (wp *workerPool) borrow(anyway bool) (w *workerChan) {
	siblings := wp.places.pools
	if len(siblings) < 2 {
		return nil
	}
	for _, sibling := range siblings {
		sibling.mu.Lock()
	}
	for i := 0; i < len(siblings) && w == nil; i++ {
		w = siblings[i].popLocked()
	}
	spawn := w == nil && (anyway || !wp.stopped) && wp.maySpawnLocked()
	for _, sibling := range siblings {
		sibling.mu.Unlock()
	}
	if spawn {
		return wp.spawn()
	}
	return w
}
