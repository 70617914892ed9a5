package filo

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// This file has the deadlines of a connection's waits, for both drivers, and the reads and writes that wait for the client. loopturn.go has
// the reads and writes of a loop's turns, which don't wait.

// inputState returns the state for the next read, according to the part of a request that the read will receive.
func (c *conn) inputState() waitState {
	switch {
	case c.reading == readingRest:
		return stateRest
	case c.reading == readingBody:
		return stateBody
	case c.in.Len() > 0 || c.parser.Started():
		if c.headSince == 0 {
			c.headSince = c.server.clock.Now()
		}
		return stateHead
	case c.requests.Load() == 0:
		return stateNew
	}
	return stateIdle
}

// fill reads available input into the read buffer. If none is available, it waits until the deadline that the state implies.
func (c *conn) fill(state waitState) error {
	n, err := c.receive(c.in.Space(), state)
	c.in.Received(n)
	if n > 0 {
		return nil
	}
	return err
}

// readDeadline returns the deadline for a wait for input in a state; 0 means none.
func (c *conn) readDeadline(state waitState, now clock.Time) clock.Time {
	config := &c.server.config
	switch state {
	case stateNew:
		if c.headSince != 0 {
			now = c.headSince // when the TLS handshake began
		}
		return now.Deadline(c.headTimeout())
	case stateIdle:
		return now.Deadline(config.idleTimeout)
	case stateHead:
		return c.headSince.Deadline(c.headTimeout())
	case stateBody, stateRest:
		if until := c.scratch.ctx.readUntil; until != 0 {
			return until
		}
		return c.readPace.Deadline(now, config.reading)
	}
	return 0
}

// deadlineSet implements wire. It does nothing, since each wait reads the deadlines from the Ctx.
func (c *conn) deadlineSet(time.Time, bool) error { return nil }

// beginWriting prepares a wait for the client to take bytes, and returns the deadline of the wait; 0 means none.
func (c *conn) beginWriting(now clock.Time) clock.Time {
	c.since, c.buffered = now, notLooked
	ctx := c.scratch.ctx
	if c.scratch.isFindingOut() {
		switch {
		case c.scratch.mayRun():
			if ctx.hurries {
				ctx.writeUntil, ctx.hurries = 0, false
			}
		case ctx.writeUntil == 0:
			ctx.writeUntil, ctx.hurries = now.Add(findOutTime), true
		}
	}
	if until := ctx.writeUntil; until != 0 {
		c.buffered = notFollowed
		return until
	}
	return c.writePace.Deadline(now, c.server.config.writing)
}

// waitToWrite begins the wait that beginWriting has prepared.
func (c *conn) waitToWrite(deadline clock.Time) {
	if deadline != 0 && c.buffered != notFollowed {
		deadline = min(deadline, c.since.Add(c.server.config.writing.Look()))
	}
	c.setWait(stateWrite, deadline)
}

// putOff returns the current deadline of a wait to write. The argument deadline is the deadline with which the wait began; bytes that the
// client has taken since may have extended it.
func (c *conn) putOff(deadline clock.Time) clock.Time {
	if deadline == 0 || c.buffered == notFollowed {
		return deadline
	}
	return c.writePace.Deadline(c.since, c.server.config.writing)
}

// lookAtWrite is called by the sweep to check how much the client has taken during a wait to write. It returns the time of the next check,
// or 0 if the wait must end because the client is too slow or its deadline has passed.
func (c *conn) lookAtWrite(now clock.Time) (next clock.Time) {
	if c.buffered == notFollowed {
		return 0
	}
	limits := c.server.config.writing
	n, ok := sock.Buffered(c.netConn)
	buffered, deadline := int32(min(n, math.MaxInt32)), c.writePace.Deadline(c.since, limits)
	// At the first check, how much the client has taken is unknown. If the buffer holds more than at the last check, the client must have
	// made room for that.
	if ok && buffered != c.buffered {
		c.writePace.Add(limits, int(max(c.buffered-buffered, 1)), c.server.waited(c.since, deadline, now))
		c.since, c.buffered = now, buffered
		deadline = c.writePace.Deadline(now, limits)
	}
	if now >= deadline || c.writePace.UsedUp(limits) {
		return 0
	}
	return min(deadline, now.Add(limits.Look()))
}

