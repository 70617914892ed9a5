package filo

import (
	"net"
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/sock"
)

// workerChan is one worker: the channel that brings its jobs, and the buffers that it serves connections with.
type workerChan struct {
	loop.Worker
	// pool is the pool whose stack the worker returns to. Immutable.
	pool *workerPool
	// ch carries a job, or nil to retire the worker. Only the goroutine that has taken the worker off the stack, or spawned it, sends,
	// and only once. So ch never holds more than one value.
	ch chan job
	// lastUse is when the worker was last released. It is guarded by the pool's mutex.
	lastUse clock.Time
	// scratch holds the worker's buffers. It is nil until WorkerFunc makes them. It belongs to the worker's goroutine.
	scratch *scratch
	// serving is the job of serving a connection. The sender sets its connection before it sends. After that serving belongs to the
	// worker's goroutine.
	serving connJob
	// forgotten says that done doesn't wait for the worker: see forget. It belongs to the worker's goroutine.
	forgotten bool
	// kept says that the worker has a place reserved for quick handlers (see keptPlaces), and so is placeClosing while it serves. It
	// belongs to the worker's goroutine.
	kept bool
	// always says that the worker is in the reserve (see alwaysPlaces), and so is placeClosing while it serves. It belongs to the worker's
	// goroutine.
	always bool
	// place says how the worker is counted while it is off the stack. It belongs to the worker's goroutine.
	place workerPlace
	// toLead is the leadership that was sent to ch. The worker that takes it out of toLead, this one or another, becomes the leader.
	toLead atomic.Pointer[leadership]
	// answered counts the answers to the connections that the worker serves as a leader: its seat's element of connSet.answered. It belongs
	// to the worker's goroutine.
	answered *answerCounts
	// running says which request the worker handles, if that may take long.
	running runningRecord

	_ apart.Lines
}

func newWorker(pool *workerPool) *workerChan {
	w := &workerChan{pool: pool}
	w.Own(w)
	return w
}

// job is the work that a worker receives by its channel.
type job interface {
	// do does the work on the worker's goroutine. It reports whether the worker goes on, in which case the worker is on the stack
	// again.
	do(w *workerChan) (again bool)
}

// connJob is the job of serving a connection. Each worker has one, so sending it a connection allocates nothing.
type connJob struct {
	conn    net.Conn // that the pool closes in the end; nil once it is closed, or has another owner
	lingers bool     // the client may still be sending when conn is closed
}

// workerPlace says how a worker is counted.
type workerPlace uint8

const (
	// placeNone: the worker is ready or retired. Its goroutine has no place to give back.
	placeNone workerPlace = iota
	// placeServing: the worker counts against MaxWorkersCount.
	placeServing
	// placeLeading: the worker leads a loop, and doesn't count against MaxWorkersCount.
	placeLeading
	// placeClosing: the worker has given up its place, and only closes its connection or writes its answer. Or it has a reserved place
	// (kept), or nothing to do because another worker leads in its place.
	placeClosing
)

// workerChanCap returns the capacity for a worker's channel. With one processor it is 0: the send switches to the worker, which must
// run next anyway. With more it is 1, so that the accept loop doesn't wait for a worker that may be queued on another processor.
func workerChanCap() int {
	if runtime.GOMAXPROCS(0) == 1 {
		return 0
	}
	return 1
}

// renew gives w a channel whose capacity suits the number of processors, which may have changed since w was last used.
func (w *workerChan) renew() {
	if capacity := workerChanCap(); w.ch == nil || cap(w.ch) != capacity {
		w.ch = make(chan job, capacity)
	}
}

// leadership is the job of leading a loop in one of its seats.
type leadership struct {
	// lead returns when the loop has ended, or when w has given the seat away and has finished the connection that it served then. In the
	// second case w.place isn't placeLeading.
	lead func(w *workerChan)
	// retakes becomes odd when a leader loses the seat by retake, and even when there is seen to be no worker beyond the cap: see
	// crowded. It only grows, so a goroutine that makes it even can't undo a later retake. Immutable.
	retakes *atomic.Uint64
	// answered is the leader's workerChan.answered. Immutable.
	answered *answerCounts
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

// LoseLead implements loop.Owner: w becomes an ordinary worker after a retake. A lock may be held, under which no Logger may be called.
func (w *workerChan) LoseLead() {
	w.place = placeServing
	if w.scratch == nil {
		return
	}
	if k := w.scratch.timer.Class(); k != nil && k.TakeBlocks() {
		go warnBlocks(w.pool.Logger, k)
	}
}

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
		w.place, w.answered = placeLeading, l.answered
		l.lead(w)
		w.running.end() // if the seat was taken from w when the request had ended
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

// scratch holds the buffers that a worker lends to the connection that it serves.
type scratch struct {
	lent
	in     http1.Input
	body   []byte // buffer for a request body that doesn't fit into in; at most maxKeptBody
	parser http1.Parser
	socket sock.Conn
	ctx    *Ctx
	// watcher watches the client of the request in the blocking driver, and reads into watchSpace, which is a part of in. Both are
	// guarded by the mu of the request's context while a handler runs.
	watcher    *clientWatch
	watchSpace []byte
	timer      class.Timer   // measures the handlers
	outer      bool          // a leader runs the handler in the server's own class, which the monitor doesn't know of: see endOuter
	worker     *workerChan   // the worker that it belongs to; nil in ServeConn and for carried requests
	http2      *http2Scratch // nil until the worker serves a connection of HTTP/2
	// running is the worker's, or that of whatever else handles requests with these buffers; nil for none.
	running *runningRecord
	// vector is the two buffers of a writev; kept here so that it needs no allocation.
	vector  [2][]byte
	vectors net.Buffers
}
