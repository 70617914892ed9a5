package filo

import (
	"errors"
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// The blocking driver: a worker serves a connection for its whole life, and waits in the connection's own Read and Write. No request
// sets a timer: the owner stores the deadline of its wait, and the sweep wakes it.

const (
	// maxWrite is the most that is written at a time: after each write the server sees how much a slow client has taken.
	maxWrite = 256 << 10
	// maxSendfile is the same limit for files, whose bytes the system already has.
	maxSendfile = 4 << 20
	// maxTLSWrite is the same limit for TLS: one record, since a TLS write can't be continued after its deadline.
	maxTLSWrite = 16 << 10
)

// serve runs the connection until it ends or is hijacked, or until the preface of HTTP/2 has come: then serve returns true.
func (c *conn) serve() (isHTTP2 bool) {
	for {
		switch c.next() {
		case stepRead:
			if c.flush() != nil {
				return false
			}
			c.readHead()
		case stepHandle:
			if !c.answer() {
				return false
			}
		case stepClose:
			if !c.failed {
				c.flush()
			}
			return false
		case stepGone:
			return false
		case stepHTTP2:
			return true
		}
	}
}

// answer runs the handler, and writes what can't wait until the input is used up. It reports false if the client is gone.
func (c *conn) answer() bool {
	// Earlier answers wait for a quick handler, but not for one that may be slow.
	if len(c.out) > 0 && !c.server.classes.handler.IsQuick() && c.flush() != nil {
		return false
	}
	c.handle()
	if (c.outBody != nil || len(c.out) >= writeBufferFull) && !c.failed && c.flush() != nil {
		return false
	}
	c.afterAnswer()
	return true
}

// readHead waits for more of a head, or of a body that is skipped.
func (c *conn) readHead() {
	state := c.inputState()
	if state == stateIdle {
		c.server.changed(c, StateIdle)
	}
	if err := c.fill(state); err != nil {
		c.inputEnded(err)
	} else if state <= stateIdle {
		c.server.changed(c, StateActive)
	}
}

// lastRead reads what a connection that has been idle since the given time sends before the server shuts down. It uses short
// deadlines of its own, since a deadline in the past would hide bytes that have arrived.
func (c *conn) lastRead(p []byte, state waitState, since clock.Time) (int, error) {
	wait := c.server.lastReadTime(state, c.server.clock.Now().Sub(since))
	c.setState(stateLast)
	end := time.Now().Add(wait)
	for looks := 0; looks < lastLooks || time.Now().Before(end); looks++ {
		if c.netConn.SetReadDeadline(time.Now().Add(wait/lastLooks)) != nil {
			break // the wait couldn't be ended
		}
		n, err := c.stream.Read(p)
		c.netConn.SetReadDeadline(time.Time{})
		switch {
		case n > 0:
			return n, nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		// The look has timed out, or was ended by a wake-up meant for the earlier wait.
	}
	return 0, errDraining
}
