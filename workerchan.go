package filo

import (
	"net"
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/loop"
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
	// handedOver says that the connection was hijacked or handed over. WorkerFunc sets it, since it returns no result if it panics or
	// ends its goroutine. It belongs to the worker's goroutine.
	handedOver bool
	// linger is set by WorkerFunc if the client may still be sending when its connection is closed. It belongs to the worker's
	// goroutine.
	linger bool
	// forgotten says that done doesn't wait for the worker: see forget. It belongs to the worker's goroutine.
	forgotten bool
	// toLead is the leadership that was sent to ch. The worker that takes it out of toLead, this one or another, becomes the leader.
	toLead atomic.Pointer[leadership]
	// kept says that the worker has a place reserved for quick handlers (see keptPlaces), and so is placeClosing while it serves. It
	// belongs to the worker's goroutine.
	kept bool
	// always says that the worker is in the reserve (see alwaysPlaces), and so is placeClosing while it serves. It belongs to the worker's
	// goroutine.
	always bool
	// place says how the worker is counted while it is off the stack. It belongs to the worker's goroutine.
	place workerPlace
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
	conn net.Conn // nil when it has been served
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
