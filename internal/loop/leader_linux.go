//go:build !386

package loop

import "github.com/filohttp/filo/internal/class"

// HoldsLoop reports whether w leads a loop that hasn't been taken away from it.
func (w *Worker) HoldsLoop() bool { return w.loop != nil && w.loop.word.Load() == w.word }

// Crowded reports whether w leads a loop that it mustn't risk losing by an inline call. That is so while there are workers beyond the
// cap, since each leader could leave one more such worker behind.
func (w *Worker) Crowded() bool {
	return w.loop != nil && w.loop.lost.Load()&1 != 0 && w.loop.workers.Crowded()
}

// Overtaken reports whether w's loop was given to another worker, and w hasn't noticed yet.
func (w *Worker) Overtaken() bool { return w.loop != nil && w.loop.word.Load() != w.word }

// retaken makes w an ordinary worker, after the loss of its loop to another worker.
func (w *Worker) retaken() {
	w.loop = nil
	w.owner.LoseLead()
}

// handOff gives the loop to another worker during w's turn. Unless must is set it reports false, and w keeps the loop, if Concurrency has
// been reached.
func (l *Loop) handOff(w *Worker, must bool) bool {
	return l.giveAway(w, func() bool { return l.workers.HandOver(w, must) })
}

// handOffKept is handOff by which w gets one of the places kept for quick handlers, although Concurrency has been reached.
func (l *Loop) handOffKept(w *Worker) bool {
	return l.giveAway(w, func() bool { return l.workers.HandOverKept(w) })
}

// giveAway gives the loop away by handOver, unless it was already taken away.
func (l *Loop) giveAway(w *Worker, handOver func() bool) bool {
	// From here on nobody can take the loop away.
	if !l.word.CompareAndSwap(w.word, w.word+1) {
		w.retaken()
		return true
	}
	if !handOver() {
		w.word += 2
		l.word.Store(w.word)
		return false
	}
	w.loop = nil
	l.handoffs.Add(1)
	return true
}

// retake gives the loop to another worker if its leader is still in the turn of this word: that leader may never come back.
func (l *Loop) retake(word uint64) {
	leader := l.takeAway(word)
	if leader == nil {
		return
	}
	l.retakes.Add(1)
	if class := leader.running.Load(); class != nil {
		class.Retaken()
	}
	l.workers.Retake(leader)
	leader.loseSocket()
}

// MayLose says that the connection of the turn is taken away together with the loop, by Conn.Retaken; nil ends that.
func (w *Worker) MayLose(s *Socket) { w.losable.Store(s) }

// loseSocket takes the connection away whose turn the worker is in. The loop was taken away before. Perhaps the worker has ended the turn
// since, and is in another one: no harm is done, since whoever gets that connection serves it as well.
func (w *Worker) loseSocket() {
	if s := w.losable.Load(); s != nil {
		s.served.Retaken()
	}
}

// GiveAway gives the loop to another worker if the turn isn't over. Any goroutine may call it. The leader notices at the end of the turn.
func (t Turn) GiveAway() bool {
	l := t.loop
	if l == nil {
		return false
	}
	leader := l.takeAway(t.word)
	if leader == nil {
		return false
	}
	l.handoffs.Add(1)
	l.workers.Retake(leader)
	leader.loseSocket()
	return true
}

// takeAway takes the loop from its leader if the loop's word is still this one. The caller then finds the next leader. Any goroutine may
// call it.
//
// Unless the server is draining, takeAway refuses once too many leaders have lost a loop. The leader of a crowded loop runs no handler,
// but an ErrorHandler, ConnState or Logger may block too. When too many of those block, their loops wait for them.
func (l *Loop) takeAway(word uint64) (leader *Worker) {
	if !l.workers.MayRetake(len(l.group.loops)) && !l.group.draining.Load() || !l.word.CompareAndSwap(word, (word>>32+1)<<32) {
		return nil
	}
	return l.leader.Load()
}

// Leave gives the loop that w leads, if any, to another worker, before w runs something of the class that may take long. It reports false
// if w gets no place for that.
func (w *Worker) Leave(class *class.Class) bool {
	if w.loop == nil {
		return w.owner.MayRun()
	}
	w.EndClass()
	if !w.loop.handOff(w, false) {
		return false
	}
	class.Handoffs.Add(1)
	return true
}

// LeaveKept is Leave for a worker that continues in one of the places kept for quick handlers.
func (w *Worker) LeaveKept() bool {
	if w.loop != nil {
		w.EndClass()
		if !w.loop.handOffKept(w) {
			return false
		}
	}
	return w.owner.HasKept() || w.owner.ExchangeForKept() // a worker that had lost its loop before exchanges its place
}

// LeaveWithoutPlace is Leave for work that doesn't count against Concurrency.
func (w *Worker) LeaveWithoutPlace() {
	if w.loop != nil {
		w.EndClass()
		w.loop.handOff(w, true)
	}
	w.owner.Vacate()
}
