//go:build !386

package filo

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/sock"
)

// loopConn is a connection in a loop. It is idle, and costs nothing but its memory, until an event, a deadline or a call of
// Cut claims it by setting pollBusy in its poll word; who has done so owns it until it is idle again. Only the owner reads,
// writes and closes the socket, but for sendApart. The lingerer is the owner of what it has taken over.
//
// As a net.Conn it serves its owner, who may wait in Read and Write when no other worker depends on it: the loop's own
// events wake it. It isn't registered with the runtime's poller. Deadlines and Cut are for everybody.
//
// The descriptor is the owner's to close, since the number may be another connection's at once, and whoever had it in his
// hands would then read and write that. So fd becomes -1 only by the owner (removeLocked, or forgetLocked when it is
// hijacked) and under loop.mu. Others reach the descriptor only by Cut and LocalAddr, which hold that lock and look at fd;
// and by the outbox of a parked connection, which the owner fails before.
type loopConn struct {
	conn
	loop        *loop // whose epoll set it is in
	fd          int32 // -1 when it is closed; changed by the owner under loop.mu
	slot        uint32
	generation  uint32
	noWaitRead  bool // Read returns errNotYet instead of waiting
	noWaitWrite bool // Write leaves in unsent what can't be written at once
	watchOut    bool // the epoll set reports when the socket takes more
	ended       bool // the connection isn't served any more: the owner is about to close it, or leaves that to the lingerer
	drained     bool // the last read took all there was
	expired     bool // the deadline of the wait before this turn has passed
	parkedOnce  bool // the request that parked it is over
	toldIdle    bool // ConnState knows that the connection is idle

	poll atomic.Uint32
	// deadline is until when an idle connection may wait, and since is when it began to, both on the coarse clock's scale.
	// since is 0 from when something has come.
	deadline, since clock.Time
	lastUntil       clock.Time // until when it may wait for a last request, once the server shuts down; 0: not decided
	// pending is what has come of a request that isn't complete.
	pending *pendingInput
	// unsent is what the client hasn't taken yet of complete answers, nil if it has taken all.
	unsent *unsent
	// waiters is where the owner waits; made by it when it first does.
	waiters atomic.Pointer[connWaiters]
	// watcher is the context to be cancelled when the client leaves.
	watcher atomic.Pointer[requestContext]

	peer sock.Address
}

// pendingInput is an unfinished request, which no worker has a buffer for.
type pendingInput struct {
	in     http1.Input
	parser http1.Parser
	rest   body
}

// connWaiters wakes the goroutine that waits in Read, and the one that waits in Write.
type connWaiters struct {
	readable, writable      chan struct{}            // cap 1
	readTimer, writeTimer   *time.Timer              // guarded by loop.mu
	readSerial, writeSerial uint64                   // of the deadlines, guarded by loop.mu
	taken                   atomic.Pointer[net.Conn] // to which a hijacked connection's calls go
}

// errNotYet says that nothing has come. For crypto/tls it must be temporary, or else its connection would be over.
var errNotYet net.Error = notYetError{}

type notYetError struct{}

func (notYetError) Error() string   { return "filo: nothing to read yet" }
func (notYetError) Timeout() bool   { return false }
func (notYetError) Temporary() bool { return true }

func (lc *loopConn) makeWaiters() {
	if lc.waiters.Load() == nil {
		lc.waiters.Store(&connWaiters{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)})
	}
}

