//go:build linux

package filo

import (
	"errors"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/loop"
)

// loopHTTP2 is the driver of an HTTP/2 connection in a loop.
type loopHTTP2 loopConn

var _ http2conn.Driver = (*loopHTTP2)(nil)
var _ http2Runner = (*loopHTTP2)(nil)

// startHTTP2 switches the connection to HTTP/2.
func (lc *loopConn) startHTTP2() {
	h := lc.newHTTP2((*loopHTTP2)(lc))
	h.Out.Open(h, lc, nil, false)
	lc.pending, lc.headSince, lc.since = nil, 0, 0
	lc.detachTurn()
	lc.http2.Store(h)
	lc.Share()
}

// http2Turn does the work of Turn for a connection of HTTP/2.
func (lc *loopConn) http2Turn(leader *loop.Worker, w *scratch) (again bool) {
	h := lc.http2.Load()
	lc.resume()
	leader.MayLose(&lc.Socket)
	defer leader.MayLose(nil)
	crowded := h.KeepsInput() && h.IsCrowded()
	t := w.beginHTTP2(h)
	for budget := turnRequests; ; {
		if lc.failed {
			h.Stop()
		}
		if !leader.Leads() {
			h.FlushTurn(t)
			h.EndTurn(t)
			return true
		}
		step := http2conn.StepRead
		if !crowded || h.IsStopped() {
			step = h.Next(t)
		} else if h.MustDrain() {
			h.LeaveSoon(t)
		}
		switch step {
		case http2conn.StepNext:
		case http2conn.StepRefuse:
			w.http2.exchange.refuse(w, &lc.conn, (*loopHTTP2)(lc))
		case http2conn.StepRun:
			if !w.http2.exchange.run(w, &lc.conn, (*loopHTTP2)(lc)) {
				return false
			}
			if budget--; budget <= 0 {
				h.LookBusy(t, lc.server.clock.Now())
				h.FlushTurn(t)
				h.EndTurn(t)
				return true
			}
			if t.Rendered() >= writeBufferFull {
				h.FlushTurn(t)
				crowded = h.IsCrowded()
			}
		case http2conn.StepRead:
			h.FlushTurn(t)
			switch was := crowded; {
			case h.IsCrowded():
				if crowded = true; lc.http2Suspend(w, true) {
					return false
				}
			case was:
				crowded = false
			case budget < readBudget: // the input is used up here, so nothing of it must be stored between turns
				h.LookBusy(t, lc.server.clock.Now())
				h.FlushTurn(t)
				h.EndTurn(t)
				return true
			default:
				if budget -= readBudget; !lc.http2Receive(w) && lc.http2Suspend(w, false) {
					return false
				}
			}
		case http2conn.StepEnd:
			if h.FlushTurn(t); !h.IsFlushed() {
				if lc.http2Suspend(w, true) { // a wait to read would end at once, again and again, if the client has closed its sending side
					return false
				}
				continue
			}
			h.EndTurn(t)
			h.Close() // ends the handlers, even if the client never takes the rest of the output
			lc.http2Ended()
			return false
		}
	}
}

// readBudget is how many requests of a turn's budget a read uses up.
const readBudget = 8

// http2Receive reads available input. It reports false if the connection must wait for input.
func (lc *loopConn) http2Receive(w *scratch) bool {
	n, err, space := 0, error(loop.ErrNotYet), w.in.Space()
	if !lc.Drained {
		n, err = lc.readNow(space)
	}
	switch {
	case n > 0:
		lc.http2.Load().Received(&w.http2.Turn, space, n)
		lc.woken = wokenInTime // the bytes that have arrived may be those that the connection waited for
		return true
	case err == nil:
		return true // read again
	case errors.Is(err, loop.ErrNotYet):
		lc.http2.Load().WakePutOff(&w.http2.Turn)
		lc.http2.Load().HasLooked()
		expired := lc.woken != wokenInTime
		lc.woken = wokenInTime
		return lc.http2.Load().Look(&w.http2.Turn, expired)
	}
	lc.failed = !isEOF(err)
	lc.http2.Load().Stop()
	return true
}

