//go:build !386

package filo

import (
	"errors"
	"net"

	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/proxyproto"
)

// proxyTurn reads the connection's header of the PROXY protocol, and nothing that follows it. It reports false if the connection isn't served
// in this turn: it has ended, or waits for the rest of its header without a worker.
func (lc *loopConn) proxyTurn() bool {
	s := lc.server
	if lc.headSince == 0 {
		lc.headSince = s.clock.now()
	}
	size, some, err := lc.receiveProxyHeader()
	for err == nil && size == 0 {
		switch {
		case lc.mayHandshake():
			if lc.suspend(stateNew) {
				return false
			}
			size, some, err = lc.receiveProxyHeader()
		case lc.expired && some && !lc.shed:
			err = errSlowHeader
		default:
			err, some = net.ErrClosed, false // the server shuts down, or nothing has come
		}
	}
	if err != nil {
		if some {
			s.refuseProxied(lc.Peer.AddrPort(), err)
		}
		lc.failed = true
		lc.NoWaitWrite = true
		lc.end()
		return false
	}
	lc.awaitsProxy, lc.headSince, lc.since = false, 0, 0
	if reason := s.conns.countAddress(&lc.conn); reason != nil {
		lc.ended = true
		lc.detachTurn()
		lc.setState(stateClosed)
		s.conns.remove(&lc.conn)
		s.changed(&lc.conn, StateClosed)
		s.refuseConn(lc.netConn, reason)
		return false
	}
	return true
}

// receiveProxyHeader takes the header if it has arrived completely, and returns its size; 0 if it hasn't. some says that a part has come.
func (lc *loopConn) receiveProxyHeader() (size int, some bool, err error) {
	if lc.failed {
		return 0, false, nil
	}
	half, _ := lc.SawEnd() // before the look, which then sees all that came
	space := lc.in.Space()
	n, err := lc.Peek(space)
	switch {
	case errors.Is(err, loop.ErrNotYet):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case n == 0:
		return 0, false, errCutHeader
	}
	h, size, err := proxyproto.Parse(space[:n])
	switch {
	case err != nil:
		return 0, true, err
	case size == 0 && half:
		return 0, true, errCutHeader
	case size == 0:
		return 0, true, nil
	}
	lc.told.Store(h)
	_, err = lc.Socket.TryRead(space[:size])
	return size, true, err
}

// proxyHeader implements proxied.
func (lc *loopConn) proxyHeader() *proxyproto.Header { return lc.told.Load() }

// RemoteAddr is net.Conn's: the client's address, as the proxy tells it if there is one.
func (lc *loopConn) RemoteAddr() net.Addr {
	if h := lc.told.Load(); h != nil {
		return toldAddr(h.Source(), lc.Socket.RemoteAddr)
	}
	return lc.Socket.RemoteAddr()
}

// LocalAddr is net.Conn's.
func (lc *loopConn) LocalAddr() net.Addr {
	if h := lc.told.Load(); h != nil {
		return toldAddr(h.Destination(), lc.Socket.LocalAddr)
	}
	return lc.Socket.LocalAddr()
}
