// Package linger closes connections without losing the last answer: it shuts down the sending side, and continues to read for a moment. It also has
// the other ways to end a connection: Close for the owner, Cut for any goroutine, and ResetOnClose.
package linger

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

const (
	// Longest is how long a connection lingers if its client sends nothing. It is also how long a shutdown waits for lingering connections.
	Longest = time.Second
	// longestSending is the maximum time that a connection lingers while its client continues to send.
	longestSending = 10 * time.Second
	// maxConns is how many connections of a group may linger at once, unless SetLimit sets fewer. If there are that many, a further connection
	// replaces the one that has lingered for the longest time, if that time is at least Longest. Otherwise the further connection is refused.
	maxConns = 4096
	// maxHandshakes is how many of the lingering connections may be TLS connections that need a handshake before the refusal can be sent. Handshakes
	// cost too much processor time under overload to allow more.
	maxHandshakes = 64
	// maxBytes is the maximum number of bytes read from a lingering connection.
	maxBytes = 64 << 20
)

// Group closes connections whose client may still be sending after its answer. If a connection were closed at once, the kernel would answer the
// unread bytes with a reset, and the reset may destroy the answer before the client has read it (RFC 9112, section 9.6). So the group first shuts
// down the sending side, and discards input for a moment.
//
// A group also writes the answers to refused connections, on its own goroutines. So a client that doesn't read delays no other client. The zero value
// is ready for use.
type Group struct {
	mu      sync.Mutex
	limit   int       // see SetLimit; 0 means maxConns; guarded by mu
	conns   list.List // of *lingering, the oldest first; guarded by mu
	secure  int       // how many of the connections need a TLS handshake for their answer; guarded by mu
	closed  bool      // TakeOver refuses all connections; guarded by mu
	running sync.WaitGroup
}

// lingering is a connection that lingers.
type lingering struct {
	net.Conn
	since time.Time
}

// SetLimit limits how many connections may linger at once, to n or maxConns, whichever is less. Call it before the first connection lingers.
func (g *Group) SetLimit(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = min(n, maxConns)
}

// EndOldest ends the wait of the connection that has lingered longest, since the caller needs its descriptor. It reports false if none lingers.
func (g *Group) EndOldest() bool {
	g.mu.Lock()
	first := g.conns.Front()
	if first != nil {
		g.conns.Remove(first)
	}
	g.mu.Unlock()
	if first == nil {
		return false
	}
	endWaits(first.Value.(*lingering).Conn)
	return true
}

// TakeOver writes answer, if it isn't empty, and closes the connection after a while. If too many connections linger, or the group is closed,
// TakeOver does nothing and reports false. Then the caller must close the connection.
func (g *Group) TakeOver(netConn net.Conn, answer []byte) bool {
	return g.Refuse(netConn, answer, answer)
}

// Refuse is TakeOver with a separate answer for a TLS connection that has negotiated HTTP/2. On other connections the answer is sent only after the
// first byte of a request. If none arrives within Longest, the connection is closed without an answer.
func (g *Group) Refuse(netConn net.Conn, answer, http2Answer []byte) bool {
	tlsConn, secure := netConn.(*tls.Conn)
	secure = secure && answer != nil && !tlsConn.ConnectionState().HandshakeComplete
	netConn.SetDeadline(time.Time{}) // a deadline that was set to wake the owner, as ParkedConn.End does, would end the lingering at once
	entry, oldest := g.add(netConn, secure)
	if entry == nil {
		return false
	}
	if oldest != nil {
		endWaits(oldest)
	}
	go func() {
		defer g.running.Done()
		end := time.AfterFunc(Longest, func() { endWaits(netConn) })
		defer end.Stop()
		finish(netConn, answer, http2Answer, end)
		g.mu.Lock()
		g.conns.Remove(entry) // does nothing if another connection has replaced this one
		if secure {
			g.secure--
		}
		g.mu.Unlock()
		Close(netConn)
	}()
	return true
}

// add adds a connection to the group. It returns a nil entry if there is no room. If the connection replaces another one, add returns the replaced
// connection as oldest, and the caller must end its waits.
func (g *Group) add(netConn net.Conn, secure bool) (entry *list.Element, oldest net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch {
	case g.closed || secure && g.secure >= maxHandshakes:
		return nil, nil
	case g.conns.Len() >= cmp.Or(g.limit, maxConns):
		first := g.conns.Front().Value.(*lingering)
		if now.Sub(first.since) < Longest {
			return nil, nil
		}
		oldest = first.Conn
		g.conns.Remove(g.conns.Front())
	}
	if secure {
		g.secure++
	}
	g.running.Add(1)
	return g.conns.PushBack(&lingering{netConn, now}), oldest
}

// discardSize is the size of the buffer of a lingering connection. It is small, since its content is discarded.
const discardSize = 4 << 10

var discarded = sync.Pool{New: func() any { return new([discardSize]byte) }}

// finish sends the answer, shuts down the sending side, and discards input. While input arrives, finish resets end, the timer that ends the wait.
// A client of HTTP/1.1 gets the answer only after it has begun to send a request. An answer before a request would belong to no request (RFC
// 9112, section 9.2). A client that has opened the connection in advance would take such an answer for the answer to its next request, and that
// request would fail.
func finish(netConn net.Conn, answer, http2Answer []byte, end *time.Timer) {
	last := time.Now().Add(longestSending)
	buffer := discarded.Get().(*[discardSize]byte)
	defer discarded.Put(buffer)
	received := 0
	discard := func() bool {
		n, err := netConn.Read(buffer[:])
		received += n
		left := min(time.Until(last), Longest)
		if err != nil || left <= 0 || !end.Stop() {
			return false
		}
		end.Reset(left)
		return true
	}
	if len(answer) > 0 {
		tlsConn, ok := netConn.(*tls.Conn)
		if ok && tlsConn.Handshake() == nil && tlsConn.ConnectionState().NegotiatedProtocol == "h2" {
			answer = http2Answer
		} else if discard(); received == 0 {
			return
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
	for received < maxBytes && discard() {
	}
}

// Wait makes TakeOver refuse, and waits until no connection lingers. After Longest, or when ctx ends, it closes the connections that still linger.
func (g *Group) Wait(ctx context.Context) {
	g.mu.Lock()
	g.closed = true // from here on no connection is added
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	longest := time.NewTimer(Longest)
	defer longest.Stop()
	select {
	case <-done:
		return
	case <-longest.C:
	case <-ctx.Done():
	}
	g.Close()
}

// Close makes TakeOver refuse, ends the waits of all lingering connections, and waits until they are closed.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	var conns []net.Conn
	for e := g.conns.Front(); e != nil; e = e.Next() {
		conns = append(conns, e.Value.(*lingering).Conn)
	}
	g.mu.Unlock()
	for _, netConn := range conns {
		endWaits(netConn)
	}
	g.running.Wait()
}
