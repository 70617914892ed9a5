//go:build !386

package filo

import (
	"math"

	"github.com/filohttp/filo/internal/class"
)

// holdsLoop reports whether w leads a loop that hasn't been taken away.
func (w *loopWorker) holdsLoop() bool { return w.loop != nil && w.loop.word.Load() == w.word }

// crowded reports whether w leads a loop that mustn't be lost by an inline call: see workerPool.crowded.
func (w *loopWorker) crowded() bool {
	return w.loop != nil && w.loop.pool.crowded(&w.loop.leadership)
}

// overtaken reports whether the monitor has given w's loop to another worker, and w hasn't seen it yet.
func (w *loopWorker) overtaken() bool { return w.loop != nil && w.loop.word.Load() != w.word }

// retaken makes w the ordinary worker that it is since the monitor gave its loop to another one.
func (w *loopWorker) retaken() {
	w.loop = nil
	w.owner.loseLead()
}

// handOff gives the loop to another worker, in a turn of w's. It reports false if Concurrency has been reached, unless it
// must.
func (l *loop) handOff(w *loopWorker, must bool) bool {
	return l.giveAway(w, func() bool { return l.pool.handOver(w.owner, &l.leadership, must) })
}

// handOffKept is handOff for a worker that gets one of the places that are kept, though Concurrency has been reached.
func (l *loop) handOffKept(w *loopWorker) bool {
	return l.giveAway(w, func() bool { return l.pool.handOverKept(w.owner, &l.leadership) })
}

// giveAway gives the loop away by handOver, unless the monitor has done so.
func (l *loop) giveAway(w *loopWorker, handOver func() bool) bool {
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
func (l *loop) retake(word uint64) {
	leader := l.takeAway(word)
	if leader == nil {
		return
	}
	l.retakes.Add(1)
	if class := leader.running.Load(); class != nil {
		class.Retaken()
	}
	l.pool.retake(leader.owner, &l.leadership)
}

// giveAway gives the loop to another worker, if the turn isn't over. Anybody may call it, and the leader gets to know of it at the end of
// the turn.
func (t loopTurn) giveAway() bool {
	l := t.loop
	if l == nil {
		return false
	}
	leader := l.takeAway(t.word)
	if leader == nil {
		return false
	}
	l.handoffs.Add(1)
	l.pool.retake(leader.owner, &l.leadership)
	return true
}

// takeAway takes the loop from its leader, if the loop still has this word, for the caller to find another one. Anybody may call it.
//
// While the server serves that has an end: who leads a crowded loop runs no handler, but an ErrorHandler, ConnState and Logger may
// wait as well. When there are keptPlaces of those their loops wait, too.
func (l *loop) takeAway(word uint64) (leader *loopWorker) {
	if l.pool.beyond() >= int64(len(l.group.loops)+keptPlaces) && !l.group.draining.Load() || !l.word.CompareAndSwap(word, (word>>32+1)<<32) {
		return nil
	}
	return l.leader.Load()
}

// leave gives the loop that w leads, if it leads one, to another worker, before something of the class that may take long. The error is
// errBusy.
func (w *loopWorker) leave(class *class.Class) error {
	switch {
	case w.loop == nil && !w.owner.mayRun():
		return errBusy
	case w.loop == nil:
		return nil
	}
	w.endClass()
	if !w.loop.handOff(w, false) {
		return errBusy
	}
	class.Handoffs.Add(1)
	return nil
}

// leaveKept is leave for a worker that goes on in one of the places that are kept.
func (w *loopWorker) leaveKept() bool {
	if w.loop != nil {
		w.endClass()
		if !w.loop.handOffKept(w) || w.owner.kept {
			return w.owner.kept
		}
	}
	return w.owner.exchangeForKept() // the loop was taken away before
}

// leaveWithoutPlace is leave for something that doesn't count against Concurrency.
func (w *loopWorker) leaveWithoutPlace() {
	if w.loop != nil {
		w.endClass()
		w.loop.handOff(w, true)
	}
	w.owner.vacate(math.MaxInt)
}
