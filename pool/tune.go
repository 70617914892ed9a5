package pool

import "slices"

// Tune changes the capacity. If the capacity rises, the submitters that have waited longest are admitted at once. If it falls,
// surplus idle workers end at once; running tasks go on, and no task starts until fewer run than the new capacity. Tune has no
// effect on a pool without a limit, or if size isn't positive.
func (p *core[T]) Tune(size int) {
	size = min(size, unlimited-1)
	p.mu.Lock()
	if p.capacity == unlimited || size <= 0 || size == p.capacity {
		p.mu.Unlock()
		return
	}
	p.capacity = size
	p.limit = size + p.opts.QueueSize
	p.target = size
	if step := p.opts.Growth.Step; step > 0 {
		p.target = min(step, size)
	}
	retired := p.retireLocked(p.workers - p.target)
	p.admitAll()
	retire(retired)
}

// Warm starts workers until there are n, or as many as the pool allows, so that the first tasks needn't wait for them to start.
// These workers expire like all other workers. Warm has no effect on a closed pool.
func (p *core[T]) Warm(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	var cold []*worker
	for p.workers < min(n, p.target) {
		w := p.newWorkerLocked()
		if w.wake == nil {
			w.wake = make(chan struct{}, 1)
		}
		w.idle, w.started = true, true
		cold = append(cold, w)
		go p.work(w)
	}
	if len(cold) == 0 {
		return
	}
	// The new workers go above the p.low workers that expire at the end of the period, but below those that were used in this
	// period.
	p.parked = slices.Insert(p.parked, p.low, cold...)
	if !p.ticking {
		p.tickLocked()
	}
}

// growLocked adapts target to the fill of the queue after a task was added.
func (p *core[T]) growLocked() {
	g := &p.opts.Growth
	fill := float64(p.queue.n) / float64(p.opts.QueueSize)
	switch {
	case fill > g.High:
		p.target = min(p.target+g.Step, p.capacity)
	case fill < g.Low && p.target > g.Step:
		p.target = max(p.target-g.Step, min(g.Step, p.capacity))
		retire(p.retireLocked(p.workers - p.target))
	}
}
