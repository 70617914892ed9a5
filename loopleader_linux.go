//go:build !386

package filo

import (
	"github.com/filohttp/filo/internal/class"
)

// endClass takes note that what w does from here on is no class's fault.
func (w *workerChan) endClass() {
	if w.running.Load() != nil {
		w.running.Store(nil)
	}
}

// holdsLoop reports whether w leads a loop that hasn't been taken away.
func (w *workerChan) holdsLoop() bool { return w.loop != nil && w.loop.word.Load() == w.word }

// crowded reports whether w leads a loop that mustn't be lost by an inline call: see workerPool.crowded.
func (w *workerChan) crowded() bool {
	return w.loop != nil && w.loop.leadership.retakes.Load()&1 != 0 && w.loop.pool.crowded(&w.loop.leadership)
}

// overtaken reports whether the monitor has given w's loop to another worker, and w hasn't seen it yet.
func (w *workerChan) overtaken() bool { return w.loop != nil && w.loop.word.Load() != w.word }

// retaken makes w the ordinary worker that it is since the monitor gave its loop to another one.
func (w *workerChan) retaken() {
	w.loop = nil
	w.place = placeServing
}

// handOff gives the loop to another worker, in a turn of w's. It reports false if Concurrency has been reached, unless it
// must.
func (l *loop) handOff(w *workerChan, must bool) bool {
	return l.giveAway(w, func() bool { return l.pool.handOver(w, &l.leadership, must) })
}

// handOffKept is handOff for a worker that gets one of the places that are kept, though Concurrency has been reached.
func (l *loop) handOffKept(w *workerChan) bool {
	return l.giveAway(w, func() bool { return l.pool.handOverKept(w, &l.leadership) })
}

// giveAway gives the loop away by handOver, unless the monitor has done so.
func (l *loop) giveAway(w *workerChan, handOver func() bool) bool {
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
	l.pool.retake(leader, &l.leadership)
}

// takeAway takes the loop from its leader, if the loop still has this word, for the caller to find another one. Anybody may call it.
//
// While the server serves that has an end: who leads a crowded loop runs no handler, but an ErrorHandler, ConnState and Logger may
// wait as well. When there are keptPlaces of those their loops wait, too.
func (l *loop) takeAway(word uint64) (leader *workerChan) {
	beyond := l.pool.places.taken.Load() - int64(l.pool.MaxWorkersCount) // the latter may be math.MaxInt
	if beyond >= int64(len(l.group.loops)+keptPlaces) && !l.group.draining.Load() || !l.word.CompareAndSwap(word, (word>>32+1)<<32) {
		return nil
	}
	return l.leader.Load()
}

// leave gives the loop that the connection's worker leads, if it leads one, to another worker.
func (lc *loopConn) leave(class *class.Class) error {
	if lc.worker == nil {
		return nil // it isn't served any more
	}
	return lc.worker.leave(class)
}

func (w *scratch) leave(class *class.Class) error {
	if !w.leads() {
		if !w.mayRun() {
			return errBusy
		}
		return nil
	}
	worker := w.worker
	worker.endClass()
	if !worker.loop.handOff(worker, false) {
		return errBusy
	}
	class.Handoffs.Add(1)
	return nil
}

// leaveKept is leave for a worker that goes on in one of the places that are kept.
func (w *scratch) leaveKept() bool {
	worker := w.worker
	if worker.loop != nil {
		worker.endClass()
		if !worker.loop.handOffKept(worker) || worker.kept {
			return worker.kept
		}
	}
	return worker.pool.exchangeForKept(worker) // the loop was taken away before
}
