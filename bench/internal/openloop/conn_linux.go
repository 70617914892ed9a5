//go:build amd64 || arm64

package openloop

import (
	"errors"
	"syscall"
)

// connState is how far a connection is.
type connState uint8

const (
	connClosed      connState = iota
	connConnecting            // until the socket can be written
	connHandshaking           // TLS, on a goroutine of its own
	connUpgrading             // to WebSocket
	connOpen
	connLost // as closed, but the handshake's goroutine has the socket still
)

// quantum is how much a connection reads or writes in one go, while others wait and requests fall due.
const quantum = 256 << 10

// conn is a connection, and again a connection after that one. It belongs to its loop.
type conn struct {
	loop       *loop
	slot       int
	generation int32 // of the socket, so that events of the last one are told apart
	fd         int
	state      connState
	idle       bool  // never sends a request
	listed     bool  // in loop.free
	again      bool  // in loop.repeats
	broken     bool  // can't be written to any more
	ending     bool  // the last request that it may send has been assigned
	since      int64 // when the state began; not kept up in connOpen
	tls        *secure

	exchanges ring[exchange]
	unsent    int // of the exchanges, those at the back that aren't sent in whole
	offset    int // what is sent of the first of them
	assigned  int // requests on this socket

	parser  parser
	frames  frameReader
	matched int64 // bytes of the body so far
	differs bool  // from what is wanted
}

// connect opens the socket.
func (c *conn) connect(now int64) {
	fd, err := sysConnect(c.loop.address)
	if err != nil {
		c.state = connClosed
		c.connectFailed(err, now)
		return
	}
	c.fd, c.state, c.since = fd, connConnecting, now
	c.generation++
	if err := c.loop.poller.watch(fd, c.slot, c.generation); err != nil {
		c.connectFailed(err, now)
	}
}

// connectFailed ends the attempt. The connection rests until it is swept.
func (c *conn) connectFailed(err error, now int64) {
	if c.loop.connectError == nil {
		c.loop.connectError = err
	}
	if c.exchanges.len() == 0 {
		c.loop.recorder.failed(FailedConnect, 1, now, now)
	}
	c.fail(FailedConnect, now)
	c.since = never
}

// event handles what epoll says of the connection.
func (c *conn) event(events uint32, now int64) {
	switch c.state {
	case connConnecting:
		if err := socketError(c.fd); err != nil {
			c.connectFailed(err, now)
		} else if events&syscall.EPOLLOUT != 0 {
			c.connected(now)
		}
	case connHandshaking, connLost:
		c.tls.wake()
	case connUpgrading, connOpen:
		if events&^syscall.EPOLLOUT != 0 {
			c.read(events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0)
		}
		if events&syscall.EPOLLOUT != 0 && (c.unsent > 0 || c.tls != nil && len(c.tls.sealed) > 0) {
			c.flush()
		}
	}
}

// connected goes on after TCP's handshake.
func (c *conn) connected(now int64) {
	if c.loop.options.TLS == nil {
		c.secured(now)
		return
	}
	c.state, c.since = connHandshaking, now
	c.tls = newSecure(c)
	go c.tls.handshake()
}

// handshaken goes on after TLS's.
func (c *conn) handshaken(err error, now int64) {
	switch {
	case c.state == connLost:
		c.state = connHandshaking
		c.close()
		c.loop.repeat(c)
	case err != nil:
		c.tls.shaking = false
		c.state = connConnecting // nobody else has the socket any more
		c.connectFailed(err, now)
	default:
		c.tls.shaking = false
		c.secured(now)
		c.loop.repeat(c) // the handshake took what events there were
	}
}

// secured goes on when bytes can be exchanged.
func (c *conn) secured(now int64) {
	if c.loop.upgrade == nil {
		c.opened(now)
		return
	}
	c.state, c.since = connUpgrading, now
	c.parser.begin(false)
	n, err := c.send(c.loop.upgrade)
	if err == nil && c.tls != nil {
		err = c.tls.flush()
	}
	if err != nil || n < len(c.loop.upgrade) {
		c.connectFailed(errors.Join(err, errors.New("the upgrade request can't be sent")), now)
	}
}

// opened is the end of all that.
func (c *conn) opened(now int64) {
	c.state, c.since = connOpen, now
	if c.loop.recorder.has(now) {
		c.loop.recorder.connected++
	}
	if c.exchanges.len() > 0 {
		c.beginAnswer(c.exchanges.at(0).request)
	}
	c.loop.offer(c, now)
	c.flush()
}

// upgraded goes on after the answer to the upgrade request.
func (c *conn) upgraded(now int64) {
	if h := &c.parser.head; h.status != 101 || h.accept != acceptValue(websocketKey) {
		c.connectFailed(malformed("the upgrade is answered with status %d and accepted with %q", h.status, h.accept), now)
		return
	}
	c.frames = frameReader{opcode: c.loop.options.WebSocket.opcode()}
	c.opened(now)
}

// fail ends the connection and all that is on its way there.
func (c *conn) fail(kind Failure, now int64) {
	for c.exchanges.len() > 0 {
		e := c.exchanges.pop()
		c.loop.busy--
		c.loop.recorder.failed(kind, 1, e.intended, now)
	}
	c.lose(now)
}

// lose ends the connection, which may not be its fault, and opens another unless that waits for a request.
func (c *conn) lose(now int64) {
	c.unsent, c.offset, c.assigned, c.ending, c.broken = 0, 0, 0, false, false
	if c.state == connHandshaking {
		syscall.Shutdown(c.fd, syscall.SHUT_RDWR) // so that the handshake fails
		c.state = connLost
		return
	}
	c.close()
	c.loop.repeat(c)
}

func (c *conn) close() {
	if c.state == connClosed {
		return
	}
	syscall.Close(c.fd)
	c.state, c.tls = connClosed, nil
	c.since = 0
	c.generation++
}

// repeated goes on where something was left off.
func (c *conn) repeated() {
	now := c.loop.now()
	switch {
	case c.state == connClosed && c.loop.lazy && !c.idle:
		c.loop.offer(c, now)
	case c.state == connClosed && c.since != never && !c.loop.stopping:
		c.connect(now)
	case c.state == connOpen || c.state == connUpgrading:
		c.read(true)
		if c.state == connOpen {
			c.flush()
		}
	}
}

// sweep ends what takes too long, and tries again what has failed.
func (c *conn) sweep(now int64) {
	limit := now - int64(c.loop.options.Timeout)
	switch {
	case c.state == connClosed && c.since == never:
		c.since = 0
		c.loop.repeat(c)
	case c.state == connClosed || c.state == connLost:
	case c.exchanges.len() > 0:
		if c.exchanges.at(0).begun < limit {
			c.fail(FailedTimeout, now)
		}
	case c.state != connOpen && c.since < limit:
		c.connectFailed(errors.New("the connection isn't ready within the time-out"), now)
	}
}
