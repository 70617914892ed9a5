//go:build !386

package loop

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// Conn is what a loop serves: a connection with its protocol, as its socket and the loop know it.
type Conn interface {
	// Turn serves the connection, which w has claimed, as far as that goes without waiting for the client. Then the connection is
	// idle, or gone; or, if it is still to be served, though others come first, it stays claimed and the result is true. w may lose its
	// loop meanwhile, or give it away.
	Turn(w *Worker) (again bool)
	// Abandon is called on w's goroutine when Turn has panicked, or ends the goroutine. The connection is lost.
	Abandon(w *Worker, goexit bool)
	// PeerLeft says, of a connection that is owned, that the client sends nothing more, or, if it is broken, that nothing arrives any
	// more either. The caller isn't the owner.
	PeerLeft(broken bool)
	// Writable says, of a shared connection, that the socket takes more. The caller isn't the owner.
	Writable()
	// Closing says, of a shared connection, that nobody may write once it has returned. The caller holds loop.mu.
	Closing()
	// BeforeWait is called by the owner when it would wait in Read, Write or RawWrite: it makes sure that nobody waits for the owner's
	// goroutine, or says why it mustn't wait.
	BeforeWait() error
}

// Socket is a connection's socket in a loop. It is idle, and costs nothing but its memory, until an event, a deadline or a call of
// Cut claims it by setting pollBusy in its poll word; who has done so owns it until it is idle again. Only the owner reads,
// writes and closes the socket, but for the writes of a shared one. The lingerer is the owner of what it has taken over.
//
// As a net.Conn it serves its owner, who may wait in Read and Write when no other worker depends on it: the loop's own
// events wake it. It isn't registered with the runtime's poller. Deadlines and Cut are for everybody.
//
// The descriptor is the owner's to close, since the number may be another connection's at once, and whoever had it in his
// hands would then read and write that. So fd becomes -1 only by the owner (removeLocked, or GiveTo) and under loop.mu. Others reach
// the descriptor only by Cut and LocalAddr, which hold that lock and look at fd; and by WriteNow, which nobody calls any more once
// Closing has returned.
type Socket struct {
	served      Conn  // immutable
	loop        *Loop // whose epoll set it is in; immutable
	fd          int32 // -1 when it is closed; changed by the owner under loop.mu
	slot        uint32
	generation  uint32
	poll        atomic.Uint32
	NoWaitRead  bool // Read returns ErrNotYet instead of waiting
	NoWaitWrite bool // Write of the connection doesn't wait, so its deadline needs no timer
	watchOut    bool // the epoll set reports when the socket takes more
	Drained     bool // the last read took all there was
	Peer        sock.Address
	// waiters is where the owner waits; made by it when it first does.
	waiters atomic.Pointer[connWaiters]
}

// connWaiters wakes the goroutine that waits in Read, and the one that waits in Write.
type connWaiters struct {
	readable, writable      chan struct{}            // cap 1
	readTimer, writeTimer   *time.Timer              // guarded by loop.mu
	readSerial, writeSerial uint64                   // of the deadlines, guarded by loop.mu
	taken                   atomic.Pointer[net.Conn] // to which a hijacked connection's calls go
}

// ErrNotYet says that nothing has come. For crypto/tls it must be temporary, or else its connection would be over.
var ErrNotYet net.Error = notYetError{}

type notYetError struct{}

func (notYetError) Error() string   { return "filo: nothing to read yet" }
func (notYetError) Timeout() bool   { return false }
func (notYetError) Temporary() bool { return true }

// Open makes it the socket of a connection that the caller owns.
func (s *Socket) Open(fd int, peer sock.Address, served Conn) {
	s.fd, s.Peer, s.served = int32(fd), peer, served
	s.poll.Store(pollBusy)
}

// MakeWaiters makes it possible to wait in Read and Write. The owner calls it before others use the socket, too.
func (s *Socket) MakeWaiters() {
	if s.waiters.Load() == nil {
		s.waiters.Store(&connWaiters{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)})
	}
}

