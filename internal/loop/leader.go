//go:build linux

package loop

import (
	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
)

// HoldsLoop reports whether w leads a loop, and its seat hasn't been taken away from it.
func (w *Worker) HoldsLoop() bool { return w.seat != nil && w.seat.word.Load() == w.word }

// Crowded reports whether w has a seat that it mustn't risk losing by an inline call. That is so while there are workers beyond the
// cap, since each leader could leave one more such worker behind.
func (w *Worker) Crowded() bool {
	return w.seat != nil && w.seat.lost.Load()&1 != 0 && w.seat.workers.Crowded()
}

// IsAlone reports whether w leads a loop in which nothing else is ready and, most of the time, nothing else became ready while a handler
// stayed in the leader. IsAlone takes events from the epoll set; they stay in the batch.
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

// Stay records that a handler of the class, which isn't quick, runs in the leader, since the leader is alone.
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

// awaitLosing waits until the goroutine that takes the seat away has called Owner.Losing.
func (w *Worker) awaitLosing() {
	w.losing.Lock()
	//lint:ignore SA2001 the lock itself is the wait
	w.losing.Unlock()
}

// retaken makes w an ordinary worker, after the loss of its seat to another worker.
func (w *Worker) retaken() {
	w.seat = nil
	w.awaitLosing()
	w.owner.LoseLead()
}

// handOff gives the seat to another worker during w's turn, and gives w a place of one of these kinds. If no place is free, it returns
// false, and w keeps the seat. If the seat was already taken away, w is an ordinary worker.
func (s *Seat) handOff(w *Worker, places admit.Kinds) bool {
	// From here on nobody can take the seat away.
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

// retake gives the seat to another worker if the seat's leader is still in the turn with this word, because that leader may never come
// back.
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

// MayLose allows the goroutine that takes the seat away to take the connection of the turn, too, by Conn.TakeAway. MayLose(nil) ends the
// permission.
func (w *Worker) MayLose(s *Socket) { w.losable.Store(s) }

// loseSocket takes away the connection whose turn the worker is in. The seat was taken away before. If the worker is in a later turn by
// now, that turn's connection is taken, and goes on in another worker.
func (w *Worker) loseSocket() {
	if s := w.losable.Load(); s != nil {
		s.served.TakeAway()
	}
}

// GiveAway gives the leader's seat to another worker if the turn isn't over. Any goroutine may call it. The leader notices at the end of
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

// takeAway takes the seat from its leader if the seat's word is still this one. The caller then finds the next leader. Any goroutine may
// call it.
//
// Unless the server is draining, takeAway refuses once too many leaders have lost a seat. The leader in a crowded seat runs no handler,
// but an ErrorHandler, ConnState or Logger may block too. Once too many of those have blocked, a blocked leader keeps its seat.
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

// Leave gives w's seat, if it has one, to another worker, before w goes on with a handler that turns out to take long. The class is the
// handler's, nil for none. It returns false if w gets no place for the handler.
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

// LeaveFor gives w's seat, if it has one, to another worker, and gives w a place of one of these kinds, before w runs something of the
// class; nil is none. It returns false if no such place is free. Then w keeps its seat, unless that was taken away before.
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
	return w.owner.Enter(places) // a worker that has lost its seat in a retake may have another place
}
