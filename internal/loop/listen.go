//go:build linux

package loop

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

// maxAccepts is how many connections a leader accepts in one turn at most.
const maxAccepts = 16

// Listener accepts connections for a group's loops. Either each loop has a listening socket of its own, or all loops share one.
type Listener struct {
	group   *Group
	admit   func(to *Loop, fd int, peer sock.Address) error // see Listening.Admit
	options *sock.Options                                   // set on the connections of the program's listener
	logger  func() *slog.Logger
	// user is the program's listener, whose socket all loops share through a single entry; nil if each loop has a socket. Close also closes it.
	user    net.Listener
	userRaw syscall.RawConn // the raw connection of the program's listener
	watched chan struct{}   // closed when watchUser has returned; nil if ll.user is nil
	address net.Addr
	full    func() // see Listening.Full

	open    atomic.Int32     // how many entries aren't closed, and connections are being admitted
	entries []*listenerEntry // immutable
	turn    atomic.Uint32    // counts the connections of the program's listener, which are given to the loops in turn

	log  sock.AcceptLog
	done chan struct{} // closed when all entries are closed, and the last accepted connection is admitted

	mu  sync.Mutex
	err error // the permanent error of accepting; guarded by mu
}

// listenerEntry is a listening socket in a loop.
type listenerEntry struct {
	*Listener
	loop  *Loop        // immutable
	slot  uint32       // immutable
	burst atomic.Int32 // how many connections to try to accept in the next turn

	closing atomic.Bool // the next turn accepts all waiting connections, and closes the socket

	mu      race.Mutex[race.OfListener]
	fd      int           // -1 once it is closed; guarded by mu
	watched bool          // fd is in the loop's epoll set; guarded by mu
	older   bool          // waiting connections may lack the socket's options, since they arrived before the options were set; guarded by mu
	delay   time.Duration // the length of the last pause, 0 after a success; guarded by mu
}

// Listening configures a Listener.
type Listening struct {
	Address net.Addr
	// Sockets are one listening socket for each loop, or a single descriptor of User's socket. The Listener closes them.
	Sockets []int
	User    net.Listener // nil if each loop has a socket; the Listener closes it
	Options *sock.Options
	Logger  func() *slog.Logger
	// Failures, if set, counts the temporary errors of accepting.
	Failures *atomic.Uint64
	// Full, if set, is called when accepting has failed with a temporary error, so that it can release descriptors. Like Admit, it mustn't
	// block.
	Full func()
	// Admit adds an accepted connection to a loop by Loop.Add. It returns the error of Loop.Add, which is treated as an error of accepting.
	// Admit owns the descriptor from then on. Since Admit is called in a leader's turn, it mustn't block.
	Admit func(to *Loop, fd int, peer sock.Address) error
}

// NewListener makes a listener for the group's loops, which accept when Serve is called. If it fails, the caller still owns the sockets.
func (g *Group) NewListener(on Listening) (*Listener, error) {
	ll := &Listener{
		group: g, admit: on.Admit, options: on.Options, logger: on.Logger, user: on.User, address: on.Address, full: on.Full,
		done: make(chan struct{}),
		log:  sock.AcceptLog{Failures: on.Failures},
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
		e := &listenerEntry{Listener: ll, loop: l, slot: firstListener + uint32(len(l.listeners)), fd: fd, older: ll.setsOptions()}
		e.burst.Store(1)
		l.listeners = append(l.listeners, e)
		l.mu.Unlock()
		ll.entries = append(ll.entries, e)
	}
	return ll, nil
}

