//go:build linux

package loop

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// napper lets a leader that expects an event soon wait in the epoll set itself. Such a nap is one system call, and the event wakes the
// leader's thread directly. If a leader waits in the parker, the runtime's scheduler wakes it, and often also wakes other threads, which
// find no work.
//
// A nap holds a thread and a processor. So naps are short, and leaders take them only while every running handler waits for its own client.
// A handler that waits for something else, such as a timer or a database, is woken by the runtime's scheduler. The scheduler wakes it more
// punctually while leaders wait in the parker.
type napper struct {
	mean  time.Duration // the moving average of the waits' durations
	ready bool          // a thread that has no work waits in the runtime's poller
	until clock.Nanos   // after this time the next wait is in the parker
}

const (
	// napTime is the longest time of a nap, in milliseconds. After that the leader waits in the parker, where it holds no thread.
	napTime = 1
	// Leaders nap while the average wait is at most maxNapMean. With longer waits, too many naps would end without an event.
	maxNapMean = 300 * time.Microsecond
	// The loop counts as busy while the average wait is at most busyMean: see monitor.
	busyMean = 300 * time.Microsecond
	// napsTime is how long leaders take naps before a leader waits in the parker once, in case no thread checks timers and the runtime's
	// poller.
	napsTime = 5 * time.Millisecond
)

// allLoops is the number of loops of all servers of the process.
var allLoops atomic.Int32

// nap waits for an event, and puts the events that have happened into the batch. It returns false if the leader should wait in the parker.
func (n *napper) nap(l *Loop, s *Seat) bool {
	if n.mean > maxNapMean || !l.onlyClientsAwaited() {
		return false
	}
	began := clock.Nanotime()
	if began > n.until {
		return false
	}
	if s.appointed {
		// Other goroutines, such as the previous leader, may be queued on the processor of a new leader. They would have to wait for the end
		// of the nap.
		s.appointed = false
		return false
	}
	if !n.ready {
		// A leader has waited in the runtime's poller, and no thread waits there now. Gosched makes the scheduler wake a thread, which finds
		// no work and then waits in the poller. Otherwise the timers and sockets of other goroutines would be noticed only after the naps.
		n.ready = true
		runtime.Gosched()
	}
	if l.pending.Load() {
		return true
	}
	woken := l.collect(l.epoll.await(l.events[:], napTime))
	n.count(clock.Nanotime().Sub(began))
	return woken
}

// park waits in the parker.
func (n *napper) park(l *Loop) {
	began := clock.Nanotime()
	l.parker.wait(l)
	now := clock.Nanotime()
	n.count(now.Sub(began))
	n.ready, n.until = false, now+clock.Nanos(napsTime)
	if runtime.GOMAXPROCS(0) <= int(allLoops.Load()) {
		n.until = 0 // if leaders of all loops napped, no processor would be left for the goroutines that the runtime's poller wakes
	}
}

// count adds the duration of a wait to the mean. A long wait counts as a millisecond, so that a few short waits are enough to lower the mean
// again.
func (n *napper) count(took time.Duration) { n.mean += (min(took, time.Millisecond) - n.mean) / 4 }

// onlyClientsAwaited reports whether all handlers that run outside of leaders wait for their clients. It compares two numbers, which don't count
// exactly the same goroutines: waiting includes goroutines that end connections or make handshakes, and Serving doesn't include handlers in
// reserved places. So a leader may nap while a handler sleeps. As long as a thread waits in the runtime's poller, that handler is woken at most a
// millisecond late.
func (l *Loop) onlyClientsAwaited() bool {
	return l.seats[0].workers.Serving() <= int(l.group.waiting.Load())
}
