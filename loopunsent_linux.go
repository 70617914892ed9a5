//go:build !386

package filo

import (
	"os"
	"syscall"

	"github.com/filohttp/filo/internal/sock"
)

const (
	// maxUnsent is how much of an answer that the client doesn't take waits in the connection; a worker waits with more.
	maxUnsent = 256 << 10
	// maxHeld is how many bytes of larger bodies, made for a single client each, may wait in connections because there is no
	// worker to wait with them.
	maxHeld = 64 << 20
)

// heldBody is a large body that no worker waits with, as far as it isn't in unsent.
type heldBody struct {
	rest    []byte // borrowed from the response, which doesn't use so large a buffer again
	counted int64  // against maxHeld
}

// holdBody makes a body wait in the connection, as a reference: else clients that take nothing of a few answers would have the
// memory filled with copies. There is a limit for those that were made for one client, as there is one for workers; beyond it
// the client gets a 503 instead.
func (lc *loopConn) holdBody() {
	if len(lc.outBody) <= maxKeptBody {
		return // it is copied, since its buffer is used again
	}
	held := &heldBody{rest: lc.outBody}
	if lc.worker.ctx.Response.source == bodyBuffer {
		held.counted = int64(len(held.rest))
	}
	lc.outBody = nil
	if held.counted > 0 && lc.server.held.Add(held.counted) > maxHeld {
		lc.server.held.Add(-held.counted)
		lc.server.counts.overloads.Add(1)
		lc.out = lc.server.appendRefusal(lc.out[:lc.before], errBusy, &overloadFields, false)
		lc.reading = readingNothing
		return
	}
	lc.makeWaiters()
	lc.waiters.Load().held = held
}

func (lc *loopConn) heldBody() *heldBody {
	if w := lc.waiters.Load(); w != nil {
		return w.held
	}
	return nil
}

// dropHeld forgets the held body, if there is one.
func (lc *loopConn) dropHeld() {
	if held := lc.heldBody(); held != nil {
		lc.server.held.Add(-held.counted)
		lc.waiters.Load().held = nil
	}
}

// takeHeld puts the next piece of the held body into unsent, which is empty. TLS sends it, and leaves there what the client
// doesn't take.
func (lc *loopConn) takeHeld(held *heldBody) error {
	n := min(len(held.rest), maxUnsent)
	piece := held.rest[:n:n]
	if held.rest = held.rest[n:]; n == 0 {
		lc.dropHeld()
		return nil
	}
	if lc.tlsState == nil {
		lc.unsent = piece
		return nil
	}
	lc.noWaitWrite = true
	_, err := lc.netConn.Write(piece)
	lc.noWaitWrite = false
	lc.writePace.Add(max(0, n-len(lc.unsent)), 0)
	return err
}

// queue sends what the socket takes of the two at once. The rest it keeps.
func (lc *loopConn) queue(first, second []byte) error {
	for len(lc.unsent) == 0 && len(first)+len(second) > 0 {
		var n int
		var errno syscall.Errno
		if len(second) == 0 {
			n, errno = sock.Write(int(lc.fd), first)
		} else {
			n, errno = sock.Writev(int(lc.fd), first, second)
		}
		if errno == syscall.EAGAIN {
			break
		}
		if errno != 0 {
			return os.NewSyscallError("write", errno)
		}
		k := min(n, len(first))
		first, second = first[k:], second[n-k:]
	}
	if len(first)+len(second) > 0 {
		lc.unsent = append(append(lc.unsent, first...), second...)
	}
	return nil
}

// sendUnsent goes on with what the client hasn't taken. It reports false if it still doesn't take it all.
func (lc *loopConn) sendUnsent() bool {
	if len(lc.unsent) == 0 {
		return true
	}
	moved := lc.writePace.Moved()
	switch err := lc.sendNow(); {
	case err == nil:
		return true
	case err == errNotYet && !(lc.expired && lc.writePace.Late(lc.server.config.writing, lc.writePace.Moved()-moved)):
		lc.expired = false
		lc.watchWritable()
		return false
	}
	lc.failed, lc.reading, lc.unsent = true, readingNothing, nil
	lc.dropHeld()
	return true
}

// sendNow sends what the socket takes at once of what the client hasn't taken. If that isn't all, the error is errNotYet, and
// the next of it is in unsent.
func (lc *loopConn) sendNow() error {
	for {
		for len(lc.unsent) > 0 {
			n, errno := sock.Write(int(lc.fd), lc.unsent)
			switch {
			case errno == syscall.EAGAIN:
				return errNotYet
			case errno != 0:
				return os.NewSyscallError("write", errno)
			}
			lc.writePace.Add(n, 0)
			lc.unsent = lc.unsent[n:]
		}
		lc.unsent = nil
		held := lc.heldBody()
		if held == nil {
			return nil
		}
		if err := lc.takeHeld(held); err != nil {
			return err
		}
	}
}

// finishUnsent sends what the client hasn't taken, waiting for it as for an answer.
func (lc *loopConn) finishUnsent() error {
	for len(lc.unsent) > 0 {
		deadline, start := lc.beforeWrite(0)
		n, err := lc.write(lc.unsent)
		lc.unsent = lc.unsent[n:]
		if err = lc.afterWrite(n, err, deadline, start); err != nil {
			lc.writeFailed()
			return err
		}
	}
	lc.unsent = nil
	return nil
}
