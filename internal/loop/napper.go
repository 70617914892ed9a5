//go:build linux

package loop

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// napper lets a leader that expects an event soon wait in the epoll set itself. Such a nap is one system call, and the event wakes the
// leader's thread directly. In the parker the runtime's scheduler stands in between, and often wakes other threads for nothing.
//
// A nap holds a thread and a processor. So naps are short, and leaders take them only while every
// running handler waits for its own client. A handler that waits for something else, such as a timer or a database, is woken by the
// runtime's scheduler, which does that more punctually while leaders wait in the parker.
type napper struct {
	mean  time.Duration // how long the last waits took, the latest counting most
	ready bool          // a thread without work waits in the runtime's poller
	until clock.Nanos   // from then on the next wait is in the parker
}

const (
	// napTime is how long a nap takes at most, in milliseconds. After that the leader goes to the parker, where it holds no thread.
	napTime = 1
	// Leaders nap while the average wait is at most maxNapMean. With longer waits too many naps would end without an event.
	maxNapMean = 300 * time.Microsecond
	// The loop counts as busy while the average wait is at most busyMean: see monitor.
	busyMean = 300 * time.Microsecond
	// napsTime is how long leaders take naps before one goes to the parker, in case no thread looks after timers and the runtime's poller.
	napsTime = 5 * time.Millisecond
)

// allLoops is the number of loops of the process, of all its servers.
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
		// A leader that has just begun may have other goroutines behind it in its processor's queue, such as the worker that led before it.
		// They would wait for the end of the nap.
		s.appointed = false
		return false
	}
	if !n.ready {
		// The leader has come out of the runtime's poller. Gosched makes the scheduler wake a thread, which finds no work and goes there.
		// Otherwise other goroutines' timers and sockets would wait for the end of the naps.
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
		n.until = 0 // if all loops' leaders napped, no processor would be left for the goroutines that the runtime's poller wakes
	}
}

// count adds the time of a wait to the mean. A long one counts as a millisecond, so that a few short ones make up for it.
func (n *napper) count(took time.Duration) { n.mean += (min(took, time.Millisecond) - n.mean) / 4 }

// onlyClientsAwaited reports whether all handlers that run outside of leaders wait for their clients. The two counts don't cover quite the
// same goroutines: those that end connections or make handshakes also wait for clients, and reserved places don't count as serving. So a
// leader may nap beside a handler that sleeps, which is woken a millisecond late at worst while a thread waits in the runtime's poller.
func (l *Loop) onlyClientsAwaited() bool {
	return l.seats[0].workers.Serving() <= int(l.group.waiting.Load())
}
