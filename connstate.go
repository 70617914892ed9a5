package filo

import (
	"errors"
	"net"
	"time"

	"github.com/filohttp/filo/internal/linger"
)

// observedConn is a connection as Server.ConnState and ConnContext get it: the conn itself under another name. So it costs nothing, it is
// the same in each of the connection's states, and it can be compared and be the key of a map.
//
// Whoever keeps it may call it on any goroutine and at any time, while the owner, the lingerer, or who has hijacked the
// connection uses the socket. So its methods touch nothing of the owner's: the addresses are immutable or asked for under
// the loop's lock, and linger.Cut is made for it.
type observedConn conn

var errObserved = errors.New("filo: only the server reads, writes and sets the deadlines of the connection that ConnState is told of; " +
	"Ctx.Hijack takes a connection over")

// Read is net.Conn's. It fails.
func (c *observedConn) Read([]byte) (int, error) { return 0, errObserved }

// Write is net.Conn's. It fails.
func (c *observedConn) Write([]byte) (int, error) { return 0, errObserved }

// Close ends the connection. It doesn't wait, and TLS doesn't say goodbye.
func (c *observedConn) Close() error { return linger.Cut(c.netConn) }

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
