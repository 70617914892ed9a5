//go:build !386

package filo

import (
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// turnRequests is how many pipelined requests a connection gets answered before others have their turn.
	turnRequests = 128
	// maxUnsent is how much of an answer that the client doesn't take waits in the connection; a worker waits with more.
	maxUnsent = 256 << 10
)

// turn serves a connection that the caller has claimed as far as that goes without waiting for the client. Then it is idle,
// or gone; or, if it is still to be served, though others come first, it stays the caller's and the result is true.
func (lc *loopConn) turn(w *scratch) (again bool) {
	lc.attachTurn(w)
	lc.endIdle()
	if lc.parked != nil {
		return lc.parkedTurn()
	}
	if lc.tlsState == nil && !lc.handshakeTurn() {
		return false
	}
	for budget := turnRequests; ; {
		if !lc.sendUnsent() {
			// An answer may have been rendered since, behind those that wait.
			if lc.flushAnswers(); len(lc.unsent) > 0 && lc.idle(stateWrite) {
				return false
			}
			continue
		}
		if lc.in.len() > 0 && !lc.failed && (w.worker.loop != nil && budget <= 0 || !lc.mayGoOn()) {
			if lc.flushAnswers(); len(lc.unsent) == 0 && !lc.failed {
				lc.save()
				lc.detachTurn()
				return true
			}
			continue
		}
		switch lc.next() {
		case stepRead:
			if lc.flushAnswers(); len(lc.unsent) > 0 || lc.failed {
				continue
			}
			if state := lc.inputState(); !lc.receiveNow(state) && lc.idle(state) {
				return false
			}
		case stepHandle:
			budget--
			lc.answerTurn()
		case stepClose:
			if !lc.failed {
				lc.flushAnswers()
			}
			if len(lc.unsent) == 0 {
				lc.end()
				return false
			}
		case stepGone:
			if lc.parked != nil {
				return lc.parkedTurn()
			}
			lc.detach()
			return false
		}
	}
}

// mayGoOn reports whether an ordinary worker may look into what comes after the answer that it has given up its place with.
// If others have taken that since, it is the leader's, who serves quick handlers all the same.
func (lc *loopConn) mayGoOn() bool {
	w := lc.worker.worker
	return w.loop != nil || w.place != placeClosing || w.pool.occupy(w)
}

