package linger

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Socket is a connection whose descriptor only the owner may close, as one in an event loop is. Its method Close is for everybody:
// it cuts.
type Socket interface {
	net.Conn
	// Cut makes the owner end the connection. Anybody may call it, at any time. The error is net.ErrClosed if that has happened.
	Cut() error
	// CloseSocket closes the descriptor, for the owner.
	CloseSocket()
}

// Close closes a connection for its owner. TLS alone would wait five seconds to say goodbye to a client that doesn't read.
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

// closeTransport closes what carries a connection, for the owner.
func closeTransport(netConn net.Conn) error {
	if socket, ok := netConn.(Socket); ok {
		socket.CloseSocket()
		return nil
	}
	return netConn.Close()
}

// endWaits makes the reads and writes of a connection that ends fail, from another goroutine. A deadline isn't enough for TLS,
// which sets one of its own to say goodbye.
func endWaits(netConn net.Conn) {
	if _, secure := netConn.(*tls.Conn); secure {
		Cut(netConn)
		return
	}
	netConn.SetDeadline(clock.Past)
}

// Cut ends a connection for those who don't own it: at any time, on any goroutine, and at once. TLS can't say goodbye,
// since it would wait for five seconds for a client that doesn't read, and would write what only the owner may write.
//
// A connection of package net's is closed, which is safe while others use it. A Socket is only cut: its owner closes it.
func Cut(netConn net.Conn) error {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
	}
	if socket, ok := netConn.(Socket); ok {
		return socket.Cut()
	}
	return netConn.Close()
}

// ResetOnClose makes the connection's close a reset: a client mustn't take an answer that was broken off for a whole one,
// as it could where only the end of the connection ends the answer.
func ResetOnClose(netConn net.Conn) {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
		defer closeTransport(netConn) // without TLS's own goodbye
	}
	if tcp, ok := netConn.(interface{ SetLinger(seconds int) error }); ok {
		tcp.SetLinger(0)
	}
}
