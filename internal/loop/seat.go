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
	// maxTurn is how long a leader is busy before it lets the runtime's scheduler run other goroutines. The leader reads the clock every
	// turnRounds batches.
	maxTurn    = 500 * time.Microsecond
	turnRounds = 4
	// A leader that takes as many events as it may from the epoll set, and has been awake for wakeRounds batches, wakes another leader.
	wakeRounds = 2
	// crossedCalls is the first value of Seat.crossed after a handler has stayed, and another client has asked meanwhile. hasStayed is the
	// value while it isn't known yet whether another client has asked.
	crossedCalls = 4
	hasStayed    = -1
)

// Seat is a leader's place in a loop. Exactly one worker has it, and serves the loop together with the workers in the other seats. Another
// worker gets the seat before the first does something that may block, or when the monitor finds that the first has been in one turn for
// too long.
//
// Unless said otherwise a field belongs to the worker that has the seat.
type Seat struct {
	loop    *Loop         // immutable
	workers Workers       // where the leaders come from; immutable
	bell    chan struct{} // ends a rest; sent to once for each; cap 1; immutable

	// The high half of word holds a term, which is incremented when the seat is taken from its leader. The low half counts turns, and is
	// odd during a turn. The leader and a goroutine that takes the seat away compete by exchanges of the word: the one that succeeds gets
	// the seat.
	word   atomic.Uint64
	leader atomic.Pointer[Worker] // the current leader, for takeAway
	// lost becomes odd when a leader loses the seat, and even when somebody sees that no worker is beyond the cap: see Workers. It only
	// grows, so a goroutine that makes it even can't undo a later loss.
	lost    atomic.Uint64
	resting atomic.Bool // the leader waits for its bell or in the parker
	// crossed is how many handlers that might stay are handed off first, since another client asked while a handler stayed: another worker
	// would have served that client at once. It is atomic since a worker that has just lost the seat may change it.
	crossed atomic.Int32

	slot      uint32      // of the connection that was served last
	rounds    int         // batches since the leader woke up
	appointed bool        // the leader is new, and hasn't waited yet
	busySince clock.Nanos // 0: to be set anew
	share     share
	_         apart.Lines
}

func newSeat(l *Loop, workers Workers) *Seat {
	return &Seat{loop: l, workers: workers, bell: make(chan struct{}, 1)}
}

// Lost returns the count, kept by Workers, by which Crowded knows that a leader has lost the seat.
func (s *Seat) Lost() *atomic.Uint64 { return &s.lost }

// Lead serves the loop until w has given its seat away or lost it, or the loop has ended.
func (s *Seat) Lead(w *Worker) {
	w.seat = s
	s.leader.Store(w)
	w.spent, s.appointed = 0, true
	// step calls breathe only when the batch is empty. If leaders change often, each takes over a batch that an earlier leader has filled, and
	// step may never call breathe.
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

// step does the next piece of work. It reports false if there was none, or the leader should rest.
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
		return l.hasBatch() // the leader that fills the batch wakes this one when there is much to do
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
	default: // nothing has come, or the same client's next request
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

// breathe is called between batches. Once the leader has been busy for maxTurn, it evaluates the share and lets other goroutines run. It
// reports whether the leader should rest, since there are more leaders than processors.
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

// isBreathless reports whether the seat's leaders have been busy for longer than maxTurn without a break.
func (s *Seat) isBreathless() bool {
	return s.busySince != 0 && clock.Nanotime().Sub(s.busySince) > maxTurn
}

// catchBreath lets the runtime's scheduler look after other goroutines, timers and its own poller. One leader at a time is enough for the
// poller. The caller has ended the measurement of the share before.
func (s *Seat) catchBreath() {
	if l := s.loop; l.breathing.CompareAndSwap(false, true) {
		l.breather.breathe()
		l.breathing.Store(false)
	}
	// The check of the poller that ends the wait may wake other goroutines together with this one, and this one may run first. Gosched lets
	// the others run first.
	runtime.Gosched()
	s.busySince = clock.Nanotime()
	s.share.begin()
}

// rest waits for work. If another leader is awake, the caller waits until it is woken. Otherwise it waits for the loop's events.
func (s *Seat) rest() {
	l := s.loop
	s.resting.Store(true)
	if !l.roster.rest(s) && l.beginFilling() {
		if !l.stopped.Load() {
			l.sleep(s)
		}
		l.endFilling()
	}
	s.resting.Store(false)
	s.busySince, s.rounds = 0, 0
}

// turn serves a connection, or accepts from a listener. Meanwhile the seat may be taken away from w.
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

// turnFailed ends a turn that panicked or called runtime.Goexit: it abandons the connection, and the seat may need a leader.
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
