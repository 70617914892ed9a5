package openloop

import (
	"math"
	"math/rand/v2"
)

// schedule says when requests are to be sent: nanoseconds since the run's beginning, ascending.
type schedule struct {
	interval float64 // mean, in nanoseconds
	offset   float64 // of the first, in intervals
	count    float64
	random   *rand.Rand // nil: at constant distances
	at       float64    // of the last, if random
}

// newSchedule makes the part number part, of parts, of a schedule of rate requests per second. The parts together have
// constant distances, or are one Poisson process.
func newSchedule(rate float64, poisson bool, seed uint64, part, parts int) *schedule {
	s := &schedule{interval: 1e9 / rate * float64(parts), offset: float64(part) / float64(parts)}
	if poisson {
		s.random = rand.New(rand.NewPCG(seed, uint64(part)))
	}
	return s
}

// next returns the next time. Constant ones are each computed from the count, so that no error adds up.
func (s *schedule) next() int64 {
	if s.random != nil {
		s.at += s.random.ExpFloat64() * s.interval
		return int64(s.at)
	}
	t := (s.offset + s.count) * s.interval
	s.count++
	return int64(t)
}

// never is a time that doesn't come.
const never = math.MaxInt64

// pacer hands out what is to be sent, each with the time at which it was meant to be. It knows no clock: it is told the time.
// Arrivals that no connection has room for wait here and keep their time.
type pacer struct {
	schedule *schedule // nil: a closed loop, in which there is always something to send
	begin    int64     // of the run
	end      int64     // nothing arrives from then on
	upcoming int64     // the next arrival; never, if there is none
	waiting  ring[int64]
	limit    int // of waiting
}

func newPacer(s *schedule, begin, end int64, limit int) *pacer {
	p := &pacer{schedule: s, begin: begin, end: end, upcoming: never, limit: limit}
	if s != nil {
		p.advance()
	}
	return p
}

func (p *pacer) advance() {
	if p.upcoming = p.begin + p.schedule.next(); p.upcoming >= p.end {
		p.upcoming = never
	}
}

// due returns when the next arrival was meant to be, if that is over.
func (p *pacer) due(now int64) (intended int64, ok bool) {
	if p.upcoming > now {
		return 0, false
	}
	intended = p.upcoming
	p.advance()
	return intended, true
}

// wait queues an arrival. It reports false if too many wait already.
func (p *pacer) wait(intended int64) bool {
	if p.waiting.len() >= p.limit {
		return false
	}
	p.waiting.push(intended)
	return true
}

// take returns the intended time of what is to be sent over a connection that has room now.
func (p *pacer) take(now int64) (intended int64, ok bool) {
	if p.schedule == nil {
		return now, now >= p.begin && now < p.end
	}
	if p.waiting.len() == 0 {
		return 0, false
	}
	return p.waiting.pop(), true
}

// over reports whether nothing arrives or waits any more.
func (p *pacer) over(now int64) bool {
	return now >= p.end && p.upcoming == never && p.waiting.len() == 0
}
