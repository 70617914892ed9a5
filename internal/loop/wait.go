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

// direction describes how goroutines wait for input, or for room to send output.
type direction struct {
	parked   uint32 // the bit of Socket.poll that is set while a goroutine waits
	event    uint32 // the bit for which the goroutine waits
	happened uint32 // other bits that end the wait
	call     func(fd int, p []byte) (int, syscall.Errno)
	// retry calls try at once, and then whenever the runtime's poller has reported the event, until try returns true.
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

// waiter is where a goroutine waits for one direction of a socket.
type waiter struct {
	woken  chan struct{}                // the goroutine that clears the parked bit sends a value; cap 1
	polled atomic.Pointer[polledSocket] // where the goroutine waits by itself; nil: its loop wakes it
	waits  int                          // how many waits the loop has ended since the connection was last idle
}

// polledSocket is a second descriptor of a socket, which the runtime's poller watches. A goroutine that has to wait for its client again and
// again, for example for a large body, waits "by itself": the runtime's poller wakes it. Without that, each event would wake the loop's
// leader, which would wake the goroutine and check for further events before it rests again.
//
// A polledSocket serves both directions. The loop's set doesn't report the events of a direction in which a goroutine waits by itself, but
// still reports that the client leaves.
type polledSocket struct {
	file *os.File
	raw  syscall.RawConn
	lone [2]lone // by direction
}

// lone holds the call that a goroutine tries while it waits by itself. A goroutine may still be waiting when moveBack closes the
// polledSocket. The goroutine's lone isn't reused, since the polledSocket isn't.
type lone struct {
	socket *Socket
	way    int
	look   func(fd uintptr) (over bool) // tryOnce
	try    func(fd uintptr) (done bool) // nil: tryOnce makes the direction's call
	p      []byte                       // the argument of the direction's call
	n      int                          // a result of the direction's call
	errno  syscall.Errno                // a result of the direction's call
	parked bool
	done   bool
}

// descriptorsPerPolled and mostPolled limit the polledSockets of a group: it may have one for every descriptorsPerPolled descriptors that
// the process may have, and at most mostPolled. All further goroutines that wait are woken by their loops, which then have much to do, and
// rarely rest.
const descriptorsPerPolled, mostPolled = 64, 256

// maxPolled returns how many polledSockets a group may have at a time.
func maxPolled() int32 {
	if n, ok := sock.MaxDescriptors(); ok {
		return int32(min(n/descriptorsPerPolled, mostPolled))
	}
	return mostPolled
}

// newPolled returns a polledSocket. It returns nil if the group has maxPolled of them, or the process has run out of descriptors: then the
// loop wakes the goroutine.
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

// close closes the descriptor, which ends the waits of goroutines that are still waiting there: see tryAlone.
func (p *polledSocket) close(g *Group) {
	p.file.Close()
	g.polled.Add(-1)
}

// loopWaits is how many waits of a request the loop ends. From the next wait on, the request's goroutine waits by itself. For a single wait a
// polledSocket isn't worth its cost, since making and closing it takes eight system calls.
const loopWaits = 1

// moveOut returns the polledSocket on which the goroutine must wait by itself. It returns nil if the loop will wake the goroutine.
func (s *Socket) moveOut(way int) *polledSocket {
	all := s.waiters.Load()
	w := &all.waiter[way]
	if p := w.polled.Load(); p != nil {
		return p
	}
	if s.IsShared() {
		return nil // goroutines other than the owner may wait, too
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

// moveBack makes the loop's set report all events again. The caller owns the socket, and no goroutine of a handler waits any more. On a
// shared socket it does nothing, since Share has called it.
func (s *Socket) moveBack() {
	all := s.waiters.Load()
	if all == nil || s.IsShared() {
		return
	}
	moved := all.lowWater != 0 // fewer bytes than the low-water mark may have arrived without an event
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

// callLater waits until the direction's call may succeed. If the goroutine waits by itself, callLater also makes the call, and returns its
// results. In all other cases, including a wait that has ended for another reason, errno is EAGAIN.
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

// await waits until the event of a direction, or something else that ends the wait, has happened. But if the goroutine must wait by itself,
// await returns at once with the polledSocket on which it must wait. In other cases it returns nil.
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

// sleep waits until another goroutine, mostly a leader, clears the parked bit.
func (s *Socket) sleep(way int) {
	if s.park(way) {
		<-s.waiters.Load().waiter[way].woken
	}
	s.took(way)
}

// tryAlone calls the function try until it returns true, and waits by itself in between. It returns false if something else has ended the wait. If try is
// nil, tryAlone makes the direction's call that callLater has prepared.
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
			d.setDeadline(polled.file, time.Time{}) // ring was called, perhaps for an earlier wait
		default: // os.ErrClosed: moveBack has closed the polledSocket
			if l.parked {
				<-s.waiters.Load().waiter[way].woken
			}
			return false
		}
	}
}

// tryOnce makes one attempt. It returns true if the attempt has succeeded (done) or something else has ended the wait. Otherwise it sets the
// parked bit and returns false.
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

// ring makes a goroutine that waits by itself check whether its parked bit was cleared.
func (p *polledSocket) ring(way int) { directions[way].setDeadline(p.file, longAgo) }

// park sets the parked bit. It returns false if an event that ends the wait has already happened.
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

// unpark clears the parked bit. It returns false if another goroutine has cleared the bit, and so sends to woken.
func (s *Socket) unpark(way int) bool {
	parked := directions[way].parked
	if s.poll.And(^parked)&parked == 0 {
		return false
	}
	s.loop.group.waiting.Add(-1)
	return true
}

// took clears the event of a direction, since the goroutine that has waited tries the socket next.
func (s *Socket) took(way int) { s.clear(directions[way].event) }