// passed reports whether a deadline that the handler has set has passed; 0 means that none is set.
func (c *conn) passed(until clock.Time) bool { return until != 0 && c.server.clock.Exact() >= until }

// headTimeout returns how long each of these may take: the header of the PROXY protocol, the TLS handshake, and a request's head. For a
// connection in a place of the kind QuickConn the time is short, since other connections need the place.
func (c *conn) headTimeout() time.Duration {
	timeout := c.server.config.readHeaderTimeout
	if c.scratch.isFindingOut() && (timeout < 0 || timeout > findOutTime) {
		return findOutTime
	}
	return timeout
}

// findOutTime is how long a head, or an answer's way to the client, may take while the connection has a place of the kind QuickConn.
const findOutTime = time.Second

// isFindingOut reports whether the connection has a place of the kind QuickConn, in which the server finds out whether the request is for a
// quick handler.
func (w *scratch) isFindingOut() bool {
	return w != nil && w.place != nil && w.place.Kind() == admit.QuickConn
}

// receive reads at least one byte into p, or returns an error.
func (c *conn) receive(p []byte, state waitState) (int, error) {
	if c.inputError != nil {
		return 0, c.inputError
	}
	if state.body() && c.passed(c.scratch.ctx.readUntil) {
		return 0, errDeadline
	}
	if state.body() && c.driver.keepsWorker() && !c.scratch.mayRun() {
		return 0, errBusy
	}
	start := c.server.clock.Now()
	deadline := c.readDeadline(state, start)
	look := c.gatherUntil(start, deadline)
	if look == deadline {
		c.beginSilence(state, 0)
	}
	c.setWait(state, look)
	n, err := c.await(p, state, deadline, start)
	shed := c.endWait(look, false)
	c.server.bodies.EndSilence(&c.scratch.ctx.room)
	if shed && state.body() {
		return 0, errDeadline // by now, the room for these bytes belongs to other requests: see CutBody
	}
	return n, err
}

// beginSilence records when a wait for a body's next byte began. If since is 0, the wait begins now: beginSilence then reads the exact
// clock, since the coarse clock may be some ticks late.
func (c *conn) beginSilence(state waitState, since clock.Time) {
	if state == stateBody && c.scratch.ctx.room.Bytes() > 0 {
		if since == 0 {
			since = c.server.clock.Exact()
		}
		c.server.bodies.BeginSilence(&c.scratch.ctx.room, c, since)
	}
}

// gatherUntil returns the time until which a read may wait: the deadline or, if the read gathers, the next check whether the client is
// silent. If the deadline comes before that check, the read stops gathering.
func (c *conn) gatherUntil(start, deadline clock.Time) clock.Time {
	if !c.driver.gathers() {
		return deadline
	}
	look := start.Add(c.server.config.reading.Look())
	if deadline != 0 && deadline <= look {
		c.driver.want(0)
		return deadline
	}
	return look
}

// waited returns how long the server has waited for a client: see clock.Waited.
func (s *Server) waited(since, deadline, now clock.Time) time.Duration {
	return clock.Waited(since, deadline, now, s.config.pause)
}

// bodyCame records that n bytes of a body arrived after a wait. It reports false if the client is too slow.
func (c *conn) bodyCame(n int, waited time.Duration) bool {
	limits := c.server.config.reading
	c.readPace.Add(limits, n, waited)
	return c.scratch.ctx.readUntil != 0 || !c.readPace.UsedUp(limits)
}

