package filo

import (
	"log/slog"
	"net"
	"runtime/debug"
	"sort"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/race"
)

// workerPool serves connections, each on a worker's goroutine. Ready workers form a FILO stack. The worker released last serves next,
// since its stack and buffers are still in the processor's caches. The workers at the bottom stay idle until they are retired.
//
// The configuration doesn't change after Start. A pool can be started only once, and not after Stop.
type workerPool struct {
	// WorkerFunc serves the job's connection. Then the pool closes it, also after a panic, unless WorkerFunc has set it to nil.
	WorkerFunc func(w *workerChan, j *connJob)

	// Linger, if set, may take over a connection that must be closed and that lingers. It reports whether it has taken the connection
	// over, and doesn't wait.
	Linger func(c net.Conn) bool

	// MaxWorkersCount limits how many workers are ready or serving.
	MaxWorkersCount int

	// MaxIdleWorkerDuration is how long a ready worker is kept; 0 selects DefaultMaxIdleWorkerDuration. The worker ends at most a tenth
	// of that later, plus scheduling delays.
	MaxIdleWorkerDuration time.Duration

	// Logger receives panics; nil selects slog.Default.
	Logger *slog.Logger

	clock   *coarseClock
	running *runningSet // has the workers' records; nil for none; immutable
	queue   placeQueue

	// What a hand-over of a loop writes stands together, in one or two cache lines: from places.taken to closing.
	_          apart.Lines
	places     workerPlaces
	mu         race.Mutex
	ready      []*workerChan // coldest first, in the order of lastUse; guarded by mu
	closing    int           // workers in placeClosing; guarded by mu
	leading    int           // workers in placeLeading; guarded by mu
	goroutines int           // the cleaner and all workers but leaders, until they end; guarded by mu
	spawned    uint64        // guarded by mu
	retired    uint64        // spawned workers that are no longer ready, serving, closing or leading; guarded by mu
	started    bool          // guarded by mu
	stopped    bool          // guarded by mu
	resting    bool          // the cleaner waits for wake; guarded by mu
	ended      chan struct{} // the open channel that done has returned; nil if there is none; guarded by mu

	wake chan struct{} // ends the cleaner's rest; capacity 1, one send per rest
	quit chan struct{} // closed by Stop
	free sync.Pool     // of *workerChan, those of workers that have ended
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

// Stop ends the cleaner and the ready workers. Busy workers finish their jobs and then end; see done. From then on Serve passes no
// connection to a worker. Stop may be called more than once.
func (wp *workerPool) Stop() {
	wp.mu.Lock()
	if wp.stopped {
		wp.mu.Unlock()
		return
	}
	wp.stopped = true
	ready := wp.ready
	wp.setReadyLocked(nil)
	if wp.started {
		wp.retireLocked(len(ready))
		close(wp.quit)
	}
	wp.signalEndLocked()
	wp.mu.Unlock()
	for _, w := range ready {
		w.ch <- nil
	}
}

// done returns a channel that is closed when the pool is stopped and only its leaders have goroutines left. A leader may still hand its
// loop over and become an ordinary worker. A caller that has to wait for those too calls done again after the loops have ended.
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

// connWithoutWorker is a connection that needs no worker until a request arrives.
type connWithoutWorker interface {
	net.Conn
	// wait registers the connection with the loop that watches it. It doesn't wait itself.
	wait()
}

// Serve passes the connection to a worker, or registers it with its loop. It returns false if all workers are busy and MaxWorkersCount
// is reached, or if the pool isn't running. The caller then keeps the connection.
func (wp *workerPool) Serve(c net.Conn) bool {
	if c, ok := c.(connWithoutWorker); ok {
		c.wait()
		return true
	}
	w := wp.getCh()
	if w == nil {
		return false
	}
	// If Stop comes in between, it retires the workers on the stack only. w isn't there: w serves c, and ends when it is released.
	w.send(c)
	return true
}

// send gives w, which the caller has taken off its stack or spawned, a connection to serve.
func (w *workerChan) send(c net.Conn) {
	w.serving = connJob{conn: c}
	w.ch <- &w.serving
}

// getCh returns the hottest ready worker, or a new one. The caller must send it exactly one job. getCh returns nil if MaxWorkersCount is
// reached, or the pool isn't running.
func (wp *workerPool) getCh() *workerChan { return wp.get(false) }

// get is getCh. With anyway it also works after Stop, for callers that still need a worker.
func (wp *workerPool) get(anyway bool) *workerChan {
	wp.mu.Lock()
	if !anyway && (!wp.started || wp.stopped) {
		wp.mu.Unlock()
		return nil
	}
	w := wp.popLocked()
	spawn := w == nil && wp.maySpawnLocked()
	wp.mu.Unlock()
	if spawn {
		return wp.spawn()
	}
	return w
}

// reader returns a worker that reads a connection of HTTP/2. It doesn't count against MaxWorkersCount. The caller must send it one job.
func (wp *workerPool) reader() *workerChan {
	wp.mu.Lock()
	wp.closing++
	w := wp.popLocked()
	if w != nil {
		wp.places.taken.Add(-1)
		wp.placeFreed()
	} else {
		wp.countSpawnLocked()
	}
	wp.mu.Unlock()
	if w == nil {
		w = wp.spawn()
	}
	return w
}

// maySpawnLocked takes a place for a new worker and counts the worker. It returns false if MaxWorkersCount is reached.
func (wp *workerPool) maySpawnLocked() bool {
	wp.mu.AssertHeld()
	if !wp.takePlace() {
		return false
	}
	wp.countSpawnLocked()
	return true
}

func (wp *workerPool) countSpawnLocked() {
	wp.mu.AssertHeld()
	wp.spawned++
	wp.goroutines++
	wp.signalEndLocked() // a worker that loses its loop in a retake may end before it is counted here
}

// popLocked takes the hottest ready worker off the stack, nil if there is none. Only a running pool has any.
func (wp *workerPool) popLocked() *workerChan {
	wp.mu.AssertHeld()
	top := len(wp.ready) - 1
	if top < 0 {
		return nil
	}
	w := wp.ready[top]
	wp.ready[top] = nil
	wp.setReadyLocked(wp.ready[:top])
	return w
}

func (wp *workerPool) setReadyLocked(ready []*workerChan) {
	wp.mu.AssertHeld()
	wp.ready = ready
	wp.places.ready.Store(int64(len(ready)))
}

// serving returns the number of workers that are busy and don't lead a loop.
func (wp *workerPool) serving() int {
	return max(0, int(wp.places.taken.Load()-wp.places.ready.Load()))
}

// isFull reports whether no place is left for one more worker that serves.
func (wp *workerPool) isFull() bool { return wp.serving() >= wp.MaxWorkersCount }

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

// dismiss retires a worker that was taken off its stack. The worker's place passes to the caller.
func (w *workerChan) dismiss() {
	w.pool.mu.Lock()
	w.pool.retired++
	w.pool.mu.Unlock()
	w.ch <- nil
}

// run is a worker's goroutine.
func (wp *workerPool) run(w *workerChan) {
	defer wp.end(w)
	wp.running.add(&w.running)
	defer wp.running.remove(&w.running)
	for {
		if j := <-w.ch; j == nil || !j.do(w) {
			return // the sender of nil has already counted the worker as retired
		}
	}
}

// do serves the connection.
func (j *connJob) do(w *workerChan) (again bool) {
	wp := w.pool
	w.place = placeServing
	if _, reads := j.conn.(*blockingHTTP2); reads || w.kept {
		w.place = placeClosing
	}
	wp.serve(w, j)
	w.running.end() // after a panic
	if w.forgotten {
		wp.remember(w)
	}
	return wp.finish(w, j)
}

// end runs when a worker's goroutine ends. If runtime.Goexit has ended the goroutine, in WorkerFunc or in a connection's Close, the
// worker is still counted and may still have its connection, and its workerChan isn't used again.
func (wp *workerPool) end(w *workerChan) {
	if w.place == placeLeading {
		wp.mu.Lock()
		wp.leaveLocked(w)
		wp.mu.Unlock()
		return
	}
	if !w.forgotten {
		defer wp.goroutineEnded()
	}
	if w.place == placeNone {
		w.forgotten = false
		wp.free.Put(w)
		return
	}
	wp.mu.Lock()
	serving := w.place == placeServing || w.kept || w.always
	wp.leaveLocked(w)
	wp.mu.Unlock()
	w.EndKept()
	if j := &w.serving; serving && j.conn != nil {
		wp.close(j.conn, j.lingers)
	}
}

// goroutineEnded removes a goroutine from those that done waits for.
func (wp *workerPool) goroutineEnded() {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.goroutines--
	wp.signalEndLocked()
}

// forget stops done from waiting for a serving worker whose connection no longer belongs to the server. The worker still counts against
// MaxWorkersCount. Only the worker itself calls forget.
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

// serve calls WorkerFunc. A panic ends the connection, but not the worker.
func (wp *workerPool) serve(w *workerChan, j *connJob) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// The buffers may be in any state.
		w.scratch = nil
		if value := recover(); value != nil { // nil: Goexit, or panic(nil) with GODEBUG=panicnil=1
			logPanic(wp.Logger, "panic in a worker", value, debug.Stack())
		}
	}()
	wp.WorkerFunc(w, j)
	returned = true
}

