package filo

import (
	"crypto/tls"
	"net"
	"net/netip"

	"github.com/filohttp/filo/internal/answerconn"
	"github.com/filohttp/filo/internal/proxyproto"
)

// The listener may be the program's, and so may its connections. Their RemoteAddr may wait for the client, as when it reads a header of the
// PROXY protocol first, and may answer something else later. So only the goroutine that serves such a connection calls RemoteAddr, at its
// first request or for MaxConnsPerIP, and only once. The connSet keeps the answer for others. Server.ProxyProtocol is an exception: it asks
// each connection that is accepted whether it comes from a trusted address.

// tellsAddress reports whether the RemoteAddr of a connection is known to answer at once.
func tellsAddress(netConn net.Conn) bool {
	switch c := netConn.(type) {
	case driver, *net.TCPConn, *net.UnixConn, *answerconn.Conn:
		return true
	case *tls.Conn:
		return tellsAddress(c.NetConn())
	case *proxyproto.Conn:
		return tellsAddress(c.Conn)
	}
	return false
}

// isStranger reports whether the connection's address must be asked with care.
func (c *conn) isStranger() bool { return !tellsAddress(c.netConn) }

// remoteAddr implements wire. Only the goroutine that serves the connection, or one that works for that goroutine, calls it.
func (c *conn) remoteAddr() net.Addr {
	if !c.isStranger() {
		return c.netConn.RemoteAddr()
	}
	s := &c.server.conns
	if address, ok := s.addressOf(c); ok {
		return address
	}
	address := c.netConn.RemoteAddr()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.member {
		s.rememberLocked(c, address)
	}
	return address
}

// rememberLocked keeps what a member was told when it was asked for its address.
func (s *connSet) rememberLocked(c *conn, address net.Addr) {
	s.mu.AssertHeld()
	if !c.isStranger() {
		return
	}
	if s.strangers == nil {
		s.strangers = make(map[*conn]net.Addr)
	}
	s.strangers[c] = address
}

// remote implements wire. It is remoteAddr for the address of an IP connection.
func (c *conn) remote() netip.AddrPort { return c.driver.remote() }

// knownAddr is remoteAddr for any goroutine: nil if the connection would have to be asked.
func (c *conn) knownAddr() net.Addr {
	if !c.isStranger() {
		return c.netConn.RemoteAddr()
	}
	address, _ := c.server.conns.addressOf(c)
	return address
}

// knownRemote is remote for any goroutine: it is invalid if the connection would have to be asked.
func (c *conn) knownRemote() netip.AddrPort {
	if !c.isStranger() {
		return c.driver.remote()
	}
	return addrPortOf(c.knownAddr())
}

// addressOf returns what a member of the set has answered when it was asked for its address.
func (s *connSet) addressOf(c *conn) (address net.Addr, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, ok = s.strangers[c]
	return address, ok
}
