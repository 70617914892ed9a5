//go:build !386

package loop

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

const (
	// maxEvents is how many events a leader takes from an epoll set at a time.
	maxEvents = 24
	// backlogged is the number of events in a batch from which on another loop's leader should help.
	backlogged = 12

	// maxTurn is how long a leader is busy before it lets the runtime's scheduler run other goroutines. The leader reads the clock every
	// turnRounds batches.
	maxTurn    = 500 * time.Microsecond
	turnRounds = 4

	// Slots of the entries of an epoll set that aren't connections: guests from firstGuest on, listeners from firstListener on, and the
	// bell.
	firstGuest    = 1 << 29
	firstListener = 1 << 30
	bellSlot      = 1<<31 - 1
)

// Loop waits for many connections at once. One worker leads it: the leader takes the events of the epoll set, and serves their
// connections itself, one after the other. Another worker becomes the leader before the first does something that may block, or when the
// monitor finds that it has been in one turn for too long.
//
// Unless said otherwise a field belongs to the leader.
type Loop struct {
	group   *Group   // immutable
	index   int      // in group.loops; immutable
	epoll   epollSet // immutable
	workers Workers  // where the leaders come from; immutable

	// word holds a term in its high half, incremented when the loop is taken from its leader, and a count of turns in its low half,
	// which is odd during a turn. Of the leader and a goroutine that takes the loop away, the one whose exchange succeeds gets it.
	word   atomic.Uint64
	leader atomic.Pointer[Worker] // the current leader, for takeAway
	// lost becomes odd when a leader loses the loop, and even when somebody sees that no worker is beyond the cap: see Workers. It only
	// grows, so a goroutine that makes it even can't undo a later loss.
	lost atomic.Uint64
	// sleeping says that the leader waits, or is about to: a goroutine that has news for the leader rings the bell.
	sleeping atomic.Bool
	resting  atomic.Bool // the leader waits; a ring clears sleeping, but not this
	backlog  atomic.Bool // the last batch was a large one
	parker   parker
	breather breather

	// batch holds the events to be served. cursor's high half counts batches; its low half holds the index of the next event and their
	// number. Leaders of other loops that have nothing to do take events from the batch too.
	batch  [3 * maxEvents]batchEntry
	cursor atomic.Uint64

	events    [maxEvents]pollEvent
	filled    int       // entries put into batch and not yet published
	queue     []*Socket // claimed connections to be served, from index queued on
	queued    int
	rounds    int
	busySince clock.Nanos // 0: to be set anew
	taken     []*Socket   // the last content of inbox
	share     share
	load      load
	guests    []*Loop
	ready     []*Loop       // guests that have events
	stopped   bool          // the loop has ended
	ended     chan struct{} // closed when the last loop of the group has ended

	// host is the loop whose guest this loop is, nil if none. Changed with hosting.mu and mu held.
	host       atomic.Pointer[Loop]
	released   chan struct{} // the host sends to it to let the loop go; cap 1
	guestSince time.Time     // when it last became a guest; written by the leader, then read by the host
	guestTime  time.Duration // the least time as a guest; likewise
	hosted     int           // guests, including those in arrivals; guarded by hosting.mu

	mu         race.Mutex       // in the order of docs/LOOP.md, "Locks"
	slots      []*Socket        // by slot; nil: free; guarded by mu
	free       []uint32         // free slots; guarded by mu
	generation uint32           // of the last connection; guarded by mu
	listeners  []*listenerEntry // by slot - firstListener; guarded by mu
	closing    []*listenerEntry // to be closed after a last accept; guarded by mu
	inbox      []*Socket        // claimed connections for the leader to serve; guarded by mu
	arrivals   []*Loop          // guests that the leader hasn't received yet; guarded by mu
	pending    atomic.Bool      // inbox isn't empty, or the leader has other news
	stopping   bool             // the loop ends when it has no connections left; guarded by mu

	handoffs, retakes, steals, parks atomic.Uint64
}

// newLoop makes a loop, which has no leader yet.
func newLoop(g *Group, index int, workers Workers) (*Loop, error) {
	set, err := newEpollSet()
	if err != nil {
		return nil, err
	}
	l := &Loop{group: g, index: index, workers: workers, epoll: set, ended: make(chan struct{}), released: make(chan struct{}, 1)}
	if err := l.parker.open(set); err != nil {
		set.close()
		return nil, err
	}
	if err := l.breather.open(); err != nil {
		l.parker.close()
		set.close()
		return nil, err
	}
	return l, nil
}