// finish gives up the worker's place and then closes the connection, so that a client that reconnects after the close finds the place
// free. It reports whether the worker goes on.
//
// Closing a plain socket never waits. So the worker is released first, and may even be sent its next connection before it closes the
// last one. Closing other connections may take long: TLS gives its close_notify a second. A connection passed to a worker that is still
// closing would wait, as would the accept loop if the channel has no capacity. So the worker gives up its place, but stays off the
// stack until it has closed such a connection.
func (wp *workerPool) finish(w *workerChan, j *connJob) (again bool) {
	w.EndKept()
	if j.conn != nil && !closesAtOnce(j.conn) {
		// The limit keeps clients that delay their close from piling up workers.
		w.vacate(wp.MaxWorkersCount)
		wp.close(j.conn, j.lingers)
		j.conn = nil
	}
	c, lingers := j.conn, j.lingers
	j.conn = nil
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
	defer func() {
		if value := recover(); value != nil {
			logPanic(wp.Logger, "panic in a connection's Close", value, debug.Stack())
		}
	}()
	if !lingers || wp.Linger == nil || !wp.Linger(c) {
		linger.Close(c)
	}
}

// vacate gives up a serving worker's place if the pool has fewer than most closing workers.
func (w *workerChan) vacate(most int) {
	wp := w.pool
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if w.place == placeServing && wp.closing < most {
		wp.places.taken.Add(-1)
		wp.closing++
		w.place = placeClosing
		wp.placeFreed()
	}
}