// Serve lets the loops accept until the listener is closed, and returns the reason. It calls the function begun when all loops accept. It fails
// if a loop can't accept.
func (ll *Listener) Serve(begun func()) error {
	if ll.user != nil {
		ll.watched = make(chan struct{})
		if !ll.group.hold() {
			return net.ErrClosed
		}
		go ll.watchUser()
		defer ll.endWatch()
	}
	for _, e := range ll.entries {
		if err := e.watch(); err != nil { // the system limits how many epoll sets may contain one socket
			ll.Close()
			return fmt.Errorf("a loop can't accept from its listener: %w", err)
		}
	}
	begun()
	<-ll.done
	ll.mu.Lock()
	defer ll.mu.Unlock()
	if ll.err == nil {
		ll.err = &net.OpError{Op: "accept", Net: ll.address.Network(), Addr: ll.address, Err: net.ErrClosed}
	}
	return ll.err
}

// Accept is part of net.Listener. It fails, since the loops accept the connections.
func (ll *Listener) Accept() (net.Conn, error) { return nil, errors.ErrUnsupported }

// Addr implements net.Listener.
func (ll *Listener) Addr() net.Addr { return ll.address }

// Close implements net.Listener. It closes the loops' sockets and the program's listener, so no more connections are accepted.
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

// SetDeadline makes the loops accept the connections that wait, and then close their sockets. A shutdown calls it before it closes the
// listener.
func (ll *Listener) SetDeadline(time.Time) error {
	if !ll.group.hold() {
		return nil // the loops have ended, and the number of the bell's descriptor may have been reused
	}
	defer ll.group.release()
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

// close closes the entry's socket.
func (e *listenerEntry) close() {
	l := e.loop
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 {
		return
	}
	// Remove the socket from the epoll set explicitly: closing fd doesn't do that while the program's listener has another descriptor
	// of the socket.
	l.epoll.remove(e.fd)
	sock.Close(e.fd)
	e.fd = -1
	l.mu.Lock()
	l.listeners[e.slot-firstListener] = nil
	l.mu.Unlock()
	e.release()
}

// release ends a use of the listener by an open socket, or by a connection that is being admitted.
func (ll *Listener) release() {
	if ll.open.Add(-1) == 0 {
		close(ll.done)
	}
}

// watch adds the socket to the loop's epoll set, unless the socket is closed.
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

// pause removes the socket from the epoll set for a while. After repeated errors the pauses become longer. If two leaders get an error at
// the same time, the second call does nothing.
func (e *listenerEntry) pause() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 || !e.watched {
		return
	}
	e.watched = false
	e.loop.epoll.remove(e.fd)
	e.watchLaterLocked()
}

// watchLaterLocked adds the socket to the epoll set again after a while. If that fails, for example for lack of memory, it tries again.
func (e *listenerEntry) watchLaterLocked() {
	e.mu.AssertHeld()
	e.delay = sock.NextAcceptDelay(e.delay)
	time.AfterFunc(e.delay, func() {
		err := e.watch()
		if err == nil {
			return
		}
		e.lacks(err)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.watchLaterLocked()
	})
}

const (
	// userPoll is the interval at which watchUser checks, while connections arrive, whether the program has closed its listener. Without the
	// checks, only a goroutine in Accept would notice that. The loop also checks in each turn of the listener.
	userPoll = 100 * time.Millisecond
	// quietPolls is the number of checks in a row without a connection after which watchUser waits in Accept.
	quietPolls = 10
)

// watchUser closes the loops' socket when the program closes its listener. While no connections arrive, it costs nothing: it waits in Accept, at the same
// time as the loop. If Accept returns a connection, watchUser gives it to a loop. From then on only the loop accepts, at less than half the
// cost. Until connections stop arriving, watchUser only checks at intervals whether the program's listener was closed.
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

// endWatch makes watchUser return, and waits for that. It is called when the listener accepts no more connections.
func (ll *Listener) endWatch() {
	ll.user.(interface{ SetDeadline(time.Time) error }).SetDeadline(clock.Past)
	<-ll.watched
}

