package filo

import (
	"log/slog"
	"net"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/running"
)

// workerPool serves connections, each on a worker's goroutine. Ready workers form a FILO stack. The worker released last serves next,
// since its stack and buffers are still in the processor's caches. The workers at the bottom stay idle until they are retired.
//
// The configuration doesn't change after Start. A pool can be started only once, and not after Stop.
type workerPool struct {
	// WorkerFunc serves the job's connection. Afterwards, even after a panic, the pool closes the connection, unless WorkerFunc has set j.conn
	// to nil.
	WorkerFunc func(w *workerChan, j *connJob)

	// Linger, if set, may take over a connection that must be closed and that lingers. It reports whether it has taken the connection
	// over, and doesn't wait.
	Linger func(c net.Conn) bool

	// MaxWorkersCount limits how many workers are ready or serving. Workers that lead a loop, that only read a connection of HTTP/2, or that
	// have answered and are about to be released don't count. See package admit for workers that serve beyond the limit.
	MaxWorkersCount int

	// Queue is how many requests may wait for a place, and MaxWait how long each may wait.
	Queue   int
	MaxWait time.Duration

	// MaxIdleWorkerDuration is how long a ready worker is kept; 0 selects DefaultMaxIdleWorkerDuration. The worker ends at most a tenth
	// of that later, plus scheduling delays.
	MaxIdleWorkerDuration time.Duration

	// Logger receives panics; nil selects slog.Default.
	Logger *slog.Logger

	clock   *coarseClock
	running *running.Set[conn] // has the workers' records; nil for none; immutable

	// The fields that are written when a loop is handed over are together, in a few cache lines: from places.taken to leading.
	places     admit.Admission            // the places of workers that serve; ready workers have no place
	appointed  atomic.Pointer[workerChan] // the last worker appointed to lead, which may have started by now
	mu         race.Mutex[race.OfLeaf]
	ready      []*workerChan // coldest first, in the order of lastUse; guarded by mu
	leading    int           // guarded by mu
	goroutines int           // the cleaner and all workers but leaders, until they end; guarded by mu
	spawned    uint64        // guarded by mu
	retired    uint64        // spawned workers whose goroutine is ending or has ended; guarded by mu
	started    bool          // guarded by mu
	stopped    bool          // guarded by mu
	resting    bool          // the cleaner waits for wake; guarded by mu
	ended      chan struct{} // the open channel that the method done has returned; nil if there is none; guarded by mu

	wake chan struct{} // ends the cleaner's rest; capacity 1, one send per rest
	quit chan struct{} // closed by Stop
	free sync.Pool     // holds the *workerChan of workers that have ended
}

// init initializes places with the limits MaxWorkersCount and Queue.
func (wp *workerPool) init() {
	wp.places.Init(admit.Config{Concurrency: wp.MaxWorkersCount, Queue: wp.Queue, MaxWait: wp.MaxWait, Now: wp.clock.Exact})
}

// Start lets the pool accept connections. It panics on a second call, and after Stop.
func (wp *workerPool) Start() {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	switch {
	case wp.stopped:
		panic("filo: workerPool started after Stop")
	case wp.started:
		panic("filo: workerPool started twice")
	}
	wp.started = true
	if wp.MaxIdleWorkerDuration <= 0 {
		wp.MaxIdleWorkerDuration = DefaultMaxIdleWorkerDuration
	}
	if wp.Logger == nil {
		wp.Logger = slog.Default()
	}
	wp.wake, wp.quit = make(chan struct{}, 1), make(chan struct{})
	wp.goroutines++
	go wp.cleaner()
}

// Stop ends the cleaner and the ready workers. Busy workers finish their jobs and then end: see the method done. From then on Serve passes no
// connection to a worker. Stop may be called more than once.
func (wp *workerPool) Stop() {
	wp.mu.Lock()
	if wp.stopped {
		wp.mu.Unlock()
		return
	}
	wp.stopped = true
	ready := wp.ready
	wp.ready = nil
	if wp.started {
		wp.retired += uint64(len(ready))
		close(wp.quit)
	}
	wp.signalEndLocked()
	wp.mu.Unlock()
	for _, w := range ready {
		w.ch <- nil
	}
}

// done returns a channel that is closed when the pool is stopped and only its leaders have goroutines left. A leader may still hand its
// loop over and become an ordinary worker. A caller that has to wait for such workers, too, calls done again after the loops have ended.
func (wp *workerPool) done() <-chan struct{} {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if wp.ended == nil {
		wp.ended = make(chan struct{})
	}
	ended := wp.ended
	wp.signalEndLocked()
	return ended
}

// signalEndLocked closes ended if the pool is stopped and its last counted goroutine has ended.
func (wp *workerPool) signalEndLocked() {
	wp.mu.AssertHeld()
	if wp.stopped && wp.goroutines == 0 && wp.ended != nil {
		close(wp.ended)
		wp.ended = nil
	}
}