// occupy makes sure that a worker has a place within MaxWorkersCount: the worker may have given its place up, or a retake may have
// given it one beyond the limit. occupy returns false if no place is free.
func (w *workerChan) occupy() bool {
	wp := w.pool
	beyond := w.place == placeServing && wp.beyond() > 0
	if beyond || w.place == placeClosing && !wp.takePlace() {
		if !wp.takeSpare() {
			return false
		}
		if beyond {
			wp.places.taken.Add(-1)
		}
	}
	if w.place == placeClosing {
		wp.mu.Lock()
		wp.closing--
		wp.mu.Unlock()
		w.place = placeServing
		w.EndKept()
	}
	return true
}

// takeSpare takes the place of a ready worker, which ends. It returns false if there is none.
func (wp *workerPool) takeSpare() bool {
	spare := wp.get(true)
	if spare != nil {
		spare.dismiss()
	}
	return spare != nil
}

// takePlace takes a place of a ready or serving worker. It returns false if MaxWorkersCount is reached.
func (wp *workerPool) takePlace() bool { return takeBelow(&wp.places.taken, int64(wp.MaxWorkersCount)) }

// beyond returns by how many workers retakes have exceeded MaxWorkersCount; 0 or less means none.
func (wp *workerPool) beyond() int64 { return wp.places.taken.Load() - int64(wp.MaxWorkersCount) }

