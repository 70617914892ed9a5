//go:build amd64 || arm64

package openloop

import (
	"bytes"
	"errors"
	"io"
	"syscall"
)

// read takes what has come. There may be more than it takes at a time.
func (c *conn) read(hangup bool) {
	l := c.loop
	for total := 0; total < quantum; {
		n, err := c.receive()
		now := l.now()
		switch {
		case err == errBlocked:
			c.readDone(now)
			return
		case err == io.EOF:
			c.hungUp(FailedClosed, now)
			return
		case err != nil:
			c.hungUp(FailedReset, now)
			return
		}
		generation := c.generation
		c.consume(l.buffer[:n], now)
		if c.generation != generation || c.state != connOpen && c.state != connUpgrading {
			return
		}
		if total += n; n < len(l.buffer) && !hangup && c.tls == nil {
			c.readDone(now)
			return
		}
	}
	c.readDone(l.now())
	l.repeat(c)
}

// readDone goes on after some answers.
func (c *conn) readDone(now int64) {
	if c.broken {
		c.fail(FailedReset, now)
		return
	}
	c.loop.offer(c, now)
	c.flush()
}

// receive reads, directly or through TLS, into the loop's buffer.
func (c *conn) receive() (int, error) {
	if c.tls != nil {
		return c.tls.read(c.loop.buffer)
	}
	n, errno := sysReceive(c.fd, c.loop.buffer)
	switch {
	case errno == syscall.EAGAIN:
		return 0, errBlocked
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	c.loop.received(n)
	return n, nil
}

// consume handles bytes of the server.
func (c *conn) consume(data []byte, now int64) {
	generation := c.generation
	for len(data) > 0 && c.generation == generation {
		if c.exchanges.len() == 0 && c.state == connOpen && c.loop.upgrade == nil {
			// Nobody has asked for it.
			c.loop.recorder.failed(FailedMalformed, 1, now, now)
			c.lose(now)
			return
		}
		var n int
		var body []byte
		var done bool
		var err error
		if c.loop.upgrade != nil && c.state == connOpen {
			n, body, done, err = c.frames.next(data)
		} else {
			n, body, done, err = c.parser.next(data)
		}
		if err != nil {
			c.loop.malformedAnswer(err)
			c.fail(FailedMalformed, now)
			return
		}
		c.compare(body)
		if data = data[n:]; done {
			c.answered(now)
		}
	}
}

// compare compares a piece of the body with what is wanted.
func (c *conn) compare(piece []byte) {
	if len(piece) == 0 || c.exchanges.len() == 0 {
		return
	}
	want := c.exchanges.at(0).request.want.Body
	end := c.matched + int64(len(piece))
	if want != nil && !c.differs {
		c.differs = end > int64(len(want)) || !bytes.Equal(want[c.matched:end], piece)
	}
	c.matched = end
}

// answered ends the first exchange.
func (c *conn) answered(now int64) {
	l := c.loop
	if c.state == connUpgrading {
		c.upgraded(now)
		return
	}
	if c.exchanges.len() == 0 { // a message that nobody has asked for
		l.recorder.failed(FailedMalformed, 1, now, now)
		c.lose(now)
		return
	}
	early := c.unsent == c.exchanges.len() // it isn't sent in whole
	e := c.exchanges.pop()
	l.busy--
	want, status, closing := &e.request.want, c.parser.head.status, c.parser.head.close
	if l.upgrade != nil {
		status, closing = want.Status, false
	}
	differs := c.differs
	switch {
	case e.request.headOnly:
	case want.Body != nil:
		differs = differs || c.matched != int64(len(want.Body))
	case want.Length > 0:
		differs = c.matched != want.Length
	}
	l.recorder.answered(e.request, status, differs, e.intended, now)
	switch {
	case c.exchanges.len() > 0 && (closing || early):
		c.fail(FailedClosed, now)
	case closing || early || c.exchanges.len() == 0 && c.ending:
		c.lose(now)
	case c.exchanges.len() > 0:
		c.beginAnswer(c.exchanges.at(0).request)
	}
}

// hungUp handles the end of what the server sends.
func (c *conn) hungUp(kind Failure, now int64) {
	switch {
	case c.state == connUpgrading:
		c.connectFailed(errors.New("the server closes instead of upgrading"), now)
	case kind == FailedClosed && c.loop.upgrade == nil && c.exchanges.len() > 0 && c.parser.eof():
		c.answered(now)
	default:
		c.fail(kind, now)
	}
}
