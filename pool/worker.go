package pool

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

const (
	// minTurns is how many submitters a worker lets in before it lets them run. Without that it could keep a processor
	// until all who wait are served, and they would come back all at once. A task's cost hardly shows it at this number.
	minTurns = 16

	// maxTurns is how many it lets in where that is slow: it takes slowYield if others want the processor.
	maxTurns  = 1 << 14
	slowYield = time.Millisecond
)

// worker is a goroutine that runs tasks. It is parked, searching, busy, or ending.
type worker struct {
	// wake ends the wait of a parked worker. Only who has taken the worker off the stack sends, and only once, so that
	// its cap of 1 lets nobody wait. It is nil until the worker parks for the first time.
	wake chan struct{}
	// retire says to a worker that is woken that it is to end, and counts no more. It is stored before the send.
	retire bool
	// started says that there is a goroutine. It belongs to who has made the worker, or has taken it off the stack.
	started bool
	// idle says that the goroutine begins parked. It is stored before it starts.
	idle bool
	// admitted counts the submitters that the worker has let in since it has let them run last. It belongs to the
	// goroutine.
	admitted int
	// ending says that the goroutine ends because it is to, and not by a task. It belongs to the goroutine.
	ending bool
}

// newWorkerLocked counts a worker that is yet to be started.
func (p *core[T]) newWorkerLocked() *worker {
	p.workers++
	p.goroutines++
	p.spawned++
	if w, _ := p.freeWorkers.Get().(*worker); w != nil {
		return w
	}
	return new(worker)
}

// wake wakes or starts the worker that callLocked has returned.
func (p *core[T]) wake(w *worker) {
	switch {
	case w == nil:
	case w.started:
		w.wake <- struct{}{}
	default:
		w.started = true
		go p.work(w)
	}
}

// work is a worker's goroutine.
func (p *core[T]) work(w *worker) {
	defer p.end(w)
	if w.idle {
		w.idle = false
		if <-w.wake; w.retire {
			w.ending = true
			return
		}
	}
	for task, ok := p.search(w); ok; task, ok = p.next(w) {
		p.fn(task)
	}
	w.ending = true
}

// next ends the worker's task and finds it another. It reports false if the worker is to end instead.
func (p *core[T]) next(w *worker) (task T, ok bool) {
	p.mu.Lock()
	p.busy--
	admitted := p.endLocked()
	if admitted != nil {
		return p.nextAdmitted(w, admitted)
	}
	if p.queue.n > 0 && p.busy < p.target {
		task = p.popLocked()
		p.mu.Unlock()
		return task, true
	}
	parked := p.parkLocked(w)
	p.mu.Unlock()
	if !parked {
		return task, false
	}
	if <-w.wake; w.retire {
		return task, false
	}
	return p.search(w)
}

// nextAdmitted is the rest of next for a worker whose task's place a waiter has got.
func (p *core[T]) nextAdmitted(w *worker, admitted *waiter[T]) (task T, ok bool) {
	w.admitted++
	yield := w.admitted >= p.turns
	if p.queue.n == 0 && p.busy < p.target && !admitted.bare && !yield {
		// The waiter's task would be the queue's head.
		p.submitted++
		p.busy++
		if admitted.since != 0 {
			p.measureLocked(admitted.since)
		}
		task = admitted.task
		p.mu.Unlock()
		admitted.ready <- struct{}{}
		return task, true
	}
	p.queueWaiterLocked(admitted)
	if yield {
		w.admitted, p.yieldedAt = 0, clock.Nanotime()
		if !p.searching {
			p.searching = true
			p.mu.Unlock()
			admitted.ready <- struct{}{}
			runtime.Gosched()
			return p.search(w)
		}
		// The worker that is searching comes when it is its turn to run.
	}
	if p.queue.n > 0 && p.busy < p.target && !yield {
		task = p.popLocked()
		p.mu.Unlock()
		admitted.ready <- struct{}{}
		return task, true
	}
	parked := p.parkLocked(w)
	p.mu.Unlock()
	admitted.ready <- struct{}{}
	if !parked {
		return task, false
	}
	if <-w.wake; w.retire {
		return task, false
	}
	return p.search(w)
}