// release puts a worker that has finished on the stack. It returns false if the worker must end: because the pool was stopped, because
// other workers took all places while this one was closing or wait for one, or because retakes have exceeded MaxWorkersCount.
func (wp *workerPool) release(w *workerChan) bool {
	now := wp.clock.now()
	wp.mu.Lock()
	defer wp.mu.Unlock()
	beyond := w.place == placeServing && wp.beyond() > 0
	if wp.stopped || beyond || wp.queue.waiting.Load() > 0 || w.place == placeClosing && !wp.takePlace() {
		wp.leaveLocked(w)
		return false
	}
	if w.place == placeClosing {
		wp.closing--
	}
	w.place = placeNone
	// Two workers may read the clock in one order and take the lock in the other. max keeps the stack sorted.
	if top := len(wp.ready) - 1; top >= 0 {
		now = max(now, wp.ready[top].lastUse)
	}
	w.lastUse = now
	wp.setReadyLocked(append(wp.ready, w))
	if wp.resting {
		wp.resting = false
		wp.wake <- struct{}{}
	}
	return true
}

// leaveLocked removes a worker that ends from the counts.
func (wp *workerPool) leaveLocked(w *workerChan) {
	wp.mu.AssertHeld()
	switch w.place {
	case placeClosing:
		wp.closing--
		wp.retired++
	case placeLeading:
		wp.leading--
		wp.retired++
	default:
		wp.retireLocked(1)
	}
	w.place = placeNone
}

// retireLocked removes n ready or serving workers from the counts.
func (wp *workerPool) retireLocked(n int) {
	wp.mu.AssertHeld()
	wp.places.taken.Add(-int64(n))
	wp.retired += uint64(n)
	wp.placeFreed()
}

// cleaner retires workers that have been ready for too long, until Stop. It sleeps until the coldest worker is due. If no worker is
// ready, it sleeps until release wakes it.
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

// slack is how long a worker may stay after it is due, so that workers that are due shortly after each other are retired together.
func (wp *workerPool) slack() time.Duration { return wp.MaxIdleWorkerDuration / 10 }

// clean retires the workers that are due. It collects them in *expired, whose memory the next call reuses. It returns the time until
// the next call, or 0 if no worker is ready: then the cleaner rests until release wakes it.
func (wp *workerPool) clean(expired *[]*workerChan) (wait time.Duration) {
	now := wp.clock.exact()
	wp.mu.Lock()
	ready := wp.ready
	n := sort.Search(len(ready), func(i int) bool { return now.Sub(ready[i].lastUse) < wp.MaxIdleWorkerDuration })
	*expired = append((*expired)[:0], ready[:n]...)
	kept := copy(ready, ready[n:])
	clear(ready[kept:])
	wp.setReadyLocked(ready[:kept])
	// Although their goroutines have yet to end, these workers no longer count, so nobody is refused because of them.
	wp.retireLocked(n)
	if kept > 0 {
		wait = wp.MaxIdleWorkerDuration - now.Sub(ready[0].lastUse) + wp.slack()
	} else {
		wp.resting = true
		wp.setReadyLocked(nil) // frees the memory that peak load needed
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
	wp.mu.Lock()
	defer wp.mu.Unlock()
	st.WorkersReady, st.WorkersLeading = len(wp.ready), wp.leading
	st.WorkersRunning = wp.serving()
	st.WorkersSpawned, st.WorkersRetired = wp.spawned, wp.retired
	st.RequestsQueued = wp.queue.length()
}
