//go:build !386

package loop

import "github.com/filohttp/filo/internal/class"

// HoldsLoop reports whether w leads a loop that hasn't been taken away.
func (w *Worker) HoldsLoop() bool { return w.loop != nil && w.loop.word.Load() == w.word }

// Crowded reports whether w leads a loop that mustn't be lost by an inline call, since there are workers beyond the cap: each leader could
// leave one more such worker behind.
func (w *Worker) Crowded() bool {
	return w.loop != nil && w.loop.lost.Load()&1 != 0 && w.loop.workers.Crowded()
}

// Overtaken reports whether the monitor has given w's loop to another worker, and w hasn't seen it yet.
func (w *Worker) Overtaken() bool { return w.loop != nil && w.loop.word.Load() != w.word }

// retaken makes w the ordinary worker that it is since the monitor gave its loop to another one.
func (w *Worker) retaken() {
	w.loop = nil
	w.owner.LoseLead()
}

// handOff gives the loop to another worker, in a turn of w's. It reports false if Concurrency has been reached, unless it
// must.
func (l *Loop) handOff(w *Worker, must bool) bool {
	return l.giveAway(w, func() bool { return l.workers.HandOver(w, must) })
}

// handOffKept is handOff for a worker that gets one of the places that are kept, though Concurrency has been reached.
func (l *Loop) handOffKept(w *Worker) bool {
	return l.giveAway(w, func() bool { return l.workers.HandOverKept(w) })
}

// giveAway gives the loop away by handOver, unless the monitor has done so.
func (l *Loop) giveAway(w *Worker, handOver func() bool) bool {
	// From here on the monitor has nothing to take.
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

// retake gives the loop to another worker because its leader, whose turn began when it had this word, may never come back.
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
}

// GiveAway gives the loop to another worker, if the turn isn't over. Anybody may call it, and the leader gets to know of it at the end of
// the turn.
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
	return true
}

// takeAway takes the loop from its leader, if the loop still has this word, for the caller to find another one. Anybody may call it.
//
// While the server serves, takeAway refuses once too many leaders have lost a loop. The leader of a crowded loop runs no handler, but an
// ErrorHandler, ConnState or Logger may wait as well. When too many of those wait, their loops wait, too.
func (l *Loop) takeAway(word uint64) (leader *Worker) {
	if !l.workers.MayRetake(len(l.group.loops)) && !l.group.draining.Load() || !l.word.CompareAndSwap(word, (word>>32+1)<<32) {
		return nil
	}
	return l.leader.Load()
}

// Leave gives the loop that w leads, if it leads one, to another worker, before something of the class that may take long. It reports false
// if there is no place for that.
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

// LeaveKept is Leave for a worker that goes on in one of the places that are kept.
func (w *Worker) LeaveKept() bool {
	if w.loop != nil {
		w.EndClass()
		if !w.loop.handOffKept(w) {
			return false
		}
	}
	return w.owner.HasKept() || w.owner.ExchangeForKept() // if the loop was taken away before, w has another place
}

// LeaveWithoutPlace is Leave for something that doesn't count against Concurrency.
func (w *Worker) LeaveWithoutPlace() {
	if w.loop != nil {
		w.EndClass()
		w.loop.handOff(w, true)
	}
	w.owner.Vacate()
}
