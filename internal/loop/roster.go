//go:build linux

package loop

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// roster keeps as few leaders of a loop awake as the work takes. Leaders that compete for a processor, with each other or with other
// programs, delay their clients by whole time slices. Leaders that have little to do spend much of their time on going to sleep and waking
// up. So a leader that finds nothing rests until its bell rings, unless it is the last one awake: that one looks after the loop, and waits
// in the parker. A leader that doesn't keep up wakes the one that rested last.
type roster struct {
	mu     race.Mutex[race.OfLeaf]
	awake  int     // leaders that don't wait for their bells; guarded by mu
	rested []*Seat // the seats of leaders that wait for their bells, the last one to rest at the end; guarded by mu
	closed bool    // no leader rests any more; guarded by mu

	resting atomic.Int32              // len(rested), for readers that don't hold mu
	until   clock.Atomic[clock.Nanos] // until then no leader is woken: it would have no processor
	pause   time.Duration             // how far ahead until was set last; guarded by mu
}

const (
	// When a leader finds that it lacks a processor, no more leaders are woken for minPause. That time doubles, up to maxPause, with each
	// new try that fails at once.
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// rest waits until the leader in the seat is woken. It reports false, without a wait, if no other leader is awake.
func (r *roster) rest(s *Seat) bool {
	r.mu.Lock()
	if r.awake < 2 || r.closed {
		r.mu.Unlock()
		return false
	}
	r.awake--
	r.rested = append(r.rested, s)
	r.resting.Store(int32(len(r.rested)))
	r.mu.Unlock()
	<-s.bell
	return true
}

// wakeOne wakes the leader that rested last. It reports false if none rests.
func (r *roster) wakeOne() bool {
	if r.resting.Load() == 0 {
		return false
	}
	r.mu.Lock()
	last := len(r.rested) - 1
	if last < 0 {
		r.mu.Unlock()
		return false
	}
	s := r.rested[last]
	r.rested = r.rested[:last]
	r.resting.Store(int32(last))
	r.awake++
	r.mu.Unlock()
	s.bell <- struct{}{}
	return true
}

// callHelp wakes one more leader, if there is a processor for it.
func (r *roster) callHelp() {
	if r.resting.Load() > 0 && clock.Nanotime() >= r.until.Load() {
		r.wakeOne()
	}
}

// lacksProcessors records that a leader had to share its processor. For a while, longer if this happened not long ago, callHelp wakes
// nobody. lacksProcessors reports whether the leader should rest: another one is awake.
func (r *roster) lacksProcessors() (rest bool) {
	now := clock.Nanotime()
	r.mu.Lock()
	defer r.mu.Unlock()
	until := r.until.Load()
	if now >= until {
		again := r.pause > 0 && now.Sub(until) <= 2*r.pause
		if r.pause = min(2*r.pause, maxPause); !again {
			r.pause = minPause
		}
		r.until.Store(now + clock.Nanos(r.pause))
	}
	return r.awake > 1
}

// close wakes all leaders, for good.
func (r *roster) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for r.wakeOne() {
	}
}
