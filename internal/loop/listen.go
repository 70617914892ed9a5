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

// maxAccepts is how many connections a leader accepts in one turn.
const maxAccepts = 16

// Listener accepts from one listening socket for each loop, or from one socket for all loops.
type Listener struct {
	group   *Group
	admit   func(to *Loop, fd int, peer sock.Address) error // see Listening.Admit
	options *sock.Options                                   // set on the connections that user's Accept returns
	logger  func() *slog.Logger
	// user is the listener whose socket all loops share, by one entry; nil if each loop has its own. user is closed at the end.
	user    net.Listener
	userRaw syscall.RawConn // user's
	watched chan struct{}   // closed when watchUser has ended; nil without a user
	address net.Addr
	full    func() // see Listening.Full

	open    atomic.Int32     // entries that aren't closed
	entries []*listenerEntry // immutable
	turn    atomic.Uint32    // counts user's connections, which the loops get in turn

	log  sock.AcceptLog
	done chan struct{} // closed when all entries are

	mu  sync.Mutex
	err error // the permanent error of accepting; guarded by mu
}

// listenerEntry is a listening socket in a loop.
type listenerEntry struct {
	*Listener
	loop  *Loop        // immutable
	slot  uint32       // immutable
	burst atomic.Int32 // how many connections to accept in the next turn

	closing atomic.Bool // the next turn accepts all waiting connections, and closes the socket

	mu      race.Mutex[race.OfListener]
	fd      int           // -1 once it is closed; guarded by mu
	watched bool          // it is in the loop's epoll set; guarded by mu
	older   bool          // connections that arrived before the socket's options were set, and lack them, may be waiting; guarded by mu
	delay   time.Duration // of the last pause, 0 after a success; guarded by mu
}

// Listening configures a Listener.
type Listening struct {
	Address net.Addr
	// Sockets are one listening socket for each loop, or a single one that is User's. The Listener closes them.
	Sockets []int
	User    net.Listener // nil if each loop has a socket; closed at the end
	Options *sock.Options
	Logger  func() *slog.Logger
	// Failures, if set, counts how often accepting has failed for a while.
	Failures *atomic.Uint64
	// Full, if set, is called when accepting has failed for a while, to make descriptors free. Like Admit, it mustn't wait.
	Full func()
	// Admit gives an accepted connection to a loop, by Loop.Add, and returns the error of Loop.Add, which counts as an error of accepting.
	// The descriptor isn't the caller's any more. Admit is called in a leader's turn, so it mustn't wait.
	Admit func(to *Loop, fd int, peer sock.Address) error
}

// NewListener makes a listener for the group's loops, which accept when Serve is called. If it fails, the sockets stay the caller's.
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

// Serve lets the loops accept until the listener is closed, and returns the reason. It calls begun when all of them accept, and fails if one
// can't.
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
		if err := e.watch(); err != nil { // the system limits the epoll sets that lead to one socket
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

// Accept implements net.Listener. It fails, since the loops accept by themselves.
func (ll *Listener) Accept() (net.Conn, error) { return nil, errors.ErrUnsupported }

// Addr implements net.Listener.
func (ll *Listener) Addr() net.Addr { return ll.address }

// Close implements net.Listener: no connection is accepted any more.
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

// SetDeadline makes the loops accept the connections that wait, and then stop. A shutdown calls it before it closes the listener.
func (ll *Listener) SetDeadline(time.Time) error {
	if !ll.group.hold() {
		return nil // the loops have ended, and the bell's number may be another file's
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
	// Closing alone wouldn't end the watch: user has another descriptor of the socket, which keeps it open.
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

// watch makes the loop watch its socket, unless that is closed.
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

// pause takes the socket out of the epoll set for a while, longer each time. Two leaders that accept at the same time may see the
// same failure; the second call does nothing.
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

// watchLaterLocked makes the loop watch the socket again after a while. If the system has no memory for that, it tries again.
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
	// userPoll is how often watchUser checks, while connections arrive, whether user was closed: only a goroutine in Accept is told. The
	// loop also checks, before each accept.
	userPoll = 100 * time.Millisecond
	// quietPolls is the number of checks in a row without a connection after which watchUser waits in Accept.
	quietPolls = 10
)

// watchUser closes the loops' socket when user is closed. While no connection arrives watchUser costs nothing: it waits in Accept, beside
// the loop. If it gets a connection before the loop does, it gives that connection to a loop. Then it leaves accepting to the loop, at less
// than half the cost. Until no more connections arrive, it only checks now and then whether user was closed.
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

// endWatch ends watchUser, and waits for its end. The listener accepts nothing from then on.
func (ll *Listener) endWatch() {
	ll.user.(interface{ SetDeadline(time.Time) error }).SetDeadline(clock.Past)
	<-ll.watched
}

// acceptUser waits until user is closed, returns a connection, or fails. It reserves the connection's descriptor first, since none might
// be left afterwards.
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
	netConn.Close() // package net's descriptor
	if err != nil || sock.Peer(spare, &peer) != 0 {
		sock.Close(spare) // the client has left
		return
	}
	if ll.setsOptions() {
		ll.options.SetInherited(spare)
	}
	if err := ll.share(spare, peer); err != nil {
		ll.entries[0].failed(err)
	}
}

// setsOptions reports whether the socket is a TCP socket that the program has opened. filo sets the options of such a socket only after it
// has begun to listen.
func (ll *Listener) setsOptions() bool { return ll.user != nil && ll.address.Network() != "unix" }

// userClosed reports whether the socket's listener is user and was closed.
func (ll *Listener) userClosed() bool {
	return ll.userRaw != nil && ll.userRaw.Control(func(uintptr) {}) != nil
}

// accept accepts connections, and registers each until its first request arrives. It runs in a leader's turn.
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
	// An accept that finds no connection costs a system call, so a leader tries more only while more are waiting.
	e.burst.Store(min(2*burst+1, maxAccepts))
}

// hasBacklog reports whether the last turn found as many connections as it tried to accept: more may wait.
func (e *listenerEntry) hasBacklog() bool { return e.burst.Load() > 1 }

// acceptOne accepts a connection. It reports false if none was waiting.
func (l *Loop) acceptOne(e *listenerEntry) bool {
	var peer sock.Address
	e.mu.Lock()
	fd, errno := -1, syscall.EAGAIN
	if e.fd >= 0 {
		fd, errno = sock.Accept(e.fd, &peer)
	}
	older, paused := e.older, e.delay > 0
	if errno == syscall.EAGAIN {
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

// share gives a connection of the shared socket to the next loop in turn. (If all loops watched that socket, each connection would wake
// all of them.)
func (ll *Listener) share(fd int, peer sock.Address) error {
	loops := ll.group.loops
	return ll.admit(loops[int(ll.turn.Add(1))%len(loops)], fd, peer)
}

// failed handles an error of accept, or of the loop that should have watched an accepted connection. After a lack of descriptors, memory or
// watches, which passes, the loop tries again after a pause, longer each time.
func (e *listenerEntry) failed(err error) {
	ll := e.Listener
	if !sock.IsTemporary(err) {
		ll.mu.Lock()
		ll.err = &net.OpError{Op: "accept", Net: ll.address.Network(), Addr: ll.address, Err: err}
		ll.mu.Unlock()
		ll.closeEntries()
		return
	}
	e.pause() // before the logger, which may take long: another leader could meanwhile get the same error
	ll.lacks(err)
}

// lacks records that accepting has failed for a while.
func (ll *Listener) lacks(err error) {
	if ll.full != nil {
		ll.full()
	}
	ll.log.Failed(ll.logger(), err)
}
