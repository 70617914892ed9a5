package filo

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
)

// loopWorker is the part of a worker that loops know: which loop it leads, and what it runs there. But for running it belongs to the
// worker's goroutine.
type loopWorker struct {
	owner *workerChan // whose part it is; immutable
	// loop is the loop that the worker leads, nil if none, and word what that loop's word was set to when the turn began.
	loop *loop
	word uint64
	// spent is an estimate of how long the handlers of this batch have taken that ran in the leader.
	spent time.Duration
	// running is the class of the handler that the worker runs as a leader; the monitor asks for it.
	running atomic.Pointer[class.Class]
}

// loopTurn is a turn of a loop's leader: the word is the loop's in no other turn.
type loopTurn struct {
	loop *loop // nil is no turn
	word uint64
}

// turn returns the turn that the worker is in as a leader.
func (w *loopWorker) turn() loopTurn { return loopTurn{w.loop, w.word} }

const (
	// maxBatchTime is how long a leader spends in the handlers of one batch, by what is known of them, before it gives the
	// loop away to run one that takes longer than shortHandler.
	maxBatchTime = 200 * time.Microsecond
	shortHandler = 2 * time.Microsecond
)

// leads reports whether the worker leads a loop, so that what it runs is run where its request was read.
func (w *loopWorker) leads() bool { return w.loop != nil }

// isTired reports whether the leader has spent so long in handlers that one of the class had better run elsewhere.
func (w *loopWorker) isTired(class *class.Class) bool {
	return w.spent > maxBatchTime && time.Duration(class.Median.Load()) > shortHandler
}

// beginClass takes note that the leader runs a handler of the class.
func (w *loopWorker) beginClass(class *class.Class) {
	w.spent += time.Duration(class.Median.Load())
	if w.running.Load() != class {
		w.running.Store(class) // which costs as much as a short handler, so it stays for the next pipelined request
	}
}

// endClass takes note that what w does from here on is no class's fault.
func (w *loopWorker) endClass() {
	if w.running.Load() != nil {
		w.running.Store(nil)
	}
}
