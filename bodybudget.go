package filo

import (
	"github.com/filohttp/filo/internal/budget"
)

// This file has the buffers of request bodies that handlers read as a whole, by whatever protocol they come, as far as they count against
// Server.MaxBufferedBodies. internal/budget counts. internal/http2conn has the bodies of HTTP/2 that wait for their handlers.

// errBodiesFull is the error of a body for which there is no room.
var errBodiesFull = &HTTPError{Status: 503, Detail: "too many request bodies at once", Err: ErrBusy}

// bodyCost is how many bytes a buffer that a body is read into counts as. Smaller ones belong to the workers, which keep them.
func bodyCost(capacity int) int64 {
	if capacity <= maxKeptBody {
		return 0
	}
	return int64(capacity)
}

// takeRoom counts n more bytes for the current request's body. The error is errBodiesFull.
func (x *exchange) takeRoom(n int64) error {
	if n <= 0 {
		return nil
	}
	for bodies := &x.server.bodies; !bodies.Take(&x.scratch.ctx.room, x.wire.queuedBody(), n); {
		if !bodies.CutSilent(x.server.clock.Exact()) {
			return x.refuseBody()
		}
	}
	return nil
}

// checkRoom returns errBodiesFull if n more bytes of the current request's body would have no room.
func (x *exchange) checkRoom(n int64) error {
	for bodies := &x.server.bodies; !bodies.HasRoom(&x.scratch.ctx.room, x.wire.queuedBody(), n); {
		if !bodies.CutSilent(x.server.clock.Exact()) {
			return x.refuseBody()
		}
	}
	return nil
}

// refuseBody counts the refusal of the current request's body.
func (x *exchange) refuseBody() error {
	if x.wire.overrunBody() {
		x.server.refusedRequest(refusedBufferedBodies, x.wire.remote())
	}
	return errBodiesFull
}

// queuedBody implements wire for protocols whose bodies wait in the connection alone.
func (x *exchange) queuedBody() int64 { return 0 }

// overrunBody implements wire for the same protocols.
func (x *exchange) overrunBody() bool { return true }

// giveRoom gives back n bytes that takeRoom has counted for the current request, unless they were given to others.
func (x *exchange) giveRoom(n int64) { x.server.bodies.Give(&x.scratch.ctx.room, n) }

// CutBody implements budget.Silent: the read that waits for the body ends with errDeadline.
func (c *conn) CutBody(room *budget.Room) bool {
	s := &c.server.conns
	s.waking.Lock()
	defer s.waking.Unlock()
	// As in shed. The owner can't leave the wait before waking is released.
	word := c.word.Load()
	if waitState(word&stateMask) != stateBody || !c.word.CompareAndSwap(word, int64(stateShed)) {
		return false
	}
	c.server.bodies.Pass(room)
	c.wakeReader()
	return true
}

// growBody returns a buffer with the content of buffer and at least the given capacity. If the error is errBodiesFull, buffer is unchanged.
func (x *exchange) growBody(buffer []byte, size int) ([]byte, error) {
	if size <= cap(buffer) {
		return buffer, nil
	}
	if err := x.takeRoom(bodyCost(size) - bodyCost(cap(buffer))); err != nil {
		return buffer, err
	}
	grown := append(largeBuffers.Get(size), buffer...)
	if more := bodyCost(cap(grown)) - bodyCost(size); more > 0 { // the free list had no smaller one
		x.server.bodies.Add(&x.scratch.ctx.room, more)
	}
	x.scratch.releaseBuffer(buffer)
	return grown, nil
}

// dropBody gives back a buffer that the current request's body was read into.
func (x *exchange) dropBody(buffer []byte) {
	if cost := bodyCost(cap(buffer)); cost > 0 {
		x.giveRoom(cost)
	}
	x.scratch.releaseBuffer(buffer)
}
