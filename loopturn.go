//go:build linux

package filo

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/requestctx"
)

// turnRequests is how many pipelined requests of one connection are answered before other connections have their turn. Reads of a body that
// is being skipped count too.
const turnRequests = 128

// Turn implements loop.Conn.
func (lc *loopConn) Turn(leader *loop.Worker) (again bool) {
	worker := leader.Owner().(*workerChan)
	if worker.scratch == nil {
		worker.own()
		// A leader may have to leave its loop before it has run a handler, to send bytes that another worker's handler has left unsent.
		worker.scratch.timer.Switch(&lc.server.classes.handler)
	}
	w := worker.scratch
	lc.answered = worker.answered
	if lc.http2.Load() != nil {
		return lc.http2Turn(leader, w)
	}
	lc.attachTurn(w)
	lc.resume()
	if lc.parked != nil {
		return lc.parkedTurn()
	}
	if lc.awaitsProxy && !lc.proxyTurn() {
		return false
	}
	if lc.tlsState == nil {
		if !lc.handshakeTurn() {
			return false
		}
		if lc.tlsState != nil && lc.tlsState.NegotiatedProtocol == "h2" {
			lc.startHTTP2()
			return true // a leader runs its next turn
		}
	}
	for budget := turnRequests; ; {
		if err := lc.sendUnsent(); err == errOthersFirst {
			lc.save()
			lc.detachTurn()
			return true
		} else if err != nil {
			// Answers that were rendered later follow the unsent ones.
			if lc.flushAnswers(); lc.unsent != nil && lc.suspend(stateWrite) {
				return false
			}
			continue
		}
		late := budget <= 0 && lc.reading == readingRest
		if late || lc.in.Len() > 0 && !lc.failed && (budget <= 0 || !lc.mayGoOn()) {
			if lc.flushAnswers(); lc.unsent == nil && !lc.failed {
				lc.save()
				lc.detachTurn()
				return true
			}
			continue
		}
		switch lc.next() {
		case stepRead:
			if lc.flushAnswers(); lc.unsent != nil || lc.failed {
				continue
			}
			// A read through TLS may leave a reply to a key update unsent.
			if state := lc.inputState(); !lc.receiveNow(state) && lc.unsent == nil && lc.suspend(state) {
				return false
			}
			if lc.reading == readingRest {
				budget-- // such a body may never end
			}
		case stepHandle:
			budget--
			lc.answerTurn()
		case stepClose:
			if !lc.failed {
				lc.flushAnswers()
			}
			if lc.unsent == nil {
				lc.end()
				return false
			}
		case stepHTTP2:
			lc.startHTTP2()
			return lc.http2Turn(leader, w)
		case stepGone:
			if lc.parked != nil {
				return lc.parkedTurn()
			}
			lc.detach()
			return false
		}
	}
}

// mayGoOn reports whether the worker may go on with pipelined input. An ordinary worker gave up its place with the last answer, and needs
// one again. If none is free, or a request waits for one, the input is left to the leader, which still serves quick handlers.
func (lc *loopConn) mayGoOn() bool {
	w := lc.scratch.worker
	return w.Leads() || !w.holdsUp() && lc.scratch.occupy()
}

