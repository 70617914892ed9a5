package filo

import (
	"bytes"
	"errors"
	"net"
	"time"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
)

// Hijack takes the connection over from the server, which no longer reads, writes or closes it. It returns the connection, without a
// deadline, and the bytes already received after the request's head, which must be read first. The connection is a *net.TCPConn,
// *net.UnixConn or *tls.Conn if the server accepted one; with Server.ProxyProtocol and without TLS it has another type. The response is
// dropped; answers to earlier pipelined requests are written first. The handler may use the connection itself, or pass it to another
// goroutine and return.
//
// Over HTTP/2 the error is an HTTPError with status 501: the connection carries other requests.
//
// In the blocking driver the connection counts against Concurrency until the handler returns.
func (c *Ctx) Hijack() (conn net.Conn, buffered []byte, err error) {
	c.check()
	if err := c.mayTakeOver(); err != nil {
		return nil, nil, err
	}
	prepared, err := c.prepareHijack(false)
	if err != nil {
		return nil, nil, err
	}
	return c.hijack(prepared)
}

// Upgrade switches the connection to another protocol: it answers 101 (Switching Protocols) with Upgrade and the fields of
// Response.Header, then hijacks the connection. The protocol is a name as in RFC 9110, section 7.8, such as "websocket". If the
// client didn't ask for that protocol, Upgrade returns an HTTPError with status 426 (Upgrade Required). If the handler hasn't read all of an
// HTTP/1.1 request's body, the status is 400.
//
// Over HTTP/2 a client asks by extended CONNECT, if Server.HTTP2 allows that. Then the answer's status is 200 on the wire, and the
// connection is the request's stream, which also has a method CloseWrite. Shutdown waits for the stream's end.
func (c *Ctx) Upgrade(protocol string) (conn net.Conn, buffered []byte, err error) {
	c.check()
	if err := c.mayTakeOver(); err != nil {
		return nil, nil, err
	}
	if err := c.agreeOn(protocol); err != nil {
		return nil, nil, err
	}
	return c.upgrade()
}

// mayTakeOver returns an error if the connection can't be taken over any more.
func (c *Ctx) mayTakeOver() error {
	switch {
	case c.exchange.hijacked:
		return ErrHijacked
	case c.stream.sent:
		return ErrHeadSent
	case c.returned:
		return errHandlerReturned
	case c.exchange.failed:
		return net.ErrClosed
	}
	return nil
}

// maySwitch returns an error if the connection can't be switched to another protocol: it can't be taken over, or a part of an HTTP/1.1
// request's body is unread, whose bytes would become bytes of the new protocol.
func (c *Ctx) maySwitch() error {
	if err := c.mayTakeOver(); err != nil {
		return err
	}
	if !c.Request.http2 && c.Request.major == 0 && !c.Request.body.complete() {
		return Error(400, "the request's body comes before the switch to another protocol")
	}
	return nil
}

var errHandlerReturned = errors.New("filo: only a handler takes the connection over, while it runs: the ErrorHandler answers")

// upgrade does the rest of Upgrade after agreeOn: the response already has the fields for the protocol. See inside.Upgrade.
func (c *Ctx) upgrade() (conn net.Conn, buffered []byte, err error) {
	c.check()
	if err := c.maySwitch(); err != nil {
		return nil, nil, err
	}
	c.Response.announceHead()
	prepared, err := c.prepareHijack(true) // before the 101, after which no other answer is possible
	if err != nil {
		return nil, nil, err
	}
	c.switchProtocols()
	return c.hijack(prepared)
}

// Hijacked reports whether the handler has taken the connection over, by Hijack, Upgrade, Park or ParkStream.
func (c *Ctx) Hijacked() bool { c.check(); return c.exchange.hijacked }

// agreeOn makes sure that the client has asked for the protocol, and sets the fields of the answer.
func (c *Ctx) agreeOn(protocol string) error {
	h := &c.Response.Header
	h.list.SetID(field.Upgrade, protocol)
	h.list.SetID(field.Connection, "Upgrade")
	// The Upgrade field of an HTTP/1.0 request is ignored. An Upgrade field that Connection doesn't list is ignored too, since it wasn't meant
	// for this server.
	request := &c.Request.Header
	if c.Request.line.Minor == 0 || !request.list.HasToken(field.Connection, "upgrade") || !request.list.HasToken(field.Upgrade, protocol) {
		return Error(426, "the client must ask for an upgrade to "+protocol)
	}
	return nil
}

// switchProtocols renders the 101.
func (c *Ctx) switchProtocols() {
	c.exchange.wire.switchProtocols(&c.Response.Header)
	c.Response.status = 101 // so that middleware sees the status
	c.exchange.count(101)
}

// switchProtocols implements wire.
func (c *conn) switchProtocols(h *Header) { c.out = http1.AppendInterim(c.out, 101, &h.list) }

// prepareHijack makes sure that the connection can be taken over, and claims the answer. If it fails, the request can still be
// answered.
func (c *Ctx) prepareHijack(switches bool) (prepared net.Conn, err error) {
	if prepared, err = c.exchange.wire.prepareHijack(switches); err != nil {
		return nil, err
	}
	if err := c.claimAnswer(); err != nil {
		closePrepared(prepared)
		return nil, err
	}
	return prepared, nil
}

// prepareHijack implements wire.
func (c *conn) prepareHijack(bool) (prepared net.Conn, err error) { return c.driver.prepareHijack() }

// closePrepared closes the result of prepareHijack if the connection isn't taken over after all.
func closePrepared(prepared net.Conn) {
	if prepared != nil {
		prepared.Close()
	}
}

func (c *Ctx) hijack(prepared net.Conn) (net.Conn, []byte, error) {
	c.endWatch()
	taken, buffered, err := c.exchange.wire.hijack(prepared)
	if err != nil {
		closePrepared(prepared)
		return nil, nil, err
	}
	c.Request.body.hijacked()
	taken.SetDeadline(time.Time{})
	return taken, buffered, nil
}

// hijack implements wire.
func (c *conn) hijack(prepared net.Conn) (taken net.Conn, buffered []byte, err error) {
	if err = c.flush(); err != nil {
		return nil, nil, err
	}
	if taken, err = c.driver.hijack(prepared); err != nil {
		return nil, nil, err
	}
	buffered = bytes.Clone(c.in.Unread())
	c.in.Advance(len(buffered))
	c.hijacked = true
	c.server.connHijacked(c)
	return taken, buffered, nil
}