// Serve passes the connection to a worker. It returns false if all workers are busy and MaxWorkersCount is reached, or if the pool isn't
// running. The caller then keeps the connection.
func (wp *workerPool) Serve(c net.Conn) bool { return wp.serveIn(admit.Ordinary, c) }

// serveIn is like Serve, but the worker gets a place of the given kind.
func (wp *workerPool) serveIn(k admit.Kind, c net.Conn) bool {
	w := wp.get(k)
	if w == nil {
		return false
	}
	// If Stop runs at this point, it retires only the workers on the stack. w isn't on the stack: it serves c, and ends when it is released.
	w.serving = connJob{conn: c}
	w.ch <- &w.serving
	return true
}

// get returns the hottest ready worker, or a new one, with a place of this kind. The caller must send it exactly one job. get returns nil if
// there is no such place, or the pool isn't running.
func (wp *workerPool) get(k admit.Kind) *workerChan {
	place := wp.places.NewPlace()
	if !place.Enter(k.Only()) {
		return nil
	}
	w := wp.pop(false)
	if w == nil {
		place.Leave()
		return nil
	}
	w.place = place
	return w
}

// pop returns the hottest ready worker, or a new one, without a place. The caller must send it exactly one job. Unless must is set, pop
// returns nil if the pool isn't running.
func (wp *workerPool) pop(must bool) *workerChan {
	wp.mu.Lock()
	if !must && (!wp.started || wp.stopped) {
		wp.mu.Unlock()
		return nil
	}
	top := len(wp.ready) - 1
	if top < 0 {
		wp.countSpawnLocked()
		wp.mu.Unlock()
		return wp.spawn()
	}
	w := wp.ready[top]
	wp.ready[top] = nil
	wp.ready = wp.ready[:top]
	wp.mu.Unlock()
	return w
}

func (wp *workerPool) countSpawnLocked() {
	wp.mu.AssertHeld()
	wp.spawned++
	wp.goroutines++
	wp.signalEndLocked() // a worker that loses its loop in a retake may end before it is counted here
}

// spawn starts a worker that the caller has counted.
func (wp *workerPool) spawn() *workerChan {
	w, _ := wp.free.Get().(*workerChan)
	if w == nil {
		w = newWorker(wp)
	}
	w.renew()
	go wp.run(w)
	return w
}

// run is a worker's goroutine.
func (wp *workerPool) run(w *workerChan) {
	retired := false
	defer func() { wp.end(w, retired) }()
	wp.running.Add(&w.running)
	defer wp.running.Remove(&w.running)
	for {
		if j := <-w.ch; j == nil || !j.do(w) {
			retired = true // the sender of nil, or release, has counted the worker as retired
			return
		}
	}
}

// do serves the connection.
func (j *connJob) do(w *workerChan) (again bool) {
	w.protect(func() { w.pool.WorkerFunc(w, j) })
	return w.pool.finish(w, j)
}

// protect calls f, which does the job that the worker was sent. After a panic the worker goes on.
func (w *workerChan) protect(f func()) {
	returned := false
	defer func() {
		if !returned {
			w.scratch = nil                       // the buffers may be in any state
			if value := recover(); value != nil { // nil: Goexit, or panic(nil) with GODEBUG=panicnil=1
				logPanic(w.pool.Logger, "panic in a worker", value, debug.Stack())
			}
		}
		w.running.End()
		if w.forgotten {
			w.pool.remember(w)
		}
	}()
	f()
	returned = true
}

// end runs when a worker's goroutine ends. If runtime.Goexit has ended the goroutine, in WorkerFunc or in a connection's Close, the worker
// isn't counted as retired yet, and may still have its connection. Its workerChan isn't used again.
func (wp *workerPool) end(w *workerChan, retired bool) {
	if !w.leading && !w.forgotten {
		defer wp.goroutineEnded()
	}
	if retired {
		if !w.leading {
			w.forgotten = false
			wp.free.Put(w)
		}
		return
	}
	wp.retire(w)
	if j := &w.serving; j.conn != nil {
		wp.close(j.conn, j.lingers)
	}
}

// goroutineEnded removes a goroutine from those for which the method done waits.
func (wp *workerPool) goroutineEnded() {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.goroutines--
	wp.signalEndLocked()
}

// forget stops the method done from waiting for a serving worker whose connection no longer belongs to the server. The worker still counts
// against MaxWorkersCount. Only the worker itself calls forget.
func (wp *workerPool) forget(w *workerChan) {
	if !w.forgotten {
		w.forgotten = true
		wp.goroutineEnded()
	}
}

// remember undoes forget for a worker that has finished, unless the pool was stopped in the meantime.
func (wp *workerPool) remember(w *workerChan) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if !wp.stopped {
		w.forgotten = false
		wp.goroutines++
	}
}

