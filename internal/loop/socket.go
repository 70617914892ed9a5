//go:build linux

package loop

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

// Conn is a connection with its protocol. Its socket and its loop call these methods.
type Conn interface {
	// Turn serves the connection, which w has claimed, as far as possible without waiting for the client. Then the connection is idle or
	// gone. Or it stays claimed and Turn returns true: more is left to do, but other connections come first. Meanwhile w may lose its
	// loop, or give it away.
	Turn(w *Worker) (again bool)
	// Abandon is called on w's goroutine when Turn has panicked, or ends the goroutine (goexit). If w still owns the connection, Abandon
	// ends it or, after goexit, may leave it to another worker.
	Abandon(w *Worker, goexit bool)
	// PeerLeft says that the client of an owned connection sends nothing more or, if broken, that nothing reaches the client either. The
	// caller isn't the owner.
	PeerLeft(broken bool)
	// Writable says that the socket of a shared connection takes more. The caller isn't the owner.
	Writable()
	// Closing ends the writes on a shared connection: once it has returned, nobody may write. The caller holds loop.mu.
	Closing()
	// TakeAway takes the connection from the worker that serves it, after the worker's seat was taken away: see Worker.MayLose. Any
	// goroutine may call it.
	TakeAway()
	// BeforeWait is called by the owner when it would wait in Read, Write or RawWrite. BeforeWait makes sure that nobody else waits for
	// the owner's goroutine, or returns the reason why the owner mustn't wait.
	BeforeWait() error
}

// Socket is a connection's socket in a loop. While idle it costs nothing but its memory. An event, a deadline or a call to Cut claims it by
// setting pollBusy in its poll word. The goroutine that has claimed a socket owns it until it is idle again. Only the owner reads, writes
// and closes a socket, except that others may write to a shared socket. The lingerer owns the sockets that it has taken over.
//
// A Socket is a net.Conn for its owner. When no other worker depends on the owner, it may wait in Read and Write: then the loop's own
// events wake it, or the runtime's poller does: see polledSocket. Anybody may set deadlines and call Cut.
//
// Only the owner closes the descriptor. A closed number may at once be another connection's, and a goroutine that still used it would read
// and write that connection. So only the owner sets fd to -1 (removeLocked, GiveTo), under loop.mu. Other goroutines use the descriptor in
// three cases. Methods such as Cut and LocalAddr hold loop.mu and check fd. Nobody calls WriteNow once Closing has returned. Callers of
// AskEnd and Peek hold a lock that the owner takes before it closes the socket.
type Socket struct {
	served      Conn  // immutable
	loop        *Loop // the loop that it is in; immutable
	fd          int32 // -1 once it is closed or given away; changed by the owner under loop.mu
	slot        uint32
	generation  uint32
	poll        atomic.Uint32
	NoWaitRead  bool // Read returns ErrNotYet instead of waiting
	NoWaitWrite bool // the connection's Write doesn't wait, so deadlines need no timer
	watchOut    bool // the epoll set reports when the socket has room
	Drained     bool // the last read took all bytes that had arrived
	Peer        sock.Address
	// waiters is where the owner waits. It is made before the first wait.
	waiters atomic.Pointer[connWaiters]
}

// connWaiters is where goroutines wait in Read and Write, at most one in each direction.
type connWaiters struct {
	waiter                  [2]waiter
	wanted                  int32                    // see Want; only the owner uses it
	lowWater                int32                    // the socket's SO_RCVLOWAT, 0 for the default of 1; only the owner uses it
	mu                      race.Mutex[race.OfLeaf]  // held to change what the loop's set reports, by either goroutine of a handler
	readTimer, writeTimer   *time.Timer              // guarded by loop.mu
	readSerial, writeSerial uint64                   // of the deadlines, guarded by loop.mu
	taken                   atomic.Pointer[net.Conn] // the connection that a hijack made: calls go there
}

// ErrNotYet says that nothing has arrived. It is temporary, since crypto/tls ends the connection after any other error.
var ErrNotYet net.Error = notYetError{}

type notYetError struct{}

func (notYetError) Error() string   { return "filo: nothing to read yet" }
func (notYetError) Timeout() bool   { return false }
func (notYetError) Temporary() bool { return true }

