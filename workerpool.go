package filo

import (
	"log/slog"
	"net"
	"runtime/debug"
	"sort"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/race"
)

// workerPool serves connections, each on a worker's goroutine. Ready workers are a FILO stack: the one that was released
// last is the next to serve, since its stack and buffers are in the processor's caches, and the cold ones at the bottom
// get old and are retired.
//
// The configuration isn't changed after Start. A pool is started once: after Stop, Start panics.
type workerPool struct {
	// WorkerFunc serves a connection until it is done with it. It reports whether the pool is to close it: false if it
	// was hijacked or handed over.
	WorkerFunc func(w *workerChan, c net.Conn) (closeConn bool)

	// Linger, if set, is offered the connections that are to be closed and whose worker has linger set. It reports whether
	// it has taken the connection over, and doesn't wait.
	Linger func(c net.Conn) bool

	// MaxWorkersCount is how many workers may be ready or serving at once, here and in the pools that places are shared with.
	MaxWorkersCount int

	// MaxIdleWorkerDuration is how long a ready worker is kept; 0 is DefaultMaxIdleWorkerDuration. It is gone after
	// 1.1 times as long, and the time that the scheduler takes.
	MaxIdleWorkerDuration time.Duration

	// Logger is told of panics; nil is slog's default.
	Logger *slog.Logger

	clock *coarseClock

	// places counts the workers that are ready or serving. Pools that share it lend each other their ready workers.
	places *workerPlaces

	mu         race.Mutex
	ready      []*workerChan // the coldest first, in the order of lastUse; guarded by mu
	closing    int           // workers of placeClosing; guarded by mu
	leading    int           // workers of placeLeading; guarded by mu
	goroutines int           // the cleaner and every worker but leaders, until it has ended; guarded by mu
	spawned    uint64        // guarded by mu
	retired    uint64        // spawned, and neither ready nor serving, closing or leading; guarded by mu
	started    bool          // guarded by mu
	stopped    bool          // guarded by mu
	resting    bool          // the cleaner waits for wake; guarded by mu
	ended      chan struct{} // see done; nil while nobody has asked; guarded by mu

	wake chan struct{} // ends the cleaner's rest; cap 1, and sent to once for each
	quit chan struct{} // closed by Stop
	free sync.Pool     // of *workerChan whose workers have ended
}

// Start lets the pool accept connections. It panics if it was called before.
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
	if wp.places == nil {
		wp.places = new(workerPlaces)
	}
	wp.wake, wp.quit = make(chan struct{}, 1), make(chan struct{})
	wp.goroutines++
	go wp.cleaner()
}

// Stop ends the cleaner and the ready workers. Busy workers finish what they serve and end then; see done. Serve
// accepts nothing any more. Stop may be called more than once.
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
		wp.retireLocked(len(ready), len(ready))
		close(wp.quit)
	}
	wp.signalEndLocked()
	wp.mu.Unlock()
	for _, w := range ready {
		w.ch <- nil
	}
}

// done returns a channel that is closed when, after Stop, no goroutine of the pool's is left but leaders. Those may leave
// what they lead to others later: who has made that impossible asks again.
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

// signalEndLocked closes ended if the time has come.
func (wp *workerPool) signalEndLocked() {
	wp.mu.AssertHeld()
	if wp.stopped && wp.goroutines == 0 && wp.ended != nil {
		close(wp.ended)
		wp.ended = nil
	}
}

// connWithoutWorker is a connection that needs no worker until a request has come.
type connWithoutWorker interface {
	net.Conn
	// wait registers the connection with the loop that watches it. It doesn't wait itself.
	wait()
}

// Serve passes the connection to a worker, or registers it with its loop. It reports false if all workers are busy and there
// may be no more, or if the pool doesn't run; then the connection stays the caller's.
func (wp *workerPool) Serve(c net.Conn) bool {
	if c, ok := c.(connWithoutWorker); ok {
		c.wait()
		return true
	}
	w := wp.getCh()
	if w == nil {
		return false
	}
	// Stop may come in between. It retires what it finds on the stack, and w isn't there: w serves c, and ends after
	// its release.
	w.send(c)
	return true
}

// send sends w, which the caller has taken off its stack or spawned, a connection to serve.
func (w *workerChan) send(c net.Conn) {
	w.serving.conn = c
	w.ch <- &w.serving
}

// getCh takes the hottest ready worker, or spawns one, or borrows one. The caller owes it one send. It returns nil if there
// may be no more workers, or the pool doesn't run.
func (wp *workerPool) getCh() *workerChan { return wp.get(false) }