// finish gives up the worker's place and then closes the connection, so that a client that reconnects after the close finds the place
// free. It reports whether the worker goes on.
//
// Closing a plain socket never waits. So the worker is released first, and may even be sent its next connection before it closes the
// last one. Closing other connections may take long: TLS gives its close_notify a second. A connection passed to a worker that is still
// closing would wait, as would the accept loop if the channel has no capacity. So the worker exchanges its place, but stays off the
// stack until it has closed such a connection.
func (wp *workerPool) finish(w *workerChan, j *connJob) (again bool) {
	c, lingers := j.conn, j.lingers
	j.conn = nil
	if c != nil && !closesAtOnce(c) {
		// Clients that delay their close can't pile up workers: the number of places for closing is limited, too.
		w.place.Enter(admit.Closing.Only())
		wp.close(c, lingers)
		c = nil
	}
	again = wp.release(w)
	if c != nil {
		wp.close(c, lingers)
	}
	return again
}

// closesAtOnce reports whether closing c is a single system call, which neither waits nor panics. (A positive SO_LINGER could make it
// wait; the server sets 0 at most.)
func closesAtOnce(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// close closes a connection of any kind, unless Linger takes it over.
func (wp *workerPool) close(c net.Conn, lingers bool) {
	survive(wp.Logger, "panic in a connection's Close", func() {
		if !lingers || wp.Linger == nil || !wp.Linger(c) {
			linger.Close(c)
		}
	})
}

// release puts a worker that has finished on the stack, without a place. It returns false if the worker must end: because the pool was
// stopped, or because there would be more than MaxWorkersCount workers.
func (wp *workerPool) release(w *workerChan) bool {
	w.place.Leave()
	now := wp.clock.Now()
	wp.mu.Lock()
	top := len(wp.ready) - 1
	if wp.stopped || wp.places.Taken(admit.Ordinary)+len(wp.ready) >= wp.MaxWorkersCount {
		wp.retired++
		wp.mu.Unlock()
		return false
	}
	// Two workers may read the clock in one order and acquire the lock in the opposite order. max keeps the stack sorted.
	if top >= 0 {
		now = max(now, wp.ready[top].lastUse)
	}
	w.lastUse = now
	wp.ready = append(wp.ready, w)
	wake := wp.resting
	wp.resting = false
	wp.mu.Unlock()
	if wake {
		wp.wake <- struct{}{}
	}
	return true
}

// retire counts a worker that has ended in the middle of its work as retired.
func (wp *workerPool) retire(w *workerChan) {
	w.place.Leave()
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.retired++
	if w.leading {
		wp.leading--
	}
}

// cleaner retires workers that have been ready for too long, until Stop. It sleeps until the coldest worker has been ready for too long. If
// no worker is ready, it sleeps until release wakes it.
func (wp *workerPool) cleaner() {
	defer wp.goroutineEnded()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var expired []*workerChan
	for {
		select {
		case <-timer.C:
		case <-wp.wake:
			timer.Reset(wp.MaxIdleWorkerDuration + wp.slack())
			continue
		case <-wp.quit:
			return
		}
		if wait := wp.clean(&expired); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// slack is how long a worker may stay beyond MaxIdleWorkerDuration, so that workers that expire shortly after each other are retired
// together.
func (wp *workerPool) slack() time.Duration { return wp.MaxIdleWorkerDuration / 10 }

// clean retires the workers that have been ready for MaxIdleWorkerDuration. It collects them in *expired, whose memory the next call
// reuses. It returns the time until the next call, or 0 if no worker is ready: then the cleaner rests until release wakes it.
func (wp *workerPool) clean(expired *[]*workerChan) (wait time.Duration) {
	now := wp.clock.Exact()
	wp.mu.Lock()
	ready := wp.ready
	n := sort.Search(len(ready), func(i int) bool { return now.Sub(ready[i].lastUse) < wp.MaxIdleWorkerDuration })
	*expired = append((*expired)[:0], ready[:n]...)
	kept := copy(ready, ready[n:])
	clear(ready[kept:])
	wp.ready = ready[:kept]
	wp.retired += uint64(n)
	if kept > 0 {
		wait = wp.MaxIdleWorkerDuration - now.Sub(ready[0].lastUse) + wp.slack()
	} else {
		wp.resting = true
		wp.ready = nil // frees the memory that peak load needed
	}
	wp.mu.Unlock()

	for i, w := range *expired {
		w.ch <- nil
		(*expired)[i] = nil
	}
	if wait == 0 {
		*expired = nil
	}
	return wait
}

// stats sets the numbers of workers.
func (wp *workerPool) stats(st *Stats) {
	st.RequestsQueued = wp.places.Waiting()
	wp.mu.Lock()
	defer wp.mu.Unlock()
	st.WorkersReady, st.WorkersLeading = len(wp.ready), wp.leading
	st.WorkersRunning = wp.places.Taken(admit.Ordinary)
	st.WorkersSpawned, st.WorkersRetired = wp.spawned, wp.retired
}