// Read reads what has come, or waits for it.
func (s *Socket) Read(p []byte) (int, error) {
	if taken := s.Taken(); taken != nil {
		return taken.Read(p)
	}
	s.Drained = false // what the last event was for may be behind what is read here
	for {
		if word := s.poll.Load(); word&(pollClosing|pollReadExpired) != 0 && !s.NoWaitRead {
			return 0, s.waitError("read", word&pollClosing != 0)
		}
		n, errno := sock.Read(int(s.fd), p)
		switch {
		case errno == syscall.EAGAIN:
		case errno != 0:
			return 0, s.opError("read", os.NewSyscallError("read", errno))
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
		if s.NoWaitRead {
			return 0, ErrNotYet
		}
		if err := s.beforeWait(); err != nil {
			return 0, err
		}
		s.park(pollReadParked, pollReadable, pollHup|pollClosing|pollReadExpired, func(w *connWaiters) chan struct{} { return w.readable })
	}
}

// Write sends all of p, waiting where it must.
func (s *Socket) Write(p []byte) (sent int, err error) {
	if taken := s.Taken(); taken != nil {
		return taken.Write(p)
	}
	for sent < len(p) {
		if word := s.poll.Load(); word&(pollClosing|pollWriteExpired) != 0 {
			return sent, s.waitError("write", word&pollClosing != 0)
		}
		n, errno := sock.Write(int(s.fd), p[sent:])
		if errno != 0 && errno != syscall.EAGAIN {
			return sent, s.opError("write", os.NewSyscallError("write", errno))
		}
		sent += n
		if errno == syscall.EAGAIN {
			if err := s.awaitWritable(); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// beforeWait makes sure that nobody waits for the goroutine that is going to wait.
func (s *Socket) beforeWait() error {
	s.MakeWaiters()
	return s.served.BeforeWait()
}

// awaitWritable waits until the socket may take more.
func (s *Socket) awaitWritable() error {
	if err := s.beforeWait(); err != nil {
		return err
	}
	s.WatchWritable()
	s.park(pollWriteParked, pollWritable, pollGone|pollClosing|pollWriteExpired, func(w *connWaiters) chan struct{} { return w.writable })
	return nil
}

// WatchWritable makes the epoll set report when the socket takes more. Changing the entry makes it look, so nothing is
// missed.
func (s *Socket) WatchWritable() {
	if !s.watchOut {
		s.watchOut = true
		s.loop.epoll.change(int(s.fd), watchConnOut, s.slot, s.generation)
	}
}

// Close is net.Conn's, for crypto/tls above all: that calls it when it has said goodbye, for the owner, and when a handshake's time
// is over, on a goroutine of its own and perhaps long after the handshake has returned. So it only cuts; the owner, who ends the
// connection by linger.Close, closes the socket.
func (s *Socket) Close() error {
	if taken := s.Taken(); taken != nil {
		return taken.Close()
	}
	return s.Cut()
}

// WriteVector sends both with one system call, as far as the socket takes them, and then all of first or some of second at least.
func (s *Socket) WriteVector(first, second []byte) (int64, error) {
	n, errno := sock.Writev(int(s.fd), first, second)
	switch {
	case errno == syscall.EAGAIN:
		n = 0
	case errno != 0:
		return 0, s.opError("write", os.NewSyscallError("writev", errno))
	}
	rest := first
	if n >= len(first) {
		rest = second[n-len(first):]
	} else {
		rest = first[n:] // the caller goes on with second
	}
	m, err := s.Write(rest)
	return int64(n + m), err
}

// RawWrite sends a part of a file: see sock.RawWriter.
func (s *Socket) RawWrite(write sock.RawWrite) error {
	for {
		if word := s.poll.Load(); word&(pollClosing|pollWriteExpired) != 0 {
			return s.waitError("write", word&pollClosing != 0)
		}
		if write(uintptr(s.fd)) {
			return nil
		}
		if err := s.awaitWritable(); err != nil {
			return err
		}
	}
}

// TryRead is Read that doesn't wait: if nothing has come the error is ErrNotYet.
func (s *Socket) TryRead(p []byte) (int, error) {
	n, errno := sock.Read(int(s.fd), p)
	switch {
	case errno == syscall.EAGAIN:
		return 0, ErrNotYet
	case errno != 0:
		return 0, os.NewSyscallError("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	// What comes behind a short read is another event, but for an end that came with it.
	s.Drained = n < len(p) && s.poll.Load()&pollHup == 0
	return n, nil
}

// Peek reads what has come and leaves it there: if that is nothing the error is ErrNotYet, and n is 0 at the end.
func (s *Socket) Peek(p []byte) (n int, err error) {
	n, errno := sock.Peek(int(s.fd), p)
	switch {
	case errno == syscall.EAGAIN:
		return 0, ErrNotYet
	case errno != 0:
		return 0, os.NewSyscallError("recvfrom", errno)
	}
	return n, nil
}

// TryWrite writes what the socket takes of the two with one call: if that is nothing the error is ErrNotYet.
func (s *Socket) TryWrite(first, second []byte) (n int, err error) {
	var errno syscall.Errno
	if len(second) == 0 {
		n, errno = sock.Write(int(s.fd), first)
	} else {
		n, errno = sock.Writev(int(s.fd), first, second)
	}
	switch {
	case errno == syscall.EAGAIN:
		return 0, ErrNotYet
	case errno != 0:
		return 0, os.NewSyscallError("write", errno)
	}
	return n, nil
}

// WriteNow implements a method of outbox.Socket: it is for whoever has the lock that orders the writes of a shared connection.
func (s *Socket) WriteNow(first, second []byte) (n int, err error) {
	switch n, err = s.TryWrite(first, second); {
	case err == ErrNotYet:
		s.WatchWritable()
		return 0, nil
	case err != nil:
		return 0, s.opError("write", err)
	}
	return n, nil
}

// PumpLater implements a method of outbox.Socket, under that lock too: Writable is called when the socket takes more, or now if it does.
func (s *Socket) PumpLater() {
	s.watchOut = false
	s.WatchWritable()
}

// WakeOwner implements a method of outbox.Socket.
func (s *Socket) WakeOwner() {
	if _, claimed := s.set(pollWritable); claimed {
		s.Post()
	}
}

// AskEnd asks the system whether the client sends nothing more, or is gone altogether, whatever is left to be read before.
func (s *Socket) AskEnd() (half, gone bool) { return sock.Ended(int(s.fd)) }

// Duplicate makes a connection of package net's, with another descriptor, of the same socket.
func (s *Socket) Duplicate() (net.Conn, error) {
	dup, err := sock.Duplicate(int(s.fd))
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(dup), "")
	defer file.Close() // FileConn makes a descriptor of its own
	return net.FileConn(file)
}

// GiveTo takes the socket out of its loop, for the owner. From here on it belongs to the duplicate alone, and calls go there.
func (s *Socket) GiveTo(duplicate net.Conn) {
	s.MakeWaiters()
	// Before fd is -1, so that who finds that knows where the connection is.
	s.waiters.Load().taken.Store(&duplicate)
	// A registration follows the open file, not its number.
	s.loop.epoll.remove(int(s.fd))
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	sock.Close(int(s.fd))
	s.loop.forgetLocked(s)
}

// IsClosed reports, to the owner, whether the socket was closed, or given to a duplicate.
func (s *Socket) IsClosed() bool { return s.fd < 0 }

// CloseSocket closes the socket, for the owner.
func (s *Socket) CloseSocket() { s.loop.remove(s) }

// Cut makes the owner end the connection. Anybody may call it, at any time. The error is net.ErrClosed if that has happened.
//
// One that nobody owns is claimed, so that its loop ends it in a moment, and then not by a reset. If it is owned, the owner
// can't let go of it any more, since Release fails from here on, and what it waits for is over; and the client sees the end
// at once, whatever the owner is doing. Unless the owner has closed it by then: the lock settles which of the two it is.
func (s *Socket) Cut() error {
	if !s.whileOpen(func(int) { s.closing() }) {
		return s.closeTaken()
	}
	if _, claimed := s.set(pollClosing); claimed {
		s.Post()
	} else if !s.whileOpen(func(fd int) { sock.Shutdown(fd, syscall.SHUT_RDWR) }) {
		s.closeTaken() // or the owner has just ended it, perhaps because it found pollClosing
	}
	return nil
}

// closing ends the writes of a connection that several goroutines write to. The caller holds loop.mu.
func (s *Socket) closing() {
	s.loop.mu.AssertHeld()
	if s.IsShared() {
		s.served.Closing()
	}
}

// whileOpen calls f with the descriptor, which the owner can't close meanwhile. It reports false if that has happened.
func (s *Socket) whileOpen(f func(fd int)) bool {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if s.fd < 0 {
		return false
	}
	f(int(s.fd))
	return true
}

// closeTaken closes what a connection whose socket isn't the loop's any more was hijacked as.
func (s *Socket) closeTaken() error {
	if taken := s.Taken(); taken != nil {
		return taken.Close()
	}
	return net.ErrClosed
}

// CloseWrite says to the client that nothing more comes.
func (s *Socket) CloseWrite() error {
	sock.Shutdown(int(s.fd), syscall.SHUT_WR)
	return nil
}

// SetLinger sets what a close does with what hasn't been sent: 0 resets the connection.
func (s *Socket) SetLinger(seconds int) error {
	linger := syscall.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		linger = syscall.Linger{}
	}
	return os.NewSyscallError("setsockopt", syscall.SetsockoptLinger(int(s.fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &linger))
}

// expire notes that a deadline has passed.
func (s *Socket) expire(write bool) {
	bit := uint32(pollReadExpired)
	if write {
		bit = pollWriteExpired
	}
	if _, claimed := s.set(bit); claimed {
		s.Post()
	}
}

// SetDeadline is net.Conn's.
func (s *Socket) SetDeadline(t time.Time) error {
	if taken := s.Taken(); taken != nil {
		return taken.SetDeadline(t)
	}
	s.setDeadline(t, false)
	s.setDeadline(t, true)
	return nil
}

// SetReadDeadline is net.Conn's.
func (s *Socket) SetReadDeadline(t time.Time) error {
	if taken := s.Taken(); taken != nil {
		return taken.SetReadDeadline(t)
	}
	s.setDeadline(t, false)
	return nil
}

// SetWriteDeadline is net.Conn's.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	if taken := s.Taken(); taken != nil {
		return taken.SetWriteDeadline(t)
	}
	s.setDeadline(t, true)
	return nil
}

// setDeadline sets a deadline in the runtime's way, with a timer. The server's own deadlines need none: its sweep sets
// those that have passed.
func (s *Socket) setDeadline(t time.Time, write bool) {
	bit := uint32(pollReadExpired)
	if write {
		bit = pollWriteExpired
	}
	wait := time.Until(t)
	s.loop.mu.Lock()
	if w := s.waiters.Load(); w != nil {
		timer, serial := &w.readTimer, &w.readSerial
		if write {
			timer, serial = &w.writeTimer, &w.writeSerial
		}
		if *serial++; *timer != nil {
			(*timer).Stop()
			*timer = nil
		}
		if !t.IsZero() && wait > 0 && !s.NoWaitWrite {
			mine := *serial
			*timer = time.AfterFunc(wait, func() {
				s.loop.mu.Lock()
				current := *serial == mine
				s.loop.mu.Unlock()
				if current {
					s.expire(write)
				}
			})
		}
	} else if !t.IsZero() && wait > 0 && !s.NoWaitWrite {
		s.loop.mu.Unlock()
		s.MakeWaiters() // the owner's call: nobody else sets a time that is to come
		s.setDeadline(t, write)
		return
	}
	s.loop.mu.Unlock()
	if !t.IsZero() && wait <= 0 {
		s.expire(write)
	} else {
		s.clear(bit)
	}
}

// Taken returns the connection that this one's calls go to since it was hijacked.
func (s *Socket) Taken() net.Conn {
	if w := s.waiters.Load(); w != nil {
		if taken := w.taken.Load(); taken != nil {
			return *taken
		}
	}
	return nil
}

// LocalAddr returns the address of this end.
func (s *Socket) LocalAddr() net.Addr {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if s.fd < 0 {
		if taken := s.Taken(); taken != nil {
			return taken.LocalAddr()
		}
		return &net.TCPAddr{}
	}
	return sock.LocalAddr(int(s.fd))
}

// RemoteAddr returns the address of the client.
func (s *Socket) RemoteAddr() net.Addr {
	if address := s.Peer.AddrPort(); address.IsValid() {
		return net.TCPAddrFromAddrPort(address)
	}
	return &net.UnixAddr{Net: "unix"}
}

// waitError is the error of a Read or Write that mustn't wait any more.
func (s *Socket) waitError(op string, closed bool) error {
	if closed {
		return s.opError(op, net.ErrClosed)
	}
	return s.opError(op, os.ErrDeadlineExceeded)
}

func (s *Socket) opError(op string, err error) error {
	remote := s.RemoteAddr()
	return &net.OpError{Op: op, Net: remote.Network(), Addr: remote, Err: err}
}