// acceptUser waits until Accept of the program's listener returns a connection or an error. It reserves a descriptor for the connection first, since the
// process might have none left afterwards.
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
	err = sock.Control(netConn, func(fd int) error { return duplicateTo(fd, spare) })
	netConn.Close() // closes package net's descriptor
	if err != nil || sock.Peer(spare, &peer) != 0 {
		sock.Close(spare) // the client has already left
		return
	}
	if ll.setsOptions() {
		ll.options.SetInherited(spare)
	}
	if err := ll.share(spare, peer); err != nil {
		ll.entries[0].failed(err)
	}
}

// setsOptions reports whether the socket is a TCP socket that the program has opened. filo can set the options of such a socket only after
// the socket has begun to listen.
func (ll *Listener) setsOptions() bool { return ll.user != nil && ll.address.Network() != "unix" }

// userClosed reports whether the loops share the socket of the program's listener, and the program has closed it.
func (ll *Listener) userClosed() bool {
	return ll.userRaw != nil && ll.userRaw.Control(func(uintptr) {}) != nil
}

// accept accepts connections and adds them to loops. It runs in a leader's turn.
func (l *Loop) accept(e *listenerEntry) {
	if e.closing.Load() {
		defer e.close() // even if a ConnState panics
		for l.acceptOne(e) {
		}
		return
	}
	if e.userClosed() {
		e.closeEntries()
		return
	}
	burst := e.burst.Load()
	for range burst {
		if !l.acceptOne(e) {
			e.burst.Store(1)
			return
		}
	}
	// An accept that finds no connection costs a system call, so the burst grows only if each accept has found a connection.
	e.burst.Store(min(2*burst+1, maxAccepts))
}

// hasBacklog reports whether the last turn found as many connections as it tried to accept: more may wait.
func (e *listenerEntry) hasBacklog() bool { return e.burst.Load() > 1 }

// acceptOne accepts a connection. It returns false if none was waiting, or after an error.
func (l *Loop) acceptOne(e *listenerEntry) bool {
	var peer sock.Address
	e.mu.Lock()
	fd, errno := -1, syscall.EAGAIN
	if e.fd >= 0 {
		fd, errno = sock.Accept(e.fd, &peer)
	}
	older, paused := e.older, e.delay > 0
	switch errno {
	case 0:
		e.open.Add(1) // the listener isn't done before the connection is admitted
		defer e.release()
	case syscall.EAGAIN:
		e.older = false
	}
	e.mu.Unlock()
	if errno != 0 {
		if errno != syscall.EAGAIN {
			e.failed(os.NewSyscallError("accept4", errno))
		}
		return false
	}
	if older {
		e.options.SetInherited(fd)
	}
	var err error
	if e.user != nil {
		err = e.share(fd, peer)
	} else {
		err = e.admit(e.loop, fd, peer)
	}
	if err != nil {
		e.failed(err)
		return false
	}
	if paused {
		e.mu.Lock()
		e.delay = 0
		e.mu.Unlock()
	}
	e.log.Succeeded(e.logger())
	return true
}

// share gives a connection of the shared socket to the next loop in turn. Only one loop watches that socket, since otherwise each connection
// would wake all loops.
func (ll *Listener) share(fd int, peer sock.Address) error {
	loops := ll.group.loops
	return ll.admit(loops[int(ll.turn.Add(1))%len(loops)], fd, peer)
}

// failed handles an error of accepting a connection or of adding it to a loop. If the error is temporary, such as a lack of descriptors,
// memory or epoll watches, the loop tries again after a pause. Otherwise the listener ends.
func (e *listenerEntry) failed(err error) {
	ll := e.Listener
	if !sock.IsTemporary(err) {
		ll.mu.Lock()
		ll.err = &net.OpError{Op: "accept", Net: ll.address.Network(), Addr: ll.address, Err: err}
		ll.mu.Unlock()
		ll.closeEntries()
		return
	}
	e.pause() // pause before logging, which may take long, since another leader could get the same error
	ll.lacks(err)
}

// lacks reports a temporary error of accepting to Full and the log.
func (ll *Listener) lacks(err error) {
	if ll.full != nil {
		ll.full()
	}
	ll.log.Failed(ll.logger(), err)
}
