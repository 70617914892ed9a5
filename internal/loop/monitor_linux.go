//go:build linux && !386

package loop

import (
	"sync/atomic"
	"time"
)

const (
	// monitorTick is how long a leader may be in one turn, at least, until its loop is given to another worker.
	monitorTick = time.Millisecond
	// monitorRest is the number of ticks during which all leaders have rested after which the monitor rests too.
	monitorRest = 10
)

// monitor watches the loops' leaders, as the runtime's sysmon watches its processors: a leader that is in the same turn as
// a tick ago loses its loop. No clock is read for each request. The monitor rests while all leaders do.
type monitor struct {
	group   *Group
	resting atomic.Bool
	wake    chan struct{} // cap 1; sent to once for each rest
	quit    chan struct{} // closed when the last loop has ended
	ended   chan struct{}
}

func (m *monitor) start(g *Group) {
	m.group = g
	m.wake, m.quit, m.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go m.run()
}

// wakeUp ends the monitor's rest. Leaders call it when they begin to work.
func (m *monitor) wakeUp() {
	if m.resting.Load() && m.resting.CompareAndSwap(true, false) {
		m.wake <- struct{}{}
	}
}

func (m *monitor) run() {
	defer close(m.ended)
	ticker := time.NewTicker(monitorTick)
	defer ticker.Stop()
	seen := make([]uint64, len(m.group.loops))
	for quiet := 0; ; {
		select {
		case <-ticker.C:
		case <-m.quit:
			return
		}
		if m.look(seen) {
			quiet = 0
			continue
		}
		if quiet++; quiet < monitorRest {
			continue
		}
		quiet = 0
		ticker.Stop()
		m.resting.Store(true)
		// One that began to work just before didn't see that it was to wake us.
		if m.look(seen) && m.resting.CompareAndSwap(true, false) {
			ticker.Reset(monitorTick)
			continue
		}
		select {
		case <-m.wake:
		case <-m.quit:
			return
		}
		ticker.Reset(monitorTick)
	}
}

// look compares the loops with what they were like at the last look, and retakes those that are in the same turn. It
// reports whether anything has changed, or may: a leader that doesn't rest may be waiting for a processor, and begin a turn
// without waking the monitor.
func (m *monitor) look(seen []uint64) (active bool) {
	backlog := false
	for i, l := range m.group.loops {
		word := l.word.Load()
		if word == seen[i] && word&1 == 1 {
			l.retake(word)
			word = l.word.Load()
		}
		active = active || word != seen[i] || word&1 == 1 || !l.resting.Load()
		seen[i] = word
		backlog = backlog || l.backlog.Load()
	}
	if backlog {
		m.callHelp()
	}
	return active
}

// callHelp wakes a leader that waits, to help one that doesn't keep up.
func (m *monitor) callHelp() {
	for _, l := range m.group.loops {
		if l.sleeping.Load() && l.host.Load() == nil {
			l.ring()
			return
		}
	}
}