// get is getCh for callers who may need a worker though the pool was stopped.
func (wp *workerPool) get(anyway bool) *workerChan {
	for {
		wp.mu.Lock()
		if !anyway && (!wp.started || wp.stopped) {
			wp.mu.Unlock()
			return nil
		}
		w := wp.popLocked()
		spawn := w == nil && wp.maySpawnLocked()
		wp.mu.Unlock()
		switch {
		case w != nil:
			return w
		case spawn:
			return wp.spawn()
		case wp.places.taken.exhausted(wp.MaxWorkersCount):
			return nil
		}
		if w := wp.borrow(); w != nil {
			return w
		}
		// Others have been quicker, or a worker has come to a stack that was looked at before.
	}
}

// maySpawnLocked counts a worker that is to be spawned, unless there may be no more.
func (wp *workerPool) maySpawnLocked() bool {
	wp.mu.AssertHeld()
	if !wp.places.taken.take(wp.MaxWorkersCount, 0) {
		return false
	}
	wp.countSpawnLocked()
	return true
}

func (wp *workerPool) countSpawnLocked() {
	wp.mu.AssertHeld()
	wp.spawned++
	wp.goroutines++
	wp.signalEndLocked() // a worker whose loop is being retaken may have ended before it was counted
}

// popLocked takes the hottest ready worker. Only a running pool has any.
func (wp *workerPool) popLocked() *workerChan {
	wp.mu.AssertHeld()
	top := len(wp.ready) - 1
	if top < 0 {
		return nil
	}
	w := wp.ready[top]
	wp.ready[top] = nil
	wp.ready = wp.ready[:top]
	wp.places.taken.add(0, -1)
	return w
}

// spawn starts a worker that was counted.
func (wp *workerPool) spawn() *workerChan {
	w, _ := wp.free.Get().(*workerChan)
	if w == nil {
		w = newWorker(wp)
	}
	w.renew()
	go wp.run(w)
	return w
}

// dismiss retires a worker that was taken off its stack, and leaves its place to the caller.
func (w *workerChan) dismiss() {
	w.pool.mu.Lock()
	w.pool.retired++
	w.pool.mu.Unlock()
	w.ch <- nil
}

// run is a worker's goroutine.
func (wp *workerPool) run(w *workerChan) {
	defer wp.end(w)
	for {
		if j := <-w.ch; j == nil || !j.do(w) {
			return // who sent nil has done the counting
		}
	}
}

// do serves the connection.
func (j *connJob) do(w *workerChan) (again bool) {
	wp, c := w.pool, j.conn
	w.place, w.handedOver, w.linger = placeServing, false, false
	if w.kept {
		w.place = placeClosing
	}
	closeConn := wp.serve(w, c)
	if w.forgotten {
		wp.remember(w)
	}
	return wp.finish(w, c, closeConn)
}

// end is the last thing that a worker does. A worker that something else than run ends, which is runtime.Goexit in
// WorkerFunc or in a connection's Close, still has a connection and is counted; its workerChan isn't used again.
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
	serving := w.place == placeServing || w.kept
	wp.leaveLocked(w)
	wp.mu.Unlock()
	w.EndKept()
	if serving && !w.handedOver && w.serving.conn != nil {
		wp.close(w.serving.conn, w.linger)
	}
}

// goroutineEnded takes a goroutine out of those that done waits for.
func (wp *workerPool) goroutineEnded() {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.goroutines--
	wp.signalEndLocked()
}

// forget makes done not wait for a serving worker, because its connection isn't the server's any more. It goes on
// counting against MaxWorkersCount. It is called by the worker itself.
func (wp *workerPool) forget(w *workerChan) {
	if !w.forgotten {
		w.forgotten = true
		wp.goroutineEnded()
	}
}

// remember undoes forget for a worker that has finished, unless the pool was stopped meanwhile.
func (wp *workerPool) remember(w *workerChan) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if !wp.stopped {
		w.forgotten = false
		wp.goroutines++
	}
}

// serve calls WorkerFunc. A panic costs the connection, and not the worker.
func (wp *workerPool) serve(w *workerChan, c net.Conn) (closeConn bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		w.scratch = nil // the buffers may be in any state
		closeConn = !w.handedOver
		if value := recover(); value != nil { // or else it is a panic(nil) with GODEBUG=panicnil=1, or Goexit
			logPanic(wp.Logger, "panic in a worker", value, debug.Stack())
		}
	}()
	closeConn = wp.WorkerFunc(w, c)
	returned = true
	return closeConn
}

// finish gives up the worker's place and closes the connection, in this order: a client that sees the close and comes
// back must find the place free. It reports whether the worker goes on.
//
// A socket's close doesn't wait, so the worker is released, and may even be sent its next connection, before it closes
// the last one. Others may take long (TLS gives its close_notify a second), and who is passed to a released worker
// waits for it, as does the accept loop itself if the channel has no capacity. With those the worker gives up its place but
// stays off the stack until it has closed.
func (wp *workerPool) finish(w *workerChan, c net.Conn, closeConn bool) (again bool) {
	w.EndKept()
	if closeConn && !closesAtOnce(c) {
		// Clients that delay their close must not be able to pile up workers.
		w.vacate(wp.MaxWorkersCount)
		wp.close(c, w.linger)
		closeConn = false
	}
	linger := w.linger
	w.serving.conn = nil
	again = wp.release(w)
	if closeConn {
		wp.close(c, linger)
	}
	return again
}

