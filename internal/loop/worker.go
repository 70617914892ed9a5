// Package loop serves many connections with few goroutines: with event loops, each of which is led by up to eight workers. It knows
// sockets, events, turns and leaders, but no protocol: a connection consists of a Socket and a Conn, which knows what to do in its turn.
// Workers supplies the leaders. There are loops on Linux alone.
package loop

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/race"
)

// Workers is the pool from which a seat gets its leaders.
type Workers interface {
	// Lead starts a leader for a new seat.
	Lead(s *Seat)
	// HandOver gives the seat, which is w's, to another worker, and gives w a place of one of these kinds. It returns false, and changes
	// nothing, if none is free.
	HandOver(w *Worker, places admit.Kinds) bool
	// Retake gives the seat, which was taken away from its leader, to another worker. From then on the old leader is an ordinary worker,
	// beyond the cap if need be; it learns of this by LoseLead. Retake makes the seat's Lost an odd number.
	Retake()
	// Crowded reports whether there are workers beyond the cap. If not, it makes Lost an even number, unless Lost has grown meanwhile.
	Crowded() bool
	// MayRetake reports whether one more leader may be replaced beyond the cap. The argument is the number of seats in the group.
	MayRetake(seats int) bool
	// Serving returns the number of workers that run a handler and don't lead a loop.
	Serving() int
	// Panicked logs a panic in a turn.
	Panicked(value any, stack []byte)
}

// Owner is the pool's side of a worker.
type Owner interface {
	// Enter gives the worker, which leads no loop, a place of one of these kinds. It returns false, and changes nothing, if none is free.
	Enter(places admit.Kinds) bool
	// MayTakeLong reports whether the worker, which leads no loop, may go on with a handler that turns out to take long.
	MayTakeLong() bool
	// Losing says that the worker's seat is being taken away. socket belongs to the connection whose turn it is, and is nil in a listener's
	// turn. The class belongs to the handler that runs, nil if it isn't known. The goroutine that takes the seat calls it; the worker
	// doesn't notice before it returns.
	Losing(socket *Socket, class *class.Class)
	// LoseLead makes the worker an ordinary one, after its seat was taken away.
	LoseLead()
}

// Worker is the part of a worker that loops know: where it leads a loop, and what it runs there. All fields but running belong to the
// worker's goroutine.
type Worker struct {
	owner Owner // the worker that this is a part of; immutable
	// seat is where the worker leads a loop, nil if it doesn't. word is the seat's word as it was set at the beginning of the turn.
	seat *Seat
	word uint64
	// spent estimates how long the handlers of this batch have taken in the leader.
	spent time.Duration
	// running is the class of the handler that the worker runs as a leader. The monitor reads it.
	running atomic.Pointer[class.Class]
	// losable is the socket of the turn, if its connection can be taken away together with the seat.
	losable atomic.Pointer[Socket]
	// socket is the socket of the turn, nil for a listener. The goroutine that takes the seat away reads it, under losing.
	socket *Socket
	losing race.Mutex[race.OfSeat] // held while the seat is taken from the worker and Owner.Losing is called
}

// Turn identifies one turn of a leader: its seat has this word in no other turn.
type Turn struct {
	seat *Seat // nil: no turn
	word uint64
}

// Turn returns the turn that the worker is in as a leader.
func (w *Worker) Turn() Turn { return Turn{w.seat, w.word} }

const (
	// maxBatchTime is how long a leader spends in the handlers of one batch, estimated from their classes. After that it gives its seat
	// away before a handler that takes longer than shortHandler.
	maxBatchTime = 200 * time.Microsecond
	shortHandler = 2 * time.Microsecond
)

// Own sets the owner that w is a part of, before w is used.
func (w *Worker) Own(owner Owner) { w.owner = owner }

// Owner returns the owner that w is a part of.
func (w *Worker) Owner() Owner { return w.owner }

// Running returns the class of the handler that the worker runs as a leader, nil if unknown.
func (w *Worker) Running() *class.Class { return w.running.Load() }

// Leads reports whether the worker leads a loop. If so, it runs a handler where the request was read.
func (w *Worker) Leads() bool { return w.seat != nil }

// MaySpend reports whether the worker leads a loop, and may go on doing so for about that long: the batch has then taken no longer than
// maxBatchTime. If so, MaySpend counts the time as spent.
func (w *Worker) MaySpend(time time.Duration) bool {
	if !w.HoldsLoop() || w.spent+time > maxBatchTime {
		return false
	}
	w.spent += time
	return true
}

// IsTired reports whether the leader has spent so long in handlers that a handler of the class should run in another worker.
func (w *Worker) IsTired(class *class.Class) bool {
	return w.spent > maxBatchTime && time.Duration(class.Median.Load()) > shortHandler
}

// BeginClass records that the leader runs a handler of the class.
func (w *Worker) BeginClass(class *class.Class) {
	w.spent += time.Duration(class.Median.Load())
	if w.running.Load() != class {
		w.running.Store(class) // a store costs as much as a short handler, so the class stays for the next pipelined request
	}
}

// EndClass records that w's work doesn't count for any class from here on.
func (w *Worker) EndClass() {
	if w.running.Load() != nil {
		w.running.Store(nil)
	}
}

// Counts are the counts of a group of loops since it was started.
type Counts struct{ Handoffs, Retakes uint64 }
