//go:build !386

package filo

import (
	"bytes"
	"errors"
	"time"
)

// prepareParked makes the connection one that several goroutines use.
func (lc *loopConn) prepareParked() error {
	if err := lc.leave(lc.worker.class); err != nil {
		return err
	}
	lc.makeWaiters()
	_, err := lc.write(lc.unsent)
	lc.unsent = nil
	return err
}

// parkedTurn serves a connection that was taken over and parked: it calls its function if there is a reason to, and lets it
// wait again.
func (lc *loopConn) parkedTurn() {
	s, w, p := lc.server, lc.worker, lc.parked
	lc.end101(w)
	for {
		why, ok := lc.parkedReason(w)
		if ok {
			if lc.leaveParked(w) != nil {
				return // it comes back in a moment
			}
			lc.setState(stateHandler)
			if !p.call(why) {
				lc.endParked()
				return
			}
			p.received = bytes.Clone(p.received) // which was the worker's buffer
			continue
		}
		if lc.poll.Load()&pollClosing != 0 {
			lc.endParked()
			return
		}
		lc.deadline, lc.since = p.deadline(), s.clock.now()
		lc.setWait(stateParked, lc.deadline)
		if lc.release(false) {
			return
		}
		lc.clear(pollReadable)
		lc.endIdle()
	}
}

// end101 ends the request that was answered by parking the connection, if this is its turn, and takes the worker's buffers
// back: what the connection's function calls must find it without a worker that leads.
func (lc *loopConn) end101(w *scratch) {
	if lc.requests > 0 && !lc.parkedOnce {
		lc.parkedOnce = true
		lc.poll.Or(pollShared)
		lc.detach()
		return
	}
	lc.detachTurn()
}

// parkedReason says why the connection's function is to be called, or that it isn't. What has come is left in p.received.
func (lc *loopConn) parkedReason(w *scratch) (why Wake, ok bool) {
	p := lc.parked
	switch {
	case lc.poll.Load()&pollClosing != 0:
		return 0, false
	case lc.server.draining.Load():
		return WakeShutdown, true
	case len(p.received) > 0:
		return WakeData, true
	}
	n, err := lc.readNow(w.in.space())
	p.received = w.in.buf[:n]
	switch {
	case n > 0:
		return WakeData, true
	case err != nil && !errors.Is(err, errNotYet):
		return WakeData, true // the function reads it once more
	case lc.expired:
		lc.expired = false
		return WakeDeadline, true
	}
	return 0, false
}

// leaveParked leaves the loop to another worker. If there is none, the connection gets another turn after a while.
func (lc *loopConn) leaveParked(w *scratch) error {
	worker := w.worker
	if worker.loop != nil && worker.loop.handOff(worker, false) || worker.loop == nil && worker.pool.occupy(worker) {
		return nil
	}
	lc.parked.received = bytes.Clone(lc.parked.received)
	time.AfterFunc(overloadedWait, func() { lc.loop.post(lc) })
	return errBusy
}

// overloadedWait is how long a parked connection waits for a worker before it asks again.
const overloadedWait = 5 * time.Millisecond

// endParked closes a parked connection.
func (lc *loopConn) endParked() {
	lc.set(pollClosing) // who is waiting in Write needn't
	lc.loop.mu.Lock()
	lc.ended = true
	lc.loop.mu.Unlock()
	lc.setState(stateClosed)
	lc.server.conns.remove(&lc.conn)
	lc.server.changed(&lc.conn, StateClosed)
	lc.parked.close()
}
