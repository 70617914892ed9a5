//go:build linux

package loop

import (
	"sync/atomic"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

const (
	// maxEvents is how many events a leader takes from the epoll set at a time.
	maxEvents = 64

	// These slots of an epoll set aren't for connections: firstListener and the slots after it are for listeners, and bellSlot is for the
	// bell.
	firstListener = 1 << 30
	bellSlot      = 1<<31 - 1
)

// Loop waits for many connections at once. Its leaders share an epoll set: one leader at a time takes events from the set and makes them the
// batch. All leaders that are awake serve the connections of the batch. At least one leader is always awake, or waits in such a way that the
// next event wakes it.
type Loop struct {
	group *Group   // immutable
	epoll epollSet // immutable
	seats []*Seat  // immutable

	roster    roster
	sleeping  atomic.Bool // a leader waits in the epoll set or the parker, or is about to: then ring must ring the bell
	breathing atomic.Bool // a leader uses breather
	breather  breather    // belongs to the leader that has set breathing
	stopped   atomic.Bool // the loop has ended; set by the filler
	_         apart.Lines

	// cursor says how much of the batch is used up, and whether a leader, the filler, is filling it: see beingFilled.
	cursor atomic.Uint64
	_      apart.Lines
	// batch holds the events to be served.
	batch [3 * maxEvents]batchEntry

	// Only the filler uses the fields down to parker, except for the parker's bell.
	events  [maxEvents]pollEvent
	filled  int       // entries put into batch and not yet published
	queue   []*Socket // claimed connections; queue[queued:] isn't in a batch yet
	queued  int
	taken   []*Socket // the previous array of l.inbox, which is reused
	napper  napper
	parker  parker
	monitor monitor
	_       apart.Lines

	looks      atomic.Int64 // see Socket.Looks; the filler writes it, and anybody reads it
	mu         race.Mutex[race.OfLoop]
	slots      []*Socket        // by slot; nil: free; guarded by mu
	free       []uint32         // free slots; guarded by mu
	generation uint32           // the generation of the last added connection; guarded by mu
	listeners  []*listenerEntry // by slot - firstListener; guarded by mu
	closing    []*listenerEntry // to be closed after a last accept; guarded by mu
	inbox      []*Socket        // claimed connections that a leader must serve; guarded by mu
	pending    atomic.Bool      // inbox or closing isn't empty, or the loop may have to end
	stopping   bool             // the loop ends when it has no connections left; guarded by mu

	handoffs, retakes atomic.Uint64
}

// newLoop makes a loop with a seat for each element of workers. The seats have no leaders yet.
func newLoop(g *Group, workers []Workers) (*Loop, error) {
	set, err := newEpollSet()
	if err != nil {
		return nil, err
	}
	l := &Loop{group: g, epoll: set, monitor: newMonitor()}
	for _, each := range workers {
		l.seats = append(l.seats, newSeat(l, each))
	}
	l.roster.awake = len(l.seats)
	if err := l.parker.open(set); err != nil {
		set.close()
		return nil, err
	}
	if err := l.breather.open(); err != nil {
		l.parker.close()
		set.close()
		return nil, err
	}
	allLoops.Add(1)
	return l, nil
}

// closeFiles closes the loop's descriptors, and ends its monitor.
func (l *Loop) closeFiles() {
	allLoops.Add(-1)
	l.monitor.close()
	l.breather.close()
	l.parker.close()
	l.epoll.close()
}

// Conns returns the number of the loop's connections.
func (l *Loop) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots) - len(l.free)
}

// poll puts the events of the epoll set into the batch. It reports whether there were any. The caller is the filler.
func (l *Loop) poll() bool {
	l.looks.Add(1)
	return l.collect(l.epoll.poll(l.events[:]))
}

// collect puts the first n elements of events into the batch. It reports whether there are any.
func (l *Loop) collect(n int) bool {
	if n == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events[:n] {
		if e := l.lookUpLocked(&l.events[i]); e.socket != nil || e.listener != nil {
			l.put(e)
		}
		if i%maxAccepts == maxAccepts-1 {
			l.putBacklogsLocked()
		}
	}
	return true
}

