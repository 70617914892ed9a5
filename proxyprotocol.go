package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/proxyproto"
)

// ProxyProtocol makes the server expect a header of the PROXY protocol, version 1 or 2, at the beginning of each connection. In this header
// a proxy such as HAProxy, nginx or a cloud's load balancer sends the client's address. The header precedes TLS and HTTP. RemoteAddr,
// LocalAddr and MaxConnsPerIP then use the addresses in the header, and Ctx.ProxyHeader returns the rest of it.
//
// A client could forge such a header. So the server closes connections that don't come from a trusted peer, and connections without a
// header, and logs that at most once in ten seconds. The header must arrive within ReadHeaderTimeout, and may have 4 KB at most. The
// server's own TLS (ListenAndServeTLS, ServeTLS and their like) works after the header; a listener that creates TLS connections itself
// doesn't.
type ProxyProtocol struct {
	// TrustedPeers are the proxies' addresses. If it is empty and TrustUnixSocket isn't set, the protocol is off.
	TrustedPeers []netip.Prefix
	// TrustUnixSocket trusts every process that connects to a Unix socket.
	TrustUnixSocket bool
}

// enabled reports whether connections begin with a header.
func (p *ProxyProtocol) enabled() bool { return len(p.TrustedPeers) > 0 || p.TrustUnixSocket }

// trusts reports whether a peer may send a header. The address is invalid for Unix sockets.
func (p *ProxyProtocol) trusts(peer netip.AddrPort) bool {
	if !peer.IsValid() {
		return p.TrustUnixSocket
	}
	address := peer.Addr().Unmap().WithZone("")
	for _, prefix := range p.TrustedPeers {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// ProxyHeader is what a proxy has sent about a connection: see ProxyProtocol. It is immutable, and may be kept.
type ProxyHeader struct{ header *proxyproto.Header }

// ProxyTLS is what a proxy has sent about TLS between the client and itself.
type ProxyTLS struct {
	// Verified says that the client has a certificate, which the proxy has verified.
	Verified bool
	// Version and Cipher are names such as "TLSv1.3". CommonName comes from the client's certificate. Each is "" if the proxy hasn't sent it.
	Version, Cipher, CommonName string
}

// ProxyHeader returns what a proxy has sent about the connection in the header of the PROXY protocol. ok is false without
// Server.ProxyProtocol.
func (c *Ctx) ProxyHeader() (h ProxyHeader, ok bool) {
	c.check()
	header := c.exchange.wire.proxyHeader()
	return ProxyHeader{header}, header != nil
}

// IsLocal reports whether the connection is the proxy's own, such as a health check, and not a client's.
func (h ProxyHeader) IsLocal() bool { return h.header.IsLocal() }

// Source returns the client's address. It is invalid if the proxy hasn't sent it.
func (h ProxyHeader) Source() netip.AddrPort { return h.header.Source() }

// Destination returns the address of the proxy that the client has connected to. It is invalid if the proxy hasn't sent it.
func (h ProxyHeader) Destination() netip.AddrPort { return h.header.Destination() }

// Authority returns the server name that the client has sent to the proxy in TLS (SNI), or "" if the proxy hasn't sent it.
func (h ProxyHeader) Authority() string { return h.header.Authority() }

// ALPN returns the protocol that the client and the proxy have agreed on, such as "h2", or "" if the proxy hasn't sent it.
func (h ProxyHeader) ALPN() string { return h.header.ALPN() }

// UniqueID returns the connection's ID, which may have any bytes, or "" if the proxy hasn't sent it.
func (h ProxyHeader) UniqueID() string { return h.header.UniqueID() }

// TLS returns what the proxy has sent about TLS. ok is false if the client doesn't use TLS, or if the proxy has sent nothing about TLS.
func (h ProxyHeader) TLS() (t ProxyTLS, ok bool) {
	told, ok := h.header.TLS()
	return ProxyTLS(told), ok
}

// TLV returns the first value of this type in a header of version 2. The types from 0xe0 to 0xef are for a proxy's users.
func (h ProxyHeader) TLV(kind byte) (value string, ok bool) { return h.header.TLV(kind) }

// proxied is a connection, below TLS, that begins with a header of the PROXY protocol.
type proxied interface {
	// ProxyHeader returns the header, nil as long as it hasn't arrived. Any goroutine may call it.
	ProxyHeader() *proxyproto.Header
}

// proxyHeader implements wire.
func (c *conn) proxyHeader() *proxyproto.Header {
	if p, ok := transport(c.netConn).(proxied); ok {
		return p.ProxyHeader()
	}
	return nil
}

// transport returns the connection below TLS.
func transport(netConn net.Conn) net.Conn {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		return tlsConn.NetConn()
	}
	return netConn
}

// refuseProxied counts a connection that is closed because of the PROXY protocol.
func (s *Server) refuseProxied(remote netip.AddrPort, reason error) {
	s.counts.refused.Add(1)
	s.refused(refusedProxyProtocol, remote, "error", reason, "remote", remote) // remote may be a proxy that should be trusted
}

var errUntrustedPeer = errors.New("the peer isn't among ProxyProtocol.TrustedPeers")

// expectProxy wraps the connection so that its header of the PROXY protocol is read first, if the server expects one. It returns nil if the
// connection was refused, because its peer isn't trusted.
func (s *Server) expectProxy(netConn net.Conn) net.Conn {
	if !s.ProxyProtocol.enabled() {
		return netConn
	}
	if peer := addrPortOf(netConn.RemoteAddr()); !s.ProxyProtocol.trusts(peer) {
		s.refuseProxied(peer, errUntrustedPeer)
		netConn.Close()
		return nil
	}
	return proxyproto.NewConn(netConn, nil)
}

// readProxyHeader reads the header of a connection in the blocking driver, if it must have one. It reports false if the connection is
// refused.
func (s *Server) readProxyHeader(c *conn) bool {
	p, ok := transport(c.netConn).(*proxyproto.Conn)
	if !ok {
		return true
	}
	if timeout := c.headTimeout(); timeout > 0 {
		if p.SetReadDeadline(time.Now().Add(timeout)) != nil {
			end := time.AfterFunc(timeout, func() { linger.Cut(p) })
			defer end.Stop()
		}
	}
	stop := context.AfterFunc(s.life.Handshaking, func() { linger.Cut(p) })
	some, err := p.Receive(func() bool { return c.beginLastLook(0) })
	if !stop() && err == nil {
		return false
	}
	p.SetReadDeadline(time.Time{})
	if err != nil {
		if some {
			s.refuseProxied(addrPortOf(p.Conn.RemoteAddr()), err)
		}
		return false
	}
	return true
}
