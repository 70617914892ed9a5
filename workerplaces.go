package filo

import "sync/atomic"

// workerPlaces counts the workers of one pool, or of several: those of a server's loops each have a stack and a lock of their
// own, and MaxWorkersCount together.
type workerPlaces struct {
	taken atomic.Int64  // by workers that are ready or serving; beyond MaxWorkersCount only by those of retakes
	pools []*workerPool // that share it, if these are several; immutable

	appointed atomic.Pointer[workerChan] // the last worker that was appointed to lead; it may have come by now
}

// take takes a place, if there is one.
func (p *workerPlaces) take(most int) bool {
	for {
		taken := p.taken.Load()
		if taken >= int64(most) {
			return false
		}
		if p.taken.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
}

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