// await is receive's loop: it reads, and waits for input.
func (c *conn) await(p []byte, state waitState, deadline, start clock.Time) (int, error) {
	if state <= stateIdle && c.server.life.Draining.Load() {
		return c.lastRead(p, state, start)
	}
	for over, ended := error(nil), clock.Time(0); ; {
		n, err := c.stream.Read(p)
		if n > 0 {
			if over != nil {
				c.netConn.SetReadDeadline(time.Time{})
			}
			if state.body() {
				if !c.bodyCame(n, c.server.waited(start, deadline, c.server.clock.Now())) {
					return 0, errDeadline
				}
			}
			return n, nil
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		// The sweep or a shutdown has woken the owner, perhaps for an earlier wait: only the clock tells whether this wait has timed out.
		c.netConn.SetReadDeadline(time.Time{})
		switch {
		case over != nil:
			return 0, over // the last check has found no input
		case c.state() == stateShed:
			over = errShed
		case deadline != 0 && c.server.clock.Exact() >= deadline:
			over, ended = errDeadline, deadline
		case state == stateBody && c.scratch.ctx.timedOut():
			return 0, ErrHandlerTimeout
		}
		if over != nil {
			if !c.beginLastLook(ended) {
				return 0, over
			}
			continue
		}
		if state <= stateIdle && c.server.life.Draining.Load() {
			return c.lastRead(p, state, start)
		}
		if state == stateRest && c.server.life.EndsRest(c.server.clock.Exact) {
			return 0, errDraining
		}
		c.driver.want(0) // nothing has arrived for a while, so the next read returns at the first byte
		c.beginSilence(state, start)
		if !c.waitAgain(state, deadline) {
			return 0, errShed
		}
	}
}

// beginLastLook prepares one more read after a wait. The argument ended is the deadline at which the wait timed out, 0 if the wait ended for
// another reason. Bytes that arrived while the process was paused arrived in time, but a read with a deadline in the past doesn't return them.
// beginLastLook reports false if no input has arrived. If the connection can't tell whether input has arrived, beginLastLook reports false if
// the wait has ended on time, since the process wasn't paused in that case. The caller clears the read deadline.
func (c *conn) beginLastLook(ended clock.Time) bool {
	look := lastLookTime
	switch has, known := sock.HasInput(c.netConn); {
	case known && !has:
		return false
	case known:
		look = time.Second // the read returns at once even on a busy machine, unless it needs the rest of a TLS record
	case ended != 0:
		if late := c.server.clock.Exact().Sub(ended); 0 <= late && late < onTime {
			return false
		}
	}
	return c.netConn.SetReadDeadline(time.Now().Add(look)) == nil
}

// lastLookTime is how long the last check may take on a connection that can't tell whether input has arrived.
const lastLookTime = 20 * time.Millisecond

// onTime is how late a wait may end before filo assumes that the process was paused.
const onTime = time.Millisecond

// waitAgain does what setWait does, for an owner that was woken. It does nothing and returns false if the connection was told to close to make
// room for other connections, which may have happened after the wake-up.
func (c *conn) waitAgain(state waitState, deadline clock.Time) bool {
	for {
		word := c.word.Load()
		if waitState(word&stateMask) == stateShed {
			return false
		}
		if c.word.CompareAndSwap(word, waitWord(state, deadline)) {
			c.awaitSweep(deadline)
			return true
		}
	}
}

// endWait ends a wait. If the sweep has taken the deadline, the wake-up may still be on its way. endWait then waits for the wake-up and
// clears it. Otherwise the wake-up could end a later wait before its deadline; during a TLS write that would end the connection. endWait
// reports whether the connection was told to close to make room for other connections.
func (c *conn) endWait(deadline clock.Time, writing bool) (shed bool) {
	old := c.word.Swap(int64(stateHandler))
	shed = waitState(old&stateMask) == stateShed
	if !shed && (deadline == 0 || deadlineIn(old) != 0) {
		return false
	}
	c.server.conns.awaitWakeUp()
	if writing {
		c.netConn.SetWriteDeadline(time.Time{})
	} else {
		c.netConn.SetReadDeadline(time.Time{})
	}
	return shed
}

// flush writes c.out and c.outBody. When a write has failed, a part of its bytes may have reached the client, and the client would take later
// bytes for the rest. So from then on flush drops what it would write, and returns net.ErrClosed.
func (c *conn) flush() error {
	if len(c.out) == 0 && c.outBody == nil {
		return nil
	}
	err := net.ErrClosed
	if !c.failed {
		if err = errDeadline; !c.passed(c.scratch.ctx.writeUntil) {
			err = c.writeQueued()
		}
		if err != nil {
			c.writeFailed(err)
		}
	}
	c.out, c.outBody, c.before = c.out[:0], nil, 0
	return err
}

// writeFailed ends the connection after a write has failed with err.
func (c *conn) writeFailed(err error) {
	if errors.Is(err, errDeadline) {
		c.server.counts.timeouts.write.Add(1)
	}
	c.breakOff()
	c.loseClient()
}

func (c *conn) writeQueued() error {
	if len(c.outBody) == 0 {
		return c.send(c.out)
	}
	if c.tlsState != nil {
		// Head and body become separate TLS records in any case.
		if err := c.send(c.out); err != nil {
			return err
		}
		return c.send(c.outBody)
	}
	// Write head and body in one system call (writev) if the connection supports it.
	first := min(len(c.outBody), maxWrite)
	if err := c.sendVector(c.out, c.outBody[:first]); err != nil {
		return err
	}
	return c.send(c.outBody[first:])
}

// send writes all of p, a piece at a time.
func (c *conn) send(p []byte) error {
	limit := maxWrite
	if c.tlsState != nil {
		limit = maxTLSWrite
	}
	for len(p) > 0 {
		deadline := c.beforeWrite()
		n, err := c.stream.Write(p[:min(len(p), limit)])
		if err = c.afterWrite(n, err, deadline); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (c *conn) sendVector(head, body []byte) error {
	w := c.scratch
	w.vector = [2][]byte{head, body}
	w.vectors = w.vector[:]
	deadline := c.beforeWrite()
	n64, err := int64(0), error(nil)
	if writer, ok := c.netConn.(vectorWriter); ok {
		n64, err = writer.writeVector(head, body)
	} else {
		n64, err = w.vectors.WriteTo(c.netConn)
	}
	n := int(n64)
	err = c.afterWrite(n, err, deadline)
	w.vector = [2][]byte{}
	if err != nil {
		return err
	}
	if n < len(head) {
		if err := c.send(head[n:]); err != nil {
			return err
		}
		n = len(head)
	}
	return c.send(body[n-len(head):])
}

// vectorWriter is a connection that doesn't come from package net but can write two buffers at once.
type vectorWriter interface {
	writeVector(first, second []byte) (int64, error)
}

// beforeWrite begins the wait of a write, which afterWrite ends, and returns its deadline.
func (c *conn) beforeWrite() (deadline clock.Time) {
	deadline = c.beginWriting(c.server.clock.Now())
	c.waitToWrite(deadline)
	c.scratch.ctx.countWrite()
	return deadline
}

// afterWrite ends the wait of a write that has written n bytes. A timeout isn't an error if the client takes bytes fast enough, or
// if the wake-up was meant for an earlier wait. The caller then goes on writing.
func (c *conn) afterWrite(n int, err error, deadline clock.Time) error {
	c.endWait(deadline, true)
	c.scratch.ctx.countWrite()
	limits := c.server.config.writing
	if err == nil {
		c.writePace.Add(limits, n, c.server.waited(c.since, c.putOff(deadline), c.server.clock.Now()))
		return nil
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	now := c.server.clock.Exact()
	deadline = c.putOff(deadline)
	c.writePace.Add(limits, n, c.server.waited(c.since, deadline, now))
	switch {
	case c.tlsState != nil:
		// crypto/tls can't continue after a partly written record.
		return errDeadline
	case deadline == 0 || now < deadline:
	case c.buffered == notFollowed, c.writePace.Late(limits):
		return errDeadline
	}
	c.netConn.SetWriteDeadline(time.Time{})
	return nil
}

// isEOF reports whether a read failed because the client has closed its sending side, and not because the connection broke.
func isEOF(err error) bool { return errors.Is(err, io.EOF) }
