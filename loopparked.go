//go:build linux

package filo

import (
	"bytes"
	"errors"
	"net"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/outbox"
)

// prepareParked implements driver: it sends the unsent bytes.
func (lc *loopConn) prepareParked() error {
	lc.MakeWaiters()
	return lc.finishUnsent()
}

// setParked implements driver: it lets several goroutines use the connection.
func (lc *loopConn) setParked() { lc.Share() }

// Writable implements loop.Conn.
func (lc *loopConn) Writable() {
	if h := lc.http2.Load(); h != nil {
		h.Out.Pump()
		h.Flush()
		return
	}
	lc.parked.out.Pump()
}

// Closing implements loop.Conn.
func (lc *loopConn) Closing() { lc.sharedOut().Fail(net.ErrClosed) }

// sharedOut returns the outbox of a shared connection.
func (lc *loopConn) sharedOut() *outbox.Outbox {
	if h := lc.http2.Load(); h != nil {
		return &h.Out
	}
	return &lc.parked.out
}

var _ outbox.Socket = (*loopConn)(nil)

// turnCalls is how many times in a row a parked connection's function is called before other connections have their turn.
const turnCalls = 32

// LeaveTurn implements outbox.Socket. The Write that must wait may run on any goroutine, so LeaveTurn does what the monitor would do a tick
// later: if the turn that called the connection's function is still running, its loop gets another leader. The turn's worker notices the
// loss at the end of the turn.
func (lc *loopConn) LeaveTurn() {
	p := lc.parked
	p.mu.Lock()
	turn := p.turn
	p.mu.Unlock()
	if turn.GiveAway() {
		p.class.Handoffs.Add(1)
	}
}

// loopParked serves a parked connection in a loop.
type loopParked loopConn

// parkedTurn serves a parked connection. It returns the result of Turn.
func (lc *loopConn) parkedTurn() (again bool) {
	w := lc.scratch
	lc.end101(w)
	lc.parked.serving = w
	return lc.parked.serveBy((*loopParked)(lc))
}

// leaveWorker ends the connection's use of the worker and its buffers. Bytes that the function hasn't read yet are copied.
func (p *ParkedConn) leaveWorker() {
	p.received, p.serving = bytes.Clone(p.received), nil
}

// next implements parkable. It stores the bytes that it reads in the field received.
func (d *loopParked) next(calls int) (step parkedStep, why Wake) {
	lc, p := (*loopConn)(d), d.parked
	switch {
	case p.ending && lc.IsBroken(), lc.IsCut():
		return parkedLost, 0
	case p.ending:
		return parkedWait, 0
	case calls >= turnCalls, p.serving.worker.holdsUp():
		p.leaveWorker()
		return parkedOthers, 0
	case lc.server.life.Draining.Load():
		return parkedCall, WakeShutdown
	case len(p.received) > 0:
		return parkedCall, WakeData
	}
	space := p.serving.in.Space()
	n, err := lc.readNow(space)
	p.received = space[:n]
	switch {
	case n > 0:
		return parkedCall, WakeData
	case err != nil && !errors.Is(err, loop.ErrNotYet):
		return parkedCall, WakeData // the function's Read returns the error
	case lc.woken != wokenInTime:
		lc.woken = wokenInTime
		return parkedCall, WakeDeadline
	}
	return parkedWait, 0
}

// wait implements parkable.
func (d *loopParked) wait() (left bool) {
	lc, p := (*loopConn)(d), d.parked
	w, state := p.serving, stateParked
	if lc.deadline = p.wait; p.ending {
		state, lc.deadline = stateWrite, 0
	}
	p.unread = p.unread || len(p.received) > 0
	p.received, p.serving = nil, nil
	lc.since = lc.server.clock.Now()
	lc.setWait(state, lc.deadline)
	if lc.Release(p.ending) {
		return true
	}
	p.serving = w
	lc.resume()
	return false
}

// end101 ends the request whose handler parked the connection, in the connection's next turn. It also detaches the worker: the function's
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

// enter implements parkable. A leader calls the function at once if the function is quick, or if it computes briefly and no other connection
// is ready. Otherwise it first gives its loop to another worker, and becomes an ordinary worker. If no place is free for that, the connection
// gets another turn later.
func (d *loopParked) enter() bool {
	lc, p, w := (*loopConn)(d), d.parked, d.parked.serving
	w.timer.Switch(p.class)
	if err := w.admit(p.class, false, false, parkedAdmitter{w}); err == nil && (w.leads() || w.occupy()) {
		if w.worker.HoldsLoop() {
			p.mu.Lock()
			p.turn = w.worker.Turn()
			p.mu.Unlock()
		}
		lc.setState(stateHandler)
		return true
	}
	p.leaveWorker()
	p.placeLater(lc.Post)
	return false
}

// parkedAdmitter is the admitter of a parked connection's function. Nothing waits in the queue for such a function: the connection gets
// another turn later.
type parkedAdmitter struct{ w *scratch }

func (a parkedAdmitter) giveWay(class *class.Class, places admit.Kinds) error {
	if a.w.staysAlone(class) {
		return nil
	}
	return a.w.giveWay(class, places)
}

func (parkedAdmitter) queueUp() error { return errBusy }

// end implements parkable.
func (d *loopParked) end() {
	lc, p := (*loopConn)(d), d.parked
	unread := p.unread || len(p.received) > 0
	p.received, p.serving = nil, nil // they may belong to a worker
	p.endConn(!lc.IsBroken() && (unread || lc.hasInput()))
}

// hasInput reports whether there are bytes to read.
func (lc *loopConn) hasInput() bool {
	var b [1]byte
	n, err := lc.Peek(b[:])
	return n > 0 && err == nil
}
