// Package loop serves many connections with few goroutines: event loops, each of which one worker leads. It knows sockets, events, turns and
// leaders, and no protocol. A connection is a Socket and a Conn, which knows what to do in its turn. Where the leaders come from is up to
// Workers. There are loops on Linux alone.
package loop

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
)

// Workers are where a loop gets its leaders from: those of one pool.
type Workers interface {
	// Lead makes a worker lead the loop, which nobody leads yet.
	Lead(l *Loop)
	// HandOver makes another worker lead the loop, which w leads, and w an ordinary worker that has a place. It reports false if no place
	// is left, unless it must.
	HandOver(w *Worker, must bool) bool
	// HandOverKept is HandOver with one of the places for w that are kept for quick handlers.
	HandOverKept(w *Worker) bool
	// Retake makes another worker lead the loop, which was taken away from w. w is an ordinary worker from then on, beyond the cap if need
	// be, and learns of it by LoseLead. It makes the loop's Lost odd.
	Retake(w *Worker)
	// Crowded reports whether there are workers beyond the cap. If there are none, it makes Lost even, unless that has grown meanwhile.
	Crowded() bool
	// MayRetake reports whether one more leader may be replaced beyond the cap, of a group with so many loops.
	MayRetake(loops int) bool
	// Panicked logs a panic in a turn.
	Panicked(value any, stack []byte)
}

// Owner is a worker, as its pool knows it.
type Owner interface {
	// MayRun reports whether the worker, which leads no loop, may run a handler that may take its time.
	MayRun() bool
	// LoseLead says that the worker is an ordinary one since its loop was taken away.
	LoseLead()
	// HasKept reports whether the worker has one of the places that are kept for quick handlers. ExchangeForKept gives it one for its own, and
	// EndKept takes that back.
	HasKept() bool
	ExchangeForKept() bool
	EndKept()
	// Vacate gives the worker's place up.
	Vacate()
}

// Worker is the part of a worker that loops know: which loop it leads, and what it runs there. But for running it belongs to the
// worker's goroutine.
type Worker struct {
	owner Owner // whose part it is; immutable
	// loop is the loop that the worker leads, nil if none, and word what that loop's word was set to when the turn began.
	loop *Loop
	word uint64
	// spent is an estimate of how long the handlers of this batch have taken that ran in the leader.
	spent time.Duration
	// running is the class of the handler that the worker runs as a leader; the monitor asks for it.
	running atomic.Pointer[class.Class]
}

// Turn is a turn of a loop's leader: the word is the loop's in no other turn.
type Turn struct {
	loop *Loop // nil is no turn
	word uint64
}

// Turn returns the turn that the worker is in as a leader.
func (w *Worker) Turn() Turn { return Turn{w.loop, w.word} }

const (
	// maxBatchTime is how long a leader spends in the handlers of one batch, by what is known of them, before it gives the
	// loop away to run one that takes longer than shortHandler.
	maxBatchTime = 200 * time.Microsecond
	shortHandler = 2 * time.Microsecond
)

// Own says whose part w is, before w is used.
func (w *Worker) Own(owner Owner) { w.owner = owner }

// Owner returns whose part w is.
func (w *Worker) Owner() Owner { return w.owner }

// Running returns the class of the handler that the worker runs as a leader, nil if that isn't known.
func (w *Worker) Running() *class.Class { return w.running.Load() }

// Leads reports whether the worker leads a loop, so that what it runs is run where its request was read.
func (w *Worker) Leads() bool { return w.loop != nil }

// IsTired reports whether the leader has spent so long in handlers that one of the class had better run elsewhere.
func (w *Worker) IsTired(class *class.Class) bool {
	return w.spent > maxBatchTime && time.Duration(class.Median.Load()) > shortHandler
}

// BeginClass takes note that the leader runs a handler of the class.
func (w *Worker) BeginClass(class *class.Class) {
	w.spent += time.Duration(class.Median.Load())
	if w.running.Load() != class {
		w.running.Store(class) // which costs as much as a short handler, so it stays for the next pipelined request
	}
}

// EndClass takes note that what w does from here on is no class's fault.
func (w *Worker) EndClass() {
	if w.running.Load() != nil {
		w.running.Store(nil)
	}
}

// Counts are the counts of a group of loops since it was started.
type Counts struct {
	Handoffs, Retakes, Steals uint64
	Hosted                    int // loops that are guests now
}
