//go:build !386

package loop

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// maxAccepts is how many connections a leader accepts in one turn.
const maxAccepts = 16

// Listener is a listening socket for each loop, or one for all of them.
type Listener struct {
	group *Group
	// admit gives a connection that was accepted to a loop. The descriptor is its own from then on.
	admit   func(to *Loop, fd int, peer sock.Address)
	options *sock.Options // of the user's connections
	logger  func() *slog.Logger
	// user is the listener that the socket comes from, if it is the user's; it is closed at the end. There is one entry then.
	user    net.Listener
	userRaw syscall.RawConn // user's
	watched chan struct{}   // closed when watchUser has ended; nil without a user
	address net.Addr

	open    atomic.Int32     // entries that aren't closed
	entries []*listenerEntry // immutable
	turn    atomic.Uint32    // of the user's connections, which go to each of the loops in turn

	log  sock.AcceptLog
	done chan struct{} // closed when all entries are

	mu  sync.Mutex
	err error // what accepting failed with for good; guarded by mu
}

// listenerEntry is a listening socket in a loop.
type listenerEntry struct {
	*Listener
	loop  *Loop        // immutable
	slot  uint32       // immutable
	burst atomic.Int32 // how many connections to accept in the next turn

	closing atomic.Bool // the next turn accepts all that there are, and closes the socket

	mu      sync.Mutex
	fd      int           // -1 once it is closed; guarded by mu
	watched bool          // it is in the loop's epoll set; guarded by mu
	delay   time.Duration // after the last accept, if that failed for the moment; guarded by mu
}

// Listening says what a Listener accepts from, and for whom.
type Listening struct {
	Address net.Addr
	// Sockets are one listening socket for each loop, or a single one that is User's. They are the Listener's.
	Sockets []int
	User    net.Listener // nil if there is none; closed at the end
	Options *sock.Options
	Logger  func() *slog.Logger
	// Admit gives a connection that was accepted to a loop, by Loop.Add. The descriptor is its own from then on. It is called in a leader's
	// turn, and so mustn't wait.
	Admit func(to *Loop, fd int, peer sock.Address)
}

// NewListener makes a listener of the group's loops, which accepts when Serve is called. If it fails, the sockets stay the caller's.
func (g *Group) NewListener(on Listening) (*Listener, error) {
	ll := &Listener{
		group: g, admit: on.Admit, options: on.Options, logger: on.Logger, user: on.User, address: on.Address, done: make(chan struct{}),
	}
	if on.User != nil {
		raw, err := on.User.(syscall.Conn).SyscallConn()
		if err != nil {
			return nil, err
		}
		ll.userRaw = raw
	}
	ll.open.Store(int32(len(on.Sockets)))
	for i, fd := range on.Sockets {
		l := g.loops[i]
		l.mu.Lock()
		e := &listenerEntry{Listener: ll, loop: l, slot: firstListener + uint32(len(l.listeners)), fd: fd}
		l.listeners = append(l.listeners, e)
		l.mu.Unlock()
		ll.entries = append(ll.entries, e)
	}
	return ll, nil
}

// Serve lets the loops accept until the listener is closed, and returns why it was.
func (ll *Listener) Serve() error {
	if ll.user != nil {
		ll.watched = make(chan struct{})
		if !ll.group.hold() {
			return net.ErrClosed
		}
		go ll.watchUser()
		defer ll.endWatch()
	}
	for _, e := range ll.entries {
		e.listen()
	}
	<-ll.done
	ll.mu.Lock()
	defer ll.mu.Unlock()
	if ll.err == nil {
		ll.err = &net.OpError{Op: "accept", Net: ll.address.Network(), Addr: ll.address, Err: net.ErrClosed}
	}
	return ll.err
}

// Accept is net.Listener's. The loops accept by themselves.
func (ll *Listener) Accept() (net.Conn, error) { return nil, errors.ErrUnsupported }

// Addr is net.Listener's.
func (ll *Listener) Addr() net.Addr { return ll.address }

// Close is net.Listener's: no connection is accepted any more.
func (ll *Listener) Close() error {
	ll.closeEntries()
	if ll.user == nil {
		return nil
	}
	return ll.user.Close()
}

func (ll *Listener) closeEntries() {
	for _, e := range ll.entries {
		e.close()
	}
}

// SetDeadline makes the loops accept what there is, and then no more. It is what a shutdown does first to a listener.
func (ll *Listener) SetDeadline(time.Time) error {
	for _, e := range ll.entries {
		l := e.loop
		e.closing.Store(true)
		l.mu.Lock()
		l.closing = append(l.closing, e)
		l.mu.Unlock()
		l.ring()
	}
	return nil
}

// close closes a loop's socket.
func (e *listenerEntry) close() {
	l := e.loop
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 {
		return
	}
	// A socket that several loops share, or that its listener has another descriptor of, stays open.
	l.epoll.remove(e.fd)
	sock.Close(e.fd)
	e.fd = -1
	l.mu.Lock()
	l.listeners[e.slot-firstListener] = nil
	l.mu.Unlock()
	if e.open.Add(-1) == 0 {
		close(e.done)
	}
}

// listen makes a loop watch its socket, until it is closed.
func (e *listenerEntry) listen() {
	if err := e.watch(); err != nil { // the system bounds how many epoll sets may lead to one socket
		e.logger().Error("a loop can't accept from its listener", "loop", e.loop.index, "error", err)
	}
}