// Read reads what has come, or waits for it.
func (lc *loopConn) Read(p []byte) (int, error) {
	if taken := lc.taken(); taken != nil {
		return taken.Read(p)
	}
	lc.drained = false // what the last event was for may be behind what is read here
	for {
		if word := lc.poll.Load(); word&(pollClosing|pollReadExpired) != 0 && !lc.noWaitRead {
			return 0, lc.waitError("read", word&pollClosing != 0)
		}
		n, errno := sock.Read(int(lc.fd), p)
		switch {
		case errno == syscall.EAGAIN:
		case errno != 0:
			return 0, lc.opError("read", os.NewSyscallError("read", errno))
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
		if lc.noWaitRead {
			return 0, errNotYet
		}
		if err := lc.beforeWait(); err != nil {
			return 0, err
		}
		lc.park(pollReadParked, pollReadable, pollHup|pollClosing|pollReadExpired, func(w *connWaiters) chan struct{} { return w.readable })
	}
}

// beforeWait makes sure that nobody waits for the goroutine that is going to wait.
func (lc *loopConn) beforeWait() error {
	lc.makeWaiters()
	if p := lc.parked; p != nil {
		if p.serving != nil {
			return p.serving.leave(p.class)
		}
		return nil
	}
	if lc.worker == nil {
		return nil
	}
	return lc.leave(lc.worker.timer.Class())
}

// Write sends all of p, and before it what is unsent.
func (lc *loopConn) Write(p []byte) (int, error) {
	if taken := lc.taken(); taken != nil {
		return taken.Write(p)
	}
	if lc.poll.Load()&pollShared != 0 {
		return lc.parked.out.Put(p) // by TLS
	}
	if lc.noWaitWrite {
		return len(p), lc.queue(p, nil)
	}
	if u := lc.unsent; u != nil {
		n, err := lc.write(u.bytes)
		if u.bytes = u.bytes[n:]; err != nil {
			return 0, err
		}
		lc.unsent = nil
	}
	return lc.write(p)
}

// setApart makes writes through TLS keep what the client doesn't take at once: who writes isn't the owner, and can't wait.
func (lc *loopConn) setApart(on bool) { lc.noWaitWrite = on && lc.tlsState != nil }

// sendApart sends what the client takes at once, and keeps the rest.
func (lc *loopConn) sendApart(p []byte) error {
	if lc.tlsState == nil {
		return lc.queue(p, nil)
	}
	_, err := lc.netConn.Write(p)
	return err
}

// write sends all of p, waiting where it must.
func (lc *loopConn) write(p []byte) (sent int, err error) {
	for sent < len(p) {
		if word := lc.poll.Load(); word&(pollClosing|pollWriteExpired) != 0 {
			return sent, lc.waitError("write", word&pollClosing != 0)
		}
		n, errno := sock.Write(int(lc.fd), p[sent:])
		if errno != 0 && errno != syscall.EAGAIN {
			return sent, lc.opError("write", os.NewSyscallError("write", errno))
		}
		sent += n
		if errno == syscall.EAGAIN {
			if err := lc.awaitWritable(); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// awaitWritable waits until the socket may take more.
func (lc *loopConn) awaitWritable() error {
	if err := lc.beforeWait(); err != nil {
		return err
	}
	lc.watchWritable()
	lc.park(pollWriteParked, pollWritable, pollGone|pollClosing|pollWriteExpired, func(w *connWaiters) chan struct{} { return w.writable })
	return nil
}

// watchWritable makes the epoll set report when the socket takes more. Changing the entry makes it look, so nothing is
// missed.
func (lc *loopConn) watchWritable() {
	if !lc.watchOut {
		lc.watchOut = true
		sock.EpollControl(lc.loop.epfd, syscall.EPOLL_CTL_MOD, int(lc.fd), connEvents|syscall.EPOLLOUT, lc.slot, lc.generation)
	}
}

// writeVector is Write for two buffers.
func (lc *loopConn) writeVector(first, second []byte) (int64, error) {
	if lc.unsent == nil {
		n, errno := sock.Writev(int(lc.fd), first, second)
		switch {
		case errno == syscall.EAGAIN:
		case errno != 0:
			return 0, lc.opError("write", os.NewSyscallError("writev", errno))
		case n >= len(first):
			m, err := lc.Write(second[n-len(first):])
			return int64(n + m), err
		default:
			m, err := lc.Write(first[n:])
			return int64(n + m), err // the caller goes on with second
		}
	}
	n, err := lc.Write(first)
	return int64(n), err
}

var _ sock.RawWriter = (*loopConn)(nil)

// RawWrite sends a part of a file: see sock.RawWriter.
func (lc *loopConn) RawWrite(write func(fd uintptr) (done bool)) error {
	if lc.worker != nil {
		// The file may have to be read from a disk.
		if err := lc.leave(lc.worker.timer.Class()); err != nil {
			return err
		}
	}
	if _, err := lc.Write(nil); err != nil {
		return err
	}
	for {
		if word := lc.poll.Load(); word&(pollClosing|pollWriteExpired) != 0 {
			return lc.waitError("write", word&pollClosing != 0)
		}
		if write(uintptr(lc.fd)) {
			return nil
		}
		if err := lc.awaitWritable(); err != nil {
			return err
		}
	}
}

var _ linger.Socket = (*loopConn)(nil)

// Close is net.Conn's, for crypto/tls above all: that calls it when it has said goodbye, for the owner, and when a handshake's time
// is over, on a goroutine of its own and perhaps long after the handshake has returned. So it only cuts; the owner, who ends the
// connection by linger.Close, closes the socket.
func (lc *loopConn) Close() error {
	if taken := lc.taken(); taken != nil {
		return taken.Close()
	}
	return lc.Cut()
}

// CloseSocket closes the socket, for the owner.
func (lc *loopConn) CloseSocket() { lc.loop.remove(lc) }

// Cut makes the owner end the connection. Anybody may call it, at any time. The error is net.ErrClosed if that has happened.
//
// One that nobody owns is claimed, so that its loop ends it in a moment, and then not by a reset. If it is owned, the owner
// can't let go of it any more, since release fails from here on, and what it waits for is over; and the client sees the end
// at once, whatever the owner is doing. Unless the owner has closed it by then: the lock settles which of the two it is.
func (lc *loopConn) Cut() error {
	if lc.poll.Load()&pollShared != 0 {
		lc.parked.out.Fail(net.ErrClosed) // from here on nobody writes
	}
	if !lc.whileOpen(func(int) {}) {
		return lc.closeTaken()
	}
	if _, claimed := lc.set(pollClosing); claimed {
		lc.loop.post(lc)
	} else if !lc.whileOpen(func(fd int) { sock.Shutdown(fd, syscall.SHUT_RDWR) }) {
		lc.closeTaken() // or the owner has just ended it, perhaps because it found pollClosing
	}
	return nil
}

// whileOpen calls f with the descriptor, which the owner can't close meanwhile. It reports false if that has happened.
func (lc *loopConn) whileOpen(f func(fd int)) bool {
	lc.loop.mu.Lock()
	defer lc.loop.mu.Unlock()
	if lc.fd < 0 {
		return false
	}
	f(int(lc.fd))
	return true
}

// closeTaken closes what a connection whose socket isn't the loop's any more was hijacked as.
func (lc *loopConn) closeTaken() error {
	if taken := lc.taken(); taken != nil {
		return taken.Close()
	}
	return net.ErrClosed
}

// CloseWrite says to the client that nothing more comes.
func (lc *loopConn) CloseWrite() error {
	sock.Shutdown(int(lc.fd), syscall.SHUT_WR)
	return nil
}

// SetLinger sets what a close does with what hasn't been sent: 0 resets the connection.
func (lc *loopConn) SetLinger(seconds int) error {
	linger := syscall.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		linger = syscall.Linger{}
	}
	return os.NewSyscallError("setsockopt", syscall.SetsockoptLinger(int(lc.fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &linger))
}

// expire notes that a deadline has passed.
func (lc *loopConn) expire(write bool) {
	bit := uint32(pollReadExpired)
	if write {
		bit = pollWriteExpired
	}
	if _, claimed := lc.set(bit); claimed {
		lc.loop.post(lc)
	}
}

// SetDeadline is net.Conn's.
func (lc *loopConn) SetDeadline(t time.Time) error {
	if taken := lc.taken(); taken != nil {
		return taken.SetDeadline(t)
	}
	lc.setDeadline(t, false)
	lc.setDeadline(t, true)
	return nil
}

// SetReadDeadline is net.Conn's.
func (lc *loopConn) SetReadDeadline(t time.Time) error {
	if taken := lc.taken(); taken != nil {
		return taken.SetReadDeadline(t)
	}
	lc.setDeadline(t, false)
	return nil
}

// SetWriteDeadline is net.Conn's.
func (lc *loopConn) SetWriteDeadline(t time.Time) error {
	if taken := lc.taken(); taken != nil {
		return taken.SetWriteDeadline(t)
	}
	lc.setDeadline(t, true)
	return nil
}

// setDeadline sets a deadline in the runtime's way, with a timer. The server's own deadlines need none: its sweep sets
// those that have passed.
func (lc *loopConn) setDeadline(t time.Time, write bool) {
	bit := uint32(pollReadExpired)
	if write {
		bit = pollWriteExpired
	}
	wait := time.Until(t)
	lc.loop.mu.Lock()
	if w := lc.waiters.Load(); w != nil {
		timer, serial := &w.readTimer, &w.readSerial
		if write {
			timer, serial = &w.writeTimer, &w.writeSerial
		}
		if *serial++; *timer != nil {
			(*timer).Stop()
			*timer = nil
		}
		if !t.IsZero() && wait > 0 && !lc.noWaitWrite {
			mine := *serial
			*timer = time.AfterFunc(wait, func() {
				lc.loop.mu.Lock()
				current := *serial == mine
				lc.loop.mu.Unlock()
				if current {
					lc.expire(write)
				}
			})
		}
	} else if !t.IsZero() && wait > 0 && !lc.noWaitWrite {
		lc.loop.mu.Unlock()
		lc.makeWaiters() // the owner's call: nobody else sets a time that is to come
		lc.setDeadline(t, write)
		return
	}
	lc.loop.mu.Unlock()
	if !t.IsZero() && wait <= 0 {
		lc.expire(write)
	} else {
		lc.clear(bit)
	}
}

// taken returns the connection that this one's calls go to since it was hijacked.
func (lc *loopConn) taken() net.Conn {
	if w := lc.waiters.Load(); w != nil {
		if taken := w.taken.Load(); taken != nil {
			return *taken
		}
	}
	return nil
}

// LocalAddr returns the address of this end.
func (lc *loopConn) LocalAddr() net.Addr {
	lc.loop.mu.Lock()
	defer lc.loop.mu.Unlock()
	if lc.fd < 0 {
		if taken := lc.taken(); taken != nil {
			return taken.LocalAddr()
		}
		return &net.TCPAddr{}
	}
	return sock.LocalAddr(int(lc.fd))
}

// RemoteAddr returns the address of the client.
func (lc *loopConn) RemoteAddr() net.Addr {
	if address := lc.peer.AddrPort(); address.IsValid() {
		return net.TCPAddrFromAddrPort(address)
	}
	return &net.UnixAddr{Net: "unix"}
}

func (lc *loopConn) leaveLoop() error { return lc.leave(lc.worker.timer.Class()) }

func (lc *loopConn) remote() netip.AddrPort { return lc.peer.AddrPort() }

// waitError is the error of a Read or Write that mustn't wait any more.
func (lc *loopConn) waitError(op string, closed bool) error {
	if closed {
		return lc.opError(op, net.ErrClosed)
	}
	return lc.opError(op, os.ErrDeadlineExceeded)
}

func (lc *loopConn) opError(op string, err error) error {
	remote := lc.RemoteAddr()
	return &net.OpError{Op: op, Net: remote.Network(), Addr: remote, Err: err}
}
