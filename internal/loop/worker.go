// Package loop serves many connections with few goroutines, by event loops. Up to eight workers lead each loop. The package implements
// sockets, events, turns and leaders, but no protocol: a connection consists of a Socket and a Conn, which implements the protocol. The
// interface Workers supplies the leaders. Only Linux has loops.
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
	// HandOver gives the seat that w leads to another worker, and gives w a place of one of the given kinds. If no such place is free, it
	// returns false and changes nothing.
	HandOver(w *Worker, places admit.Kinds) bool
	// Retake gives the seat, which was taken away from its leader, to another worker. From then on the old leader is an ordinary worker,
	// even if there are then more workers than the server's cap allows. Owner.LoseLead tells the old leader that it has lost the seat.
	// Retake makes the seat's Lost an odd number.
	Retake()
	// Crowded reports whether there are more workers than the cap allows. If not, it makes Lost an even number, unless Lost has grown since
	// the check.
	Crowded() bool
	// MayRetake reports whether one more leader may be replaced, even if the number of workers then exceeds the cap. seats is the number of seats in the group.
	MayRetake(seats int) bool
	// Serving returns the number of workers that run a handler and don't lead a loop.
	Serving() int
	// Panicked logs a panic in a turn.
	Panicked(value any, stack []byte)
}

// Owner is the pool's side of a worker.
type Owner interface {
	// Enter gives the worker, which leads no loop, a place of one of the given kinds. If no such place is free, it returns false and changes
	// nothing.
	Enter(places admit.Kinds) bool
	// MayTakeLong reports whether the worker, which leads no loop, may go on with a handler that turns out to take long.
	MayTakeLong() bool
	// Losing is called while the worker's seat is being taken away, by the goroutine that takes it. socket belongs to the turn's connection,
	// and is nil in a listener's turn. class belongs to the running handler, and is nil if it isn't known. The worker doesn't notice the
	// loss of the seat before Losing has returned.
	Losing(socket *Socket, class *class.Class)
	// LoseLead makes the worker an ordinary worker after its seat was taken away.
	LoseLead()
}

// Worker is the part of a worker that loops use: which seat it has, and what it runs there. Only the worker's goroutine accesses a field,
// unless the field's comment says otherwise.
type Worker struct {
	owner Owner // the worker that this is a part of; immutable
	// seat is the worker's seat, or nil if it leads no loop. word is the value to which the seat's word was set at the beginning of the
	// turn.
	seat *Seat
	word uint64
	// spent is the estimated time that handlers of this batch have run in the leader.
	spent time.Duration
	// running is the class of the handler that the worker runs as a leader. The monitor reads it.
	running atomic.Pointer[class.Class]
	// losable is the socket of the turn, if its connection may be taken away together with the seat: see MayLose.
	losable atomic.Pointer[Socket]
	// socket is the socket of the turn, nil for a listener. The goroutine that takes the seat away reads it, under losing.
	socket *Socket
	losing race.Mutex[race.OfSeat] // held while the seat is taken from the worker and Owner.Losing is called
}

// Turn identifies one turn of a leader: the seat has a different word in each turn.
type Turn struct {
	seat *Seat // nil: no turn
	word uint64
}

// Turn returns the worker's present turn as a leader.
func (w *Worker) Turn() Turn { return Turn{w.seat, w.word} }

const (
	// maxBatchTime is how long a leader runs handlers for one batch, estimated from their classes. After that it gives its seat away before
	// the next handler that takes longer than shortHandler.
	maxBatchTime = 200 * time.Microsecond
	shortHandler = 2 * time.Microsecond
)

// Own sets w's owner. It must be called before w is used.
func (w *Worker) Own(owner Owner) { w.owner = owner }

// Owner returns w's owner.
func (w *Worker) Owner() Owner { return w.owner }

// Running returns the class of the handler that the worker runs as a leader, or nil if it isn't known.
func (w *Worker) Running() *class.Class { return w.running.Load() }

// Leads reports whether the worker leads a loop. If so, a handler that it runs is inline: the worker has read the handler's request.
func (w *Worker) Leads() bool { return w.seat != nil }

// MaySpend reports whether the worker leads a loop, and may do work there that takes about the given time: whether its batch then takes at
// most maxBatchTime. If so, MaySpend adds the time to w.spent.
func (w *Worker) MaySpend(time time.Duration) bool {
	if !w.HoldsLoop() || w.spent+time > maxBatchTime {
		return false
	}
	w.spent += time
	return true
}

// IsTired reports whether the leader has run handlers for so long that it should give its seat away before a handler of the class.
func (w *Worker) IsTired(class *class.Class) bool {
	return w.spent > maxBatchTime && time.Duration(class.Median.Load()) > shortHandler
}

// BeginClass records that the leader runs a handler of the class.
func (w *Worker) BeginClass(class *class.Class) {
	w.spent += time.Duration(class.Median.Load())
	if w.running.Load() != class {
		w.running.Store(class) // a store costs as much as a short handler, so running keeps the class for the next pipelined request
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
