package filo

import (
	"math"
	"net"
	"sync/atomic"
)

// workerPlaces counts the workers of one pool, or of several: those of a server's loops each have a stack and a lock of their
// own, and MaxWorkersCount together.
type workerPlaces struct {
	taken takenPlaces   // by workers that are ready or serving; beyond MaxWorkersCount only by those of retakes
	pools []*workerPool // that share it, if these are several; immutable

	kept     atomic.Int64 // workers that have one of the places which are kept for quick handlers
	keptMost int64        // of those; immutable

	appointed atomic.Pointer[workerChan] // the last worker that was appointed to lead; it may have come by now
}

// keptPlaces is how many workers a server may have beyond Concurrency to find out whether a handler is a quick one, such as a
// probe's, which is answered whatever the load.
const keptPlaces = 32

// takenPlaces counts places in the low half of a word, and in its high half those of workers that are ready, on whichever stack. As
// both are in one word, a load of it tells of a moment with neither a place nor a ready worker, and who is refused then needs no lock.
type takenPlaces struct{ word atomic.Int64 }

// readyPlace is a ready worker's in the high half.
const readyPlace = 1 << 32

func (p *takenPlaces) Load() int64 { return p.word.Load() % readyPlace }

// add adds places that were taken, or given back, and ready workers. The lock of the stack that those are on is held.
func (p *takenPlaces) add(n, ready int) { p.word.Add(int64(n) + int64(ready)*readyPlace) }

// take takes a place, if there is one, for a worker that isn't ready; or for one that is, with readyPlace.
func (p *takenPlaces) take(most int, ready int64) bool {
	for {
		n := p.word.Load()
		if n%readyPlace >= int64(most) {
			return false
		}
		if p.word.CompareAndSwap(n, n+1+ready) {
			return true
		}
	}
}

// exhausted reports whether there is neither a place nor a ready worker.
func (p *takenPlaces) exhausted(most int) bool {
	n := p.word.Load()
	return n < readyPlace && n >= int64(most)
}

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
		w.send(c)
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
	w.place, w.kept = placeClosing, true
	next.appoint(l)
	return true
}

// ExchangeForKept implements loop.Owner: it gives a serving worker one of the places that are kept for its own.
func (w *workerChan) ExchangeForKept() bool {
	if places := w.pool.places; !takeBelow(&places.kept, places.keptMost) {
		return false
	}
	w.vacate(math.MaxInt)
	w.kept = true
	return true
}

// EndKept gives a place that was kept back, if w has one.
func (w *workerChan) EndKept() {
	if w.kept {
		w.kept = false
		w.pool.places.kept.Add(-1)
	}
}

// HasKept reports whether w has one of the places that are kept.
func (w *workerChan) HasKept() bool { return w.kept }

// MayRun reports whether a worker may run a handler that may take its time.
func (w *workerChan) MayRun() bool { return !w.kept || w.occupy() }

// Vacate implements loop.Owner.
func (w *workerChan) Vacate() { w.vacate(math.MaxInt) }

// borrow takes a ready worker off the stack of a pool that places are shared with, if it finds one.
func (wp *workerPool) borrow() *workerChan {
	for _, sibling := range wp.places.pools {
		sibling.mu.Lock()
		w := sibling.popLocked()
		sibling.mu.Unlock()
		if w != nil {
			return w
		}
	}
	return nil
}
