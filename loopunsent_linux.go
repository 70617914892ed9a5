//go:build !386

package filo

import (
	"errors"

	"github.com/filohttp/filo/internal/loop"
)

const (
	// maxUnsent is how much of an answer may wait in the connection for a client that doesn't take it. With more a worker waits.
	maxUnsent = 256 << 10
	// maxHeld is how many bytes of larger bodies, each made for one client, may wait in connections when there is no worker to wait with
	// them.
	maxHeld = 64 << 20
	// maxUntaken is how much of crypto/tls's output may wait in the connection: answers, and replies to the key updates that a client
	// sends with a body.
	maxUntaken = 2 * maxUnsent
)

var errUntaken = errors.New("filo: the client takes none of the replies to its key updates")

// unsent is the part of complete answers that a client hasn't taken yet. At least one of bytes and held has some.
type unsent struct {
	bytes []byte
	// held is a large body that follows bytes and has no worker to wait with it; nil if there is none. It is borrowed from the response,
	// which doesn't reuse so large a buffer.
	held    []byte
	counted int64 // bytes of held that count against maxHeld
}

// holdBody keeps a body in the connection by reference. With copies, clients that take nothing of a few answers could fill the memory.
// Bodies that a handler has rendered for one client, as opposed to those that many answers share, are limited to maxHeld bytes in all
// connections. Beyond that the client gets a 503 instead.
func (lc *loopConn) holdBody() {
	if len(lc.outBody) <= maxKeptBody {
		return // it is copied, since its buffer will be reused
	}
	body, counted := lc.outBody, int64(0)
	if lc.worker.ctx.Response.source == bodyBuffer {
		counted = int64(len(body))
	}
	lc.outBody = nil
	if counted > 0 && lc.server.held.Add(counted) > maxHeld {
		lc.server.held.Add(-counted)
		lc.server.counts.overloads.Add(1)
		lc.server.counts.refusals.unsentAnswers.Add(1)
		lc.out = lc.server.appendRefusal(lc.out[:lc.before], errBusy, &overloadFields, false)
		lc.reading = readingNothing
		return
	}
	u := lc.makeUnsent()
	u.held, u.counted = body, counted
}

func (lc *loopConn) makeUnsent() *unsent {
	if lc.unsent == nil {
		lc.unsent = new(unsent)
	}
	return lc.unsent
}

// dropUnsent forgets what the client hasn't taken.
func (lc *loopConn) dropUnsent() {
	if u := lc.unsent; u != nil {
		lc.server.held.Add(-u.counted)
		lc.unsent = nil
	}
}

// takeHeld moves the next piece of the held body to u.bytes, which is empty. With TLS it sends the piece, and u.bytes gets what the
// client doesn't take.
func (lc *loopConn) takeHeld(u *unsent) error {
	n := min(len(u.held), maxUnsent)
	piece := u.held[:n:n]
	u.held = u.held[n:]
	if lc.tlsState == nil {
		u.bytes = piece
		return nil
	}
	_, err := lc.netConn.Write(piece)
	lc.writePace.Add(max(0, n-len(u.bytes)), 0)
	return err
}

// queue sends what the socket takes of first and second at once, and keeps the rest.
func (lc *loopConn) queue(first, second []byte) error {
	for u := lc.unsent; (u == nil || len(u.bytes) == 0) && len(first)+len(second) > 0; {
		n, err := lc.TryWrite(first, second)
		if err == loop.ErrNotYet {
			break
		}
		if err != nil {
			return err
		}
		k := min(n, len(first))
		first, second = first[k:], second[n-k:]
	}
	if len(first)+len(second) > 0 {
		u := lc.makeUnsent()
		u.bytes = append(append(u.bytes, first...), second...)
	}
	return nil
}

// sendUnsent sends more of what the client hasn't taken. It reports false if some is still left.
func (lc *loopConn) sendUnsent() bool {
	if lc.unsent == nil {
		return true
	}
	moved := lc.writePace.Moved()
	switch err := lc.sendNow(); {
	case err == nil:
		return true
	case err == loop.ErrNotYet && !(lc.expired && lc.writePace.Late(lc.server.config.writing, lc.writePace.Moved()-moved)):
		lc.expired = false
		lc.WatchWritable()
		return false
	case err == loop.ErrNotYet:
		lc.server.counts.timeouts.write.Add(1)
	}
	lc.failed, lc.reading = true, readingNothing
	lc.dropUnsent()
	return true
}

// sendNow sends what the socket takes at once of what the client hasn't taken. If some is left, the error is loop.ErrNotYet, and
// lc.unsent.bytes holds the next part of it.
func (lc *loopConn) sendNow() error {
	u := lc.unsent
	for {
		for len(u.bytes) > 0 {
			n, err := lc.TryWrite(u.bytes, nil)
			if err != nil {
				return err
			}
			lc.writePace.Add(n, 0)
			u.bytes = u.bytes[n:]
		}
		u.bytes = nil
		if len(u.held) == 0 {
			lc.dropUnsent()
			return nil
		}
		if err := lc.takeHeld(u); err != nil {
			return err
		}
	}
}

// finishUnsent sends what the client hasn't taken, and waits for the client as for an answer. No body is held while a handler runs.
func (lc *loopConn) finishUnsent() error {
	u := lc.unsent
	if u == nil {
		return nil
	}
	for len(u.bytes) > 0 {
		deadline, start := lc.beforeWrite(0)
		n, err := lc.Socket.Write(u.bytes)
		u.bytes = u.bytes[n:]
		if err = lc.afterWrite(n, err, deadline, start); err != nil {
			lc.writeFailed(err)
			return err
		}
	}
	lc.unsent = nil
	return nil
}
