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
	// maxEvents is how many events a leader takes at a time.
	maxEvents = 24
	// backlogged is how many at a time show that another loop's leader had better help.
	backlogged = 12

	// maxTurn is how long leaders are busy before they let the runtime's scheduler run what else there is. One looks at the
	// clock every turnRounds batches.
	maxTurn    = 500 * time.Microsecond
	turnRounds = 4

	// Slots of an epoll set's entries that aren't connections: the guests from firstGuest on, the listeners from
	// firstListener on, and the bell.
	firstGuest    = 1 << 29
	firstListener = 1 << 30
	bellSlot      = 1<<31 - 1
)

// Loop waits for many connections at once. One worker leads it: it takes the events of the epoll set and serves the
// connections that they are for, one after the other, where it is. Before something that may block, and when the monitor
// finds that it has been in one turn for too long, another worker becomes the leader.
//
// Unless said otherwise a field belongs to the leader.
type Loop struct {
	group   *Group   // immutable
	index   int      // in group.loops; immutable
	epoll   epollSet // immutable
	workers Workers  // who lead; immutable

	// word says how the leader is doing: a term, which each change of the leader ends, in the high half, and in the low one
	// a count of turns, odd during a turn. The leader and the monitor exchange it to settle who takes the loop away.
	word   atomic.Uint64
	leader atomic.Pointer[Worker] // who leads, for the monitor
	// lost is odd from when a leader loses the loop until somebody sees that no worker is beyond the cap: see Workers. It only grows, so
	// that whoever makes it even can't undo a loss that he hasn't seen.
	lost atomic.Uint64
	// sleeping says that the leader waits, or is about to: who has something for it rings the bell.
	sleeping atomic.Bool
	resting  atomic.Bool // the leader waits; unlike sleeping it says so until the leader goes on
	backlog  atomic.Bool // the last batch was a large one
	parker   parker
	breather breather

	// batch is what is to be served, from the cursor on: its low half says the next one and how many there are, its high one
	// counts batches. Leaders who have nothing to do take from it too.
	batch  [3 * maxEvents]batchEntry
	cursor atomic.Uint64

	events    [maxEvents]pollEvent
	filled    int       // of batch, before the cursor says so
	queue     []*Socket // connections that were claimed and are to be served, from queued on
	queued    int
	rounds    int
	busySince clock.Nanos // 0 when it is to be set anew
	taken     []*Socket   // from the inbox
	share     share
	load      load
	guests    []*Loop
	ready     []*Loop       // guests that have events
	stopped   bool          // the loop is over
	ended     chan struct{} // closed then

	// host is the loop whose guest this is; nil is none. Changed under hosting.mu and mu.
	host       atomic.Pointer[Loop]
	released   chan struct{} // ends that for the leader; cap 1
	guestSince time.Time     // when it last became a guest; the leader's, and then the host's
	guestTime  time.Duration // for how long it is one at least; likewise
	hosted     int           // guests, those included that the leader hasn't received; guarded by hosting.mu

	mu         race.Mutex       // in the order of docs/LOOP.md, "Locks"
	slots      []*Socket        // by slot; nil is free; guarded by mu
	free       []uint32         // slots; guarded by mu
	generation uint32           // of the last connection; guarded by mu
	listeners  []*listenerEntry // by slot - firstListener; guarded by mu
	closing    []*listenerEntry // to be accepted from a last time and closed; guarded by mu
	inbox      []*Socket        // claimed, to be served by the leader; guarded by mu
	arrivals   []*Loop          // guests that the leader hasn't received yet; guarded by mu
	pending    atomic.Bool      // inbox isn't empty, or there is other news
	stopping   bool             // the loop ends when it has no connection; guarded by mu

	handoffs, retakes, steals, parks atomic.Uint64
}

// newLoop makes a loop; it has no leader yet.
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

// Conns returns how many connections the loop has.
func (l *Loop) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots) - len(l.free)
}

// Index returns which loop of its group it is.
func (l *Loop) Index() int { return l.index }

// Lost returns the count that Workers keeps of the leaders that have lost the loop.
func (l *Loop) Lost() *atomic.Uint64 { return &l.lost }

// Lead serves the loop until w has given it away, or it is over.
func (l *Loop) Lead(w *Worker) {
	w.loop = l
	l.leader.Store(w)
	w.spent = 0
	if l.isBreathless() {
		l.share.end()
		l.catchBreath() // a loop that goes from hand to hand may not come to the end of its batch for long
	}
	for w.loop == l && !l.stopped {
		if !l.step(w) {
			l.rest(w)
		}
	}
}

// step does one thing that there is to do. It reports false if there was nothing.
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