// closesAtOnce reports whether closing c is a mere system call, which can neither wait nor panic. (SO_LINGER can make it
// wait; nothing here sets that.)
func closesAtOnce(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// close closes a connection of any kind, or leaves that to Linger.
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

// vacate gives up a serving worker's place, unless so many workers have done so already.
func (w *workerChan) vacate(most int) {
	wp := w.pool
	wp.mu.Lock()
	defer wp.mu.Unlock()
	if w.place == placeServing && wp.closing < most {
		wp.places.taken.add(-1, 0)
		wp.closing++
		w.place = placeClosing
	}
}

// occupy makes sure that a worker has a place, which it may have given up, or have got beyond MaxWorkersCount by a retake.
// It reports false if there is none.
func (w *workerChan) occupy() bool {
	wp := w.pool
	beyond := w.place == placeServing && wp.beyond() > 0
	if beyond || w.place == placeClosing && !wp.places.taken.take(wp.MaxWorkersCount, 0) {
		spare := wp.get(true) // one that is ready can go
		if spare == nil {
			return false
		}
		if spare.dismiss(); beyond {
			wp.places.taken.add(-1, 0)
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

// beyond returns how many workers there are beyond MaxWorkersCount because of retakes; 0 or less is none.
func (wp *workerPool) beyond() int64 { return wp.places.taken.Load() - int64(wp.MaxWorkersCount) }

// release puts a worker that has finished on the stack. It reports false if the worker is to end: the pool was stopped,
// others have taken all places while the worker was closing, or there are more workers than may be, since some were overtaken.
func (wp *workerPool) release(w *workerChan) bool {
	now := wp.clock.now()
	wp.mu.Lock()
	defer wp.mu.Unlock()
	beyond := w.place == placeServing && wp.beyond() > 0
	if wp.stopped || beyond || w.place == placeClosing && !wp.places.taken.take(wp.MaxWorkersCount, readyPlace) {
		wp.leaveLocked(w)
		return false
	}
	if w.place == placeClosing {
		wp.closing--
	} else {
		wp.places.taken.add(0, 1)
	}
	w.place = placeNone
	// Two workers may have read the clock in one order and got here in the other; the stack stays sorted all the same.
	if top := len(wp.ready) - 1; top >= 0 {
		now = max(now, wp.ready[top].lastUse)
	}
	w.lastUse = now
	wp.ready = append(wp.ready, w)
	if wp.resting {
		wp.resting = false
		wp.wake <- struct{}{}
	}
	return true
}

// leaveLocked takes a worker that ends out of the counts.
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
		wp.retireLocked(1, 0)
	}
	w.place = placeNone
}

// retireLocked takes n workers out of the counts, of which so many are ready and the others serving.
func (wp *workerPool) retireLocked(n, ready int) {
	wp.mu.AssertHeld()
	wp.places.taken.add(-n, -ready)
	wp.retired += uint64(n)
}

// cleaner retires the workers that have been ready for too long, until Stop. It sleeps until the coldest is due, and
// for good while there is none.
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

// slack is how much longer than due a worker may stay, so that those which are due soon after each other go together.
func (wp *workerPool) slack() time.Duration { return wp.MaxIdleWorkerDuration / 10 }

// clean retires the workers that are due, by way of *expired, which it keeps for the next time. It returns how long to
// wait before the next clean. That is 0 if no worker is ready: from then on the cleaner rests, and release wakes it.
func (wp *workerPool) clean(expired *[]*workerChan) (wait time.Duration) {
	now := wp.clock.exact()
	wp.mu.Lock()
	ready := wp.ready
	n := sort.Search(len(ready), func(i int) bool { return now.Sub(ready[i].lastUse) < wp.MaxIdleWorkerDuration })
	*expired = append((*expired)[:0], ready[:n]...)
	kept := copy(ready, ready[n:])
	clear(ready[kept:])
	wp.ready = ready[:kept]
	// They don't count from now on, though their goroutines have yet to end: nobody is refused because of them.
	wp.retireLocked(n, n)
	if kept > 0 {
		wait = wp.MaxIdleWorkerDuration - now.Sub(ready[0].lastUse) + wp.slack()
	} else {
		wp.resting = true
		wp.ready = nil // the room that the busiest time needed
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

// stats adds what is known of the workers. Those of places.taken that aren't ready run.
func (wp *workerPool) stats(st *Stats) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	st.WorkersReady += len(wp.ready)
	st.WorkersLeading += wp.leading
	st.WorkersSpawned += wp.spawned
	st.WorkersRetired += wp.retired
}
