//go:build amd64 || arm64

package openloop

import "syscall"

// maxVector is how many requests are sent by one system call.
const maxVector = 64

// exchange is a request on its way and its answer.
type exchange struct {
	request  *prepared
	raw      []byte
	intended int64 // when it was to be sent
	begun    int64 // when a connection took it
}

// hasRoom reports whether the connection can take a request.
func (c *conn) hasRoom() bool {
	switch {
	case c.idle || c.ending || c.broken || c.exchanges.len() >= c.loop.options.Pipeline:
		return false
	case c.state == connClosed:
		return c.loop.lazy && c.since != never // which is that it rests after a failure
	}
	return c.state == connOpen || c.loop.lazy && c.state != connLost
}

// assign gives the connection a request. It isn't sent before flush.
func (c *conn) assign(intended, now int64) {
	l := c.loop
	e := exchange{request: l.nextRequest(), intended: intended, begun: now}
	e.raw = e.request.raw
	c.assigned++
	if k := l.options.RequestsPerConnection; k > 0 && c.assigned == k {
		c.ending = true
		if e.request.last != nil {
			e.raw = e.request.last
		}
	}
	if c.exchanges.len() == 0 {
		c.beginAnswer(e.request)
	}
	c.exchanges.push(e)
	c.unsent++
	l.busy++
}

// beginAnswer prepares for the answer to a request.
func (c *conn) beginAnswer(r *prepared) {
	c.parser.begin(r.headOnly)
	c.matched, c.differs = 0, false
}

// flush sends what can be sent at once.
func (c *conn) flush() {
	if c.state != connOpen || c.broken {
		return
	}
	for sent := 0; c.unsent > 0; {
		n, err := c.sendSome()
		if sent += n; err != nil {
			// What the server said before it left may still be there to be read.
			c.broken = true
			c.loop.repeat(c)
			return
		}
		if n == 0 {
			return
		}
		if sent >= quantum && c.unsent > 0 {
			c.loop.repeat(c)
			return
		}
	}
	if c.tls != nil && c.tls.flush() != nil {
		c.broken = true
		c.loop.repeat(c)
	}
}

// sendSome sends as much of what is unsent as one system call takes, and counts it as sent.
func (c *conn) sendSome() (n int, err error) {
	l, count := c.loop, c.exchanges.len()
	first := c.exchanges.at(count - c.unsent).raw[c.offset:]
	if c.unsent == 1 || c.tls != nil || len(first) >= quantum {
		n, err = c.send(first[:min(len(first), quantum)])
	} else {
		vectors := l.vectors[:min(c.unsent, maxVector)]
		for i := range vectors {
			raw := c.exchanges.at(count - c.unsent + i).raw
			if i == 0 {
				raw = first
			}
			vectors[i].Base = &raw[0]
			vectors[i].SetLen(len(raw))
		}
		l.message.Iov, l.message.Iovlen = &vectors[0], uint64(len(vectors))
		var errno syscall.Errno
		n, errno = sysSendVector(c.fd, &l.message)
		l.sent(n)
		err = blocked(errno)
	}
	for left := n; left > 0; {
		size := len(c.exchanges.at(count-c.unsent).raw) - c.offset
		if left < size {
			c.offset += left
			break
		}
		left -= size
		c.unsent, c.offset = c.unsent-1, 0
	}
	return n, err
}

// send writes, directly or through TLS, and returns 0 if nothing can be written now.
func (c *conn) send(p []byte) (n int, err error) {
	if c.tls != nil {
		return c.tls.write(p)
	}
	n, errno := sysSend(c.fd, p)
	if errno == 0 {
		c.loop.sent(n)
	}
	return n, blocked(errno)
}

// blocked returns errno as an error, nil if it only says that the socket isn't ready.
func blocked(errno syscall.Errno) error {
	if errno == 0 || errno == syscall.EAGAIN {
		return nil
	}
	return errno
}
