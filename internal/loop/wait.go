//go:build linux

package loop

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// direction is what a goroutine waits for: input, or room for output.
type direction struct {
	parked   uint32 // set while it waits
	event    uint32 // the bit that it waits for
	happened uint32 // other bits that end the wait
	call     func(fd int, p []byte) (int, syscall.Errno)
	// retry calls try at once, and whenever the runtime's poller has seen the event, until try returns true.
	retry       func(c syscall.RawConn, try func(fd uintptr) (over bool)) error
	setDeadline func(*os.File, time.Time) error
}

const input, output = 0, 1

var directions = [2]direction{
	input: {pollReadParked, pollReadable, pollHup | pollClosing | pollReadExpired,
		sock.Read, syscall.RawConn.Read, (*os.File).SetReadDeadline},
	output: {pollWriteParked, pollWritable, pollGone | pollClosing | pollWriteExpired,
		sock.Write, syscall.RawConn.Write, (*os.File).SetWriteDeadline},
}

// waiter is where a goroutine waits, in one direction.
type waiter struct {
	woken  chan struct{}                // the goroutine that clears the parked bit sends; cap 1
	polled atomic.Pointer[polledSocket] // where it waits by itself; nil: its loop wakes it
	waits  int                          // since the connection was idle, until polled is set
}

// polledSocket is a second descriptor of a socket, which the runtime's poller watches. A goroutine that has to wait for its client again and
// again, as for a large body, waits there by itself. Otherwise each event wakes the loop's leader, which wakes the goroutine and looks for
// more before it rests again.
//
// It serves both directions. The loop's set doesn't report the events of a direction in which a goroutine waits by itself, but still reports
// that the client leaves.
type polledSocket struct {
	file *os.File
	raw  syscall.RawConn
	lone [2]lone // by direction
}

// lone holds the call that a goroutine tries while it waits by itself. moveBack may leave such a goroutine behind. Nobody else uses its
// lone then, since the polledSocket isn't used again.
type lone struct {
	socket *Socket
	way    int
	look   func(fd uintptr) (over bool) // tryOnce
	try    func(fd uintptr) (done bool) // nil: the direction's call
	p      []byte                       // for the call
	n      int                          // of the call
	errno  syscall.Errno                // of the call
	parked bool
	done   bool
}

// descriptorsPerPolled is how many descriptors a process must be allowed for each polledSocket, up to mostPolled of them. All other
// goroutines that wait are woken by their loops, which then have much to do, and rarely rest.
const descriptorsPerPolled, mostPolled = 64, 256

// maxPolled returns how many sockets of a group may be watched by the runtime's poller at a time.
func maxPolled() int32 {
	if n, ok := sock.MaxDescriptors(); ok {
		return int32(min(n/descriptorsPerPolled, mostPolled))
	}
	return mostPolled
}

// newPolled returns a polledSocket. It returns nil if the group has enough of them, or descriptors have run out: then the loop wakes the
// goroutine.
func (s *Socket) newPolled() *polledSocket {
	g := s.loop.group
	if g.polled.Add(1) <= g.maxPolled {
		if fd, err := sock.Duplicate(int(s.fd)); err == nil {
			if file, raw, err := polledFile(fd, "socket"); err == nil {
				return &polledSocket{file: file, raw: raw}
			}
		}
	}
	g.polled.Add(-1)
	return nil
}

// close ends the waits of goroutines that have been left behind: from now on their loop wakes them.
func (p *polledSocket) close(g *Group) {
	p.file.Close()
	g.polled.Add(-1)
}

// loopWaits is how many waits of a request the loop ends. From the next one on, the request's goroutine waits by itself. Moving the socket,
// and moving it back, takes eight system calls.
const loopWaits = 1

