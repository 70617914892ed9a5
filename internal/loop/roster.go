//go:build linux

package loop

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// roster keeps as few leaders of a loop awake as the work needs. Leaders that compete for a processor, with each other or with other
// programs, delay their clients by whole time slices. Leaders that have little to do spend much of their time on going to sleep and waking
// up. So a leader that finds no work rests until its bell rings. Only the last leader awake waits for the loop's events instead. A leader
// that doesn't keep up with its work wakes the leader that began to rest most recently.
type roster struct {
	mu     race.Mutex[race.OfLeaf]
	awake  int     // how many leaders don't wait for their bells; guarded by mu
	rested []*Seat // the seats of leaders that wait for their bells, in the order in which the waits have begun; guarded by mu
	closed bool    // no leader rests any more; guarded by mu

	resting atomic.Int32              // len(rested), for readers that don't hold mu
	until   clock.Atomic[clock.Nanos] // until this time callHelp wakes no leader, since the leader would have no processor
	pause   time.Duration             // the last pause from which until was computed; guarded by mu
}

const (
	// When a leader finds that it lacks a processor, callHelp wakes no leaders for minPause. The pause doubles, up to maxPause, each time a
	// leader lacks a processor again soon after the pause.
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// rest waits until the leader in the seat is woken. It returns false at once if no other leader is awake.
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

// wakeOne wakes the leader that began to rest most recently. It returns false if no leader rests.
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

// callHelp wakes one more leader, if a processor is likely to be free for it: see until.
func (r *roster) callHelp() {
	if r.resting.Load() > 0 && clock.Nanotime() >= r.until.Load() {
		r.wakeOne()
	}
}

// lacksProcessors records that a leader had to share its processor. For a while callHelp then wakes no leaders; the time is longer if the
// same happened shortly before. lacksProcessors returns true if the leader should rest, since another leader is awake.
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

// close wakes all leaders. After that no leader rests any more.
func (r *roster) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for r.wakeOne() {
	}
}