// serve lets what an event is for have its turn.
func (l *Loop) serve(w *Worker, e loopEvent) {
	switch {
	case e.listener != nil:
		l.turn(w, nil, e.listener)
	case e.socket != nil && (e.events == claimedEvent || e.socket.event(e.events)):
		l.turn(w, e.socket, nil)
	}
}

// breathe is called between batches, and now and then does what a leader does that has been busy for long.
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

// isBreathless reports whether the loop has been served for so long that other things should have their turn.
func (l *Loop) isBreathless() bool {
	return l.busySince != 0 && clock.Nanotime().Sub(l.busySince) > maxTurn
}

// catchBreath lets the runtime's scheduler look after other goroutines, timers and its own poller. The share isn't measured
// meanwhile: the caller has ended that.
func (l *Loop) catchBreath() {
	l.breather.breathe()
	// Who waits may come back before those who were found with it, who yields comes back after them.
	runtime.Gosched()
	l.busySince = clock.Nanotime()
	l.share.begin()
}

// poll takes the events of a loop's epoll set, which may be another's. It reports whether there were any.
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
		// Another's listeners are left to it: they will be reported again.
		if e.socket != nil || e.listener != nil && own {
			l.put(e)
		}
	}
	of.mu.Unlock()
	if of == l && n == len(l.events) && len(l.guests) > 0 {
		// In the queue of a loop that doesn't keep up a guest has a single place, however much waits in it.
		first := l.rounds % len(l.guests)
		guests = append(append(guests[:0], l.guests[first:]...), l.guests[:first]...)
	}
	l.ready = guests
	switch {
	case rung && own:
		l.letGo(of)
	case rung:
		of.parker.ring() // it was for the other's leader
	}
	for _, guest := range guests {
		if l.filled <= maxEvents { // or else it is reported again; there must be room for the queue
			l.poll(guest)
		}
	}
	return l.filled > 0 || own
}

// lookUpLocked finds out what an event is for. It may be for something that is gone.
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

// closingListener returns a listener that is to be accepted from a last time, nil if there is none.
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

// takeInbox queues what was posted, and ends the loop if it is over.
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
		l.pending.Store(true) // connections that were a guest's are to be served first
	}
}

// isOver reports whether the loop has nothing to wait for any more. The last of its connections to go, and who stops it,
// make the leader ask.
func (l *Loop) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping && len(l.free) == len(l.slots) && len(l.closing)+len(l.inbox)+len(l.arrivals)+len(l.guests) == 0
}

// steal serves a connection of another loop whose leader is busy, or takes events for it. That leader's thread may wait for
// a processor: then its connections needn't.
func (l *Loop) steal(w *Worker) bool {
	loops := l.group.loops
	for i := 1; i < len(loops); i++ {
		other := loops[(l.index+i)%len(loops)]
		if other.resting.Load() {
			continue
		}
		if e, ok := other.take(); ok {
			l.steals.Add(1)
			if e.listener == nil { // or else it is reported once more
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

// turn serves a connection, or accepts from a listener. During it the monitor may take the loop away.
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

// endTurn ends w's turn. If the loop is another's by now, w is an ordinary worker.
func (l *Loop) endTurn(w *Worker) {
	w.EndClass()
	if w.loop == l && !l.word.CompareAndSwap(w.word, w.word+1) {
		w.retaken()
	}
}

// turnFailed ends a turn that panicked, or whose goroutine ends: the connection is lost, and the loop needs a leader.
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
		// The goroutine is about to end.
		l.workers.HandOver(w, true)
	}
}

// rest waits until there is something to do.
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

// ring makes a leader that waits look at what is new.
func (l *Loop) ring() {
	l.pending.Store(true)
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		l.parker.ring()
	}
}

// post leaves a connection that the caller has claimed to the leader.
func (l *Loop) post(s *Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if host := l.host.Load(); host != nil {
		host.post(s) // under the lock, or else the host might let the loop go, and even end, meanwhile
		return
	}
	l.inbox = append(l.inbox, s)
	l.ring()
}

// Add puts a connection into the epoll set.
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
	s.closing() // nobody writes to what the number stands for then
	sock.Close(int(s.fd))
	l.forgetLocked(s)
}

// forgetLocked forgets a connection whose socket is closed, or somebody else's.
func (l *Loop) forgetLocked(s *Socket) {
	l.mu.AssertHeld()
	s.fd = -1
	l.slots[s.slot] = nil
	l.free = append(l.free, s.slot)
	if l.stopping && len(l.free) == len(l.slots) {
		l.ring()
	}
}

// stop ends the loop when it has no connection left.
func (l *Loop) stop() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.ring()
}

// end ends the loop.
func (l *Loop) end() {
	l.stopped = true
	l.resting.Store(true) // nobody looks for work here any more
	l.group.release()
}
