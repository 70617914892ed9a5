package linger

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Socket is a connection whose file descriptor only its owner may close, such as a connection in an event loop. Any goroutine may call Close, which
// works like Cut.
type Socket interface {
	net.Conn
	// Cut makes the owner end the connection. Any goroutine may call it at any time. The error is net.ErrClosed if the connection has
	// ended.
	Cut() error
	// CloseSocket closes the file descriptor. Only the owner may call it.
	CloseSocket()
}

// Close closes a connection. Only the owner may call it. (*tls.Conn).Close would wait for up to five seconds to send its close alert to a client that
// doesn't read.
func Close(netConn net.Conn) error {
	tlsConn, secure := netConn.(*tls.Conn)
	if !secure {
		return closeTransport(netConn)
	}
	end := time.AfterFunc(Longest, func() { endWaits(netConn) })
	defer end.Stop()
	err := netConn.Close()
	closeTransport(tlsConn.NetConn())
	return err
}

// closeTransport closes the connection below TLS. Only the owner may call it.
func closeTransport(netConn net.Conn) error {
	if socket, ok := netConn.(Socket); ok {
		socket.CloseSocket()
		return nil
	}
	return netConn.Close()
}

// endWaits makes the reads and writes of a closing connection fail, from another goroutine. For TLS a deadline isn't enough, since crypto/tls sets
// its own deadline for the close alert.
func endWaits(netConn net.Conn) {
	if _, secure := netConn.(*tls.Conn); secure {
		Cut(netConn)
		return
	}
	if netConn.SetDeadline(clock.Past) != nil {
		Cut(netConn) // the connection has no deadlines, so nothing else ends the reads and writes
	}
}

// Cut ends a connection at once. Any goroutine may call it at any time. A TLS connection ends without its close alert: crypto/tls would
// wait five seconds for a client that doesn't read, and only the owner may write to the connection.
//
// A connection of package net is closed, which is safe while other goroutines use it. A Socket is only cut, and its owner closes it.
func Cut(netConn net.Conn) error {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
	}
	if socket, ok := netConn.(Socket); ok {
		return socket.Cut()
	}
	return netConn.Close()
}

// ResetOnClose makes the connection's close a reset. If only the end of the connection ends an answer, the client can then tell a truncated
// answer from a complete one.
func ResetOnClose(netConn net.Conn) {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
		defer closeTransport(netConn) // without the close alert of TLS
	}
	if tcp, ok := netConn.(interface{ SetLinger(seconds int) error }); ok {
		tcp.SetLinger(0)
	}
}
