// Package linger closes connections without losing the last answer: it ends the sending side, and goes on reading for a moment. It also
// has the other ways to end a connection: by its owner, by anybody, and by a reset.
package linger

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/lend"
)

const (
	// Longest is the longest time for which a connection lingers.
	Longest = time.Second
	// maxConns is how many connections of a group may linger at once. Further ones are closed at once.
	maxConns = 4096
	// maxHandshakes is how many of them may be TLS connections that need a handshake before their refusal. Under overload, handshakes are
	// the last thing to spend processor time on.
	maxHandshakes = 64
	// maxBytes is how much is read from a lingering connection.
	maxBytes = 64 << 20
)

// Group closes connections whose client may still be sending after its answer. If they were closed at once, the system would answer the
// unread bytes by a reset, and a reset may destroy the answer before the client has read it (RFC 9112, section 9.6). So the group first
// ends the sending side, and discards input for a moment.
//
// A group also writes the answers to refused connections, so a client that doesn't read delays nobody else. The zero value is ready for
// use.
type Group struct {
	mu      sync.Mutex
	conns   map[*net.Conn]bool // by pointer, since a net.Conn need not be comparable; guarded by mu
	secure  int                // TLS connections among them that need a handshake for their answer; guarded by mu
	closed  bool               // TakeOver refuses all; guarded by mu
	running sync.WaitGroup
}

// TakeOver writes answer, if there is one, and closes the connection after a while. It reports false if too many connections linger, or
// the group is closed: then the caller must close the connection.
func (g *Group) TakeOver(netConn net.Conn, answer []byte) bool {
	return g.Refuse(netConn, answer, answer)
}

// Refuse is TakeOver with another answer for a TLS connection that has agreed on HTTP/2.
func (g *Group) Refuse(netConn net.Conn, answer, http2Answer []byte) bool {
	tlsConn, secure := netConn.(*tls.Conn)
	secure = secure && answer != nil && !tlsConn.ConnectionState().HandshakeComplete
	netConn.SetDeadline(time.Time{}) // a deadline that woke the owner, as ParkedConn.End sets, would end the lingering at once
	g.mu.Lock()
	if g.closed || len(g.conns) >= maxConns || secure && g.secure >= maxHandshakes {
		g.mu.Unlock()
		return false
	}
	if g.conns == nil {
		g.conns = make(map[*net.Conn]bool)
	}
	g.conns[&netConn] = true
	if secure {
		g.secure++
	}
	g.running.Add(1)
	g.mu.Unlock()
	go func() {
		defer g.running.Done()
		end := time.AfterFunc(Longest, func() { endWaits(netConn) })
		defer end.Stop()
		finish(netConn, answer, http2Answer)
		g.mu.Lock()
		delete(g.conns, &netConn)
		if secure {
			g.secure--
		}
		g.mu.Unlock()
		Close(netConn)
	}()
	return true
}

// finish sends the answer, ends the sending side, and discards input.
func finish(netConn net.Conn, answer, http2Answer []byte) {
	if len(answer) > 0 {
		if tlsConn, ok := netConn.(*tls.Conn); ok && tlsConn.Handshake() == nil && tlsConn.ConnectionState().NegotiatedProtocol == "h2" {
			answer = http2Answer
		}
		if _, err := netConn.Write(answer); err != nil {
			return
		}
	} else if tlsConn, ok := netConn.(*tls.Conn); ok && !tlsConn.ConnectionState().HandshakeComplete {
		netConn = tlsConn.NetConn() // the refusal was sent in plain text
	}
	half, ok := netConn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	buffer := lend.NewCopyBuffer()
	defer buffer.Release()
	for received := 0; received < maxBytes; {
		n, err := netConn.Read(buffer[:])
		received += n
		if err != nil {
			return
		}
	}
}

// Wait makes TakeOver refuse, and waits until no connection lingers, at most for Longest. If ctx ends first, it ends the lingering.
func (g *Group) Wait(ctx context.Context) {
	g.mu.Lock()
	g.closed = true // from here on no connection is added
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		g.Close()
	}
}

// Close makes TakeOver refuse, ends the lingering, and waits until it has ended.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	lingering := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, netConn := range lingering {
		endWaits(*netConn)
	}
	g.running.Wait()
}
