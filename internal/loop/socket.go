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

// Conn implements the protocol of a connection. The connection's socket and its loop call these methods.
type Conn interface {
	// Turn serves the connection, which w has claimed, as far as possible without waiting for the client. When Turn returns false, the
	// connection is idle or closed, or has another owner. When Turn returns true, the connection is still claimed and needs another turn,
	// but other connections go first. During the turn w may lose its loop, or give it away.
	Turn(w *Worker) (again bool)
	// Abandon is called on w's goroutine when Turn has panicked, or has called runtime.Goexit (goexit). If w still owns the connection,
	// Abandon ends the connection or, after Goexit, may leave it to another worker.
	Abandon(w *Worker, goexit bool)
	// PeerLeft is called when the client of an owned connection sends nothing more or, if broken is set, when the connection is broken. The
	// caller isn't the owner.
	PeerLeft(broken bool)
	// Writable is called when the socket of a shared connection has room. The caller isn't the owner.
	Writable()
	// Closing ends the writes on a shared connection: once it has returned, no goroutine may write. The caller holds loop.mu.
	Closing()
	// TakeAway takes the connection from the worker that serves it, after the worker's seat was taken away: see Worker.MayLose. Any
	// goroutine may call it.
	TakeAway()
	// BeforeWait is called by the owner when it is about to wait in Read, Write or RawWrite. It makes sure that no other connection depends
	// on the owner's goroutine, or returns the reason why the owner mustn't wait.
	BeforeWait() error
}

// Socket is a connection's socket in a loop. An idle socket costs nothing but its memory. The goroutine that notices an event or a passed
// deadline, or that calls Cut, claims the socket by setting pollBusy in its poll word. The socket is then owned until it is idle again: only
// its owner reads, writes and closes it, except that other goroutines may write to a shared socket. The lingerer owns the sockets that it
// has taken over.
//
// A Socket is a net.Conn for its owner. When no other connection depends on the owner's goroutine, the owner may wait in Read and Write.
// Then the loop's events wake it, or the runtime's poller does: see polledSocket. Any goroutine may set deadlines and call Cut.
//
// Only the owner closes the descriptor. The system may reuse the number of a closed descriptor at once, and a goroutine that still used the
// number would read and write another connection. So only the owner sets fd to -1 (removeLocked, GiveTo), under loop.mu. Other goroutines
// use the descriptor in three cases. Methods such as Cut and LocalAddr hold loop.mu and check fd. WriteNow isn't called once Closing has
// returned. Callers of AskEnd and Peek hold a lock that the owner acquires before it closes the socket.
type Socket struct {
	served      Conn  // immutable
	loop        *Loop // set by Loop.Add, then immutable
	fd          int32 // -1 once it is closed or given away; changed by the owner under loop.mu
	slot        uint32
	generation  uint32
	poll        atomic.Uint32
	NoWaitRead  bool // Read returns ErrNotYet instead of waiting
	NoWaitWrite bool // Write of the connection never waits, so SetDeadline starts no timers
	watchOut    bool // the epoll set reports when the socket has room
	Drained     bool // the last read has read all bytes that had arrived
	Peer        sock.Address
	// waiters is where goroutines wait for the socket. It is allocated before the first wait.
	waiters atomic.Pointer[connWaiters]
}

// connWaiters is where goroutines wait in Read and Write, at most one in each direction.
type connWaiters struct {
	waiter                  [2]waiter
	wanted                  int32                    // see Want; only the owner uses it
	lowWater                int32                    // the socket's SO_RCVLOWAT, 0 for the default of 1; only the owner uses it
	mu                      race.Mutex[race.OfLeaf]  // held while watchLocked is called, since a reader and a writer may do that concurrently
	readTimer, writeTimer   *time.Timer              // guarded by loop.mu
	readSerial, writeSerial uint64                   // incremented when a deadline is set; guarded by loop.mu
	taken                   atomic.Pointer[net.Conn] // after a hijack, the connection that has taken the socket's place: the methods of Socket call its methods
}

// ErrNotYet says that a call would have to wait. It is temporary, since crypto/tls ends the connection after any other error.
var ErrNotYet net.Error = notYetError{}

type notYetError struct{}

func (notYetError) Error() string   { return "filo: nothing to read yet" }
func (notYetError) Timeout() bool   { return false }
func (notYetError) Temporary() bool { return true }

// assertOwned panics if the socket has no owner, in builds with the race detector. In other builds it costs nothing. If another goroutine
// owns the socket, the race detector reports the fields that both access.
func (s *Socket) assertOwned() {
	if race.Enabled && s.poll.Load()&pollBusy == 0 {
		panic("filo: a socket was used by somebody who doesn't own it")
	}
}

// Served returns the connection that Open was given.
func (s *Socket) Served() Conn { return s.served }