// closeFiles closes the loop's own descriptors.
func (l *Loop) closeFiles() {
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

// Index returns the loop's index in its group.
func (l *Loop) Index() int { return l.index }

// Lost returns the count, kept by Workers, by which Crowded knows that a leader has lost the loop.
func (l *Loop) Lost() *atomic.Uint64 { return &l.lost }

// Lead serves the loop until w has given it away or lost it, or the loop has ended.
func (l *Loop) Lead(w *Worker) {
	w.loop = l
	l.leader.Store(w)
	w.spent = 0
	if l.isBreathless() {
		l.share.end()
		l.catchBreath() // if leaders change often, breathe may not be reached for long
	}
	for w.loop == l && !l.stopped {
		if !l.step(w) {
			l.rest(w)
		}
	}
}

// step does the next piece of work. It reports false if there was none.
func (l *Loop) step(w *Worker) bool {
	if e, ok := l.take(); ok {
		l.serve(w, e)
		return true
	}
	l.breathe()
	w.spent = 0
	if l.pending.Load() {
		if e := l.closingListener(); e != nil {
			l.turn(w, nil, e)
			return true
		}
		if l.takeInbox(); l.stopped {
			return true
		}
	}
	found := l.poll(l)
	if backlog := l.filled >= backlogged; backlog != l.backlog.Load() {
		l.backlog.Store(backlog)
	}
	l.requeue()
	if l.filled > 0 {
		l.publish()
		return true
	}
	return found || l.steal(w)
}

// serve begins a turn for the event's connection or listener.
func (l *Loop) serve(w *Worker, e loopEvent) {
	switch {
	case e.listener != nil:
		l.turn(w, nil, e.listener)
	case e.socket != nil && (e.events == claimedEvent || e.socket.event(e.events)):
		l.turn(w, e.socket, nil)
	}
}

// breathe is called between batches. Once the leader has been busy for maxTurn, it evaluates the share and lets other goroutines run.
func (l *Loop) breathe() {
	if l.rounds++; l.rounds%turnRounds != 0 {
		return
	}
	switch {
	case l.busySince == 0:
		l.busySince = clock.Nanotime()
		l.share.begin()
	case l.isBreathless():
		l.share.end()
		l.shareProcessors()
		l.catchBreath()
	}
}

// isBreathless reports whether the loop has been served for longer than maxTurn without a break.
func (l *Loop) isBreathless() bool {
	return l.busySince != 0 && clock.Nanotime().Sub(l.busySince) > maxTurn
}

// catchBreath lets the runtime's scheduler look after other goroutines, timers and its own poller. The caller has ended the measurement
// of the share before.
func (l *Loop) catchBreath() {
	l.breather.breathe()
	// After the wait this goroutine may run before others that the same check of the poller found. After Gosched it runs behind them.
	runtime.Gosched()
	l.busySince = clock.Nanotime()
	l.share.begin()
}

// poll takes the events of the epoll set of a loop: this one, a guest or a busy one. It reports whether it found any.
func (l *Loop) poll(of *Loop) bool {
	n := of.epoll.poll(l.events[:])
	if n == 0 {
		return false
	}
	own, rung := of == l || of.host.Load() == l, false
	guests := l.ready[:0]
	of.mu.Lock()
	for i := range l.events[:n] {
		e := of.lookUpLocked(&l.events[i])
		rung = rung || of != l && uint32(l.events[i].Fd) == bellSlot
		if e.guest != nil && of == l {
			guests = append(guests, e.guest)
		}
		// The listeners of a busy loop are left to its leader: their events will be reported again.
		if e.socket != nil || e.listener != nil && own {
			l.put(e)
		}
	}
	of.mu.Unlock()
	if of == l && n == len(l.events) && len(l.guests) > 0 {
		// The host can't keep up. Each guest has only one place among the events, however many of its connections are ready.
		first := l.rounds % len(l.guests)
		guests = append(append(guests[:0], l.guests[first:]...), l.guests[:first]...)
	}
	l.ready = guests
	switch {
	case rung && own:
		l.letGo(of)
	case rung:
		of.parker.ring() // the ring was for the busy loop's leader
	}
	for _, guest := range guests {
		if l.filled <= maxEvents { // leaves room for the queue; the event is reported again
			l.poll(guest)
		}
	}
	return l.filled > 0 || own
}

// lookUpLocked finds the guest, socket or listener that an event is for: none if it is gone.
func (l *Loop) lookUpLocked(event *pollEvent) (e loopEvent) {
	l.mu.AssertHeld()
	e.events = event.Events
	switch slot := uint32(event.Fd); {
	case slot == bellSlot:
	case slot >= firstListener:
		e.listener = l.listeners[slot-firstListener]
	case slot >= firstGuest:
		e.guest = l.group.loops[slot-firstGuest]
	case slot < uint32(len(l.slots)):
		if s := l.slots[slot]; s != nil && s.generation == uint32(event.Pad) {
			e.socket = s
		}
	}
	return
}

// closingListener returns a listener that is to be closed after a last accept, nil if there is none.
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

// takeInbox queues the posted connections, and ends the loop if it is over.
func (l *Loop) takeInbox() {
	l.mu.Lock()
	l.pending.Store(len(l.closing) > 0)
	l.taken, l.inbox = l.inbox, l.taken[:0]
	arrived := l.arrivals
	l.arrivals = nil
	l.mu.Unlock()
	l.receiveGuests(arrived)
	l.queue = append(l.queue, l.taken...)
	clear(l.taken)
	switch {
	case !l.isOver():
	case len(l.queue) == 0:
		l.end()
	default:
		l.pending.Store(true) // first serve the connections that a guest had queued
	}
}

// isOver reports whether the loop has nothing left to wait for. The leader asks when the last connection has gone, and when the loop is
// stopped.
func (l *Loop) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping && len(l.free) == len(l.slots) && len(l.closing)+len(l.inbox)+len(l.arrivals)+len(l.guests) == 0
}

