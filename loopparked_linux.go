package filo

import (
	"bytes"
	"errors"
	"net"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/outbox"
)

// prepareParked sends what is unsent.
func (lc *loopConn) prepareParked() error {
	lc.MakeWaiters()
	return lc.finishUnsent()
}

// setParked lets several goroutines use the connection.
func (lc *loopConn) setParked() { lc.Share() }

// Writable implements loop.Conn.
func (lc *loopConn) Writable() {
	if h := lc.http2.Load(); h != nil {
		h.out.Pump()
		h.flush()
		return
	}
	lc.parked.out.Pump()
}

// Closing implements loop.Conn.
func (lc *loopConn) Closing() { lc.sharedOut().Fail(net.ErrClosed) }

// sharedOut returns the outbox of a shared connection.
func (lc *loopConn) sharedOut() *outbox.Outbox {
	if h := lc.http2.Load(); h != nil {
		return &h.out
	}
	return &lc.parked.out
}

var _ outbox.Socket = (*loopConn)(nil)

// turnCalls is how many times in a row a parked connection's function is called before other connections have their turn.
const turnCalls = 32

// LeaveTurn implements outbox.Socket. Any goroutine may have called Write. So LeaveTurn does what the monitor would do a tick later: if
// the turn that called the function isn't over, its loop gets another leader, and the turn's worker notices at the end of the turn.
func (lc *loopConn) LeaveTurn() {
	p := lc.parked
	p.mu.Lock()
	turn := p.turn
	p.mu.Unlock()
	if turn.GiveAway() {
		p.class.Handoffs.Add(1)
	}
}

// parkedTurn serves a parked connection: it calls the connection's function if there is a reason, and lets the connection wait again. It
// returns the result of Turn.
func (lc *loopConn) parkedTurn() (again bool) {
	w, p := lc.worker, lc.parked
	lc.end101(w)
	for budget := turnCalls; !p.ending; budget-- {
		if budget <= 0 || w.worker.holdsUp() {
			p.received = bytes.Clone(p.received) // it is in the worker's buffer
			return true
		}
		if p.asked.Load() {
			p.ending = true
			p.finish() // End may not have called it yet
			break
		}
		why, ok := lc.parkedReason(w)
		switch {
		case ok && !lc.callParked(w, why):
			return false
		case ok:
		case lc.IsCut():
			lc.endParked()
			return false
		case lc.waitParked():
			return false
		}
	}
	lc.endingTurn()
	return false
}

// callParked calls the function: in the leader if the function is quick, or computes while nothing else is ready, otherwise after it has
// given the loop to another worker. It reports false if the connection isn't served any more, or not now.
func (lc *loopConn) callParked(w *scratch, why Wake) bool {
	p := lc.parked
	if !lc.enterParked(w) {
		return false
	}
	if w.worker.HoldsLoop() {
		p.mu.Lock()
		p.turn = w.worker.Turn()
		p.mu.Unlock()
	}
	lc.setState(stateHandler)
	p.serving = w
	w.timer.Start(w.leads())
	again := p.call(why)
	w.timer.End()
	p.serving = nil
	if again {
		return true
	}
	p.unread = p.unread || len(p.received) > 0
	if p.received = nil; p.ending && !p.finish() {
		return true
	}
	lc.endParked()
	return false
}

// waitParked makes the connection wait for the client. It reports false if there is something to do after all.
func (lc *loopConn) waitParked() bool {
	p := lc.parked
	p.received = nil
	lc.deadline, lc.since = p.wait, lc.server.clock.Now()
	lc.setWait(stateParked, lc.deadline)
	if lc.Release(false) {
		return true
	}
	lc.resume()
	return false
}

// endingTurn closes a parked connection whose function is done, or lets it wait until everything queued has left.
func (lc *loopConn) endingTurn() {
	p := lc.parked
	p.unread = p.unread || len(p.received) > 0
	p.received = nil
	for !lc.IsBroken() && !p.out.Empty() {
		lc.deadline, lc.since = 0, lc.server.clock.Now()
		lc.setWait(stateWrite, 0)
		if lc.Release(true) {
			return
		}
		lc.resume()
	}
	lc.endParked()
}

// end101 ends the request whose handler parked the connection, in the first turn after that. It also detaches the worker: the function's
// calls on the connection must not find a leader there.
func (lc *loopConn) end101(w *scratch) {
	if lc.requests.Load() > 0 && !lc.parkedOnce {
		lc.parkedOnce = true
		lc.detach()
		lc.pending = nil
		return
	}
	lc.detachTurn()
}

// parkedReason returns the reason to call the connection's function, or false if there is none. Bytes that it reads are in p.received.
func (lc *loopConn) parkedReason(w *scratch) (why Wake, ok bool) {
	p := lc.parked
	switch {
	case lc.IsCut():
		return 0, false
	case lc.server.life.draining.Load():
		return WakeShutdown, true
	case len(p.received) > 0:
		return WakeData, true
	}
	space := w.in.Space()
	n, err := lc.readNow(space)
	p.received = space[:n]
	switch {
	case n > 0:
		return WakeData, true
	case err != nil && !errors.Is(err, loop.ErrNotYet):
		return WakeData, true // the function's Read returns the error
	case lc.expired:
		lc.expired = false
		return WakeDeadline, true
	}
	return 0, false
}

// enterParked lets this worker call the function, in the leader or outside. It reports false if there is no place for that: then the
// connection gets another turn after a while.
func (lc *loopConn) enterParked(w *scratch) bool {
	w.timer.Switch(lc.parked.class)
	if err := w.admit(lc.parked.class, false, false, parkedAdmitter{w}); err == nil && (w.leads() || w.occupy()) {
		return true
	}
	lc.parked.received = bytes.Clone(lc.parked.received)
	waiting := &lc.server.parkedWaiting
	wait := overloadedWait * time.Duration(1+waiting.Add(1)/overloadedCrowd)
	time.AfterFunc(wait, func() {
		waiting.Add(-1)
		lc.Post()
	})
	return false
}

// parkedAdmitter is the admitter of a parked connection's function: the loop has the connection, and calls again later.
type parkedAdmitter struct{ w *scratch }

func (a parkedAdmitter) giveWay(class *class.Class, places admit.Kinds) error {
	if a.w.staysAlone(class) {
		return nil
	}
	return a.w.giveWay(class, places)
}

func (parkedAdmitter) queueUp() error { return errBusy }

const (
	// overloadedWait is how long a parked connection waits for a worker before it asks again. It waits as long again for each
	// overloadedCrowd connections that are waiting already, so that asking doesn't keep the processors busy.
	overloadedWait  = 5 * time.Millisecond
	overloadedCrowd = 64
)

// endParked ends a parked connection.
func (lc *loopConn) endParked() {
	p := lc.parked
	p.received = nil // it may be in a worker's buffer
	p.endConn(!lc.IsBroken() && (p.unread || lc.hasInput()))
}

// hasInput reports whether there are bytes to read.
func (lc *loopConn) hasInput() bool {
	var b [1]byte
	n, err := lc.Peek(b[:])
	return n > 0 && err == nil
}
