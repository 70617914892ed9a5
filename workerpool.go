package filo

import (
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// workerPool serves connections, each on a worker's goroutine. Ready workers are a FILO stack: the one that was released
// last is the next to serve, since its stack and buffers are in the processor's caches, and those at the bottom get old and are retired.
type workerPool struct {
	// WorkerFunc serves a connection. It reports whether the pool is to close it; one that panics or ends its goroutine
	// has to see to that itself.
	WorkerFunc func(w *workerChan, c net.Conn) (closeConn bool)

	// MaxWorkersCount is how many workers may serve at once.
	MaxWorkersCount int

	// MaxIdleWorkerDuration is how long a ready worker is kept.
	MaxIdleWorkerDuration time.Duration

	Logger *slog.Logger

	clock *coarseClock

	mu      sync.Mutex
	ready   []*workerChan // the coldest first, in the order of lastUse; guarded by mu
	count   int           // workers that are ready or serve; retired ones no longer count; guarded by mu
	spawned uint64        // guarded by mu
	retired uint64        // guarded by mu
	stopped bool          // guarded by mu

	goroutines sync.WaitGroup // workers, retired ones too until they have ended, and the cleaner
	wake       chan struct{}  // tells the cleaner that there is a ready worker again; capacity 1
	stop       chan struct{}  // closed by Stop
	free       sync.Pool      // of *workerChan
}

// Start lets the pool work. It is called once.
func (wp *workerPool) Start() {
	if wp.stop != nil {
		panic("filo: workerPool started twice")
	}
	wp.stop, wp.wake = make(chan struct{}), make(chan struct{}, 1)
	wp.goroutines.Go(wp.cleaner)
}

// Stop retires the ready workers and the cleaner. Busy workers finish what they serve and end then. Serve accepts nothing
// any more.
func (wp *workerPool) Stop() {
	wp.mu.Lock()
	if wp.stopped {
		wp.mu.Unlock()
		return
	}
	wp.stopped = true
	ready := wp.ready
	wp.ready = nil
	wp.count -= len(ready)
	wp.retired += uint64(len(ready))
	wp.mu.Unlock()
	close(wp.stop)
	for _, w := range ready {
		w.ch <- nil
	}
}

// done returns a channel that is closed when, after Stop, the last goroutine of the pool has ended.
func (wp *workerPool) done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		wp.goroutines.Wait()
		close(done)
	}()
	return done
}

// Serve passes the connection to a worker. It reports false if all are busy and there may be no more of them, or if the
// pool was stopped; then the connection stays the caller's.
func (wp *workerPool) Serve(c net.Conn) bool {
	w := wp.getCh()
	if w == nil {
		return false
	}
	w.ch <- c
	return true
}

// getCh takes the hottest ready worker, or spawns one. It returns nil if it may not.
func (wp *workerPool) getCh() *workerChan {
	wp.mu.Lock()
	if wp.stopped {
		wp.mu.Unlock()
		return nil
	}
	if top := len(wp.ready) - 1; top >= 0 {
		w := wp.ready[top]
		wp.ready[top] = nil
		wp.ready = wp.ready[:top]
		wp.mu.Unlock()
		return w
	}
	if wp.count >= wp.MaxWorkersCount {
		wp.mu.Unlock()
		return nil
	}
	wp.count++
	wp.spawned++
	// Under the lock, so that a Stop that comes next waits for this goroutine too.
	wp.goroutines.Add(1)
	wp.mu.Unlock()
	w, _ := wp.free.Get().(*workerChan)
	if w == nil {
		w = &workerChan{ch: make(chan net.Conn, workerChanCap())}
	}
	go wp.run(w)
	return w
}

// release puts a worker that has finished back on the stack. It reports false if the worker is to end.
func (wp *workerPool) release(w *workerChan) bool {
	now := wp.clock.now()
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if wp.stopped {
		wp.count--
		wp.retired++
		return false
	}
	// Two workers may have read the clock in one order and got here in the other; the stack stays sorted all the same.
	if top := len(wp.ready) - 1; top >= 0 {
		now = max(now, wp.ready[top].lastUse)
	} else {
		select {
		case wp.wake <- struct{}{}:
		default:
		}
	}
	w.lastUse = now
	wp.ready = append(wp.ready, w)
	return true
}

// run is a worker's goroutine.
func (wp *workerPool) run(w *workerChan) {
	running := false // a handler's runtime.Goexit ends the goroutine inside serve
	defer func() {
		if running {
			wp.mu.Lock()
			wp.count--
			wp.retired++
			wp.mu.Unlock()
		} else {
			wp.free.Put(w)
		}
		wp.goroutines.Done()
	}()
	for c := range w.ch {
		if c == nil {
			return
		}
		running = true
		closeConn := wp.serve(w, c)
		running = false
		again := wp.release(w)
		// Only now, so that a client that sees the close and comes back finds this worker free.
		if closeConn {
			c.Close()
		}
		if !again {
			return
		}
	}
}

// serve calls WorkerFunc. A panic costs the connection and not the worker.
func (wp *workerPool) serve(w *workerChan, c net.Conn) (closeConn bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// The buffers may be in any state.
		w.scratch = nil
		value := recover()
		if value != nil {
			wp.Logger.Error("panic in a worker", "value", fmt.Sprint(value), "stack", string(debug.Stack()))
		}
	}()
	closeConn = wp.WorkerFunc(w, c)
	returned = true
	return closeConn
}

// cleaner retires workers that have been idle for MaxIdleWorkerDuration, until Stop. It sleeps until the coldest one may
// be due, and for good while there is none.
func (wp *workerPool) cleaner() {
	var scratch []*workerChan
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-wp.stop:
			return
		}
		if wait := wp.clean(&scratch); wait > 0 {
			timer.Reset(wait)
			continue
		}
		select {
		case <-wp.wake:
			timer.Reset(wp.MaxIdleWorkerDuration)
		case <-wp.stop:
			return
		}
	}
}

// clean retires the workers that are due, through scratch, which it keeps for the next time. It returns how long it is
// until the next one may be, 0 if no worker is ready.
func (wp *workerPool) clean(scratch *[]*workerChan) (wait time.Duration) {
	now := wp.clock.exact()
	due := now - int64(wp.MaxIdleWorkerDuration)
	wp.mu.Lock()
	ready := wp.ready
	// The first that isn't due, by binary search: the stack is sorted by lastUse.
	low, high := 0, len(ready)
	for low < high {
		if middle := int(uint(low+high) / 2); ready[middle].lastUse <= due {
			low = middle + 1
		} else {
			high = middle
		}
	}
	*scratch = append((*scratch)[:0], ready[:low]...)
	kept := copy(ready, ready[low:])
	clear(ready[kept:])
	wp.ready = ready[:kept]
	// They don't count from now on, though their goroutines are still to end: nobody is refused because of them.
	wp.count -= low
	wp.retired += uint64(low)
	if kept > 0 {
		// A little later than the next one is due, so that those which are due soon after go with it.
		wait = time.Duration(max(ready[0].lastUse-due, int64(wp.MaxIdleWorkerDuration/10)))
	}
	wp.mu.Unlock()
	for i, w := range *scratch {
		w.ch <- nil
		(*scratch)[i] = nil
	}
	return wait
}

// stats returns how many workers serve and how many are ready, and how many were spawned and retired since the start.
func (wp *workerPool) stats() (running, ready int, spawned, retired uint64) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	return wp.count - len(wp.ready), len(wp.ready), wp.spawned, wp.retired
}