// steal serves a connection of another loop whose leader is busy, or takes events for it. That leader's thread may be waiting for a
// processor, and its connections needn't wait with it.
func (l *Loop) steal(w *Worker) bool {
	loops := l.group.loops
	for i := 1; i < len(loops); i++ {
		other := loops[(l.index+i)%len(loops)]
		if other.resting.Load() {
			continue
		}
		if e, ok := other.take(); ok {
			l.steals.Add(1)
			if e.listener == nil { // a listener's event is reported again
				l.serve(w, e)
			}
			return true
		}
		if l.poll(other) {
			l.steals.Add(1)
			l.publish()
			return true
		}
	}
	return false
}

// turn serves a connection, or accepts from a listener. Meanwhile the loop may be taken away from w.
func (l *Loop) turn(w *Worker, s *Socket, listener *listenerEntry) {
	word := l.word.Load() + 1
	l.word.Store(word)
	w.word = word
	returned := false
	defer l.turnFailed(w, s, &returned)
	if s != nil {
		if s.served.Turn(w) {
			s.Post()
		}
	} else {
		l.accept(listener)
	}
	returned = true
	l.endTurn(w)
}

// endTurn ends w's turn. If the loop was taken away from w, w becomes an ordinary worker.
func (l *Loop) endTurn(w *Worker) {
	w.EndClass()
	if w.loop == l && !l.word.CompareAndSwap(w.word, w.word+1) {
		w.retaken()
	}
}

// turnFailed ends a turn that panicked or called runtime.Goexit: the connection is lost, and the loop may need a leader.
func (l *Loop) turnFailed(w *Worker, s *Socket, returned *bool) {
	if *returned {
		return
	}
	value := recover()
	if value != nil {
		l.workers.Panicked(value, debug.Stack())
	}
	if s != nil {
		s.served.Abandon(w, value == nil)
	}
	w.owner.EndKept()
	l.endTurn(w)
	if value == nil && w.loop == l {
		l.workers.HandOver(w, true)
	}
}

// rest waits for work.
func (l *Loop) rest(w *Worker) {
	l.parks.Add(1)
	l.lookForHost()
	l.resting.Store(true)
	l.sleeping.Store(true)
	l.parker.wait(l)
	l.sleeping.Store(false)
	l.resting.Store(false)
	l.load.since = clock.Nanotime()
	l.busySince, l.rounds, l.share.quiet = 0, 0, 0
	l.group.monitor.wakeUp()
}

// ring makes a waiting leader look for news.
func (l *Loop) ring() {
	l.pending.Store(true)
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		l.parker.ring()
	}
}

// post leaves a claimed connection to the leader.
func (l *Loop) post(s *Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if host := l.host.Load(); host != nil {
		host.post(s) // with mu held: otherwise the host might let the loop go meanwhile, and even end
		return
	}
	l.inbox = append(l.inbox, s)
	l.ring()
}

// Add makes the connection one of the loop's.
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

// remove closes a connection's socket and forgets the connection.
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
	s.closing() // from here on nobody writes to a descriptor number that may be reused
	sock.Close(int(s.fd))
	l.forgetLocked(s)
}

// forgetLocked forgets a connection whose socket is closed or belongs to somebody else.
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

func (l *Loop) end() {
	l.stopped = true
	l.resting.Store(true) // no loop looks for work here any more
	l.group.release()
}
