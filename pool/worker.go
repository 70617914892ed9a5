package pool

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

const (
	// minTurns is how many submitters a worker admits before it yields, so that they run. Without yields the worker could keep its
	// processor until all waiters are served, which would then all submit again at the same moment. One yield for every 16 tasks hardly adds
	// to the cost of a task.
	minTurns = 16

	// longTask is the duration from which tasks count as long. If tasks are long, a worker yields after each submitter that it admits.
	// Otherwise the submitter would wait for the worker's processor until the worker's next task ends, even if another processor is idle.
	longTask = 5 * time.Microsecond

	// timedYields is the sampling interval of yields: a worker that yields for each submitter times only one yield in 16, and the task after
	// that yield.
	timedYields = 16

	// maxTurns is the largest number of submitters that a worker admits before it yields. The number rises while yields take slowYield or
	// longer, which shows that other goroutines compete for the processor.
	maxTurns  = 1 << 14
	slowYield = time.Millisecond
)

// worker is a goroutine that runs tasks. It is parked, searching, busy, or ending.
type worker struct {
	// wake ends the wait of a parked worker. Only the goroutine that has taken the worker off the stack sends, and only once. The
	// capacity of wake is 1, so the send never blocks. wake is nil until the worker parks for the first time.
	wake chan struct{}
	// retire tells a woken worker, which is no longer counted, to end. It is stored before the send to wake.
	retire bool
	// started says that the worker has a goroutine. Only the goroutine that has made the worker, or has taken it off the stack,
	// uses started.
	started bool
	// idle says that the worker is already parked when its goroutine starts. It is stored before the goroutine starts.
	idle bool
	// admitted counts the submitters that the worker has admitted since it last yielded. Only the worker's goroutine uses it.
	admitted int
	// yields counts the worker's yields. timedAt is the start of the running task if its duration is measured, 0 otherwise. Only the
	// worker's goroutine uses yields and timedAt.
	yields  uint
	timedAt clock.Nanos
	// ending says that the goroutine ends normally, and not because its task has panicked or called runtime.Goexit. Only the
	// worker's goroutine uses it.
	ending bool
}

// newWorkerLocked counts a new worker and returns it. The caller must start it.
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

// next ends the worker's task and returns the next one. It returns false if the worker must end.
func (p *core[T]) next(w *worker) (task T, ok bool) {
	var took time.Duration
	timed := w.timedAt != 0
	if timed {
		took, w.timedAt = clock.Nanotime().Sub(w.timedAt), 0
	}
	p.mu.Lock()
	p.busy--
	if timed {
		p.longTasks = took >= longTask
	}
	admitted := p.endLocked()
	if admitted != nil {
		return p.nextAdmitted(w, admitted)
	}
	if p.queue.n > 0 && p.busy < p.target {
		task = p.popLocked()
		p.mu.Unlock()
		return task, true
	}
	return p.park(w, nil)
}

// nextAdmitted completes next if a waiter has been given the place of the worker's task. The caller holds the lock, and
// nextAdmitted releases it.
func (p *core[T]) nextAdmitted(w *worker, admitted *waiter[T]) (task T, ok bool) {
	w.admitted++
	yield := w.admitted >= p.turns
	if p.queue.n == 0 && p.busy < p.target && !admitted.bare && !yield {
		// The waiter's task would be the queue's head, so the worker runs it at once.
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
		return p.yield(w, admitted)
	}
	if p.queue.n > 0 && p.busy < p.target {
		task = p.popLocked()
		p.mu.Unlock()
		admitted.ready <- struct{}{}
		return task, true
	}
	return p.park(w, admitted)
}

// yield lets the admitted submitter, and other goroutines that wait for the processor, run before the worker takes its next task. The
// caller holds the lock, and yield releases it.
func (p *core[T]) yield(w *worker, admitted *waiter[T]) (task T, ok bool) {
	w.admitted = 0
	w.yields++
	timed := p.turns > 1 || w.yields%timedYields == 0
	if timed {
		p.yieldedAt = clock.Nanotime()
	}
	searches := !p.searching
	if !searches && !p.longTasks {
		// Another worker is already searching, so this one can park instead of coming back for the queue.
		return p.park(w, admitted)
	}
	p.searching = true
	p.mu.Unlock()
	admitted.ready <- struct{}{}
	runtime.Gosched()
	p.mu.Lock()
	if searches {
		p.foundLocked()
	}
	task, ok = p.take(w)
	if timed {
		w.timedAt = clock.Nanotime()
	}
	return task, ok
}

// park parks a worker that has no task, and wakes the waiter that the worker has admitted, if any. The caller holds the lock, and park
// releases it. park returns the worker's next task when there is one, or false if the worker must end.
func (p *core[T]) park(w *worker, admitted *waiter[T]) (task T, ok bool) {
	parked := p.parkLocked(w)
	p.mu.Unlock()
	if admitted != nil {
		admitted.ready <- struct{}{}
	}
	if !parked {
		return task, false
	}
	if <-w.wake; w.retire {
		return task, false
	}
	return p.search(w)
}

// adaptLocked adapts turns to the duration of tasks and of the last yield. A yield lasts until a searching worker reaches the queue.
func (p *core[T]) adaptLocked() {
	fewest := minTurns
	if p.longTasks {
		fewest = 1
	}
	if clock.Nanotime().Sub(p.yieldedAt) < slowYield {
		p.turns = max(p.turns/2, fewest)
	} else {
		p.turns = min(4*p.turns, maxTurns)
	}
	p.yieldedAt = 0
}

// search returns the task at the queue's head to a searching worker. If other workers have taken all tasks, the worker parks
// again. search returns false if the worker must end.
func (p *core[T]) search(w *worker) (task T, ok bool) {
	p.mu.Lock()
	p.foundLocked()
	return p.take(w)
}

// foundLocked ends the search of a worker that has reached the queue.
func (p *core[T]) foundLocked() {
	p.searching = false
	if p.yieldedAt != 0 {
		p.adaptLocked()
	}
}

// take removes and returns the task at the queue's head. If there is no task that may run, it parks the worker until there is one. take
// returns false if the worker must end. The caller holds the lock, and take releases it.
func (p *core[T]) take(w *worker) (task T, ok bool) {
	for {
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
		p.mu.Lock()
		p.foundLocked()
	}
}

// parkLocked puts a worker without a task on the stack. It returns false if the worker must end; that worker is no longer counted.
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

// retireLocked removes the n workers that have been parked longest from the stack, and stops counting them as workers. The caller
// must pass them to retire.
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

// end runs when a worker's goroutine ends. If ending isn't set, the worker's task has panicked or called runtime.Goexit.
func (p *core[T]) end(w *worker) {
	if !w.ending {
		p.endTask()
		// Deferred, since the panic handler may call runtime.Goexit.
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

// endTask stops counting a task that panicked or called runtime.Goexit, and its worker. Another task may use its place at once.
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

// goroutineEnded removes a goroutine from those that a release waits for.
func (p *core[T]) goroutineEnded() {
	p.mu.Lock()
	p.goroutines--
	p.signalLocked()
	p.mu.Unlock()
}