// attachTurn lends a worker's buffers to the connection, but for those that an unfinished request has of its own.
func (lc *loopConn) attachTurn(w *scratch) {
	lc.worker, lc.lent = w, &w.lent
	lc.stream, lc.out, lc.before = lc.netConn, w.out[:0], 0
	if p := lc.pending; p != nil {
		lc.in, lc.parser, lc.rest = &p.in, &p.parser, &p.rest
	} else {
		lc.in, lc.parser = &w.in, &w.parser
		w.parser.reset()
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	w.ctx.conn = &lc.conn
}

// detachTurn takes them back. No handler runs.
func (lc *loopConn) detachTurn() {
	w := lc.worker
	if lc.reading != readingHead {
		// Its answer, or the rest of its body, is waited for: the handler has returned, and the Ctx is another request's next.
		lc.endRequest()
	}
	w.in.reset()
	if cap(lc.out) <= maxKeptWriteBuffer {
		w.out = lc.out[:0]
	} else {
		w.out = nil
	}
	w.ctx.conn = nil
	lc.worker, lc.lent, lc.in, lc.parser, lc.rest = nil, nil, nil, nil, nil
}

// save moves what has come of an unfinished request from the worker's buffers to the connection's own.
func (lc *loopConn) save() {
	unread, p := lc.in.unread(), lc.pending
	if len(unread) == 0 && lc.parser.fresh() && lc.reading != readingRest {
		lc.pending = nil
		return
	}
	if p != nil {
		if lc.reading == readingRest && lc.rest != &p.rest {
			p.rest = *lc.rest // of the request that was answered in this turn
		}
		return
	}
	p = new(pendingInput)
	if len(unread) > 0 {
		p.in.buf = make([]byte, max(512, 2*len(unread)))
		p.in.w = copy(p.in.buf, unread)
	}
	w := lc.worker
	p.parser, w.parser.fields = *lc.parser, nil
	if lc.reading == readingRest {
		p.rest = *lc.rest
	}
	lc.pending = p
}

// endIdle ends the wait that the connection was claimed from.
func (lc *loopConn) endIdle() {
	old := lc.word.Swap(int64(stateHandler))
	if lc.deadline != 0 && old&^stateMask == 0 {
		lc.server.conns.awaitSweep() // see endWait
	}
	lc.drained, lc.expired = false, false
	switch waited := lc.server.clock.now() - lc.since; waitState(old & stateMask) {
	case stateBody:
		lc.readPace.add(0, waited)
	case stateWrite:
		lc.writePace.add(0, waited)
	}
	switch word := lc.poll.Load(); {
	case word&pollClosing != 0:
		lc.failed, lc.reading = true, readingNothing
		if lc.parked == nil {
			lc.unsent = nil
		}
	case word&(pollReadExpired|pollWriteExpired) != 0:
		expired := uint32(pollReadExpired | pollWriteExpired)
		if word&pollShared != 0 {
			expired = pollReadExpired // the other one is for those who wait in Write
		}
		lc.clear(expired)
		lc.expired = lc.deadline != 0 && lc.server.clock.exact() >= lc.deadline
	}
	lc.deadline = 0
}

// idle makes the connection wait, without a worker. It reports false if there is something to do after all.
func (lc *loopConn) idle(state waitState) bool {
	s, w, now := lc.server, lc.worker, lc.server.clock.now()
	var deadline int64
	switch {
	case state == stateWrite:
		deadline = lc.writeDeadline(now, 0)
	case state <= stateIdle && s.draining.Load():
		if deadline = lc.lastLook(now); deadline == 0 {
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
	lc.setWait(state, deadline)
	if lc.release(state == stateWrite) {
		return true
	}
	lc.attachTurn(w)
	lc.clear(pollReadable | pollWritable)
	lc.endIdle()
	return false
}

// lastLook returns until when a connection between two requests may wait for another one, though the server is shutting
// down; 0 is not at all.
func (lc *loopConn) lastLook(now int64) int64 {
	if lc.lastUntil == 0 {
		wait := int64(lastReadTime)
		if lc.since != 0 && now-lc.since < int64(busyTime) {
			wait = int64(lastReadTimeBusy)
		}
		lc.lastUntil = lc.server.clock.exact() + wait
	} else if lc.server.clock.exact() >= lc.lastUntil {
		return 0
	}
	return lc.lastUntil
}

// receiveNow reads what has come. It reports false if that is nothing. An end of the input is something: next knows it.
func (lc *loopConn) receiveNow(state waitState) bool {
	if lc.drained {
		return false
	}
	space := lc.in.space()
	n, err := lc.readNow(space)
	if n > 0 {
		lc.in.received(n)
		// What comes behind a short read is another event, but for an end that came with it.
		lc.drained = n < len(space) && lc.tlsState == nil && lc.poll.Load()&pollHup == 0
		lc.expired = false
		switch {
		case state == stateBody:
			lc.readPace.add(n, 0)
		case lc.toldIdle || state == stateNew:
			lc.toldIdle = false
			lc.server.changed(&lc.conn, StateActive)
		}
		return true
	}
	switch {
	case err == nil:
		return true // once more
	case errors.Is(err, errNotYet):
		if !lc.expired {
			return false
		}
		err = errDeadline
	}
	if lc.awaitsBody {
		lc.inputError = err // the handler is to see it
	} else {
		lc.inputEnded(err)
	}
	return true
}

func (lc *loopConn) readNow(p []byte) (int, error) {
	if lc.tlsState != nil {
		lc.noWaitRead = true
		n, err := lc.netConn.Read(p)
		lc.noWaitRead = false
		return n, err
	}
	n, errno := sysRead(int(lc.fd), p)
	switch {
	case errno == syscall.EAGAIN:
		return 0, errNotYet
	case errno != 0:
		return 0, os.NewSyscallError("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// answerTurn runs the handler on the current request, here if it is quick, and else after having left the loop to another
// worker.
func (lc *loopConn) answerTurn() {
	s, w := lc.server, lc.worker
	var refused error
	if !s.entered.Load() {
		var inline bool
		inline, refused = lc.enter(&s.class)
		if refused == nil && !inline && len(lc.out) > 0 && !s.class.quick() {
			lc.flushAnswers()
		}
	}
	if lc.failed {
		return
	}
	if refused != nil {
		lc.before = len(lc.out)
		w.class, w.timedSince = &s.class, 0
		lc.finish(w.ctx, refused)
	} else {
		lc.handle()
	}
	if w.worker.place == placeServing && len(lc.out)+len(lc.outBody) <= maxUnsent {
		// Now, and not when the worker is back: a client that has its answer and comes at once must find the place free. What
		// the worker still has to do for this request doesn't wait.
		w.worker.pool.vacate(w.worker, math.MaxInt)
	}
	if (lc.outBody != nil || len(lc.out) >= writeBufferFull) && !lc.failed {
		lc.flushAnswers()
	}
	lc.afterAnswer()
}

func (lc *loopConn) enter(class *Class) (inline bool, err error) { return lc.worker.enter(class) }

// enter decides whether a handler of the class runs here and now. If not, and this worker leads a loop, another worker does
// so afterwards.
func (w *scratch) enter(class *Class) (inline bool, err error) {
	if w.worker.loop == nil {
		return false, nil
	}
	if class.inline() {
		median := time.Duration(class.median.Load())
		if w.spent <= maxBatchTime || median <= shortHandler || w.leave(class) != nil {
			w.spent += median
			if running := &w.worker.running; running.Load() != class {
				running.Store(class) // which costs as much as a short handler, so it stays for the next pipelined request
			}
			return true, nil
		}
		return false, nil
	}
	if err := w.leave(class); err != nil {
		return false, err
	}
	if !w.worker.pool.occupy(w.worker) {
		return false, errBusy // the loop was taken away before, though there was no place
	}
	return false, nil
}

// leave gives the loop that the connection's worker leads, if it leads one, to another worker.
func (lc *loopConn) leave(class *Class) error {
	if lc.worker == nil {
		return nil // it isn't served any more
	}
	return lc.worker.leave(class)
}

func (w *scratch) leave(class *Class) error {
	worker := w.worker
	if worker.loop == nil {
		return nil
	}
	worker.endClass()
	if !worker.loop.handOff(worker, false) {
		return errBusy
	}
	class.handoffs.Add(1)
	return nil
}

// flushAnswers writes the answers that are complete. What the client doesn't take at once waits in the connection, unless
// it is much.
func (lc *loopConn) flushAnswers() {
	size := len(lc.out) + len(lc.outBody)
	if size == 0 {
		return
	}
	lc.worker.worker.endClass()
	// If there is no other worker for the loop, all of it waits.
	if size > maxUnsent && lc.leave(lc.worker.class) == nil {
		lc.flush()
		return
	}
	var err error
	switch {
	case lc.failed:
	case lc.tlsState == nil:
		err = lc.queue(lc.out, lc.outBody)
	default:
		lc.noWaitWrite = true
		if _, err = lc.netConn.Write(lc.out); err == nil && len(lc.outBody) > 0 {
			_, err = lc.netConn.Write(lc.outBody)
		}
		lc.noWaitWrite = false
	}
	lc.out, lc.outBody, lc.before = lc.out[:0], nil, 0
	if err != nil {
		lc.failed, lc.reading = true, readingNothing
	}
}

// queue sends what the socket takes of the two at once. The rest it keeps.
func (lc *loopConn) queue(first, second []byte) error {
	for len(lc.unsent) == 0 && len(first)+len(second) > 0 {
		var n int
		var errno syscall.Errno
		if len(second) == 0 {
			n, errno = sysWrite(int(lc.fd), first)
		} else {
			n, errno = sysWritev(int(lc.fd), first, second)
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
	sent, errno := 0, syscall.Errno(0)
	for sent < len(lc.unsent) && errno == 0 {
		var n int
		if n, errno = sysWrite(int(lc.fd), lc.unsent[sent:]); errno == 0 {
			sent += n
		}
	}
	lc.writePace.add(sent, 0)
	lc.unsent = lc.unsent[sent:]
	switch {
	case len(lc.unsent) == 0:
		lc.unsent = nil
		return true
	case errno == syscall.EAGAIN && !(lc.expired && lc.tooSlow(sent)):
		lc.expired = false
		lc.watchWritable()
		return false
	}
	lc.failed, lc.reading, lc.unsent = true, readingNothing, nil
	return true
}

// finishUnsent sends what the client hasn't taken, waiting for it as for an answer.
func (lc *loopConn) finishUnsent() error {
	for len(lc.unsent) > 0 {
		deadline, start := lc.beforeWrite(0)
		n, err := lc.write(lc.unsent)
		lc.unsent = lc.unsent[n:]
		if err = lc.afterWrite(n, err, deadline, start); err != nil {
			lc.failed, lc.reading = true, readingNothing
			return err
		}
	}
	lc.unsent = nil
	return nil
}

// tooSlow reports whether a client that has just taken sent bytes, after its time was up, has no more of it.
func (lc *loopConn) tooSlow(sent int) bool {
	config := &lc.server.config
	if config.minRate <= 0 {
		return sent == 0
	}
	return lc.writePace.late(config.writeTimeout, config.minRate)
}

// end closes the connection, or leaves that to the lingerer.
func (lc *loopConn) end() {
	s, w := lc.server, lc.worker
	w.linger = false
	lc.loop.mu.Lock()
	lc.ended = true
	lc.loop.mu.Unlock()
	s.connEnded(&lc.conn)
	lc.pending = nil
	if w.linger && s.lingerer.takeOver(lc.netConn, nil) {
		return
	}
	lc.noWaitWrite = true // TLS says goodbye
	lc.netConn.Close()
}

// abandon closes a connection whose turn has failed, or whose goroutine is about to end. In the second case it has been
// answered, and the client may be given the time to read that.
func (lc *loopConn) abandon(linger bool) {
	defer func() {
		if value := recover(); value != nil {
			lc.server.pools[0].logPanic("panic in ConnState", value)
			lc.loop.remove(lc)
		}
	}()
	lc.loop.mu.Lock()
	over, ended := lc.fd < 0, lc.ended
	lc.ended = true
	lc.loop.mu.Unlock()
	switch {
	case !over && lc.parked != nil && ended:
		lc.parked.close() // endParked has come as far as to tell ConnState
	case !over && lc.parked != nil:
		lc.endParked()
	case over || lc.hijacked:
	case ended:
		lc.loop.remove(lc) // end has come as far as to tell ConnState
	case lc.worker != nil:
		lc.linger = lc.linger && linger
		lc.end()
	default:
		lc.server.conns.remove(&lc.conn)
		lc.server.changed(&lc.conn, StateClosed)
		lc.loop.remove(lc)
	}
}

// wait lets an accepted connection wait for its first request.
func (lc *loopConn) wait() bool {
	s := lc.server
	if reason := s.conns.add(&lc.conn); reason != nil {
		lc.loop.mu.Lock()
		lc.ended = true
		lc.loop.mu.Unlock()
		s.refuseConn(lc.netConn, reason)
		return true
	}
	returned := false
	defer func() {
		if !returned {
			lc.abandon(false)
		}
	}()
	s.changed(&lc.conn, StateNew)
	returned = true
	lc.deadline = lc.readDeadline(stateNew, s.clock.now())
	lc.setWait(stateNew, lc.deadline)
	if !lc.release(false) {
		lc.loop.post(lc)
	}
	return true
}

// watch cancels the context when the client leaves. One that has ended its side by now may wait for the answer.
func (lc *loopConn) watch(r *requestContext) {
	ended, gone := peekEnd(int(lc.fd))
	r.halfClosed, r.watchedSince = ended, nanotime()
	lc.watcher.Store(r)
	if gone || lc.poll.Load()&pollGone != 0 {
		lc.clientLeft(true)
	}
}

func (lc *loopConn) unwatch() { lc.watcher.Store(nil) }

// clientLeft cancels the context that is watched, if there is one. A client that has merely ended its side is taken for
// gone unless that came with the request.
func (lc *loopConn) clientLeft(gone bool) {
	r := lc.watcher.Load()
	if r != nil && (gone || !r.halfClosed && nanotime()-r.watchedSince > int64(halfCloseTime)) {
		r.cancel(ErrClientGone)
	}
}

// hijack takes the connection out of its loop: its socket becomes one of package net's.
func (lc *loopConn) hijack() (net.Conn, error) {
	if err := lc.leave(lc.worker.class); err != nil {
		return nil, err
	}
	if err := lc.finishUnsent(); err != nil {
		return nil, err
	}
	lc.makeWaiters()
	// A registration follows the open file, not its number.
	epollControl(lc.loop.epfd, syscall.EPOLL_CTL_DEL, int(lc.fd), 0, 0, 0)
	file := os.NewFile(uintptr(lc.fd), "")
	real, err := net.FileConn(file)
	lc.loop.mu.Lock()
	file.Close()
	lc.loop.forgetLocked(lc)
	lc.loop.mu.Unlock()
	if err != nil {
		return nil, err
	}
	lc.waiters.Load().taken.Store(&real)
	if tlsConn, ok := lc.netConn.(*tls.Conn); ok {
		return tlsConn, nil // its calls go on to the real one
	}
	return real, nil
}