func (e *listenerEntry) watch() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 || e.watched {
		return nil
	}
	err := e.loop.epoll.add(e.fd, watchLevel, e.slot, 0)
	e.watched = err == nil
	return err
}

// pause takes the socket out of the epoll set for a while, longer each time. If the loop was taken from a leader that accepts,
// two of them may find that accepting fails.
func (e *listenerEntry) pause() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 || !e.watched {
		return
	}
	e.watched = false
	e.loop.epoll.remove(e.fd)
	e.delay = sock.NextAcceptDelay(e.delay)
	time.AfterFunc(e.delay, e.listen)
}

const (
	// userPoll is how often it is looked whether the listener that the socket comes from was closed, while connections come: only who
	// waits in Accept is told. It is looked before something is accepted, too.
	userPoll = 100 * time.Millisecond
	// quietPolls in a row without a connection, watchUser waits in Accept.
	quietPolls = 10
)

// watchUser closes the socket when the listener that it comes from is closed. As long as no connection comes it costs nothing: it
// waits in Accept then, beside the loop. If it is quicker than the loop it takes the connection to a loop, and looks now and
// then until no more come; the loops accept at less than half the cost.
func (ll *Listener) watchUser() {
	defer close(ll.watched)
	defer ll.group.release()
	ticker := time.NewTicker(userPoll)
	defer ticker.Stop()
	for quiet, seen := 0, uint32(0); !ll.userClosed(); {
		select {
		case <-ticker.C:
		case <-ll.done:
			return
		}
		turn := ll.turn.Load()
		if quiet++; turn != seen {
			quiet, seen = 0, turn
		}
		if quiet >= quietPolls {
			quiet = 0
			ticker.Stop()
			ll.acceptUser()
			ticker.Reset(userPoll)
		}
	}
	ll.closeEntries()
}

// endWatch makes watchUser end, and waits for that. The listener accepts nothing any more then.
func (ll *Listener) endWatch() {
	ll.user.(interface{ SetDeadline(time.Time) error }).SetDeadline(clock.Past)
	<-ll.watched
}

// acceptUser waits until the user's listener is closed, has a connection for it, or fails. The connection's descriptor is there
// before the connection is: or else there might be none left for it.
func (ll *Listener) acceptUser() {
	spare, err := sock.Duplicate(int(ll.group.loops[0].epoll))
	if err != nil {
		return
	}
	netConn, err := ll.user.Accept()
	if err != nil {
		sock.Close(spare)
		return
	}
	var peer sock.Address
	err = sock.Control(netConn, func(fd int) error { return syscall.Dup3(fd, spare, syscall.O_CLOEXEC) })
	netConn.Close() // package net's descriptor
	if err != nil || sock.Peer(spare, &peer) != 0 {
		sock.Close(spare) // the client has left
		return
	}
	if ll.address.Network() != "unix" {
		ll.options.SetInherited(spare)
	}
	ll.share(spare, peer)
}

// userClosed reports whether the socket comes from a listener that was closed.
func (ll *Listener) userClosed() bool {
	return ll.userRaw != nil && ll.userRaw.Control(func(uintptr) {}) != nil
}

// accept accepts connections and lets each wait for its first request. It runs in a turn of the leader's.
func (l *Loop) accept(e *listenerEntry) {
	if e.closing.Load() {
		defer e.close() // though a ConnState may panic
		for l.acceptOne(e) {
		}
		return
	}
	if e.userClosed() {
		e.closeEntries()
		return
	}
	burst := e.burst.Load()
	for range max(burst, 1) {
		if !l.acceptOne(e) {
			e.burst.Store(1)
			return
		}
	}
	// Asking when nobody is there costs a system call, so a leader asks for more only while there is more.
	e.burst.Store(min(2*burst+1, maxAccepts))
}

// acceptOne accepts a connection. It reports false if there was none.
func (l *Loop) acceptOne(e *listenerEntry) bool {
	var peer sock.Address
	e.mu.Lock()
	fd, errno := -1, syscall.EAGAIN
	if e.fd >= 0 {
		fd, errno = sock.Accept(e.fd, &peer)
	}
	if errno == 0 {
		e.delay = 0
	}
	e.mu.Unlock()
	if errno != 0 {
		if errno != syscall.EAGAIN {
			e.failed(os.NewSyscallError("accept4", errno))
		}
		return false
	}
	e.log.Succeeded(e.logger())
	if e.user != nil {
		e.share(fd, peer)
	} else {
		e.admit(e.loop, fd, peer) // a guest's connections are its own: it takes them with it
	}
	return true
}

// share gives a connection of a socket for all loops to each of these in turn. (If all of them watched that, each connection would
// wake them all: EPOLLEXCLUSIVE does nothing where a set is nested in another.)
func (ll *Listener) share(fd int, peer sock.Address) {
	loops := ll.group.loops
	ll.admit(loops[int(ll.turn.Add(1))%len(loops)], fd, peer)
}

// failed takes note that accepting has failed. Running out of descriptors or memory passes: the loop asks again after a
// while, longer each time.
func (e *listenerEntry) failed(err error) {
	ll := e.Listener
	if !sock.IsTemporary(err) {
		ll.mu.Lock()
		ll.err = &net.OpError{Op: "accept", Net: ll.address.Network(), Addr: ll.address, Err: err}
		ll.mu.Unlock()
		ll.closeEntries()
		return
	}
	e.pause() // first: while the logger is at it the loop may be given to another leader, which would find the same
	ll.log.Failed(ll.logger(), err)
}
