package filo

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
	// maxLingering is how many connections may linger at once; further ones are closed at once.
	maxLingering = 4096
	// maxLingeringTLS is how many of them may be TLS connections that still need their handshake for a refusal: under
	// overload handshakes are the last thing to spend the processor on.
	maxLingeringTLS = 64
	// lingerTime is how long one lingers at most.
	lingerTime = time.Second
	// lingerBytes is how much is read from one meanwhile.
	lingerBytes = 64 << 20
)

// lingerer closes connections whose client may still be sending when it has been answered. To close at once would
// make the system send a reset for the bytes that nobody reads, and a reset may destroy the answer before the client has
// read it (RFC 9112, section 9.6): so the sending side is closed first, and what comes is thrown away for a moment.
//
// It also writes the answers to refused connections, so that a client that doesn't read holds up nobody.
type lingerer struct {
	mu      sync.Mutex
	conns   map[*net.Conn]bool // which need not be comparable themselves; guarded by mu
	secure  int                // TLS connections among those with an answer to write; guarded by mu
	closed  bool               // no more is taken over; guarded by mu
	running sync.WaitGroup
}

// takeOver writes answer, if there is one, and closes the connection after a while. It reports false if too many linger:
// then it is the caller's to close.
func (l *lingerer) takeOver(netConn net.Conn, answer []byte) bool {
	tlsConn, secure := netConn.(*tls.Conn)
	secure = secure && answer != nil && !tlsConn.ConnectionState().HandshakeComplete
	netConn.SetDeadline(time.Time{}) // one that has woken the owner, as ParkedConn.End does, would end the lingering at once
	l.mu.Lock()
	if l.closed || len(l.conns) >= maxLingering || secure && l.secure >= maxLingeringTLS {
		l.mu.Unlock()
		return false
	}
	if l.conns == nil {
		l.conns = make(map[*net.Conn]bool)
	}
	l.conns[&netConn] = true
	if secure {
		l.secure++
	}
	l.running.Add(1)
	l.mu.Unlock()
	go func() {
		defer l.running.Done()
		end := time.AfterFunc(lingerTime, func() { endWaits(netConn) })
		defer end.Stop()
		linger(netConn, answer)
		l.mu.Lock()
		delete(l.conns, &netConn)
		if secure {
			l.secure--
		}
		l.mu.Unlock()
		closeConn(netConn)
	}()
	return true
}

// closeConn closes a connection for its owner. TLS alone would wait five seconds to say goodbye to a client that doesn't read.
func closeConn(netConn net.Conn) error {
	tlsConn, secure := netConn.(*tls.Conn)
	if !secure {
		return closeTransport(netConn)
	}
	end := time.AfterFunc(lingerTime, func() { endWaits(netConn) })
	defer end.Stop()
	err := netConn.Close()
	closeTransport(tlsConn.NetConn())
	return err
}

// closeTransport closes what carries a connection, for the owner: the Close of one in a loop is for everybody, and leaves the
// descriptor open.
func closeTransport(netConn net.Conn) error {
	if looped, ok := netConn.(interface{ closeSocket() }); ok {
		looped.closeSocket()
		return nil
	}
	return netConn.Close()
}

// endWaits makes the reads and writes of a connection that ends fail, from another goroutine. A deadline isn't enough for TLS,
// which sets one of its own to say goodbye.
func endWaits(netConn net.Conn) {
	if _, secure := netConn.(*tls.Conn); secure {
		cutConn(netConn)
		return
	}
	netConn.SetDeadline(longAgo)
}

func linger(netConn net.Conn, answer []byte) {
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
	for received := 0; received < lingerBytes; {
		n, err := netConn.Read(buffer[:])
		received += n
		if err != nil {
			return
		}
	}
}

// resetOnClose makes the connection's close a reset: a client mustn't take an answer that was broken off for a whole one,
// as it could where only the end of the connection ends the answer.
func resetOnClose(netConn net.Conn) {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
		defer closeTransport(netConn) // without TLS's own goodbye
	}
	if tcp, ok := netConn.(interface{ SetLinger(seconds int) error }); ok {
		tcp.SetLinger(0)
	}
}

// wait waits until nothing lingers any more. It is over in lingerTime.
func (l *lingerer) wait(ctx context.Context) {
	l.mu.Lock()
	l.closed = true // nothing more may come while we wait
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		l.close()
	}
}

// close ends the lingering and waits until that is done.
func (l *lingerer) close() {
	l.mu.Lock()
	l.closed = true
	lingering := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, netConn := range lingering {
		endWaits(*netConn)
	}
	l.running.Wait()
}