// Open initializes s with the descriptor fd. served implements the connection's protocol. The caller becomes the owner.
func (s *Socket) Open(fd int, peer sock.Address, served Conn) {
	s.fd, s.Peer, s.served = int32(fd), peer, served
	s.poll.Store(pollBusy)
}

// MakeWaiters allocates s.waiters, which goroutines need to wait in Read and Write.
func (s *Socket) MakeWaiters() {
	if s.waiters.Load() == nil {
		all := new(connWaiters)
		for d := range all.waiter {
			all.waiter[d].woken = make(chan struct{}, 1)
		}
		s.waiters.CompareAndSwap(nil, all) // two goroutines of a handler may begin their first waits at the same time
	}
}

// Read reads bytes that have arrived, or waits for some.
func (s *Socket) Read(p []byte) (int, error) {
	if taken := s.Taken(); taken != nil {
		return taken.Read(p)
	}
	s.assertOwned()
	s.Drained = false // this read may leave bytes in the socket for which there is no further event
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
				return 0, s.waitError("read", false) // only after EAGAIN: if bytes have arrived, Read returns them, though fewer than wanted
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

// Want sets how many bytes must arrive before a Read that has to wait returns, since the reader of a whole body can't use a part of it. Read
// returns fewer bytes at the end of the input, when a read deadline passes, or if some bytes have arrived just before it waits.
// After Want(0) or Want(1), Read returns as soon as any bytes have arrived.
func (s *Socket) Want(bytes int) {
	if bytes > 0 {
		s.MakeWaiters()
	}
	if all := s.waiters.Load(); all != nil {
		all.wanted = int32(bytes)
	}
}

// WantsMuch reports whether Want has set a number of bytes. If so, some bytes may have arrived without an event, but fewer than that number.
func (s *Socket) WantsMuch() bool {
	all := s.waiters.Load()
	return all != nil && all.wanted != 0
}

// setLowWater makes the system report input when the given number of bytes has arrived, or at once if they have arrived already.
func (s *Socket) setLowWater(all *connWaiters, bytes int32) {
	if all.lowWater != bytes {
		all.lowWater = bytes
		sock.SetLowWater(int(s.fd), max(1, int(bytes)))
	}
}

// Write sends all of p, and waits whenever the socket has no room.
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

// WatchWritable makes the epoll set report when the socket has room. If the socket already has room, the system reports that at once when the
// entry changes, so no event is missed.
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

// Close implements net.Conn, mainly for crypto/tls, which calls it on the owner's goroutine after sending its close alert. When a handshake
// times out, crypto/tls calls it on another goroutine, perhaps long after the handshake has returned. So Close only calls Cut; the owner
// ends the connection by linger.Close, which closes the socket.
func (s *Socket) Close() error {
	if taken := s.Taken(); taken != nil {
		return taken.Close()
	}
	return s.Cut()
}

// WriteVector sends first and second with one system call. If the call sends only a part of first or second, WriteVector then sends the rest
// of that slice, but not the slice after it.
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
		rest = first[n:] // the caller sends second itself
	}
	m, err := s.Write(rest)
	return int64(n + m), err
}

// RawWrite calls the function write until it returns true, and waits for room in between: see sock.RawWriter.
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

// TryRead is like Read, but never waits: if nothing has arrived, it returns ErrNotYet.
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
	// Bytes that arrive after a short read cause another event. But the end of the input may have arrived in the same event as the bytes
	// that were read.
	s.Drained = n < len(p) && s.poll.Load()&pollHup == 0
	return n, nil
}

// Peek reads bytes without consuming them. If nothing has arrived, it returns ErrNotYet; at the end of the input n is 0. Goroutines other
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

// TryWrite writes as much of first and second as the socket has room for, with one system call. If there is no room, it returns ErrNotYet.
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

// TrySendFile sends as much of a part of a file as the socket has room for. If that isn't all, it returns ErrNotYet. At the end of the file
// it sends nothing, and returns no error.
func (s *Socket) TrySendFile(sender sock.NowSender, offset int64, size int) (n int, err error) {
	if n, err = sender.SendNow(uintptr(s.fd), offset, size); err == syscall.EAGAIN {
		err = ErrNotYet
	}
	return n, err
}

// WriteNow implements outbox.Socket. The caller holds the lock that serializes the writes of a shared connection.
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

// PumpLater implements outbox.Socket. The caller holds the same lock as for WriteNow. Conn.Writable is called when the socket has room, or
// soon if it already has.
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

// AskEnd asks the system whether the client sends nothing more (half), or the connection is broken (gone). If there are unread bytes, it
// doesn't notice the end of the input.
func (s *Socket) AskEnd() (half, gone bool) { return sock.Ended(int(s.fd)) }

// Buffered implements the method that sock.Buffered calls. Any goroutine may call it at any time.
func (s *Socket) Buffered() (n int, ok bool) {
	s.whileOpen(func(fd int) { n, ok = sock.BufferedIn(fd) })
	return n, ok
}

