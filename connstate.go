package filo

import (
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// observedConn is a connection as Server.ConnState and ConnContext get it: the conn itself under another name. So it costs nothing, it is
// the same in each of the connection's states, and it can be compared and be the key of a map.
//
// Whoever keeps it may call it on any goroutine and at any time, while the owner, the lingerer, or who has hijacked the
// connection uses the socket. So its methods touch nothing of the owner's: the addresses are immutable or asked for under
// the loop's lock, and cutConn is made for it.
type observedConn conn

var errObserved = errors.New("filo: only the server reads, writes and sets the deadlines of the connection that ConnState is told of; " +
	"Ctx.Hijack takes a connection over")

// Read is net.Conn's. It fails.
func (c *observedConn) Read([]byte) (int, error) { return 0, errObserved }

// Write is net.Conn's. It fails.
func (c *observedConn) Write([]byte) (int, error) { return 0, errObserved }

// Close ends the connection. It doesn't wait, and TLS doesn't say goodbye.
func (c *observedConn) Close() error { return cutConn(c.netConn) }

// LocalAddr is net.Conn's.
func (c *observedConn) LocalAddr() net.Addr { return c.netConn.LocalAddr() }

// RemoteAddr is net.Conn's.
func (c *observedConn) RemoteAddr() net.Addr { return c.netConn.RemoteAddr() }

// SetDeadline is net.Conn's. It fails.
func (c *observedConn) SetDeadline(time.Time) error { return errObserved }

// SetReadDeadline is net.Conn's. It fails.
func (c *observedConn) SetReadDeadline(time.Time) error { return errObserved }

// SetWriteDeadline is net.Conn's. It fails.
func (c *observedConn) SetWriteDeadline(time.Time) error { return errObserved }

// cutConn ends a connection for those who don't own it: at any time, on any goroutine, and at once. TLS can't say goodbye,
// since it would wait for five seconds for a client that doesn't read, and would write what only the owner may write.
//
// A connection of package net's is closed, which is safe while others use it. One in a loop is only marked and shut down:
// its owner closes it.
func cutConn(netConn net.Conn) error {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
	}
	if looped, ok := netConn.(interface{ cut() error }); ok {
		return looped.cut()
	}
	return netConn.Close()
}
