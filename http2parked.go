package filo

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/filohttp/filo/internal/http2conn"
)

// This file has HTTP/2 streams that a handler takes over: the handler parks them, or switches them to another protocol (extended CONNECT).

// park answers with the response's head, or switches protocols, and parks the stream.
func (s *http2Exchange) park(ctx *Ctx, serve func(*ParkedConn, Wake) error, switches bool) (*ParkedConn, error) {
	var err error
	if switches {
		_, err = s.prepareHijack(true)
	} else {
		err = ctx.maySucceed()
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.claimAnswer(); err != nil {
		return nil, err
	}
	if reason := s.server.conns.addStream(); reason != nil {
		return nil, reason
	}
	ctx.endWatch()
	stream := (*http2conn.StreamConn)(s.Stream)
	p := &ParkedConn{conn: s.conn, netConn: stream, serve: serve}
	if s.scratch.place != nil {
		p.place = s.server.pool.places.NewPlace()
	}
	p.out.Open((*parkedOwner)(p), stream, nil, switches)
	p.out.OnStream()
	if switches {
		ctx.switchProtocols()
	} else {
		s.head(ctx, noLength)
		s.count(ctx.Response.status)
	}
	if err := s.Park(&p.out); err != nil {
		s.server.conns.removeStream()
		return nil, s.sent(err)
	}
	ctx.Request.body.hijacked()
	s.hijacked = true
	s.h.Flush()
	return p, nil
}

// parkedStream serves a parked stream of HTTP/2: see http2conn.StreamConn.
type parkedStream struct{ *ParkedConn }

func (d parkedStream) stream() *http2conn.StreamConn { return d.netConn.(*http2conn.StreamConn) }

// Serve implements http2conn.Parked.
func (p *parkedOwner) Serve() { (*ParkedConn)(p).serveBy(parkedStream{(*ParkedConn)(p)}) }

// next implements parkable.
func (d parkedStream) next(int) (parkedStep, Wake) {
	closed, gone, came := d.stream().State()
	if gone {
		d.out.Fail(net.ErrClosed)
	}
	why, due := d.reason(came)
	switch {
	case closed:
		return parkedLost, 0
	case due:
		return parkedCall, why
	}
	return parkedWait, 0
}

// reason returns the reason to call the function. If there is none, due is false. A stream that is ending waits only for its outbox to be
// sent.
func (d parkedStream) reason(came bool) (why Wake, due bool) {
	s, deadline := d.conn.server, d.ParkedConn.wait
	switch {
	case d.ending:
		return 0, false
	case d.asked.Load(), s.life.Draining.Load():
		return WakeShutdown, true
	case came:
		return WakeData, true
	}
	return WakeDeadline, deadline != 0 && s.clock.Exact() >= deadline
}

// enter implements parkable. If no place is free, the stream waits for one without a goroutine. It isn't at rest then, so no event makes a goroutine
// serve it before placeLater does.
func (d parkedStream) enter() bool {
	entered := d.takePlace()
	if !entered {
		d.placeLater((*parkedOwner)(d.ParkedConn).Serve)
	}
	return entered
}

// wait implements parkable: the stream waits without a goroutine.
func (d parkedStream) wait() (left bool) {
	if _, due := d.reason(false); due {
		return false
	}
	if deadline := d.ParkedConn.wait; deadline != 0 {
		wait := max(deadline.Sub(d.conn.server.clock.Exact()), 0)
		if d.timer == nil {
			d.timer = time.AfterFunc(wait, d.stream().Wake)
		} else {
			d.timer.Reset(wait)
		}
	}
	return d.stream().Rest(d.ending)
}

// end implements parkable.
func (d parkedStream) end() {
	whole := d.ending && d.out.AllSent()
	defer d.endStream(whole) // deferred, since the function given to OnClose may end the goroutine
	if whole {
		d.over()
	}
}

// endStream ends the stream: properly if all of its body was sent (whole), otherwise by a reset.
func (d parkedStream) endStream(whole bool) {
	defer d.conn.server.conns.removeStream()
	d.out.Fail(net.ErrClosed)
	d.stream().EndParked(whole)
	if d.timer != nil {
		d.timer.Stop()
	}
	d.over()
}

// errNotSwitched refuses a request by extended CONNECT that no handler has switched. The client would take any 2xx answer for the beginning
// of its protocol.
var errNotSwitched = &HTTPError{Status: 501, Detail: "doesn't switch to the protocol that was asked for",
	Err: errors.New("filo: a request by extended CONNECT has a successful answer only from Ctx.Upgrade or Ctx.Park")}

// errNoHijack is the error of a handler that tries to take over its HTTP/2 connection, unless the request is an extended CONNECT.
var errNoHijack = &HTTPError{Status: 501, Detail: "needs HTTP/1.1",
	Err: fmt.Errorf("filo: a connection of HTTP/2 carries many requests, and can't be taken over for one: %w", errors.ErrUnsupported)}

// maySucceed returns an error if the answer's status would tell the client that the protocol is switched. It is called before a head is
// sent.
func (c *Ctx) maySucceed() error {
	if c.Request.extended && c.Response.status/100 == 2 {
		return errNotSwitched
	}
	return nil
}

// prepareHijack implements wire. The handler may wait for the client from now on, so its worker must give the connection away.
func (s *http2Exchange) prepareHijack(switches bool) (prepared net.Conn, err error) {
	if !switches || !s.Extended {
		return nil, errNoHijack
	}
	return nil, s.leave()
}

// switchProtocols implements wire.
func (s *http2Exchange) switchProtocols(header *Header) {
	header.Del("Sec-WebSocket-Accept") // RFC 8441, section 5: the field isn't used over HTTP/2
	ctx := s.scratch.ctx
	ctx.Response.status = 200
	s.head(ctx, noLength)
}

// hijack implements wire.
func (s *http2Exchange) hijack(net.Conn) (taken net.Conn, buffered []byte, err error) {
	tunnel, err := s.Take()
	if err != nil {
		return nil, nil, s.sent(err)
	}
	s.hijacked = true
	s.scratch.running.End()
	s.h.Flush()
	return tunnel, nil, nil
}