// If the goroutine must wait by itself, moveOut returns the polledSocket to wait on. It returns nil if the loop will wake the goroutine.
func (s *Socket) moveOut(way int) *polledSocket {
	all := s.waiters.Load()
	w := &all.waiter[way]
	if p := w.polled.Load(); p != nil {
		return p
	}
	if s.IsShared() {
		return nil // other goroutines than the owner may wait, too
	}
	if w.waits++; w.waits <= loopWaits {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	p := all.waiter[1-way].polled.Load()
	if p == nil {
		if p = s.newPolled(); p == nil {
			return nil
		}
	}
	w.polled.Store(p)
	s.watchLocked(all)
	return p
}

// watchLocked makes the loop's set report the events of each direction in which no goroutine waits by itself. Events that have happened
// already are reported at once.
func (s *Socket) watchLocked(all *connWaiters) {
	all.mu.AssertHeld()
	watched := uint32(watchEnd)
	if all.waiter[input].polled.Load() == nil {
		watched = watchConn
	}
	if s.watchOut && all.waiter[output].polled.Load() == nil {
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
	var polled *polledSocket
	for d := range all.waiter {
		w := &all.waiter[d]
		w.waits = 0
		if p := w.polled.Load(); p != nil {
			w.polled.Store(nil)
			polled, moved = p, true
		}
	}
	if polled != nil {
		polled.close(s.loop.group)
	}
	if moved {
		all.mu.Lock()
		defer all.mu.Unlock()
		s.watchLocked(all)
	}
}

// callLater waits until the direction's call may succeed. If the goroutine waits by itself, callLater also makes the call. Otherwise errno
// is EAGAIN, as it is after a wait that has ended for another reason.
func (s *Socket) callLater(way int, p []byte) (int, syscall.Errno, error) {
	polled, err := s.await(way)
	if polled == nil {
		return 0, syscall.EAGAIN, err
	}
	l := &polled.lone[way]
	l.p, l.n, l.errno = p, 0, syscall.EAGAIN
	s.tryAlone(way, polled, nil)
	l.p = nil
	return l.n, l.errno, nil
}

// await waits in a direction until its event, or something else that ends the wait, has happened. If the goroutine must wait by itself,
// await returns at once, with the polledSocket to wait on; otherwise it returns nil.
func (s *Socket) await(way int) (*polledSocket, error) {
	s.MakeWaiters()
	if err := s.served.BeforeWait(); err != nil {
		return nil, err
	}
	all := s.waiters.Load()
	if way == input {
		s.setLowWater(all, all.wanted)
	}
	polled := s.moveOut(way)
	if polled == nil {
		if way == output {
			s.WatchWritable()
		}
		s.sleep(way)
	}
	return polled, nil
}

// sleep waits until the loop, or somebody else, ends the wait.
func (s *Socket) sleep(way int) {
	if s.park(way) {
		<-s.waiters.Load().waiter[way].woken
	}
	s.took(way)
}

// tryAlone calls try until try is done, and waits in between. It returns false if something else has ended the wait. If try is nil, the
// direction's call is made, as callLater has prepared it.
func (s *Socket) tryAlone(way int, polled *polledSocket, try func(fd uintptr) (done bool)) (done bool) {
	d, l := &directions[way], &polled.lone[way]
	if l.look == nil {
		l.socket, l.way, l.look = s, way, l.tryOnce
	}
	l.try, l.parked, l.done = try, false, false
	defer func() { l.try = nil }()
	for {
		err := d.retry(polled.raw, l.look)
		switch {
		case err == nil && l.done:
			return true
		case err == nil:
			s.took(way)
			return false
		case errors.Is(err, os.ErrDeadlineExceeded):
			d.setDeadline(polled.file, time.Time{}) // somebody has rung, perhaps for an earlier wait
		default: // os.ErrClosed: the socket was given back to its loop meanwhile
			if l.parked {
				<-s.waiters.Load().waiter[way].woken
			}
			return false
		}
	}
}

// tryOnce reports whether the wait is over: the try is done, or something else has ended the wait. Otherwise the goroutine is parked.
func (l *lone) tryOnce(fd uintptr) (over bool) {
	s := l.socket
	if l.parked {
		if l.parked = false; !s.unpark(l.way) {
			<-s.waiters.Load().waiter[l.way].woken
			return true
		}
	}
	if l.try != nil {
		l.done = l.try(fd)
	} else {
		l.n, l.errno = directions[l.way].call(int(fd), l.p)
		l.done = l.errno != syscall.EAGAIN
	}
	if l.done {
		return true
	}
	l.parked = s.park(l.way)
	return !l.parked
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// ring makes a goroutine that waits by itself look whether somebody has woken it.
func (p *polledSocket) ring(way int) { directions[way].setDeadline(p.file, longAgo) }

// park sets the parked bit, unless the wait is over already.
func (s *Socket) park(way int) bool {
	d := &directions[way]
	s.loop.group.waiting.Add(1) // wake and unpark subtract it
	for {
		old := s.poll.Load()
		if old&(d.event|d.happened) != 0 {
			s.loop.group.waiting.Add(-1)
			return false
		}
		if s.poll.CompareAndSwap(old, old|d.parked) {
			return true
		}
	}
}

// unpark clears the parked bit. It returns false if another goroutine has cleared it, and so wakes this one.
func (s *Socket) unpark(way int) bool {
	parked := directions[way].parked
	if s.poll.And(^parked)&parked == 0 {
		return false
	}
	s.loop.group.waiting.Add(-1)
	return true
}

// took clears the event of a direction, since the owner tries the socket next.
func (s *Socket) took(way int) { s.clear(directions[way].event) }
