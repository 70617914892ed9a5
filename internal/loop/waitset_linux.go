//go:build !386

package loop

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// waitSet is an epoll set with one socket, which the runtime's poller watches. A goroutine that has to wait for its client again and
// again, as for a large body, waits there by itself. Otherwise each event wakes the loop's leader, which wakes the goroutine and looks for
// more before it rests again.
//
// It is used by one goroutine at a time, for one direction of one socket. Meanwhile the loop's set doesn't report that direction's events,
// but still reports that the client leaves.
type waitSet struct {
	epoll epollSet
	file  *os.File // of epoll
	raw   syscall.RawConn
	busy  atomic.Bool // a goroutine waits in it, or is about to

	// The waiting goroutine's.
	socket *Socket
	woken  chan struct{} // see waiter
	got    bool          // the wait is over
	look   func(fd uintptr) bool
	event  [1]pollEvent
}

func newWaitSet() (*waitSet, error) {
	epoll, err := newEpollSet()
	if err != nil {
		return nil, err
	}
	w := &waitSet{epoll: epoll}
	if w.file, w.raw, err = polledFile(int(epoll), "wait"); err != nil {
		return nil, err
	}
	w.look = func(uintptr) bool {
		if w.epoll.poll(w.event[:]) > 0 {
			w.socket.setFrom(pollBits(w.event[0].Events), w)
		}
		w.got = w.isWoken()
		return w.got
	}
	return w, nil
}

// isWoken takes the value from woken, and reports false if there is none.
func (w *waitSet) isWoken() bool {
	select {
	case <-w.woken:
		return true
	default:
		return false
	}
}

// wait waits for the socket's event, or until somebody else wakes the goroutine. One value is taken from woken.
func (w *waitSet) wait(s *Socket, woken chan struct{}) {
	w.socket, w.woken, w.got = s, woken, false
	for !w.got {
		err := w.raw.Read(w.look)
		switch {
		case w.got:
		case w.isWoken(): // somebody has woken the goroutine, and then rung
			w.got = true
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.file.SetReadDeadline(time.Time{}) // the ring was meant for an earlier wait
		default:
			<-woken // the set is closed: the socket was given back to its loop meanwhile
			w.got = true
		}
	}
	w.socket, w.woken = nil, nil
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// ring makes the goroutine look whether somebody has woken it.
func (w *waitSet) ring() { w.file.SetReadDeadline(longAgo) }

// waitSets are the sets of a group of loops.
type waitSets struct {
	mu     sync.Mutex
	free   []*waitSet // guarded by mu
	count  int        // sets, free or not; guarded by mu
	closed bool       // guarded by mu
	most   int        // immutable
}

// descriptorsPerSet is how many descriptors a process must be allowed for each set, up to mostSets of them. All others who wait are woken
// by their loops, which then have much to do, and rarely rest.
const descriptorsPerSet, mostSets = 64, 256

func (all *waitSets) init() {
	all.most = mostSets
	if n, ok := sock.MaxDescriptors(); ok {
		all.most = int(min(n/descriptorsPerSet, mostSets))
	}
}

// get returns a set, or nil if there is none.
func (all *waitSets) get() *waitSet {
	all.mu.Lock()
	defer all.mu.Unlock()
	if n := len(all.free); n > 0 {
		w := all.free[n-1]
		all.free = all.free[:n-1]
		return w
	}
	if all.count >= all.most || all.closed {
		return nil
	}
	w, err := newWaitSet()
	if err != nil {
		return nil // descriptors have run out: the loop will do
	}
	all.count++
	return w
}

// put takes back a set, whose socket was removed from it. A goroutine that still waits there, although its handler has returned, mustn't
// hold up the next one.
func (all *waitSets) put(w *waitSet) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed || w.busy.Load() {
		all.count--
		w.file.Close()
		return
	}
	all.free = append(all.free, w)
}

// close closes the sets that are free, and the others when they are put back.
func (all *waitSets) close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
	for _, w := range all.free {
		w.file.Close()
	}
	all.free = nil
}

