//go:build linux

package filo

import (
	"crypto/tls"
	"errors"
	"net"
	"runtime"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/handshakes"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/proxyproto"
)

// handshakeTurn performs the TLS handshake, if the connection uses TLS. For the handshake the worker becomes an ordinary one, which leads
// no loop. handshakeTurn reports false if the connection isn't served in this turn: it has ended, or waits without a worker.
func (lc *loopConn) handshakeTurn() bool {
	if _, ok := lc.netConn.(*tls.Conn); !ok {
		return true
	}
	s := lc.server
	if lc.headSince == 0 {
		lc.headSince = s.clock.Now()
	}
	for lc.mayHandshake() || lc.helloInTime() {
		if lc.mayBegin() && lc.completeHandshake() {
			lc.woken, lc.headSince, lc.since = wokenInTime, 0, 0
			return true
		}
		if !lc.mayAwaitHandshake() {
			break
		}
		if lc.suspend(stateNew) {
			return false
		}
	}
	if lc.handshaking {
		lc.endHandshake()
	}
	if lc.woken == wokenExpired && !lc.ousted {
		s.counts.timeouts.handshake.Add(1)
	}
	lc.failed = lc.closing != closingLinger // unless it was answered in plain text
	lc.NoWaitWrite = true
	lc.end()
	return false
}

// mayHandshake reports whether the client is still there, and has time left for the handshake.
func (lc *loopConn) mayHandshake() bool {
	return !lc.failed && lc.woken == wokenInTime && lc.reading == readingHead
}

// helloInTime reports whether the hello has arrived, although the time has run out. That happens if the hello arrived while the process was
// paused. A handshake that has begun, or is queued, isn't given more time.
func (lc *loopConn) helloInTime() bool {
	return !lc.failed && !lc.handshaking && !lc.ousted && lc.woken != wokenShed && lc.reading == readingHead && lc.helloCame()
}

// mayBegin reports whether the handshake may begin. If not, the connection gets another turn when more of the hello arrives, or when the
// queue of handshakes reaches it.
func (lc *loopConn) mayBegin() bool {
	if lc.ousted || !lc.handshaking && !lc.helloCame() {
		return false
	}
	lc.handshaking = true
	return lc.server.handshakes.Begin(lc, census.Of(lc.RemoteAddr()))
}

// endHandshake takes the handshake out of the queue. It reports whether the handshake was ousted.
func (lc *loopConn) endHandshake() (ousted bool) {
	lc.handshaking = false
	return lc.server.handshakes.End(lc)
}

// completeHandshake continues a handshake to its end. It reports false if the handshake has failed, or was ousted.
func (lc *loopConn) completeHandshake() (complete bool) {
	defer func() {
		ousted := lc.endHandshake()
		lc.ousted = ousted && !complete
		lc.failed = !complete && !ousted
	}()
	lc.scratch.worker.LeaveFor(nil, admit.None.Only())
	runtime.Gosched() // the next leader goes first: otherwise all connections of the loop would wait until this handshake has computed
	return lc.server.handshake(&lc.conn)
}

// mayAwaitHandshake reports whether the connection may wait, for its hello or until the handshake may begin. A connection whose handshake
// was ousted stays open until its time has run out, although its handshake can't continue: if it were closed immediately, an attacker would
// replace it at once. An honest client that was too slow gets a reset when it sends its next bytes.
func (lc *loopConn) mayAwaitHandshake() bool {
	if half, _ := lc.SawEnd(); half || lc.failed {
		return false
	}
	if !lc.ousted {
		return true
	}
	return lc.IsSilent() && !lc.server.life.Draining.Load() && lc.server.config.readHeaderTimeout > 0
}

// IsSilent implements handshakes.Conn.
func (lc *loopConn) IsSilent() bool {
	var next [1]byte
	_, err := lc.Peek(next[:])
	return err == loop.ErrNotYet
}

// helloCame reports whether the client's hello has arrived completely, or the client has sent something else. A client that sends only a
// part of its hello must not hold a worker.
func (lc *loopConn) helloCame() bool {
	if half, _ := lc.SawEnd(); half {
		return true // no further bytes will arrive
	}
	buffer := lend.NewCopyBuffer()
	defer buffer.Release()
	n, err := lc.Peek(buffer[:])
	if errors.Is(err, loop.ErrNotYet) {
		return false
	}
	most := len(buffer) // the system might not buffer more
	if size := lc.server.SocketOptions.ReadBuffer; size > 0 {
		most = min(most, size/2)
	}
	return err != nil || n == 0 || n >= most || handshakes.IsWholeHello(buffer[:n])
}

// proxyTurn reads the connection's header of the PROXY protocol, and nothing that follows it. It reports false if the connection isn't served
// in this turn: it has ended, or waits for the rest of its header without a worker.
func (lc *loopConn) proxyTurn() bool {
	s := lc.server
	if lc.headSince == 0 {
		lc.headSince = s.clock.Now()
	}
	size, some, err := lc.receiveProxyHeader()
	for err == nil && size == 0 {
		switch {
		case lc.mayHandshake():
			if lc.suspend(stateNew) {
				return false
			}
			size, some, err = lc.receiveProxyHeader()
		case lc.woken == wokenExpired && some:
			err = proxyproto.ErrSlow
		default:
			err, some = net.ErrClosed, false // the server shuts down, or nothing has arrived
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
	lc.awaitsProxy, lc.woken, lc.headSince, lc.since = false, wokenInTime, 0, 0
	if reason := s.conns.countAddress(&lc.conn); reason != nil {
		lc.detachTurn()
		lc.endConnBy(func() { s.refuseConn(lc.netConn, lc.remote(), reason) })
		return false
	}
	return true
}

// receiveProxyHeader consumes the header if it has arrived completely, and returns its size; 0 if it hasn't. The result some says that at
// least a part of the header has arrived.
func (lc *loopConn) receiveProxyHeader() (size int, some bool, err error) {
	if lc.failed {
		return 0, false, nil
	}
	half, _ := lc.SawEnd() // called before Peek, so that Peek sees all bytes before the end of the input
	space := lc.in.Space()
	n, err := lc.Peek(space)
	switch {
	case errors.Is(err, loop.ErrNotYet):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case n == 0:
		return 0, false, proxyproto.ErrCut
	}
	h, size, err := proxyproto.Parse(space[:n])
	switch {
	case err != nil:
		return 0, true, err
	case size == 0 && half:
		return 0, true, proxyproto.ErrCut
	case size == 0:
		return 0, true, nil
	}
	lc.told.Store(h)
	_, err = lc.Socket.TryRead(space[:size])
	return size, true, err
}

// ProxyHeader implements proxied.
func (lc *loopConn) ProxyHeader() *proxyproto.Header { return lc.told.Load() }

// RemoteAddr implements net.Conn. It returns the client's address: the one in the header of the PROXY protocol, if there is one.
func (lc *loopConn) RemoteAddr() net.Addr {
	if h := lc.told.Load(); h != nil {
		return proxyproto.ToldAddr(h.Source(), lc.Socket.RemoteAddr)
	}
	return lc.Socket.RemoteAddr()
}

// LocalAddr implements net.Conn.
func (lc *loopConn) LocalAddr() net.Addr {
	if h := lc.told.Load(); h != nil {
		return proxyproto.ToldAddr(h.Destination(), lc.Socket.LocalAddr)
	}
	return lc.Socket.LocalAddr()
}
