package filo

import "sync/atomic"

// leadership is the job of leading a loop in one of its seats.
type leadership struct {
	// lead returns when the loop has ended, or when w has given the seat away and has finished the connection that it served then. In the
	// second case w.place isn't placeLeading.
	lead func(w *workerChan)
	// retakes becomes odd when a leader loses the seat by retake, and even when there is seen to be no worker beyond the cap: see
	// crowded. It only grows, so a goroutine that makes it even can't undo a later retake. Immutable.
	retakes *atomic.Uint64
}

// Lead starts a leader for a new seat. Leaders don't count against MaxWorkersCount, and done doesn't wait for them.
func (wp *workerPool) Lead(l *leadership) {
	wp.mu.Lock()
	wp.spawned++
	wp.leading++
	wp.mu.Unlock()
	wp.spawn().appoint(l)
}

// handOver makes another worker lead in w's seat, and w an ordinary worker, which counts. Unless must is set, it reports false if no further
// ordinary worker is allowed.
func (wp *workerPool) handOver(w *workerChan, l *leadership, must bool) bool {
	next := wp.successor(must)
	if next == nil {
		return false
	}
	w.place = placeServing
	next.appoint(l)
	return true
}

// retake makes another worker lead in the stead of one that may never come back from its turn. From then on that one is an ordinary
// worker, in addition to MaxWorkersCount if need be. If it comes back, it learns of this.
func (wp *workerPool) retake(l *leadership) {
	next := wp.successor(true)
	// After the old leader was counted, and before the next leader checks crowded.
	for n := l.retakes.Load(); !l.retakes.CompareAndSwap(n, (n|1)+2); n = l.retakes.Load() {
	}
	next.appoint(l)
}

// crowded reports whether there are workers beyond MaxWorkersCount. If so, the leader of l must not run anything that may cost it l: each
// leader could leave one more such worker behind.
func (wp *workerPool) crowded(l *leadership) bool {
	retakes := l.retakes.Load()
	if retakes&1 == 0 {
		return false // no leader has lost l since
	}
	if wp.beyond() > 0 {
		return true
	}
	l.retakes.CompareAndSwap(retakes, retakes+1)
	return false
}

// LoseLead implements loop.Owner: w becomes an ordinary worker after a retake.
func (w *workerChan) LoseLead() { w.place = placeServing }

// successor returns the worker that is to lead in another one's stead. Its place as an ordinary worker goes to that one.
func (wp *workerPool) successor(must bool) *workerChan {
	next := wp.get(true)
	if next == nil {
		if !must {
			return nil
		}
		wp.places.taken.Add(1)
		wp.mu.Lock()
		wp.countSpawnLocked()
		wp.mu.Unlock()
		next = wp.spawn()
	}
	return next
}

// appoint makes w lead, which was taken off its stack, unless another worker takes the job over before w starts.
func (w *workerChan) appoint(l *leadership) {
	w.toLead.Store(l)
	w.pool.places.appointed.Store(w)
	w.ch <- l
}

// do makes w lead, unless another worker has taken the job over. Then it makes w lead in further seats whose leader hasn't started.
func (l *leadership) do(w *workerChan) (again bool) {
	wp := w.pool
	if l = w.toLead.Swap(nil); l == nil {
		w.place = placeClosing // as takeOver has counted it
	}
	for l != nil {
		w.place = placeLeading
		l.lead(w)
		if w.forgotten {
			wp.remember(w)
		}
		if w.place == placeLeading {
			return false
		}
		l = wp.takeOver(w)
	}
	return wp.release(w)
}

// takeOver returns the job of a worker that was appointed and hasn't started, for w, which would otherwise be released. The appointed
// worker waits for a processor, and w has one. If w rested, the scheduler would let that processor idle for a while before it ran the
// other worker.
func (wp *workerPool) takeOver(w *workerChan) *leadership {
	if w.forgotten {
		return nil // the pool was stopped meanwhile, and done no longer waits for w
	}
	late := wp.places.appointed.Load()
	if late == nil || !wp.places.appointed.CompareAndSwap(late, nil) {
		return nil
	}
	wp.mu.Lock()
	defer wp.mu.Unlock()
	l := late.toLead.Swap(nil)
	// The late worker becomes placeClosing. If w is that already, the two exchange their places.
	if l != nil && w.place == placeServing {
		wp.places.taken.Add(-1)
		wp.closing++
		wp.placeFreed()
	}
	return l
}
