//go:build linux

package loop

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/clock"
)

const (
	// maxTurn is how long a leader is busy before it lets the runtime's scheduler run other goroutines. The leader checks the clock once for
	// every turnRounds batches.
	maxTurn    = 500 * time.Microsecond
	turnRounds = 4
	// A leader that gets maxEvents events from the epoll set, and has been awake for wakeRounds batches, wakes another leader.
	wakeRounds = 2
	// crossedCalls is the value to which Seat.crossed is set if a request of another client has arrived while a handler stayed in the
	// leader. hasStayed is the value until the next events show whether that has happened.
	crossedCalls = 4
	hasStayed    = -1
)

// Seat is a leader's place in a loop. Exactly one worker has the seat, and serves the loop together with the workers in the other seats.
// Before this worker does something that may block, it gives the seat to another worker. If the monitor finds that the worker has been in one
// turn for too long, the monitor gives the seat to another worker.
//
// Only the worker that has the seat accesses a field, unless the field's comment says otherwise.
type Seat struct {
	loop    *Loop         // immutable
	workers Workers       // the pool from which the seat gets its leaders; immutable
	bell    chan struct{} // a value sent to it ends a rest; cap 1; immutable

	// The high half of word holds a term, which is incremented when the seat is taken from its leader. The low half counts turns, and is odd
	// during a turn. The leader and a goroutine that takes the seat away both try to replace the word by compare-and-swap. Only one of them
	// succeeds, and decides about the seat.
	word   atomic.Uint64
	leader atomic.Pointer[Worker] // the current leader, for takeAway
	// lost becomes odd when a leader loses the seat, and even when a goroutine finds that the number of workers is within the cap: see
	// Workers. It only grows, so a goroutine that makes it even can't undo a later loss.
	lost    atomic.Uint64
	resting atomic.Bool // the leader waits for its bell or in the parker
	// crossed is how many of the next handlers that might stay in the leader are handed off instead, because a request of another client has
	// arrived while a handler stayed. Another worker would have served that client at once. crossed is atomic since a worker that has just
	// lost the seat may still change it.
	crossed atomic.Int32

	slot      uint32      // the slot of the connection that was served last
	rounds    int         // how many batches the leader has begun since it woke up
	appointed bool        // the leader is new, so its first wait mustn't be a nap
	busySince clock.Nanos // since when the leader has been busy without a break; 0: not known yet
	share     share
	_         apart.Lines
}

func newSeat(l *Loop, workers Workers) *Seat {
	return &Seat{loop: l, workers: workers, bell: make(chan struct{}, 1)}
}

// Lost returns the counter that Workers increments when a leader loses the seat, and that Worker.Crowded checks.
func (s *Seat) Lost() *atomic.Uint64 { return &s.lost }

// Lead serves the loop until w has given its seat away or lost it, or the loop has ended.
func (s *Seat) Lead(w *Worker) {
	w.seat = s
	s.leader.Store(w)
	w.spent, s.appointed = 0, true
	// A new leader must check here whether it is time to breathe, since step calls breathe only when the batch is used up. If leaders change
	// often, each finds a batch that an earlier leader has filled, so step might never call breathe.
	if s.isBreathless() {
		s.share.end()
		s.catchBreath()
	} else {
		s.breathe()
	}
	for w.seat == s && !s.loop.stopped.Load() {
		if !s.step(w) {
			s.rest()
		}
	}
	if w.seat == s {
		s.resting.Store(true)
		s.loop.group.release()
	}
}

// step does the next piece of work. It returns false if there was none, or if the leader should rest.
func (s *Seat) step(w *Worker) bool {
	l := s.loop
	if e, ok := l.take(); ok {
		if e.socket != nil {
			s.slot = e.socket.slot
		}
		s.serve(w, e)
		return true
	}
	w.spent = 0
	if s.breathe() {
		return false
	}
	if !l.beginFilling() {
		return l.hasBatch() // if there is much to do, the leader that fills the batch wakes this one
	}
	if l.pending.Load() {
		if e := l.closingListener(); e != nil {
			l.endFilling()
			s.turn(w, nil, e)
			return true
		}
		if l.takeInbox(); l.stopped.Load() {
			l.endFilling()
			return true
		}
	}
	n := l.fill()
	switch {
	case s.crossed.Load() != hasStayed:
	case n > 1 || n == 1 && !l.isFirst(s.slot):
		s.crossed.Store(crossedCalls)
	default: // there are no events, or only the same client's next request
		s.crossed.Store(0)
	}
	if n >= len(l.events) && s.rounds >= wakeRounds {
		l.roster.callHelp()
	}
	return n > 0
}

