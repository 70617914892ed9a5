//go:build !386

package filo

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/proxyproto"
)

// handshakeTurn makes the TLS handshake, if there is one to make, as an ordinary worker. It reports false if the connection isn't served
// in this turn: it has ended, or waits for its hello or for its place in the queue.
func (lc *loopConn) handshakeTurn() bool {
	if _, ok := lc.netConn.(*tls.Conn); !ok {
		return true
	}
	s := lc.server
	if lc.headSince == 0 {
		lc.headSince = s.clock.now()
	}
	for lc.mayHandshake() && !lc.helloCame() {
		if lc.suspend(stateNew) {
			return false
		}
	}
	if lc.mayHandshake() {
		begun, crowded := s.handshakes.begin(lc)
		if !begun {
			return false
		}
		defer s.handshakes.done()
		if lc.worker.worker.LeaveWithoutPlace(); s.handshake(&lc.conn, crowded) {
			lc.headSince, lc.since = 0, 0
			return true
		}
	}
	if lc.expired && !lc.linger && !lc.shed {
		s.counts.timeouts.handshake.Add(1)
	}
	lc.failed = !lc.linger // unless it was answered in plain text
	lc.NoWaitWrite = true
	lc.end()
	s.handshakes.goOn() // this turn may have been the queue's, and the next connection is due
	return false
}

// mayHandshake reports whether the client is still there, and has time for the handshake.
func (lc *loopConn) mayHandshake() bool {
	return !lc.failed && !lc.expired && lc.reading == readingHead
}

// helloCame reports whether the first record has arrived completely, or isn't a client's hello. A client that sends only a part of its
// hello must not hold a worker.
func (lc *loopConn) helloCame() bool {
	const header, handshakeRecord = 5, 22
	if half, _ := lc.SawEnd(); half {
		return true // nothing more will come
	}
	space := lc.in.Space()
	n, err := lc.Peek(space)
	switch {
	case err == loop.ErrNotYet:
		return false
	case err != nil, n == 0, n == len(space), space[0] != handshakeRecord:
		return true
	}
	return n >= header && n >= header+int(binary.BigEndian.Uint16(space[header-2:]))
}

// handshakeQueue limits how many TLS handshakes run at once. Other connections wait in the order of their arrival.
type handshakeQueue struct {
	mu      sync.Mutex
	most    int         // 0 is maxHandshakes; immutable
	running int         // guarded by mu
	waiting []*loopConn // claimed; guarded by mu
}

// maxHandshakes is how many TLS handshakes run at once. Most of them wait for their client, and each needs a worker meanwhile.
const maxHandshakes = 1024

// begin reports whether the connection's handshake may begin, and whether so many run that it must be short. If it may not begin, the
// caller no longer owns the connection, which gets another turn later.
func (q *handshakeQueue) begin(lc *loopConn) (begun, crowded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.limit()
	if q.running >= most {
		lc.detachTurn()
		q.waiting = append(q.waiting, lc)
		return false, true
	}
	q.running++
	return true, q.running > most/2
}

func (q *handshakeQueue) limit() int {
	if q.most > 0 {
		return q.most
	}
	return maxHandshakes
}

// done ends a handshake, and makes room for the next one.
func (q *handshakeQueue) done() {
	q.mu.Lock()
	q.running--
	q.mu.Unlock()
	q.goOn()
}

// goOn gives the next waiting connection its turn, if there is room.
func (q *handshakeQueue) goOn() {
	q.mu.Lock()
	var next *loopConn
	if len(q.waiting) > 0 && q.running < q.limit() {
		next = q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
	}
	q.mu.Unlock()
	if next != nil {
		next.Post()
	}
}

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