// http2Suspend makes the connection wait without a worker. If write is set, it waits until the client takes bytes, and not for input.
// http2Suspend reports false if there is something to do after all.
func (lc *loopConn) http2Suspend(w *scratch, write bool) bool {
	h, now := lc.http2.Load(), lc.server.clock.Now()
	waits, deadline := h.Wait(now, w.in.Len() > 0 && !write)
	if write {
		deadline = 0 // the outbox itself limits the wait for the client
	}
	lc.deadline, lc.since, lc.woken = deadline, now, wokenInTime
	h.EndTurn(&w.http2.Turn)
	lc.setWait(http2WaitStates[waits], deadline)
	if !h.MustDrain() && lc.Release(write) {
		return true
	}
	lc.resume()
	w.beginHTTP2(h)
	return false
}

// http2Ended closes a connection that reads no frames any more, or makes it wait until its output has been sent.
func (lc *loopConn) http2Ended() {
	h := lc.http2.Load()
	for !lc.failed && !lc.IsBroken() && !h.Out.Finish(nil) {
		lc.deadline, lc.since = 0, lc.server.clock.Now()
		lc.setWait(stateWrite, 0)
		if lc.Release(true) {
			return
		}
		lc.resume()
	}
	// The client might not have read the last frames yet. Closing a socket with unread bytes resets the connection, and the frames would be lost.
	lc.endConn(!lc.failed && !lc.IsBroken())
}

// abandonHTTP2 does the work of Abandon for a connection of HTTP/2.
func (lc *loopConn) abandonHTTP2(w *scratch, goexit bool) {
	h := lc.http2.Load()
	if w == nil || w.http2 == nil || !h.IsOwnedBy(&w.http2.Turn) {
		return // another worker owns the connection
	}
	if goexit {
		h.FlushTurn(&w.http2.Turn)
		h.EndTurn(&w.http2.Turn)
		lc.Post()
		return
	}
	h.EndTurn(&w.http2.Turn)
	h.Close()
	lc.endConn(false)
}

// TakeAway implements loop.Conn. It takes the connection, and the parts of it that are in the worker's buffers, from a worker that runs a
// handler inline.
func (lc *loopConn) TakeAway() {
	if lc.http2.Load() != nil && lc.takeHTTP2Away() != nil {
		lc.Post()
	}
}

// watch implements http2Runner. If the monitor took the worker's seat before the call to Disown, the monitor found no connection to take,
// and won't look again. So watch takes the connection at once.
func (d *loopHTTP2) watch(w *scratch) {
	if !w.worker.HoldsLoop() {
		(*loopConn)(d).TakeAway()
	}
}

// giveAway implements http2Runner.
func (d *loopHTTP2) giveAway(w *scratch) {
	d.giveHTTP2Away(w)
	(*loopConn)(d).Post()
}

// noticeLoss implements http2Runner.
func (*loopHTTP2) noticeLoss(w *scratch) { w.worker.NoticeLoss() }

// clientLeft implements http2Runner.
func (d *loopHTTP2) clientLeft() bool {
	half, _ := d.SawEnd()
	return half
}

// Send implements http2conn.Driver.
func (d *loopHTTP2) Send(b []byte) (kept bool) {
	lc := (*loopConn)(d)
	out := &lc.http2.Load().Out
	if lc.tlsState == nil {
		return out.Lend(b, http2conn.ReleaseBuffer)
	}
	if out.BeginSeal(false, len(b)) != nil {
		return false
	}
	defer out.EndSeal()
	lc.netConn.Write(b)
	return false
}

// WakeOwner implements http2conn.Driver.
func (d *loopHTTP2) WakeOwner() { d.netConn.SetReadDeadline(clock.Past) }

// Flushed implements http2conn.Driver.
func (d *loopHTTP2) Flushed() { go d.http2.Load().WakeOwner() } // WakeOwner takes locks that rank before mu
