package pool

import "time"

// tickLocked begins a period of expiry. At its end the workers that were parked during the whole period are retired. They are at the bottom
// of the stack, and as many as the stack's least length in the period. So a task costs a comparison instead of a clock reading, and a timer
// runs only while workers are parked.
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

// expire ends a period, and begins the next if workers are left on the stack.
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

// shrinkLocked frees memory that a burst has left behind.
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
