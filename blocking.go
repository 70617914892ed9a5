package filo

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/sock"
)

// The blocking driver: a worker serves a connection for as long as that lives, and waits in the connection's own
// Read and Write. No timer is set per request: the owner stores until when it waits, and the sweep wakes it.

// scratch holds the buffers that a worker lends to the connection that it serves.
type scratch struct {
	lent
	in     http1.Input
	body   []byte // for a request body that doesn't fit in; at most maxKeptBody
	parser http1.Parser
	socket sock.Conn
	ctx    *Ctx
	// watcher watches the client of the request in the blocking driver, and reads into watchSpace, which is a part of in. Both are
	// guarded by the mu of the request's context while a handler runs.
	watcher    *clientWatch
	watchSpace []byte
	timer      class.Timer // of the handlers
	outer      bool        // the running handler's class is the server's, the worker led its loop when it began, and the monitor can't blame it
	// handedOver is serveConn's result for a caller that it doesn't return to: the connection isn't to be closed.
	handedOver bool
	// linger says, of a connection that is to be closed, that its client may still be sending.
	linger bool
	worker *workerChan // whose scratch it is; nil for ServeConn's
	// vector is the two buffers of a writev; kept here so that it needs no allocation.
	vector  [2][]byte
	vectors net.Buffers
}

const (
	// maxWrite is how much is written at a time: what a slow client has taken shows after each of them.
	maxWrite = 256 << 10
	// maxSendfile is that for files, of which the system has the bytes already.
	maxSendfile = 4 << 20
	// maxTLSWrite is that for TLS, where it must be known how long a write may take before it begins: a record.
	maxTLSWrite = 16 << 10
)

// serve runs the connection until it ends or is hijacked.
func (c *conn) serve() {
	for {
		switch c.next() {
		case stepRead:
			if c.flush() != nil {
				return
			}
			c.readHead()
		case stepHandle:
			if !c.answer() {
				return
			}
		case stepClose:
			if !c.failed {
				c.flush()
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

// lastRead takes what an idle connection, which has been so since the given time, has sent by the time that the server
// shuts down. A deadline in the past would hide bytes that are there, so it gets short ones of its own.
func (c *conn) lastRead(p []byte, state waitState, since clock.Time) (int, error) {
	wait := lastReadTime(state, c.server.clock.now().Sub(since))
	c.setState(stateLast)
	end := time.Now().Add(wait)
	for looks := 0; looks < lastLooks || time.Now().Before(end); looks++ {
		c.netConn.SetReadDeadline(time.Now().Add(wait / lastLooks))
		n, err := c.stream.Read(p)
		c.netConn.SetReadDeadline(time.Time{})
		switch {
		case n > 0:
			return n, nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		// Time is up, or it was a wake-up that was meant for the wait before this one.
	}
	return 0, errDraining
}