// attachTurn lends a worker's buffers to the connection, except for those that an unfinished request owns (pending).
func (lc *loopConn) attachTurn(w *scratch) {
	lc.scratch, lc.lent = w, &w.lent
	lc.stream, lc.out, lc.before = lc.netConn, w.out[:0], 0
	if p := lc.pending; p != nil {
		lc.in, lc.parser, lc.rest = &p.in, &p.parser, &p.rest
	} else {
		lc.in, lc.parser = &w.in, &w.parser
		w.parser.Reset()
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	w.ctx.exchange = &lc.exchange
}

// detachTurn returns the buffers to the worker. No handler is running.
func (lc *loopConn) detachTurn() {
	w := lc.scratch
	if lc.reading >= readingRest {
		// The connection waits to send the answer, or for the rest of the body. The handler has returned, and the worker reuses the Ctx for
		// another request.
		lc.endRequest()
	}
	w.in.Reset()
	if cap(lc.out) <= maxKeptWriteBuffer {
		w.out = lc.out[:0]
	} else {
		w.out = nil
	}
	w.ctx.Response.forgetBody()
	w.ctx.exchange = nil
	lc.scratch, lc.lent, lc.in, lc.parser, lc.rest = nil, nil, nil, nil, nil
}

// save moves the received part of an unfinished request from the worker's buffers to the connection.
func (lc *loopConn) save() {
	unread, p := lc.in.Unread(), lc.pending
	if len(unread) == 0 && lc.parser.Fresh() && lc.reading != readingRest {
		lc.pending = nil
		return
	}
	if p != nil {
		if lc.reading == readingRest && lc.rest != &p.rest {
			p.rest = *lc.rest // the rest of the body of the request answered in this turn
		}
		return
	}
	p = new(pendingInput)
	if len(unread) > 0 {
		p.in.Save(unread)
	}
	p.parser = lc.parser.Detach()
	if lc.reading == readingRest {
		p.rest = *lc.rest
	}
	lc.pending = p
}

// resume ends the wait in which the connection was claimed.
func (lc *loopConn) resume() {
	old := lc.word.Swap(int64(stateHandler))
	shed := waitState(old&stateMask) == stateShed
	if deadlineIn(old) == 0 && (lc.deadline != 0 || shed || lc.server.life.Draining.Load()) {
		lc.server.conns.awaitWakeUp() // see endWait
	}
	lc.woken = wokenInTime
	switch config, now := &lc.server.config, lc.server.clock.Now(); waitState(old & stateMask) {
	case stateBody, stateRest:
		lc.readPace.Add(config.reading, 0, lc.server.waited(lc.since, lc.deadline, now))
	case stateWrite:
		lc.deadline = lc.putOff(lc.deadline)
		lc.writePace.Add(config.writing, 0, lc.server.waited(lc.since, lc.deadline, now))
	}
	switch cut, expired := lc.WokenBy(); {
	case cut:
		lc.breakOff()
		if lc.parked == nil {
			lc.dropUnsent()
		}
	case expired && lc.deadline != 0 && lc.server.clock.Exact() >= lc.deadline:
		lc.woken = wokenExpired
	}
	if shed {
		lc.woken = wokenShed
		if h := lc.http2.Load(); h != nil {
			h.Shed = true
		}
	}
	lc.deadline = 0
}

// suspend makes the connection wait without a worker. It reports false if there is something to do after all.
func (lc *loopConn) suspend(state waitState) bool {
	s, w, now := lc.server, lc.scratch, lc.server.clock.Now()
	w.yieldPlace()
	var deadline clock.Time
	switch {
	case state == stateWrite:
		deadline = lc.beginWriting(now)
	case state <= stateIdle && s.life.Draining.Load():
		if deadline = lc.lastLook(state, now); deadline == 0 {
			lc.inputEnded(errDraining)
			return false
		}
		state = stateLast
	default:
		deadline = lc.readDeadline(state, now)
	}
	if state == stateIdle && !lc.toldIdle {
		lc.toldIdle = true
		s.changed(&lc.conn, StateIdle)
	}
	lc.deadline, lc.since = deadline, now
	lc.save()
	lc.detachTurn()
	if state == stateWrite {
		lc.waitToWrite(deadline)
	} else {
		lc.setWait(state, deadline)
	}
	if lc.Release(state == stateWrite) {
		return true
	}
	lc.attachTurn(w)
	lc.resume()
	return false
}

// lastLook returns the deadline of a connection that waits between two requests during a shutdown; 0 means that it must not wait.
func (lc *loopConn) lastLook(state waitState, now clock.Time) clock.Time {
	if lc.lastUntil == 0 {
		waited := time.Duration(0)
		if lc.since != 0 {
			waited = now.Sub(lc.since)
		}
		lc.lastUntil = lc.server.clock.Exact().Add(lc.server.lastReadTime(state, waited))
	} else if lc.server.clock.Exact() >= lc.lastUntil {
		return 0
	}
	return lc.lastUntil
}

// receiveNow reads available input. It reports false if there is none. At the end of the input it reports true, and next handles the end.
func (lc *loopConn) receiveNow(state waitState) bool {
	if lc.Drained {
		return false
	}
	space := lc.in.Space()
	n, err := lc.readNow(space)
	if n > 0 {
		lc.in.Received(n)
		lc.since = 0
		lc.woken = wokenInTime
		switch {
		case state.body():
			if !lc.bodyCame(n, 0) {
				lc.endInput(errDeadline)
			}
		case lc.toldIdle || state == stateNew:
			lc.toldIdle = false
			lc.server.changed(&lc.conn, StateActive)
		}
		return true
	}
	switch {
	case err == nil:
		return true // read again
	case errors.Is(err, loop.ErrNotYet):
		switch lc.woken {
		case wokenInTime:
			return false
		case wokenExpired:
			err = errDeadline
		case wokenShed:
			err = errShed
		}
	}
	lc.endInput(err)
	return true
}

// endInput ends the input for the reason err. If a body is awaited, its handler gets the error.
func (lc *loopConn) endInput(err error) {
	if lc.reading == readingBody {
		lc.inputError = err
	} else {
		lc.inputEnded(err)
	}
}

func (lc *loopConn) readNow(p []byte) (int, error) {
	if lc.tlsState == nil {
		return lc.Socket.TryRead(p)
	}
	lc.NoWaitRead = true
	n, err := lc.netConn.Read(p)
	lc.NoWaitRead = false
	return n, err
}

// yieldPlace gives up the worker's place as soon as the rest of its work for the request doesn't wait for the client: a client that has its
// answer and sends again at once must find the place free. If the worker has lost its loop, it has the place that was counted then.
func (w *scratch) yieldPlace() {
	w.worker.NoticeLoss()
	w.place.Leave()
}

// answerTurn runs the handler on the current request. A leader runs the handler at once if the handler is quick, or if it computes briefly and
// no other connection is ready. Otherwise it first gives its loop to another worker, and becomes an ordinary worker.
func (lc *loopConn) answerTurn() {
	s, w := lc.server, lc.scratch
	var refused error
	if handler := &s.classes.handler; !handler.Trusted.Load() || !handler.MayRunInline() || w.worker.Crowded() {
		if len(lc.out) > 0 && (!handler.IsQuick() || s.pool.places.HasQueue()) { // a request in the queue may wait for long
			lc.flushAnswers()
		}
		lc.before = len(lc.out)
		refused = lc.enterServer()
	}
	switch {
	case lc.failed:
		return
	case refused != nil:
		lc.before = len(lc.out)
		lc.answerError(w.ctx, refused)
	default:
		lc.handle()
	}
	if w.place.Kind() != admit.Ordinary || len(lc.out)+len(lc.outBody) <= maxUnsent {
		w.yieldPlace()
	}
	if (lc.outBody != nil || len(lc.out) >= writeBufferFull) && !lc.failed {
		lc.flushAnswers()
		w.yieldPlace() // flushAnswers may have waited for the client in a place
	}
	lc.afterAnswer()
}

// flushAnswers writes the complete answers. The part that the client doesn't take at once waits in the connection. If the answers are
// larger than maxUnsent, the worker waits for the client instead, if a place for it is free.
func (lc *loopConn) flushAnswers() {
	size := len(lc.out) + len(lc.outBody)
	if size == 0 {
		return
	}
	lc.scratch.worker.EndClass()
	if size > maxUnsent {
		// A worker that has lost its loop may have no place.
		if w := lc.scratch; w.giveWay(w.timer.Class(), admit.Ordinary.Only()) == nil {
			lc.flush()
			return
		}
		lc.holdBody()
	}
	var err error
	switch {
	case lc.failed:
	case lc.tlsState == nil:
		err = lc.queue(lc.out, lc.outBody)
	default:
		if _, err = lc.netConn.Write(lc.out); err == nil && len(lc.outBody) > 0 {
			_, err = lc.netConn.Write(lc.outBody)
		}
	}
	lc.out, lc.outBody, lc.before = lc.out[:0], nil, 0
	if err == nil && lc.unsent != nil && lc.unsent.held != nil {
		err = lc.sendNow()
	}
	if err != nil && err != loop.ErrNotYet {
		lc.breakOff()
		lc.dropUnsent()
	}
}

// end ends a connection of HTTP/1 whose worker is attached.
func (lc *loopConn) end() {
	w, lingers := lc.scratch, lc.lingers()
	defer func() { // deferred, since a body's Close may end the goroutine
		w.yieldPlace()
		lc.endConn(lingers)
	}()
	lc.dropUnsent()
	lc.detach()
	lc.pending = nil
}

// endWaits implements driver. The writes of a shared connection never wait.
func (lc *loopConn) endWaits() {
	if !lc.IsShared() {
		lc.NoWaitWrite = true
	}
}

// Abandon implements loop.Conn. A handler that ended its goroutine was answered, so its client may get the time to read the answer.
func (lc *loopConn) Abandon(w *loop.Worker, goexit bool) {
	owner := w.Owner().(*workerChan)
	defer func() { owner.scratch = nil }() // the buffers may be in any state; deferred, since a body's Close may end the goroutine
	if lc.http2.Load() != nil {
		lc.abandonHTTP2(owner.scratch, goexit)
	} else {
		lc.abandon(goexit)
	}
}

// abandon ends a connection whose turn has failed. If linger is set, the client first gets the time to read its answer.
func (lc *loopConn) abandon(linger bool) {
	if lc.state() == stateClosed {
		return // a first attempt to end it has failed
	}
	defer func() {
		if value := recover(); value != nil { // a panic of the program's code, which ending the request calls
			logPanic(lc.server.logger(), "panic at a connection's end", value, debug.Stack())
			if !lc.hijacked || lc.parked != nil { // otherwise a handler owns the connection
				lc.endConn(false)
			}
		}
	}()
	defer func() { // deferred, since a body's Close may end the goroutine
		switch {
		case lc.parked != nil:
			(*loopParked)(lc).end()
		case lc.hijacked:
		case lc.scratch != nil:
			if !linger && lc.closing == closingLinger {
				lc.setClosing(closingPlain)
			}
			lc.end()
		default:
			lc.endConn(false)
		}
	}()
	lc.dropUnsent()
	if lc.hijacked && lc.scratch != nil {
		lc.detach() // the request has ended, no matter who owns the connection now
	}
}

// wait registers an accepted connection with its loop until its first request arrives.
func (lc *loopConn) wait() {
	s := lc.server
	if client, reason := s.conns.add(&lc.conn); reason != nil {
		s.refuseConn(lc.netConn, client, reason)
		return
	}
	returned := false
	defer func() {
		if !returned {
			lc.abandon(false)
		}
	}()
	// A panic must not go further: the caller may be the goroutine that accepts, where nothing recovers it.
	survive(s.logger(), "panic in ConnState", func() { s.changed(&lc.conn, StateNew); returned = true })
	if !returned {
		return
	}
	lc.since = s.clock.Now()
	lc.deadline = lc.readDeadline(stateNew, lc.since)
	lc.setWait(stateNew, lc.deadline)
	if !lc.Release(false) {
		lc.Post()
	}
}

// watch makes the loop cancel the context when the client leaves. If the client has left already, the loop might not know yet, so watch asks
// the system. The descriptor isn't closed during this call: see requestctx.Context.
func (lc *loopConn) watch(r *requestctx.Context) (half, gone bool) {
	r.WatchedSince.Store(clock.Nanotime())
	lc.watcher.Store(r)
	if half, gone = lc.SawEnd(); !half {
		half, gone = lc.AskEnd()
	}
	return half, gone
}

func (lc *loopConn) unwatch() { lc.watcher.Store(nil) }

// prepareHijack implements driver: it leaves the loop, and creates a net.Conn on a duplicate descriptor of the socket.
func (lc *loopConn) prepareHijack() (net.Conn, error) {
	if err := lc.leaveLoop(); err != nil {
		return nil, err
	}
	prepared, err := lc.Duplicate()
	if err != nil {
		return nil, fmt.Errorf("filo: taking a connection over: %w", err)
	}
	return prepared, nil
}

// hijack takes the connection out of its loop. From here on only the prepared connection, which is package net's, owns the socket.
func (lc *loopConn) hijack(prepared net.Conn) (net.Conn, error) {
	if err := lc.finishUnsent(); err != nil {
		return nil, err
	}
	lc.GiveTo(prepared)
	if tlsConn, ok := lc.netConn.(*tls.Conn); ok {
		return tlsConn, nil // its reads and writes now use the prepared connection
	}
	if h := lc.told.Load(); h != nil {
		return proxyproto.NewConn(prepared, h), nil
	}
	return prepared, nil
}
