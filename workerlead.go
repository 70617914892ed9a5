package filo

import "sync/atomic"

// leadership is the job of leading a loop.
type leadership struct {
	// lead returns when the worker has given it away, and has then served a connection (w.place isn't placeLeading), or when
	// it is over.
	lead func(w *workerChan)
	// retakes is odd if a leader has lost it to retake since there was last seen to be no worker beyond the cap: see crowded. It
	// only grows, so that whoever makes it even can't undo a retake that he hasn't seen. Immutable.
	retakes *atomic.Uint64
}

// Lead makes a worker lead what nobody leads yet. Leaders don't count against MaxWorkersCount, nor does done wait for them.
func (wp *workerPool) Lead(l *leadership) {
	wp.mu.Lock()
	wp.spawned++
	wp.leading++
	wp.mu.Unlock()
	wp.spawn().appoint(l)
}

// handOver makes another worker lead what w does, and w an ordinary worker, which counts. It reports false if there may be
// no more of those, unless it must.
func (wp *workerPool) handOver(w *workerChan, l *leadership, must bool) bool {
	next := wp.successor(w, must)
	if next == nil {
		return false
	}
	w.place = placeServing
	next.appoint(l)
	return true
}

// retake makes another worker lead what w does, which may never come back. That is an ordinary worker from then on, in
// addition to MaxWorkersCount if need be, and gets to know when it does come back.
func (wp *workerPool) retake(w *workerChan, l *leadership) {
	next := wp.successor(w, true)
	// After w was counted, and before next looks.
	for n := l.retakes.Load(); !l.retakes.CompareAndSwap(n, (n|1)+2); n = l.retakes.Load() {
	}
	next.appoint(l)
}

// crowded reports whether there are workers beyond MaxWorkersCount. Then whoever leads l must not run what it may lose l by: each
// leader could leave one more such worker behind.
func (wp *workerPool) crowded(l *leadership) bool {
	retakes := l.retakes.Load()
	if retakes&1 == 0 {
		return false // nobody has lost l since
	}
	if wp.beyond() > 0 {
		return true
	}
	l.retakes.CompareAndSwap(retakes, retakes+1)
	return false
}

// LoseLead implements loop.Owner: w is the ordinary worker that it is since retake.
func (w *workerChan) LoseLead() { w.place = placeServing }

// successor returns the worker that is to lead in w's stead, and leaves the place of an ordinary one, which that had, to w.
func (wp *workerPool) successor(w *workerChan, must bool) *workerChan {
	next := wp.get(true)
	if next == nil {
		if !must {
			return nil
		}
		wp.places.taken.add(1, 0)
		wp.mu.Lock()
		wp.countSpawnLocked()
		wp.mu.Unlock()
		next = wp.spawn()
	}
	if next.pool != w.pool {
		w.pool.countLeaders(-1)
		next.pool.countLeaders(+1)
	}
	return next
}

// countLeaders takes note that n of the pool's workers have become leaders.
func (wp *workerPool) countLeaders(n int) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.leading += n
	wp.goroutines -= n
	wp.signalEndLocked()
}

// appoint makes a worker that was taken off its stack lead, unless another one does so before it comes.
func (w *workerChan) appoint(l *leadership) {
	w.toLead.Store(l)
	w.pool.places.appointed.Store(w)
	w.ch <- l
}

// do makes w lead, unless another worker does so already, and then lead what it finds without a leader.
func (l *leadership) do(w *workerChan) (again bool) {
	wp := w.pool
	if l = w.toLead.Swap(nil); l == nil {
		w.place = placeClosing // that of the worker which leads
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

// takeOver returns what w, which would be released now, is to lead in the stead of a worker that was appointed and hasn't come.
// That one waits for a processor, while w has one, and the scheduler would let w's rest for a while before it gave it to the
// other.
func (wp *workerPool) takeOver(w *workerChan) *leadership {
	if w.forgotten {
		return nil // the pool was stopped meanwhile, and done doesn't wait for w
	}
	late := wp.places.appointed.Load()
	if late == nil || !wp.places.appointed.CompareAndSwap(late, nil) {
		return nil
	}
	late.pool.mu.Lock()
	l := late.toLead.Swap(nil)
	if l != nil {
		late.pool.leading--
		late.pool.goroutines++
		late.pool.closing++
	}
	late.pool.mu.Unlock()
	if l == nil {
		return nil
	}
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if w.place == placeServing {
		wp.places.taken.add(-1, 0)
	} else {
		wp.closing--
	}
	wp.leading++
	wp.goroutines--
	wp.signalEndLocked()
	return l
}