// Transferred implements the method that sock.Transferred calls. Any goroutine may call it at any time.
func (s *Socket) Transferred() (received, sent uint64, ok bool) {
	s.whileOpen(func(fd int) { received, sent, ok = sock.TransferredIn(fd) })
	return received, sent, ok
}

// LimitUnsent implements the method that sock.LimitUnsent calls.
func (s *Socket) LimitUnsent(bytes int) { s.whileOpen(func(fd int) { sock.LimitUnsentIn(fd, bytes) }) }

// Duplicate returns a connection of package net that uses another descriptor of the same socket.
func (s *Socket) Duplicate() (net.Conn, error) {
	dup, err := sock.Duplicate(int(s.fd))
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(dup), "")
	defer file.Close() // FileConn duplicates the descriptor
	return net.FileConn(file)
}

// GiveTo removes the socket from its loop, and closes its descriptor. From here on the methods of Socket call those of duplicate, which has
// the only descriptor. The owner calls GiveTo.
func (s *Socket) GiveTo(duplicate net.Conn) {
	s.assertOwned()
	s.MakeWaiters()
	s.moveBack()
	// Store the duplicate before fd becomes -1, so that a goroutine that finds -1 also finds the duplicate.
	s.waiters.Load().taken.Store(&duplicate)
	// Closing fd alone wouldn't remove it from the epoll set, since the duplicate refers to the same open file.
	s.loop.epoll.remove(int(s.fd))
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	sock.Close(int(s.fd))
	s.loop.forgetLocked(s)
}

// IsClosed reports to the owner whether the socket was closed or given to a duplicate.
func (s *Socket) IsClosed() bool { return s.fd < 0 }

// CloseSocket closes the socket. The owner calls it.
func (s *Socket) CloseSocket() {
	s.assertOwned()
	s.moveBack()
	s.loop.remove(s)
}

// Cut makes the connection end. Any goroutine may call it at any time. It returns net.ErrClosed if the connection has already ended.
//
// If the connection is idle, Cut claims it and posts it to its loop, which ends it without a reset. If the connection is owned, Cut shuts
// the socket down, so the client notices the end at once, whatever the owner does. Waits of the owner end, and Release fails from here on,
// so the owner must end the connection. If the owner closes the socket at the same time, loop.mu orders the two operations.
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

// closing ends the writes on a shared connection. The caller holds loop.mu.
func (s *Socket) closing() {
	s.loop.mu.AssertHeld()
	if s.IsShared() {
		s.served.Closing()
	}
}

// whileOpen calls f with the descriptor, which the owner can't close until f returns. It returns false if the socket is closed.
func (s *Socket) whileOpen(f func(fd int)) bool {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if s.fd < 0 {
		return false
	}
	f(int(s.fd))
	return true
}

// closeTaken closes the connection that has taken the socket's place in a hijack. It returns net.ErrClosed if there is none.
func (s *Socket) closeTaken() error {
	if taken := s.Taken(); taken != nil {
		return taken.Close()
	}
	return net.ErrClosed
}

// CloseWrite shuts down the sending side of the socket.
func (s *Socket) CloseWrite() error {
	sock.Shutdown(int(s.fd), syscall.SHUT_WR)
	return nil
}

// SetLinger sets what happens to unsent bytes when the socket is closed: 0 discards them and resets the connection.
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

// setDeadline sets a deadline with a timer, as package net does. The server's own time-outs need no timer: when one has passed, the sweep
// sets a deadline in the past.
func (s *Socket) setDeadline(t time.Time, write bool) {
	bit := uint32(pollReadExpired)
	if write {
		bit = pollWriteExpired
	}
	wait := time.Until(t)
	s.loop.mu.Lock()
	if t.IsZero() || wait > 0 {
		s.clear(bit) // before the new timer, which may expire at once, could set it
	}
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
				claimed := false
				s.loop.mu.Lock()
				if *serial == mine { // the bit is set under mu, or it could be set after a later call of setDeadline has cleared it
					_, claimed = s.set(bit)
				}
				s.loop.mu.Unlock()
				if claimed {
					s.Post()
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
	}
}

// Taken returns the connection that has taken the socket's place in a hijack, or nil. If there is one, the methods of Socket call its
// methods.
func (s *Socket) Taken() net.Conn {
	if w := s.waiters.Load(); w != nil {
		if taken := w.taken.Load(); taken != nil {
			return *taken
		}
	}
	return nil
}

// LocalAddr implements net.Conn.
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

// RemoteAddr implements net.Conn: it returns the address of the client.
func (s *Socket) RemoteAddr() net.Addr {
	if address := s.Peer.AddrPort(); address.IsValid() {
		return net.TCPAddrFromAddrPort(address)
	}
	return &net.UnixAddr{Net: "unix"}
}

// waitError returns the error of a Read or Write that ends because the connection was cut (closed) or its deadline has passed.
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
