package filo

import (
	"net"
	"runtime"
)

// workerChan is one worker: the channel that it gets its connections by, and the buffers that it serves them with.
type workerChan struct {
	ch chan net.Conn // nil, the value, retires the worker
	// lastUse is when the worker was released last, on the clock's scale. It is guarded by the pool's mutex.
	lastUse int64
	// scratch is the worker's buffers. It belongs to the worker's goroutine.
	scratch *scratch
}

// workerChanCap returns the capacity of a worker's channel. With one processor it is 0: then the send switches to the
// worker at once, which is what has to come next anyway. With more the accept loop mustn't wait for a worker that is
// about to take its connection, since it may be behind a long queue on another processor.
func workerChanCap() int {
	if runtime.GOMAXPROCS(0) == 1 {
		return 0
	}
	return 1
}
