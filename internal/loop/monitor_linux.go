//go:build linux && !386

package loop

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// monitorTick is the shortest time in one turn after which a leader loses its seat to another worker.
const monitorTick = time.Millisecond

// monitor watches a loop's leaders, as the runtime's sysmon watches its processors. A leader that is still in the same turn as a tick
// ago loses its seat. So no request needs a clock reading.
//
// Each tick wakes a thread, which costs more than a quick request. So there are ticks only while the loop is busy. When it has little to
// do, its leader starts a timer of the system's after each wait, and stops it before the next. That takes a system call and wakes nobody,
// where a timer of the runtime's would wake a thread to look at the new time. If the timer rings, the leader has been awake for a tick,
// and the ticks begin. A thread of its own waits for that: while the leader computes, perhaps no thread waits in the runtime's poller.
type monitor struct {
	timer   int         // a timerfd; closed by run, if that was called
	running bool        // run was called, or is about to be
	on      atomic.Bool // the timer runs, or there are ticks; the filler's
	closed  atomic.Bool
}

// open makes the monitor's timer, and starts it.
func (m *monitor) open() (err error) {
	if m.timer, err = sock.NewTimerFD(); err == nil {
		m.start()
	}
	return err
}

// close ends run. Nobody calls start or stop any more.
func (m *monitor) close() {
	if !m.running {
		sock.Close(m.timer)
		return
	}
	m.on.Store(false)
	m.closed.Store(true)
	sock.SetTimerFD(m.timer, 1)
}

// start begins to watch the leaders. After open only the filler calls it.
func (m *monitor) start() {
	if !m.on.Load() {
		m.on.Store(true)
		sock.SetTimerFD(m.timer, monitorTick)
	}
}

// stop is called by the filler when it is about to wait, as the only leader that is awake.
func (m *monitor) stop() {
	if m.on.Load() {
		m.on.Store(false)
		sock.SetTimerFD(m.timer, 0)
	}
}

// run looks after the loop's leaders until close.
func (m *monitor) run(l *Loop, running *sync.WaitGroup) {
	defer running.Done()
	defer sock.Close(m.timer)
	seen := make([]uint64, len(l.seats))
	for !m.closed.Load() {
		if sock.AwaitTimerFD(m.timer) {
			l.lookAfter(seen)
			m.tick(l, seen)
		}
	}
}

// tick looks after the leaders at each tick until the filler calls stop.
func (m *monitor) tick(l *Loop, seen []uint64) {
	ticker := time.NewTicker(monitorTick)
	defer ticker.Stop()
	for m.on.Load() {
		<-ticker.C
		l.lookAfter(seen)
	}
}

// lookAfter compares the seats' words with those of the last look, and retakes the seats that are in the same turn.
func (l *Loop) lookAfter(seen []uint64) {
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
	switch {
	case moved:
	case awake:
		l.roster.wakeOne() // the leaders may be waiting for processors, and their connections needn't wait with them
	default:
		// The leader that waits will find that the loop isn't busy any more, and end the ticks.
		if g := l.group; g.hold() {
			l.ring()
			g.release()
		}
	}
}
