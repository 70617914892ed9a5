package filo

import (
	"net"
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/running"
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
	// scratch holds the worker's buffers. It is nil until the method own allocates them. It belongs to the worker's goroutine.
	scratch *scratch
	// serving is the job of serving a connection. The sender sets its connection before it sends. After that serving belongs to the
	// worker's goroutine.
	serving connJob
	// forgotten says that the pool's method done doesn't wait for the worker: see forget. It belongs to the worker's goroutine.
	forgotten bool
	// place is the worker's place in the pool. It belongs to the worker's goroutine while the worker is off the stack.
	place admit.Place
	// leading says that the worker leads a loop. The pool doesn't count its goroutine then. It belongs to the worker's goroutine.
	leading bool
	// toLead is the leadership that was sent to ch. The worker that takes it out of toLead, this one or another, becomes the leader.
	toLead atomic.Pointer[leadership]
	// answered counts the answers to the connections that the worker serves as a leader: its seat's element of connSet.answered. It belongs
	// to the worker's goroutine.
	answered *answerCounts
	// running says which request the worker handles, if the request may take long.
	running running.Record[conn]

	_ apart.Lines
}

// own allocates the worker's buffers, unless it has some.
func (w *workerChan) own() {
	if w.scratch == nil {
		w.scratch = &scratch{worker: w, place: &w.place, running: &w.running}
	}
}

// holdsUp reports whether a worker that leads no loop would keep a place from waiting requests if it served its connection any longer.
// Without this check, one client that goes on sending would hold the place for ever.
func (w *workerChan) holdsUp() bool { return !w.Leads() && w.pool.places.IsAwaited() }

func newWorker(pool *workerPool) *workerChan {
	w := &workerChan{pool: pool, place: pool.places.NewPlace()}
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
	conn    net.Conn // the connection, which the pool closes in the end; nil once it is closed, or has another owner
	lingers bool     // the client may still be sending when conn is closed
}

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
	// second case w doesn't lead any more.
	lead func(w *workerChan)
	// retakes is odd if a leader has lost the seat in a retake, so that there may be workers beyond MaxWorkersCount. It becomes even once
	// crowded has found that there are none. It only grows, so a goroutine that makes it even can't undo a later retake. The pointer is
	// immutable.
	retakes *atomic.Uint64
	// answered is the leader's workerChan.answered. Immutable.
	answered *answerCounts
}

// Lead starts a leader for a new seat. Leaders don't count against MaxWorkersCount, and the pool's method done doesn't wait for them.
func (wp *workerPool) Lead(l *leadership) {
	wp.mu.Lock()
	wp.spawned++
	wp.leading++
	wp.mu.Unlock()
	wp.spawn().appoint(l)
}

// handOver makes another worker lead in w's seat, and w an ordinary worker, with a place of one of these kinds. It returns false, and
// changes nothing, if no such place is free.
func (wp *workerPool) handOver(w *workerChan, l *leadership, places admit.Kinds) bool {
	if !w.place.Enter(places) {
		return false
	}
	w.leading = false
	wp.pop(true).appoint(l)
	return true
}

// retake makes another worker lead in place of one that may never come back from its turn. From then on the old leader is an ordinary
// worker, in addition to MaxWorkersCount if need be. If the old leader comes back from its turn, it learns that it has lost the seat.
func (wp *workerPool) retake(l *leadership) {
	wp.places.TakeBeyond()
	// This is done after the old leader was counted, and before the next leader calls crowded.
	for n := l.retakes.Load(); !l.retakes.CompareAndSwap(n, (n|1)+2); n = l.retakes.Load() {
	}
	wp.pop(true).appoint(l)
}

// crowded reports whether there are workers beyond MaxWorkersCount. If so, the leader of l must not run anything that may cost it its seat:
// each leader could leave one more such worker behind.
func (wp *workerPool) crowded(l *leadership) bool {
	retakes := l.retakes.Load()
	if retakes&1 == 0 {
		return false // no leader has lost l since
	}
	if wp.places.Beyond() > 0 {
		return true
	}
	l.retakes.CompareAndSwap(retakes, retakes+1)
	return false
}

// LoseLead implements loop.Owner: w becomes an ordinary worker after a retake. If the retake shows that an Inline handler blocks, LoseLead
// logs a warning: on another goroutine, since the caller may hold a lock under which no Logger may be called.
func (w *workerChan) LoseLead() {
	w.place.ReceiveLate()
	w.leading = false
	if w.scratch == nil {
		return
	}
	if k := w.scratch.timer.Class(); k != nil && k.TakeBlocks() {
		go warnBlocks(w.pool.Logger, k)
	}
}

// Enter implements loop.Owner.
func (w *workerChan) Enter(places admit.Kinds) bool { return w.place.Enter(places) }

// MayTakeLong implements loop.Owner.
func (w *workerChan) MayTakeLong() bool { return w.place.MayTakeLong() }

// appoint makes w, which was taken off the stack, the leader of l, unless another worker takes the job over before w starts.
func (w *workerChan) appoint(l *leadership) {
	w.toLead.Store(l)
	w.pool.appointed.Store(w)
	w.ch <- l
}

// do makes w lead, unless another worker has taken the job over. Afterwards w leads in further seats whose appointed leader hasn't started.
func (l *leadership) do(w *workerChan) (again bool) {
	wp := w.pool
	for l = w.toLead.Swap(nil); l != nil; l = wp.takeOver(w) {
		w.leading, w.answered = true, l.answered
		l.lead(w)
		w.running.End() // necessary if the seat was taken from w after the request had ended
		if w.forgotten {
			wp.remember(w)
		}
		if w.leading {
			wp.retire(w) // the loop has ended
			return false
		}
	}
	return wp.release(w)
}

// takeOver gives w, which would otherwise be released, the job of a worker that was appointed and hasn't started. The appointed worker
// waits for a processor, and w has one. If w became idle, the scheduler would let that processor idle for a while before it ran the other
// worker.
func (wp *workerPool) takeOver(w *workerChan) *leadership {
	if w.forgotten {
		return nil // the pool has been stopped, and done no longer waits for w
	}
	late := wp.appointed.Load()
	if late == nil || !wp.appointed.CompareAndSwap(late, nil) {
		return nil
	}
	l := late.toLead.Swap(nil)
	if l != nil {
		w.place.Leave()
	}
	return l
}

// scratch holds the buffers that a worker lends to the connection that it serves.
type scratch struct {
	lent
	in     http1.Input
	body   []byte // buffer for a request body that doesn't fit into the field in; at most maxKeptBody
	parser http1.Parser
	socket sock.Conn
	ctx    *Ctx
	// watcher watches the client of the request in the blocking driver, and reads into watchSpace, which is a part of the field in. Both are
	// guarded by the mu of the request's context while a handler runs.
	watcher    *clientWatch
	watchSpace []byte
	timer      class.Timer   // measures the handlers
	outer      bool          // a leader runs the handler in the server's own class, which the monitor doesn't know: see endOuter
	worker     *workerChan   // the worker that the scratch belongs to; nil in ServeConn and for carried requests
	place      *admit.Place  // the place of the worker or of the carried request; nil in ServeConn, whose requests don't count against Concurrency
	http2      *http2Scratch // nil until the worker serves a connection of HTTP/2
	// running is the record of the worker, or of other code that handles requests with these buffers; nil for none.
	running *running.Record[conn]
	// vector has the two buffers of a writev. It is kept here so that it needs no allocation.
	vector  [2][]byte
	vectors net.Buffers
}
