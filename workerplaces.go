package filo

import (
	"math"
	"net"
	"sync/atomic"
)

// workerPlaces counts the workers of one pool, or of several pools that share MaxWorkersCount. Each of a server's loops has a pool with
// its own stack and lock.
type workerPlaces struct {
	taken takenPlaces   // places of workers that are ready or serving; only retakes exceed MaxWorkersCount
	pools []*workerPool // the pools that borrow from each other; immutable

	kept     atomic.Int64 // workers in places reserved for quick handlers
	keptMost int64        // limit of kept; immutable

	appointed atomic.Pointer[workerChan] // the last worker appointed to lead, which may have started by now
}

// keptPlaces is how many workers a server may have beyond Concurrency, to find out whether a handler is quick. Quick handlers, such as
// a health check's, are called whatever the load.
const keptPlaces = 32

// takenPlaces counts the taken places in the low half of a word, and the ready workers of all stacks in its high half. One load returns
// both counts at the same moment, so a refusal needs no lock.
type takenPlaces struct{ word atomic.Int64 }

// readyPlace counts one ready worker in the high half.
const readyPlace = 1 << 32

func (p *takenPlaces) Load() int64 { return p.word.Load() % readyPlace }

// add adds to the counts of taken places and of ready workers. If ready isn't 0, the caller holds the lock of the workers' stack.
func (p *takenPlaces) add(n, ready int) { p.word.Add(int64(n) + int64(ready)*readyPlace) }

// take takes a place if fewer than most are taken. ready is readyPlace for a worker that becomes ready, 0 for any other.
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

// exhausted reports whether no place is free and no worker is ready.
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

// ExchangeForKept implements loop.Owner: a serving worker gives up its place for a reserved one. It returns false if none is free.
func (w *workerChan) ExchangeForKept() bool {
	if places := w.pool.places; !takeBelow(&places.kept, places.keptMost) {
		return false
	}
	w.vacate(math.MaxInt)
	w.kept = true
	return true
}

// EndKept gives back w's reserved place, if w has one.
func (w *workerChan) EndKept() {
	if w.kept {
		w.kept = false
		w.pool.places.kept.Add(-1)
	}
}

// HasKept reports whether w has a reserved place.
func (w *workerChan) HasKept() bool { return w.kept }

// MayRun reports whether w may run a handler that may take long. In a reserved place w must get an ordinary place first.
func (w *workerChan) MayRun() bool { return !w.kept || w.occupy() }

// Vacate implements loop.Owner.
func (w *workerChan) Vacate() { w.vacate(math.MaxInt) }

// borrow takes a ready worker off the stack of a pool that shares the places. It returns nil if it finds none.
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
