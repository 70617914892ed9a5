//go:build linux

package loop

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// monitorTick is the interval of the checks in a busy loop. A leader that is in the same turn at two successive checks loses
	// its seat.
	monitorTick = time.Millisecond
	// quietTick is the interval in a loop that has little to do. It is longer, since a tick wakes a thread, which costs more than a quick
	// request.
	quietTick = 10 * time.Millisecond
	// idleTicks is the number of ticks without any activity after which the monitor stops the ticks.
	idleTicks = 100
)

// monitor watches a loop's leaders, as the runtime's sysmon watches its processors. A leader that is still in the same turn as at the
// previous tick loses its seat. So no request needs to read the clock. There are no ticks while the loop is idle.
//
// The ticks come from a timer of the runtime. With a timer of the system (timerfd), a read from the timer would keep the goroutine's
// processor until sysmon takes it away, which may be 20 ms later.
type monitor struct {
	busy  atomic.Bool   // the leaders' waits are short on average; written by the filler alone
	idle  atomic.Bool   // there are no ticks
	wake  chan struct{} // makes rest return; cap 1
	ended chan struct{}
}

func newMonitor() monitor { return monitor{wake: make(chan struct{}, 1), ended: make(chan struct{})} }

// close makes run return. woken mustn't be called afterwards.
func (m *monitor) close() { close(m.ended) }

// woken sets m.busy, and starts the ticks again if they were stopped. The filler calls it after each wait, when Loop.sleeping is false.
func (m *monitor) woken(busy bool) {
	if m.busy.Load() != busy {
		m.busy.Store(busy)
	}
	if m.idle.Load() && m.idle.CompareAndSwap(true, false) {
		m.wake <- struct{}{}
	}
}

// tick returns how long to wait until the next check.
func (m *monitor) tick() time.Duration {
	if m.busy.Load() {
		return monitorTick
	}
	return quietTick
}

// run checks the loop's leaders at each tick until close.
func (m *monitor) run(l *Loop, running *sync.WaitGroup) {
	defer running.Done()
	seen := make([]uint64, len(l.seats))
	tick := m.tick()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for still := 0; ; still++ {
		select {
		case <-ticker.C:
		case <-m.ended:
			return
		}
		if l.lookAfter(seen) {
			still = 0
		}
		if still == idleTicks {
			ticker.Stop()
			if !m.rest(l) {
				return
			}
			tick, still = 0, 0
		}
		if now := m.tick(); now != tick {
			tick = now
			ticker.Reset(tick)
		}
	}
}

// rest waits until a leader has woken up. It returns false if run must return.
func (m *monitor) rest(l *Loop) bool {
	m.idle.Store(true)
	if !l.sleeping.Load() && m.idle.CompareAndSwap(true, false) {
		return true // the leader may have called woken before m.idle was set
	}
	select {
	case <-m.wake:
		return true
	case <-m.ended:
		return false
	}
}

// lookAfter compares the words of the seats with their values at the last check, and retakes the seats whose leaders are still in the same turn.
// It reports whether leaders are awake, or were awake since the last check.
func (l *Loop) lookAfter(seen []uint64) bool {
	awake, moved := false, false
	for i, s := range l.seats {
		word := s.word.Load()
		if word == seen[i] && word&1 == 1 {
			s.retake(word)
			word = s.word.Load()
		}
		awake = awake || word&1 == 1 || !s.resting.Load()
		moved = moved || word != seen[i]
		seen[i] = word
	}
	if awake && !moved {
		l.roster.wakeOne() // the leaders may be waiting for processors: the connections shouldn't wait, too
	}
	return awake || moved
}
