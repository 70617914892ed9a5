// Package linger closes connections so that the answer before the end arrives: it ends the sending side, and goes on reading
// for a moment. It also has the other ways in which a connection ends: an owner's, anybody's, and a reset.
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
	// Longest is how long a connection lingers at most.
	Longest = time.Second
	// maxConns is how many connections of a group may linger at once; further ones are closed at once.
	maxConns = 4096
	// maxHandshakes is how many of them may be TLS connections that still need their handshake for a refusal: under
	// overload handshakes are the last thing to spend the processor on.
	maxHandshakes = 64
	// maxBytes is how much is read from one meanwhile.
	maxBytes = 64 << 20
)

// Group closes connections whose client may still be sending when it has been answered. To close at once would
// make the system send a reset for the bytes that nobody reads, and a reset may destroy the answer before the client has
// read it (RFC 9112, section 9.6): so the sending side is closed first, and what comes is thrown away for a moment.
//
// It also writes the answers to refused connections, so that a client that doesn't read holds up nobody. The zero value is ready
// for use.
type Group struct {
	mu      sync.Mutex
	conns   map[*net.Conn]bool // which need not be comparable themselves; guarded by mu
	secure  int                // TLS connections among those with an answer to write; guarded by mu
	closed  bool               // no more is taken over; guarded by mu
	running sync.WaitGroup
}

// TakeOver writes answer, if there is one, and closes the connection after a while. It reports false if too many linger, or the
// group is closed: then the connection is the caller's to close.
func (g *Group) TakeOver(netConn net.Conn, answer []byte) bool {
	tlsConn, secure := netConn.(*tls.Conn)
	secure = secure && answer != nil && !tlsConn.ConnectionState().HandshakeComplete
	netConn.SetDeadline(time.Time{}) // one that has woken the owner, as ParkedConn.End does, would end the lingering at once
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
		finish(netConn, answer)
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

// finish sends the answer and the end, and throws away what comes.
func finish(netConn net.Conn, answer []byte) {
	if len(answer) > 0 {
		if _, err := netConn.Write(answer); err != nil {
			return
		}
	} else if tlsConn, ok := netConn.(*tls.Conn); ok && !tlsConn.ConnectionState().HandshakeComplete {
		netConn = tlsConn.NetConn() // it was answered in plain text
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

// Wait takes nothing over any more, and waits until nothing lingers. It is over in Longest, or when ctx is.
func (g *Group) Wait(ctx context.Context) {
	g.mu.Lock()
	g.closed = true // nothing more may come while we wait
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

// Close ends the lingering and waits until that is done. Nothing is taken over any more.
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
