package filo

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// The blocking driver: a worker serves a connection for as long as that lives, and waits in the connection's own
// Read and Write. No timer is set per request: the owner stores until when it waits, and the sweep wakes it.

// scratch is what a worker lends to the connection that it serves.
type scratch struct {
	in     inputBuffer
	out    []byte
	parser headParser
	socket socket
	ctx    *Ctx
	calls  uint32 // of the handler; see handlerTiming
	// handedOver is serveConn's result for a caller that it doesn't return to: the connection isn't to be closed.
	handedOver bool
	// vector is the two buffers of a writev; kept here so that it needs no allocation.
	vector  [2][]byte
	vectors net.Buffers
}

// maxWrite is how much is written at a time: what a slow client has taken shows after each of them.
const maxWrite = 256 << 10

// serve runs the connection until it ends or is hijacked.
func (c *conn) serve() {
	for {
		switch c.next() {
		case stepRead:
			if c.writeOut() != nil {
				return
			}
			c.readHead()
		case stepHandle:
			if !c.answer() {
				return
			}
		case stepClose:
			if !c.abort {
				c.writeOut()
			}
			return
		case stepGone:
			return
		}
	}
}

// answer runs the handler, and writes what can't wait until the input is used up. It reports false if the client is gone.
func (c *conn) answer() bool {
	// Earlier answers wait for a quick handler, but not for one that may be slow.
	if len(c.out) > 0 && !c.server.timing.quick() && c.flush() != nil {
		return false
	}
	c.handle()
	if (c.outBody != nil || len(c.out) >= writeBufferFull) && !c.abort && c.flush() != nil {
		return false
	}
	c.afterAnswer()
	return true
}

// readHead waits for more of a head, or of a body that is skipped.
func (c *conn) readHead() {
	state := stateIdle
	switch {
	case c.reading == readingRest:
		state = stateBody
	case c.in.len() > 0 || c.worker.parser.started():
		state = stateHead
		if c.headSince == 0 {
			c.headSince = c.server.clock.now()
		}
	case c.requests == 0:
		state = stateNew
	}
	if state == stateIdle {
		c.server.changed(c, StateIdle)
	}
	if err := c.fill(state); err != nil {
		c.inputEnded(err)
	} else if state <= stateIdle {
		c.server.changed(c, StateActive)
	}
}

// fill reads what there is into the read buffer. It waits as long as the state allows.
func (c *conn) fill(state waitState) error {
	n, err := c.receive(c.in.space(), state)
	c.in.received(n)
	if n > 0 {
		return nil
	}
	return err
}

// waitDeadline returns until when the owner may wait in a state, on the coarse clock's scale; 0 is for ever.
func (c *conn) waitDeadline(state waitState, size int) int64 {
	config, now := &c.server.config, c.server.clock.now()
	switch state {
	case stateNew:
		return after(now, config.readHeaderTimeout)
	case stateIdle:
		return after(now, config.idleTimeout)
	case stateHead:
		return after(c.headSince, config.readHeaderTimeout)
	case stateBody:
		return c.readPace.deadline(now, config.readTimeout, config.minRate, 0)
	case stateWrite:
		return c.writePace.deadline(now, config.writeTimeout, config.minRate, size)
	}
	return 0
}

func after(now int64, timeout time.Duration) int64 {
	if timeout < 0 {
		return 0
	}
	return now + int64(timeout)
}

