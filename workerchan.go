package filo

import (
	"net"
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/loop"
)

// workerChan is one worker: the channel that it gets its connections by, and the buffers that it serves them with.
type workerChan struct {
	loop.Worker
	// pool is whose stack the worker comes back to. Immutable.
	pool *workerPool
	// ch takes a job, or nil to retire the worker. Only who has taken the worker off the stack (or has just spawned it)
	// sends, and only once, so there is never more than one value on its way.
	ch chan job
	// lastUse is when the worker was released last. It is guarded by the pool's mutex.
	lastUse clock.Time
	// scratch is the worker's buffers, nil until WorkerFunc makes them. It belongs to the worker's goroutine.
	scratch *scratch
	// serving is the job of serving a connection. Who sends it sets its connection before; after that it belongs to the
	// worker's goroutine.
	serving connJob
	// handedOver is set by a WorkerFunc that panics or ends its goroutine, and so can't say it by its result: the
	// connection was hijacked or handed over. It belongs to the worker's goroutine.
	handedOver bool
	// linger is set by WorkerFunc if the client may still be sending when its connection is closed. It belongs to the worker's
	// goroutine.
	linger bool
	// forgotten says that done doesn't wait for the worker: see forget. It belongs to the worker's goroutine.
	forgotten bool
	// toLead is the leadership that is on its way in ch. Who takes it out of here, this worker or another one, leads.
	toLead atomic.Pointer[leadership]
	// kept says that the worker has one of the places that are kept for quick handlers, and so is placeClosing while it serves. It
	// belongs to the worker's goroutine.
	kept bool
	// place is what the worker counts as while it is off the stack. It belongs to the worker's goroutine.
	place workerPlace
}

func newWorker(pool *workerPool) *workerChan {
	w := &workerChan{pool: pool}
	w.Own(w)
	return w
}

// job is the work that a worker is sent for.
type job interface {
	// do does the work on the worker's goroutine. It reports whether the worker goes on: then the worker is on the stack again.
	do(w *workerChan) (again bool)
}

// connJob is the job of serving a connection. Each worker has one, so that to send it a connection allocates nothing.
type connJob struct {
	conn net.Conn // nil when it is finished with
}

// workerPlace is what a worker counts as.
type workerPlace uint8

const (
	// placeNone is ready, or retired: the worker's goroutine has nothing to give back.
	placeNone workerPlace = iota
	// placeServing is counted against MaxWorkersCount.
	placeServing
	// placeLeading leads a loop, which doesn't count.
	placeLeading
	// placeClosing has given that up, and only has its connection to close, or the answer to write, or nothing: another worker
	// leads in its stead.
	placeClosing
)

// workerChanCap returns the capacity for a worker's channel. With one processor it is 0: the send switches to the worker
// at once, which is what has to come next anyway. With more, the accept loop doesn't wait for a worker that may be queued
// on another processor.
func workerChanCap() int {
	if runtime.GOMAXPROCS(0) == 1 {
		return 0
	}
	return 1
}

// renew gives w a channel that suits the number of processors, which may have changed since w was used.
func (w *workerChan) renew() {
	if capacity := workerChanCap(); w.ch == nil || cap(w.ch) != capacity {
		w.ch = make(chan job, capacity)
	}
}
