package pool

import "time"

// tickLocked begins an expiry period. When the period ends, expire retires the workers that were parked during all of it: they are at the
// bottom of the stack, and their number is the minimum length of the stack in the period. Tracking this minimum costs each task a
// comparison instead of a clock reading, and a timer runs only while workers are parked.
func (p *core[T]) tickLocked() {
	if p.opts.ExpiryDuration == 0 {
		return // DisablePurge
	}
	p.ticking = true
	p.low = len(p.parked)
	p.period++
	period := p.period
	p.timer = time.AfterFunc(p.opts.ExpiryDuration, func() { p.expire(period) })
}

// expire ends a period, and begins the next one if there are still parked workers.
func (p *core[T]) expire(period uint64) {
	p.mu.Lock()
	if !p.ticking || p.period != period {
		p.mu.Unlock()
		return
	}
	retired := p.retireLocked(p.low)
	p.low = len(p.parked)
	if p.ticking = p.low > 0; p.ticking {
		p.timer.Reset(p.opts.ExpiryDuration)
	}
	p.shrinkLocked()
	p.mu.Unlock()
	retire(retired)
}

// stopTickLocked ends the period early.
func (p *core[T]) stopTickLocked() {
	if p.ticking {
		p.ticking = false
		p.timer.Stop()
	}
}

// shrinkLocked frees memory that isn't needed any more after a burst of tasks.
func (p *core[T]) shrinkLocked() {
	if p.opts.PreAlloc {
		return
	}
	p.queue.shrink()
	switch {
	case len(p.parked) == 0:
		p.parked = nil
	case len(p.parked) <= cap(p.parked)/4:
		p.parked = append(make([]*worker, 0, cap(p.parked)/2), p.parked...)
	}
}