// putBacklogsLocked adds each listener that has a backlog to the batch. Without that, the epoll set would report a listener again only after
// all other ready entries, which may be thousands, and each turn accepts at most maxAccepts connections.
func (l *Loop) putBacklogsLocked() {
	l.mu.AssertHeld()
	for _, e := range l.listeners {
		if e != nil && e.hasBacklog() && l.filled < 2*maxEvents { // events and claimed connections need room, too
			l.put(loopEvent{listener: e})
		}
	}
}

// lookUpLocked finds the socket or listener of an event. It finds neither for the bell, or if the socket or listener was removed.
func (l *Loop) lookUpLocked(event *pollEvent) (e loopEvent) {
	l.mu.AssertHeld()
	events, slot, generation := unpackEvent(event)
	e.events = events
	switch {
	case slot == bellSlot:
	case slot >= firstListener:
		e.listener = l.listeners[slot-firstListener]
	case slot < uint32(len(l.slots)):
		if s := l.slots[slot]; s != nil && s.generation == generation {
			e.socket = s
		}
	}
	return
}

// closingListener returns a listener that must accept the waiting connections and then close, or nil if there is none.
func (l *Loop) closingListener() *listenerEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.closing) == 0 {
		return nil
	}
	e := l.closing[0]
	l.closing = l.closing[1:]
	return e
}

// takeInbox queues the posted connections, and ends the loop if isOver returns true. The caller is the filler.
func (l *Loop) takeInbox() {
	l.mu.Lock()
	l.pending.Store(len(l.closing) > 0)
	l.taken, l.inbox = l.inbox, l.taken[:0]
	l.mu.Unlock()
	l.queue = append(l.queue, l.taken...)
	clear(l.taken)
	if l.isOver() {
		l.end()
	}
}

// isOver reports whether the loop is stopping and has nothing left to wait for. The filler checks that after the last connection was
// removed, and after the loop was stopped.
func (l *Loop) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping && len(l.free) == len(l.slots) && len(l.closing)+len(l.inbox) == 0
}

// sleep makes the leader in the seat, which is the filler, wait until there are events or ring is called.
func (l *Loop) sleep(s *Seat) {
	l.sleeping.Store(true)
	if !l.napper.nap(l, s) {
		l.napper.park(l)
	}
	l.sleeping.Store(false)
	l.monitor.woken(l.napper.mean <= busyMean)
}

// ring makes a leader check l.inbox, l.closing and l.stopping.
func (l *Loop) ring() {
	l.pending.Store(true)
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		l.parker.ring()
	}
}

// post leaves a claimed connection for a leader to serve.
func (l *Loop) post(s *Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inbox = append(l.inbox, s)
	l.ring()
}

// Add adds the connection to the loop.
func (l *Loop) Add(s *Socket) error {
	l.mu.Lock()
	l.generation++
	s.loop, s.generation = l, l.generation
	if n := len(l.free); n > 0 {
		s.slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.slots[s.slot] = s
	} else {
		s.slot = uint32(len(l.slots))
		l.slots = append(l.slots, s)
	}
	l.mu.Unlock()
	err := l.epoll.add(int(s.fd), watchConn, s.slot, s.generation)
	if err != nil {
		l.mu.Lock()
		l.removeLocked(s)
		l.mu.Unlock()
	}
	return err
}

// remove closes a connection's socket and removes the connection from the loop.
func (l *Loop) remove(s *Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(s)
}

func (l *Loop) removeLocked(s *Socket) {
	l.mu.AssertHeld()
	if s.IsClosed() {
		return
	}
	s.closing() // from here on no goroutine writes to the descriptor, whose number may be reused
	sock.Close(int(s.fd))
	l.forgetLocked(s)
}

// forgetLocked removes a connection from the loop after its socket was closed or given to a duplicate.
func (l *Loop) forgetLocked(s *Socket) {
	l.mu.AssertHeld()
	s.fd = -1
	l.slots[s.slot] = nil
	l.free = append(l.free, s.slot)
	if l.stopping && len(l.free) == len(l.slots) {
		l.ring()
	}
}

// stop makes the loop end when it has no connections left.
func (l *Loop) stop() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.ring()
}

// end makes the leaders leave the loop.
func (l *Loop) end() {
	l.stopped.Store(true)
	l.roster.close()
}
