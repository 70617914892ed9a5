package filo

import "time"

// pace bounds how slowly a peer may send or take bytes: a time of grace, and then an average rate. Only the time spent
// waiting for the peer counts. A time-out between two operations would let a peer that moves one byte now and then
// live for ever.
type pace struct {
	waited time.Duration
	moved  int64
}

// deadline returns until when, on the coarse clock's scale, the peer may keep us waiting for size more bytes; 0 is for ever.
func (p *pace) deadline(now int64, grace time.Duration, rate int, size int) int64 {
	if grace < 0 {
		return 0
	}
	allowed := grace
	switch moved := p.moved + int64(size); {
	case rate <= 0:
		allowed += p.waited
	case moved < int64(rate):
		// Less than a second's worth isn't worth a division for each answer.
	default:
		// In milliseconds, since nanoseconds times bytes would overflow.
		allowed += time.Duration(moved*1000/int64(rate)) * time.Millisecond
	}
	return now + int64(max(allowed-p.waited, 1))
}

// add notes that n bytes moved after a wait.
func (p *pace) add(n int, waited int64) {
	p.moved += int64(n)
	p.waited += time.Duration(waited)
}