// serve begins a turn for the event's connection or listener.
func (s *Seat) serve(w *Worker, e loopEvent) {
	switch {
	case e.listener != nil:
		s.turn(w, nil, e.listener)
	case e.socket != nil && (e.events == claimedEvent || e.socket.event(e.events)):
		s.turn(w, e.socket, nil)
	}
}

// breathe is called between batches. Once the leader has been busy for maxTurn, breathe evaluates the leader's share of its processor and
// lets other goroutines run. It reports whether the leader should rest because there are more leaders than processors.
func (s *Seat) breathe() (rest bool) {
	if s.rounds++; s.rounds%turnRounds != 0 {
		return false
	}
	switch {
	case s.busySince == 0:
		s.busySince = clock.Nanotime()
		s.share.begin()
	case s.isBreathless():
		s.share.end()
		switch over, shared := s.share.over(); {
		case shared:
			rest = s.loop.roster.lacksProcessors()
		case over:
			s.loop.roster.callHelp()
		}
		s.catchBreath()
	}
	return rest
}

// isBreathless reports whether the seat's leaders have been busy for longer than maxTurn without a call of catchBreath.
func (s *Seat) isBreathless() bool {
	return s.busySince != 0 && clock.Nanotime().Sub(s.busySince) > maxTurn
}

// catchBreath lets the runtime's scheduler run other goroutines, and check timers and its own poller. For the poller it is enough if one
// leader at a time uses the breather. The caller must have called share.end before.
func (s *Seat) catchBreath() {
	if l := s.loop; l.breathing.CompareAndSwap(false, true) {
		l.breather.breathe()
		l.breathing.Store(false)
	}
	// The check of the poller that ends the wait may make other goroutines ready together with this one. Gosched lets the others run first.
	runtime.Gosched()
	s.busySince = clock.Nanotime()
	s.share.begin()
}

// rest waits for work. If another leader is awake, the caller waits for its bell. Otherwise it waits for the loop's events.
func (s *Seat) rest() {
	l := s.loop
	s.resting.Store(true)
	if !l.roster.rest(s) && l.beginFilling() {
		// A leader that rests because it lacks a processor may have left claimed connections in the queue, which nothing else announces.
		if !l.stopped.Load() && l.queued == len(l.queue) {
			l.sleep(s)
		}
		l.endFilling()
	}
	s.resting.Store(false)
	s.busySince, s.rounds = 0, 0
}

// turn serves a connection, or accepts from a listener. During the turn the seat may be taken away from w.
func (s *Seat) turn(w *Worker, socket *Socket, listener *listenerEntry) {
	word := s.word.Load() + 1
	w.socket = socket
	s.word.Store(word) // from here on the seat, and with it the socket, may be taken away
	w.word = word
	returned := false
	defer s.turnFailed(w, socket, &returned)
	if socket != nil {
		if socket.served.Turn(w) {
			socket.Post()
		}
	} else {
		s.loop.accept(listener)
	}
	returned = true
	s.endTurn(w)
}

// endTurn ends w's turn. If the seat was taken away from w, w becomes an ordinary worker.
func (s *Seat) endTurn(w *Worker) {
	w.EndClass()
	if w.seat == s && !s.word.CompareAndSwap(w.word, w.word+1) {
		w.retaken()
	}
}

// turnFailed ends a turn that has panicked or called runtime.Goexit: it abandons the connection and, if w's goroutine ends, gives the seat
// to another worker.
func (s *Seat) turnFailed(w *Worker, socket *Socket, returned *bool) {
	if *returned {
		return
	}
	value, ends := recover(), true
	if value != nil {
		s.workers.Panicked(value, debug.Stack())
	}
	defer func() { // deferred, since Abandon may end the goroutine
		if s.endTurn(w); ends && w.seat == s {
			s.workers.HandOver(w, admit.None.Only())
		}
	}()
	if socket != nil {
		socket.served.Abandon(w, value == nil)
	}
	ends = value == nil
}