// receive reads into p: at least a byte, or an error.
func (c *conn) receive(p []byte, state waitState) (int, error) {
	if c.inputError != nil {
		return 0, c.inputError
	}
	deadline := c.waitDeadline(state, 0)
	start := c.server.clock.now()
	c.setWait(state, deadline)
	defer c.setState(stateHandler)
	if state <= stateIdle && c.server.draining.Load() {
		return c.lastRead(p, start)
	}
	for {
		n, err := c.stream.Read(p)
		if n > 0 {
			if state == stateBody {
				c.readPace.add(n, c.server.clock.now()-start)
			}
			return n, nil
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		// The sweep or a shutdown woke us, perhaps for a wait that is over: only our own look at the clock counts.
		c.netConn.SetReadDeadline(time.Time{})
		if deadline != 0 && c.server.clock.exact() >= deadline {
			return 0, errDeadline
		}
		if state <= stateIdle && c.server.draining.Load() {
			return c.lastRead(p, start)
		}
		c.setWait(state, deadline)
	}
}

const (
	// lastReadTime is how long a connection that waits for a request at shutdown is asked for one that is on its way.
	lastReadTime = 2 * time.Millisecond
	// lastReadTimeBusy is that time for a connection that has been waiting for less than busyTime: its client is
	// probably about to send the next request, and gets to know with the answer that it was the last.
	lastReadTimeBusy = 100 * time.Millisecond
	busyTime         = time.Second
)

// lastRead takes what an idle connection, which has been so since the given time, has sent by the time that the server
// shuts down. A deadline in the past would hide bytes that are there, so it gets a short one of its own.
func (c *conn) lastRead(p []byte, since int64) (int, error) {
	wait := lastReadTime
	if c.server.clock.now()-since < int64(busyTime) {
		wait = lastReadTimeBusy
	}
	c.setState(stateLast)
	deadline := time.Now().Add(wait)
	for {
		c.netConn.SetReadDeadline(deadline)
		n, err := c.stream.Read(p)
		c.netConn.SetReadDeadline(time.Time{})
		switch {
		case n > 0:
			return n, nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case !time.Now().Before(deadline):
			return 0, errDraining
		}
		// A wake-up that was meant for the wait before this one.
	}
}

// flush is writeOut in a handler's name: what the handler does next isn't waiting for the client.
func (c *conn) flush() error {
	err := c.writeOut()
	c.setState(stateHandler)
	return err
}

// writeOut writes out and outBody.
func (c *conn) writeOut() error {
	if len(c.out) == 0 && c.outBody == nil {
		return nil
	}
	err := c.writeQueued()
	c.out, c.outBody = c.out[:0], nil
	if err != nil {
		c.abort, c.reading = true, readingNothing
	}
	return err
}

func (c *conn) writeQueued() error {
	if len(c.outBody) == 0 {
		return c.send(c.out)
	}
	// Head and body in one system call (writev) where the connection can.
	first := min(len(c.outBody), maxWrite)
	if err := c.sendVector(c.out, c.outBody[:first]); err != nil {
		return err
	}
	return c.send(c.outBody[first:])
}

// send writes all of p, at most maxWrite at a time.
func (c *conn) send(p []byte) error {
	for len(p) > 0 {
		n, err := c.sendOnce(p[:min(len(p), maxWrite)])
		p = p[n:]
		if err != nil {
			return err
		}
	}
	return nil
}

// sendOnce writes p, or less of it if the client didn't take it in time.
func (c *conn) sendOnce(p []byte) (int, error) {
	deadline, start := c.beforeWrite(len(p))
	n, err := c.stream.Write(p)
	return n, c.afterWrite(n, err, deadline, start)
}

func (c *conn) sendVector(head, body []byte) error {
	w := c.worker
	w.vector = [2][]byte{head, body}
	w.vectors = w.vector[:]
	deadline, start := c.beforeWrite(len(head) + len(body))
	n, err := w.vectors.WriteTo(c.netConn)
	err = c.afterWrite(int(n), err, deadline, start)
	w.vector = [2][]byte{}
	if err != nil || int(n) == len(head)+len(body) {
		return err
	}
	if int(n) < len(head) {
		if err := c.send(head[n:]); err != nil {
			return err
		}
		n = int64(len(head))
	}
	return c.send(body[int(n)-len(head):])
}

func (c *conn) beforeWrite(size int) (deadline, start int64) {
	deadline = c.waitDeadline(stateWrite, size)
	start = c.server.clock.now()
	c.setWait(stateWrite, deadline)
	return deadline, start
}

// afterWrite takes note of progress, and turns a wake-up that came too early into none.
func (c *conn) afterWrite(n int, err error, deadline, start int64) error {
	c.writePace.add(n, c.server.clock.now()-start)
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	c.netConn.SetWriteDeadline(time.Time{})
	if deadline != 0 && c.server.clock.exact() >= deadline {
		return errDeadline
	}
	return nil
}

// isEOF reports whether a read ended because the client sends nothing more, as opposed to a broken connection.
func isEOF(err error) bool { return errors.Is(err, io.EOF) }
