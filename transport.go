package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// Transport brings one request that came to another server, and takes its answer: see Server.ServeTransport. As a net.Conn it
// carries both as HTTP/1.1: Read returns the request, head and body, and then io.EOF; Write takes what a client would be sent,
// in pieces as it is flushed. After Hijack it is the client's connection.
type Transport interface {
	net.Conn
	// Flush sends what Write has taken, all of it. It is called where Write alone mustn't wait for more.
	Flush() error
	// Context returns the context of the request. That of the Ctx has its values, and ends with it.
	Context() context.Context
	// TLS returns the state of the client's connection if that is a TLS one, or nil.
	TLS() *tls.ConnectionState
	// Hijack takes the client's connection over from its server, and returns it without a deadline.
	Hijack() (net.Conn, error)
}

var (
	errNoParking = &HTTPError{Status: 501, Err: errors.New("filo: the connection of another server can't be parked")}
	errNoRequest = errors.New("filo: the transport brought no request that can be understood")
)

// ServeTransport runs h on the request that t brings, in the settings of the server, which needn't be serving: its Handler and its
// limits for connections and for time don't apply, those for sizes do. It is for adaptors to other servers.
//
// It returns when the answer is complete, or nil also when h has hijacked the connection; an error means that the answer
// couldn't be completed: what was written of it is all there is. A panic of h isn't recovered.
func (s *Server) ServeTransport(t Transport, h Handler) error {
	s.configure()
	c := &transportConn{transport: t}
	c.conn = conn{server: s, netConn: t, answered: &c.answers, tlsState: t.TLS()}
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

// transportConn is a connection that a Transport plays. It drives its protocol by itself, and is in no server's books.
type transportConn struct {
	conn
	transport Transport
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
	c.worker.class = &c.server.class
	err := h(ctx)
	if c.hijacked {
		return nil
	}
	c.finish(ctx, err)
	switch {
	case c.aborted:
		c.flush()
		return ErrAbort
	case c.failed:
		return ErrClientGone
	}
	return c.flush()
}

// enter implements looped: the handler has a goroutine for itself.
func (c *transportConn) enter(*Class) (inline bool, err error) { return false, nil }

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

// Inherit gives the request the path parameters, the route, the values and the limit for bodies of another one, and takes over
// from it whether an error was rendered. It is for adaptors that run a part of a chain of handlers with a Ctx of its own, and
// afterwards let the outer one inherit from that in turn. The inner one is over then, and is used for another request: no value
// that was stored by Set may hold a Ctx.
func (c *Ctx) Inherit(from *Ctx) {
	c.check()
	c.params.names = from.params.names
	c.params.values = c.params.values[:0]
	for _, value := range from.params.values {
		c.params.values = append(c.params.values, append([]byte(nil), value...))
	}
	c.route, c.rendered = from.route, from.rendered
	c.Request.body.limit = from.Request.body.limit
	clear(c.values)
	c.values = append(c.values[:0], from.values...)
}