// adaptLocked adapts turns to how long the searching worker that comes now has let others run.
func (p *core[T]) adaptLocked() {
	if clock.Nanotime().Sub(p.yieldedAt) < slowYield {
		p.turns = max(p.turns/2, minTurns)
	} else {
		p.turns = min(4*p.turns, maxTurns)
	}
	p.yieldedAt = 0
}

// search takes the queue's head for a worker that is searching. If there is none, because others have taken it, the
// worker parks again. It reports false if the worker is to end.
func (p *core[T]) search(w *worker) (task T, ok bool) {
	for {
		p.mu.Lock()
		p.searching = false
		if p.yieldedAt != 0 {
			p.adaptLocked()
		}
		if p.queue.n > 0 && p.busy < p.target {
			task = p.popLocked()
			called := p.callLocked()
			p.mu.Unlock()
			p.wake(called)
			return task, true
		}
		parked := p.parkLocked(w)
		p.mu.Unlock()
		if !parked {
			return task, false
		}
		if <-w.wake; w.retire {
			return task, false
		}
	}
}

// parkLocked puts a worker that has nothing to do on the stack. It reports false if the worker is to end: it counts no
// more then.
func (p *core[T]) parkLocked(w *worker) bool {
	if p.closed || p.workers > p.target {
		p.workers--
		return false
	}
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	p.parked = append(p.parked, w)
	if !p.ticking {
		p.tickLocked()
	}
	return true
}

// retireLocked takes the n workers off the stack that were parked longest, and out of the count. The caller is to send
// them off with retire.
func (p *core[T]) retireLocked(n int) []*worker {
	n = min(n, len(p.parked))
	if n <= 0 {
		return nil
	}
	retired := make([]*worker, n)
	copy(retired, p.parked)
	kept := copy(p.parked, p.parked[n:])
	clear(p.parked[kept:])
	p.parked = p.parked[:kept]
	p.low = max(p.low-n, 0)
	p.workers -= n
	return retired
}

// retire ends workers that retireLocked has returned.
func retire(workers []*worker) {
	for _, w := range workers {
		w.retire = true
		w.wake <- struct{}{}
	}
}

// end is the last thing that a worker does. If it wasn't to end, its task has panicked or called runtime.Goexit.
func (p *core[T]) end(w *worker) {
	if !w.ending {
		p.endTask()
		// Deferred, since the handler may call runtime.Goexit as well.
		defer p.goroutineEnded()
		if value := recover(); value != nil {
			p.handlePanic(value)
		}
		return
	}
	*w = worker{wake: w.wake}
	p.freeWorkers.Put(w)
	p.goroutineEnded()
}

// endTask ends the task and the count of a worker that the task has ended. The place is another's at once.
func (p *core[T]) endTask() {
	p.mu.Lock()
	p.panicked++
	p.busy--
	p.workers--
	admitted := p.endLocked()
	if admitted != nil {
		p.queueWaiterLocked(admitted)
	}
	called := p.callLocked()
	p.mu.Unlock()
	p.wake(called)
	if admitted != nil {
		admitted.ready <- struct{}{}
	}
}

func (p *core[T]) handlePanic(value any) {
	if handler := p.opts.PanicHandler; handler != nil {
		handler(value)
		return
	}
	p.opts.Logger.Printf("panic in a task: %v\n%s\n", value, debug.Stack())
}

// goroutineEnded takes a goroutine out of those that a release waits for.
func (p *core[T]) goroutineEnded() {
	p.mu.Lock()
	p.goroutines--
	p.signalLocked()
	p.mu.Unlock()
}