// direction is what a goroutine waits for: input, or room for output.
type direction struct {
	parked   uint32 // set while it waits
	event    uint32 // the bit that it waits for
	happened uint32 // other bits that end the wait
	watched  uint32 // what its set reports
}

const input, output = 0, 1

var directions = [2]direction{
	input:  {pollReadParked, pollReadable, pollHup | pollClosing | pollReadExpired, watchConn},
	output: {pollWriteParked, pollWritable, pollGone | pollClosing | pollWriteExpired, watchRoom},
}

// waiter is where a goroutine waits, in one direction.
type waiter struct {
	woken chan struct{}           // sent to by whoever clears the parked bit; cap 1
	set   atomic.Pointer[waitSet] // where it waits by itself; nil: its loop wakes it
	waits int                     // since the connection was idle, until it has a set
}

// loopWaits is how many waits of a request the loop ends. From the next one on, the request's goroutine waits by itself. To move the socket
// and to move it back are two system calls each.
const loopWaits = 1

// moveOut returns the set in which the goroutine is to wait, or nil if its loop is to wake it.
func (s *Socket) moveOut(d int) *waitSet {
	all := s.waiters.Load()
	w := &all.waiter[d]
	if set := w.set.Load(); set != nil {
		return set
	}
	if s.IsShared() {
		return nil // others may wait, too, whoever owns it
	}
	if w.waits++; w.waits <= loopWaits {
		return nil
	}
	set := s.loop.group.waitSets.get()
	if set == nil {
		return nil
	}
	if set.epoll.add(int(s.fd), directions[d].watched, 0, 0) != nil { // reports what has come meanwhile
		s.loop.group.waitSets.put(set)
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	w.set.Store(set)
	s.watchLocked(all)
	return set
}

// watchLocked makes the loop's set report what no other set does. What has happened already is reported at once.
func (s *Socket) watchLocked(all *connWaiters) {
	all.mu.AssertHeld()
	watched := uint32(watchEnd)
	if all.waiter[input].set.Load() == nil {
		watched = watchConn
	}
	if s.watchOut && all.waiter[output].set.Load() == nil {
		watched |= watchRoom
	}
	s.loop.epoll.change(int(s.fd), watched, s.slot, s.generation)
}

// moveBack makes the loop's set report everything again. The caller is the only owner: no handler waits any more. A shared socket was moved
// back before.
func (s *Socket) moveBack() {
	all := s.waiters.Load()
	if all == nil || s.IsShared() {
		return
	}
	moved := all.lowWater != 0 // then bytes below the mark may have come without an event
	all.wanted = 0
	s.setLowWater(all, 0)
	for d := range all.waiter {
		w := &all.waiter[d]
		w.waits = 0
		if set := w.set.Load(); set != nil {
			w.set.Store(nil)
			set.epoll.remove(int(s.fd))
			s.loop.group.waitSets.put(set)
			moved = true
		}
	}
	if moved {
		all.mu.Lock()
		defer all.mu.Unlock()
		s.watchLocked(all)
	}
}

// park waits in a direction until its event, or something else that ends the wait, has happened.
func (s *Socket) park(way int) {
	set := s.moveOut(way)
	if set != nil {
		set.busy.Store(true)
		defer set.busy.Store(false)
	} else if way == output {
		s.WatchWritable()
	}
	s.parkIn(way, set)
}

// parkIn is park in a set, or, if that is nil, until the loop wakes the goroutine. It clears the event, since the caller tries the socket
// next.
func (s *Socket) parkIn(way int, set *waitSet) {
	d, woken := &directions[way], s.waiters.Load().waiter[way].woken
	for {
		old := s.poll.Load()
		if old&d.event != 0 {
			if s.poll.CompareAndSwap(old, old&^d.event) {
				return
			}
			continue
		}
		if old&d.happened != 0 {
			return
		}
		s.loop.group.waiting.Add(1) // wake subtracts it
		if !s.poll.CompareAndSwap(old, old|d.parked) {
			s.loop.group.waiting.Add(-1)
			continue
		}
		if set != nil {
			set.wait(s, woken)
		} else {
			<-woken
		}
	}
}
