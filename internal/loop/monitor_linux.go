//go:build linux && !386

package loop

import (
	"sync/atomic"
	"time"
)

const (
	// monitorTick is the shortest time in one turn after which a leader loses its seat to another worker.
	monitorTick = time.Millisecond
	// monitorRest is the number of ticks that all leaders must have rested before the monitor rests too.
	monitorRest = 10
)

// monitor watches the loops' leaders, as the runtime's sysmon watches its processors. A leader that is still in the same turn as a tick
// ago loses its seat. So no request needs a clock reading. The monitor rests while all leaders rest.
type monitor struct {
	group   *Group
	resting atomic.Bool
	wake    chan struct{} // cap 1; sent to once for each rest
	quit    chan struct{} // closed when the last leader has left its loop
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
	seen := make([]uint64, len(m.group.seats))
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
		// A leader that began to work just before may not have seen that the monitor rests.
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

// look compares the seats' words with those of the last look, and retakes the seats that are in the same turn. It reports whether a leader
// is active, or may be: one that doesn't rest may be waiting for a processor, and then begins a turn without waking the monitor.
func (m *monitor) look(seen []uint64) (active bool) {
	for _, l := range m.group.loops {
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
		seen = seen[len(l.seats):]
		if awake && !moved {
			l.roster.wakeOne() // the leaders may be waiting for processors, and their connections needn't wait with them
		}
		active = active || awake || moved
	}
	return active
}