// assertOwned panics if nobody owns the socket, in builds with the race detector. In other builds it costs nothing. If somebody else owns
// the socket, the race detector reports what both touch.
func (s *Socket) assertOwned() {
	if race.Enabled && s.poll.Load()&pollBusy == 0 {
		panic("filo: a socket was used by somebody who doesn't own it")
	}
}

// Served returns the connection that Open was given.
func (s *Socket) Served() Conn { return s.served }

// Open makes s the socket fd of the connection served, which the caller owns.
func (s *Socket) Open(fd int, peer sock.Address, served Conn) {
	s.fd, s.Peer, s.served = int32(fd), peer, served
	s.poll.Store(pollBusy)
}

// MakeWaiters makes it possible to wait in Read and Write.
func (s *Socket) MakeWaiters() {
	if s.waiters.Load() == nil {
		all := new(connWaiters)
		for d := range all.waiter {
			all.waiter[d].woken = make(chan struct{}, 1)
		}
		s.waiters.CompareAndSwap(nil, all) // two goroutines of a handler may wait for the first time at once
	}
}

// Read reads the bytes that have arrived, or waits for some.
func (s *Socket) Read(p []byte) (int, error) {
	if taken := s.Taken(); taken != nil {
		return taken.Read(p)
	}
	s.assertOwned()
	s.Drained = false // this read may leave bytes that no further event reports
	for {
		word := s.poll.Load()
		expired := word&pollReadExpired != 0 && !s.NoWaitRead
		if word&pollClosing != 0 && !s.NoWaitRead || expired && !s.WantsMuch() {
			return 0, s.waitError("read", word&pollClosing != 0)
		}
		n, errno := sock.Read(int(s.fd), p)
		if errno == syscall.EAGAIN {
			switch {
			case expired:
				return 0, s.waitError("read", false) // otherwise p gets the bytes that weren't enough
			case s.NoWaitRead:
				return 0, ErrNotYet
			}
			var err error
			if n, errno, err = s.callLater(input, p); err != nil {
				return 0, err
			}
		}
		switch {
		case errno == syscall.EAGAIN:
		case errno != 0:
			return 0, s.opError("read", os.NewSyscallError("read", errno))
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Want makes a Read that has to wait return when that many bytes have come: the reader of a whole body can do nothing with a part. Read
// returns fewer at the end of the input, when a read deadline passes, or if some have come just before it waits. After Want(0) or Want(1),
// Read returns as soon as any bytes have come.
func (s *Socket) Want(bytes int) {
	if bytes > 0 {
		s.MakeWaiters()
	}
	if all := s.waiters.Load(); all != nil {
		all.wanted = int32(bytes)
	}
}

// WantsMuch reports whether Want has set a number of bytes. Then some bytes may have come, but fewer than that number.
func (s *Socket) WantsMuch() bool {
	all := s.waiters.Load()
	return all != nil && all.wanted != 0
}

// setLowWater makes the system report input when that many bytes have come, or now if they have.
func (s *Socket) setLowWater(all *connWaiters, bytes int32) {
	if all.lowWater != bytes {
		all.lowWater = bytes
		sock.SetLowWater(int(s.fd), max(1, int(bytes)))
	}
}

// Write sends all of p, and waits where it must.
func (s *Socket) Write(p []byte) (sent int, err error) {
	if taken := s.Taken(); taken != nil {
		return taken.Write(p)
	}
	for sent < len(p) {
		if word := s.poll.Load(); word&(pollClosing|pollWriteExpired) != 0 {
			return sent, s.waitError("write", word&pollClosing != 0)
		}
		n, errno := sock.Write(int(s.fd), p[sent:])
		if errno == syscall.EAGAIN {
			if n, errno, err = s.callLater(output, p[sent:]); err != nil {
				return sent, err
			}
		}
		if errno != 0 && errno != syscall.EAGAIN {
			return sent, s.opError("write", os.NewSyscallError("write", errno))
		}
		sent += n
	}
	return sent, nil
}

// WatchWritable makes the epoll set report when the socket has room. No event is missed: changing the entry checks the socket.
func (s *Socket) WatchWritable() {
	all := s.waiters.Load()
	if all == nil || s.IsShared() {
		if !s.watchOut {
			s.watchOut = true
			s.loop.epoll.change(int(s.fd), watchConn|watchRoom, s.slot, s.generation)
		}
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if !s.watchOut {
		s.watchOut = true
		s.watchLocked(all)
	}
}

// Close implements net.Conn, mainly for crypto/tls, which calls it on the owner's goroutine after its close alert. When a handshake's time
// is over, crypto/tls calls it on another goroutine, perhaps long after the handshake has returned. So Close only cuts the connection; the
// owner ends it by linger.Close, which closes the socket.
func (s *Socket) Close() error {
	if taken := s.Taken(); taken != nil {
		return taken.Close()
	}
	return s.Cut()
}

// WriteVector sends first and second with one system call. If the call stops within first or second, WriteVector then sends the rest of
// that one.
func (s *Socket) WriteVector(first, second []byte) (int64, error) {
	s.assertOwned()
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
func (s *Socket) RawWrite(write sock.RawWrite) (err error) {
	var polled *polledSocket
	for {
		if word := s.poll.Load(); word&(pollClosing|pollWriteExpired) != 0 {
			return s.waitError("write", word&pollClosing != 0)
		}
		if polled == nil && write(uintptr(s.fd)) || polled != nil && s.tryAlone(output, polled, write) {
			return nil
		}
		if polled, err = s.await(output); err != nil {
			return err
		}
	}
}

// TryRead is Read without waiting: if nothing has arrived the error is ErrNotYet.
func (s *Socket) TryRead(p []byte) (int, error) {
	s.assertOwned()
	n, errno := sock.Read(int(s.fd), p)
	switch {
	case errno == syscall.EAGAIN:
		return 0, ErrNotYet
	case errno != 0:
		return 0, os.NewSyscallError("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	// Bytes that arrive after a short read cause another event. But the end may have arrived together with the bytes that were read, in the
	// same event.
	s.Drained = n < len(p) && s.poll.Load()&pollHup == 0
	return n, nil
}

// Peek reads bytes without taking them. If nothing has arrived the error is ErrNotYet; at the end of the input n is 0. Goroutines other
// than the owner may call Peek as long as they keep the owner from closing the socket: see Socket.
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

// TryWrite writes as much of first and second as the socket takes, with one call. If that is nothing the error is ErrNotYet.
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

// TrySendFile sends as much of a part of a file as the socket takes at once. If that isn't all, the error is ErrNotYet. At the file's end
// it sends nothing, without an error.
func (s *Socket) TrySendFile(sender sock.NowSender, offset int64, size int) (n int, err error) {
	if n, err = sender.SendNow(uintptr(s.fd), offset, size); err == syscall.EAGAIN {
		err = ErrNotYet
	}
	return n, err
}

// WriteNow implements outbox.Socket. The caller holds the lock that orders the writes of a shared connection.
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

// PumpLater implements outbox.Socket, with the same lock held: Writable is called when the socket has room, or now if it has.
func (s *Socket) PumpLater() {
	s.watchOut = false
	s.WatchWritable()
}

// WakeOwner implements outbox.Socket.
func (s *Socket) WakeOwner() {
	if _, claimed := s.set(pollWritable); claimed {
		s.Post()
	}
}

// AskEnd asks the system whether the client sends nothing more (half), or is gone altogether. It doesn't see an end behind unread bytes.
func (s *Socket) AskEnd() (half, gone bool) { return sock.Ended(int(s.fd)) }

// Buffered implements what sock.Buffered asks for. Anybody may call it at any time.
func (s *Socket) Buffered() (n int, ok bool) {
	s.whileOpen(func(fd int) { n, ok = sock.BufferedIn(fd) })
	return n, ok
}

// Transferred implements what sock.Transferred asks for. Anybody may call it at any time.
func (s *Socket) Transferred() (received, sent uint64, ok bool) {
	s.whileOpen(func(fd int) { received, sent, ok = sock.TransferredIn(fd) })
	return received, sent, ok
}

// LimitUnsent implements what sock.LimitUnsent asks for.
func (s *Socket) LimitUnsent(bytes int) { s.whileOpen(func(fd int) { sock.LimitUnsentIn(fd, bytes) }) }

// Duplicate makes a connection of package net on another descriptor of the same socket.
func (s *Socket) Duplicate() (net.Conn, error) {
	dup, err := sock.Duplicate(int(s.fd))
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(dup), "")
	defer file.Close() // FileConn makes a descriptor of its own
	return net.FileConn(file)
}

// GiveTo takes the socket out of its loop, for the owner. From here on calls go to the duplicate, which alone has the socket.
func (s *Socket) GiveTo(duplicate net.Conn) {
	s.assertOwned()
	s.MakeWaiters()
	s.moveBack()
	// Before fd is -1: a goroutine that finds -1 finds the duplicate.
	s.waiters.Load().taken.Store(&duplicate)
	// Closing fd alone wouldn't end the watch, since the duplicate keeps the open file.
	s.loop.epoll.remove(int(s.fd))
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	sock.Close(int(s.fd))
	s.loop.forgetLocked(s)
}

// IsClosed reports, to the owner, whether the socket was closed or given to a duplicate.
func (s *Socket) IsClosed() bool { return s.fd < 0 }

// CloseSocket closes the socket, for the owner.
func (s *Socket) CloseSocket() {
	s.assertOwned()
	s.moveBack()
	s.loop.remove(s)
}

// Cut makes the owner end the connection. Anybody may call it at any time. The error is net.ErrClosed if the connection has already
// ended.
//
// Cut claims an idle connection: its loop ends the connection in a moment, without a reset. If the connection is owned, Cut shuts the
// socket down, so the client sees the end at once, whatever the owner does. The owner's wait ends, and it can't release the connection,
// since Release fails from here on. If the owner closes the socket at the same time, the lock decides which of the two comes first.
func (s *Socket) Cut() error {
	if !s.whileOpen(func(int) { s.closing() }) {
		return s.closeTaken()
	}
	if _, claimed := s.set(pollClosing); claimed {
		s.Post()
	} else if !s.whileOpen(func(fd int) { sock.Shutdown(fd, syscall.SHUT_RDWR) }) {
		s.closeTaken() // the owner has just closed the socket, perhaps because of pollClosing
	}
	return nil
}

// closing ends the writes of a shared connection. The caller holds loop.mu.
func (s *Socket) closing() {
	s.loop.mu.AssertHeld()
	if s.IsShared() {
		s.served.Closing()
	}
}

// whileOpen calls f with the descriptor, which the owner can't close meanwhile. It reports false if the socket is closed.
func (s *Socket) whileOpen(f func(fd int)) bool {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if s.fd < 0 {
		return false
	}
	f(int(s.fd))
	return true
}

// closeTaken closes the connection that a hijack made of the socket, if there is one.
func (s *Socket) closeTaken() error {
	if taken := s.Taken(); taken != nil {
		return taken.Close()
	}
	return net.ErrClosed
}

// CloseWrite ends the sending side.
func (s *Socket) CloseWrite() error {
	sock.Shutdown(int(s.fd), syscall.SHUT_WR)
	return nil
}

// SetLinger sets what a close does with unsent bytes: 0 drops them and resets the connection.
func (s *Socket) SetLinger(seconds int) error {
	linger := syscall.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		linger = syscall.Linger{}
	}
	return os.NewSyscallError("setsockopt", syscall.SetsockoptLinger(int(s.fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &linger))
}

// expire records that a deadline has passed.
func (s *Socket) expire(write bool) {
	bit := uint32(pollReadExpired)
	if write {
		bit = pollWriteExpired
	}
	if _, claimed := s.set(bit); claimed {
		s.Post()
	}
}

// SetDeadline implements net.Conn.
func (s *Socket) SetDeadline(t time.Time) error {
	if taken := s.Taken(); taken != nil {
		return taken.SetDeadline(t)
	}
	s.setDeadline(t, false)
	s.setDeadline(t, true)
	return nil
}

// SetReadDeadline implements net.Conn.
func (s *Socket) SetReadDeadline(t time.Time) error {
	if taken := s.Taken(); taken != nil {
		return taken.SetReadDeadline(t)
	}
	s.setDeadline(t, false)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	if taken := s.Taken(); taken != nil {
		return taken.SetWriteDeadline(t)
	}
	s.setDeadline(t, true)
	return nil
}

// setDeadline sets a deadline as package net does, with a timer. The server's own deadlines need no timer: the sweep sets deadlines that
// have already passed.
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
		s.MakeWaiters() // only the owner sets a deadline in the future
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

// Taken returns the connection that a hijack made of the socket, nil if none. Calls go there.
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

// waitError returns the error of a Read or Write that mustn't wait any more.
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
