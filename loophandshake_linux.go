//go:build !386

package filo

import (
	"crypto/tls"
	"encoding/binary"
	"sync"

	"github.com/filohttp/filo/internal/loop"
)

// handshakeTurn makes the TLS handshake, if there is one to make, as an ordinary worker. It reports false if the connection
// isn't to be served, or has to wait for its turn.
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
	lc.failed = !lc.linger // unless it was answered in plain text
	lc.NoWaitWrite = true
	lc.end()
	s.handshakes.goOn() // its turn may have been that of the next one in the queue
	return false
}

// mayHandshake reports whether there is still a client, and time, for the handshake.
func (lc *loopConn) mayHandshake() bool {
	return !lc.failed && !lc.expired && lc.reading == readingHead
}

// helloCame reports whether the first record, the client's hello, has all come, or is none: a client that sends a byte of it
// and no more isn't to hold a worker.
func (lc *loopConn) helloCame() bool {
	const header, handshakeRecord = 5, 22
	if half, _ := lc.SawEnd(); half {
		return true // nothing more will
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

// handshakeQueue bounds how many TLS handshakes are made at once. Others wait, in the order that they came in.
type handshakeQueue struct {
	mu      sync.Mutex
	most    int         // 0 is maxHandshakes; immutable
	running int         // guarded by mu
	waiting []*loopConn // claimed; guarded by mu
}

// maxHandshakes is how many TLS handshakes are made at once. Most wait for their client, and each takes a worker for that.
const maxHandshakes = 1024

// begin reports whether the connection's handshake may begin, and whether there are so many that it must be short. If it may
// not, the connection isn't the caller's any more, and gets another turn later.
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

// done makes room for the next one.
func (q *handshakeQueue) done() {
	q.mu.Lock()
	q.running--
	q.mu.Unlock()
	q.goOn()
}

// goOn gives the next one its turn, if there is room.
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
