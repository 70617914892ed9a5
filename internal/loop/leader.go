//go:build linux

package loop

import (
	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
)

// HoldsLoop reports whether w leads a loop, and hasn't lost its seat.
func (w *Worker) HoldsLoop() bool { return w.seat != nil && w.seat.word.Load() == w.word }

// Crowded reports whether w has a seat that it mustn't risk losing by running a handler inline. That is the case while there are more
// workers than the cap allows, since each leader that loses its seat adds one more.
func (w *Worker) Crowded() bool {
	return w.seat != nil && w.seat.lost.Load()&1 != 0 && w.seat.workers.Crowded()
}

// IsAlone reports whether w leads a loop in which nothing else is ready and, in general, nothing else becomes ready while a handler runs in
// the leader. IsAlone moves the events that it finds in the epoll set into the batch.
func (w *Worker) IsAlone() bool {
	if !w.HoldsLoop() {
		return false
	}
	s := w.seat
	if crossed := s.crossed.Load(); crossed > 0 {
		s.crossed.Store(crossed - 1)
		return false
	}
	l := s.loop
	if l.pending.Load() || !l.beginFilling() {
		return false
	}
	return l.fill() == 0
}

// Stay records that a handler of the class, which isn't quick, runs in the leader because the leader is alone.
func (w *Worker) Stay(class *class.Class) {
	w.seat.crossed.Store(hasStayed)
	w.BeginClass(class)
}

// Overtaken reports whether w's seat was given to another worker, and w hasn't noticed yet. If so, the goroutine that took the seat has
// called Owner.Losing before Overtaken returns.
func (w *Worker) Overtaken() bool {
	if w.seat == nil || w.HoldsLoop() {
		return false
	}
	w.awaitLosing()
	return true
}

// NoticeLoss makes w an ordinary worker if w has lost its seat and hasn't noticed yet. w calls it during a turn.
func (w *Worker) NoticeLoss() {
	if w.Overtaken() {
		w.retaken()
	}
}

// awaitLosing waits until the goroutine that takes the seat away has called Owner.Losing.
func (w *Worker) awaitLosing() {
	w.losing.Lock()
	//lint:ignore SA2001 the lock itself is the wait
	w.losing.Unlock()
}

// retaken makes w an ordinary worker after w has lost its seat.
func (w *Worker) retaken() {
	w.seat = nil
	w.awaitLosing()
	w.owner.LoseLead()
}

// handOff gives the seat to another worker during w's turn, and gives w a place of one of the given kinds. If no such place is free, it
// returns false, and w keeps the seat. If w has already lost the seat, handOff makes w an ordinary worker and returns true.
func (s *Seat) handOff(w *Worker, places admit.Kinds) bool {
	// Once the word has changed, no goroutine can take the seat away.
	if !s.word.CompareAndSwap(w.word, w.word+1) {
		w.retaken()
		return true
	}
	if !s.workers.HandOver(w, places) {
		w.word += 2
		s.word.Store(w.word)
		return false
	}
	w.seat = nil
	s.loop.handoffs.Add(1)
	return true
}

// retake gives the seat to another worker if the seat's word is still the given one. Then the leader is still in the same turn, and may be
// blocked.
func (s *Seat) retake(word uint64) {
	leader := s.takeAway(word)
	if leader == nil {
		return
	}
	s.loop.retakes.Add(1)
	if class := leader.running.Load(); class != nil {
		class.Retaken()
	}
	s.workers.Retake()
	leader.loseSocket()
}

// MayLose allows a goroutine that takes w's seat away to take the connection of s, too, by Conn.TakeAway. MayLose(nil) ends the permission.
func (w *Worker) MayLose(s *Socket) { w.losable.Store(s) }

// loseSocket takes the connection of the present turn away from the worker, which has lost its seat before. If the worker is in a later turn
// by now, loseSocket takes the connection of that turn, which another worker then serves.
func (w *Worker) loseSocket() {
	if s := w.losable.Load(); s != nil {
		s.served.TakeAway()
	}
}

// GiveAway gives the leader's seat to another worker if the turn hasn't ended. Any goroutine may call it. The leader notices at the end of
// the turn.
func (t Turn) GiveAway() bool {
	s := t.seat
	if s == nil {
		return false
	}
	leader := s.takeAway(t.word)
	if leader == nil {
		return false
	}
	s.loop.handoffs.Add(1)
	s.workers.Retake()
	leader.loseSocket()
	return true
}

// takeAway takes the seat from its leader if the seat's word is still the given one. It returns the old leader, or nil. The caller must then
// find the next leader. Any goroutine may call it.
//
// Unless the server is draining, takeAway fails once too many leaders have lost a seat. The leader of a crowded seat (see Crowded) runs no
// handler, but an ErrorHandler, ConnState or Logger may block it all the same. Once too many leaders are blocked in this way, a blocked
// leader keeps its seat.
func (s *Seat) takeAway(word uint64) (leader *Worker) {
	g := s.loop.group
	if !s.workers.MayRetake(len(g.seats)) && !g.draining.Load() {
		return nil
	}
	leader = s.leader.Load()
	leader.losing.Lock()
	defer leader.losing.Unlock()
	if !s.word.CompareAndSwap(word, (word>>32+1)<<32) {
		return nil
	}
	leader.owner.Losing(leader.socket, leader.running.Load())
	return leader
}

// Leave gives w's seat, if it has one, to another worker, before w goes on with a handler that turns out to take long. class is the
// handler's class, or nil. Leave returns false if there is no place for the handler.
func (w *Worker) Leave(class *class.Class) bool {
	if w.seat != nil {
		w.EndClass()
		if !w.seat.handOff(w, admit.Ordinary.Only()) {
			return false
		}
		if class != nil {
			class.Handoffs.Add(1)
		}
	}
	return w.owner.MayTakeLong()
}

// LeaveFor gives w's seat, if it has one, to another worker, and gives w a place of one of the given kinds. w calls it before it runs a
// handler of the class, which may be nil. LeaveFor returns false if no such place is free: then w keeps its seat, unless it has lost the
// seat before.
func (w *Worker) LeaveFor(class *class.Class, places admit.Kinds) bool {
	if w.seat != nil {
		w.EndClass()
		if !w.seat.handOff(w, places) {
			return false
		}
		if class != nil {
			class.Handoffs.Add(1)
		}
	}
	return w.owner.Enter(places) // if w has lost its seat by retake, it may have a place of another kind
}
