package filo

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/filohttp/filo/internal/hooks"
)

var (
	errNoParking = &HTTPError{Status: 501, Err: errors.New("filo: the connection of another server can't be parked")}
	errNoRequest = errors.New("filo: the transport brought no request that can be understood")
)

// carry runs h on a request that came to another server: see inside.Carry.
func (s *Server) carry(t hooks.Transport, h Handler) error {
	s.configure()
	c := &transportConn{transport: t}
	c.open(s, t)
	c.answered, c.tlsState = &c.answers, t.TLS()
	w := transportScratch.Get().(*scratch)
	c.attach(w)
	returned := false
	defer func() {
		if !returned {
			if ctx := c.worker.ctx; ctx.timeout != nil {
				c.endTimeout(ctx, nil)
			}
			c.detach() // h has panicked
		}
	}()
	err := c.run(h)
	c.detach()
	returned = true
	// A worker's buffers aren't used again after a panic, which may have been anywhere.
	transportScratch.Put(w)
	return err
}

// transportScratch holds what workers have for connections.
var transportScratch = sync.Pool{New: func() any { return new(scratch) }}

// transportConn is a connection that a hooks.Transport plays. It drives its protocol by itself, and is in no server's books.
type transportConn struct {
	conn
	transport hooks.Transport
	answers   answerCounts
}

func (c *transportConn) run(h Handler) error {
	next := c.next()
	for next == stepRead {
		if err := c.fill(stateHead); err != nil {
			c.inputEnded(err)
			break
		}
		next = c.next()
	}
	if next != stepHandle {
		if len(c.out) == 0 {
			return errNoRequest
		}
		return c.flush() // of a refusal
	}
	c.looped, c.before = c, 0
	ctx := c.worker.ctx
	c.worker.timer.Switch(&c.server.class)
	err := h(ctx)
	e := c.finish(ctx, err)
	c.conclude(ctx, e)
	switch {
	case e == endingTaken:
		return nil
	case c.aborted:
		c.flush()
		return ErrAbort
	case c.failed:
		return ErrClientGone
	}
	return c.flush()
}

// watch implements looped. The other server watches the client: see requestContext.followOuter.
func (c *transportConn) watch(*requestContext) (half, gone bool) { return false, false }

// unwatch implements looped.
func (c *transportConn) unwatch() {}

// setApart implements looped.
func (c *transportConn) setApart(bool) {}

// sendApart implements looped.
func (c *transportConn) sendApart(p []byte) error {
	_, err := c.transport.Write(p)
	if err == nil {
		err = c.transport.Flush()
	}
	return err
}

// remote implements looped.
func (c *transportConn) remote() netip.AddrPort { return addrPortOf(c.transport.RemoteAddr()) }

// leaveLoop implements looped.
func (c *transportConn) leaveLoop() error { return nil }

// prepareParked implements looped.
func (c *transportConn) prepareParked() error { return errNoParking }

// setParked implements looped.
func (c *transportConn) setParked() {}

// prepareHijack implements looped.
func (c *transportConn) prepareHijack() (net.Conn, error) { return nil, nil }

// hijack implements looped.
func (c *transportConn) hijack(net.Conn) (net.Conn, error) { return c.transport.Hijack() }

// inherit gives the request what belongs to another one: see inside.Inherit.
func (c *Ctx) inherit(from *Ctx) {
	c.check()
	c.match.Copy(&from.match)
	c.rendered = from.rendered
	c.Request.body.limit = from.Request.body.limit
	clear(c.values)
	c.values = append(c.values[:0], from.values...)
	c.logAttributes, c.logger = append(c.logAttributes[:0], from.logAttributes...), nil
}
