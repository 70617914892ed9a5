// Package census counts the clients of a server by their addresses: how many connections each client has, and how many of its connections have ended
// or were refused. The package counts numbers and has no references to connections.
package census

import (
	"net"
	"net/netip"
	"sync/atomic"
)

// Of returns the address under which a client is counted: its IPv4 address, or the /64 of its IPv6 address.
// It is the zero address for clients without an IP address, which MaxConnsPerIP doesn't count.
func Of(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	if !ok {
		return netip.Addr{}
	}
	return OfIP(ip)
}

// OfIP is Of for an IP address.
func OfIP(ip netip.Addr) netip.Addr {
	if ip = ip.Unmap(); ip.Is4() {
		return ip
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}

// Conns counts the open connections of each client. Its zero value is empty. It isn't safe for concurrent use.
type Conns struct {
	clients map[netip.Addr]*client
}

type client struct {
	conns  int
	bodies atomic.Int64 // see http2conn.Conn.bodies
}

// Count counts a connection of an address. It counts nothing and reports false if the address already has the maximum number of connections, most.
func (c *Conns) Count(address netip.Addr, most int) bool {
	each := c.clients[address]
	if each.has(most) {
		return false
	}
	if each == nil {
		if c.clients == nil {
			c.clients = make(map[netip.Addr]*client)
		}
		each = new(client)
		c.clients[address] = each
	}
	each.conns++
	return true
}

// Uncount undoes Count.
func (c *Conns) Uncount(address netip.Addr) {
	each := c.clients[address]
	if each.conns--; each.conns == 0 {
		delete(c.clients, address)
	}
}

// IsFull reports whether the address has the maximum number of connections, most, and at least one.
func (c *Conns) IsFull(address netip.Addr, most int) bool {
	return c.clients[address].has(most)
}

// has reports whether c isn't nil and has at least that number of connections.
func (c *client) has(conns int) bool { return c != nil && c.conns >= conns }

// Bodies returns the counter of the buffered bodies of an address, or nil if the address has no connections.
func (c *Conns) Bodies(address netip.Addr) *atomic.Int64 {
	if each := c.clients[address]; each != nil {
		return &each.bodies
	}
	return nil
}

// Len returns how many addresses have connections.
func (c *Conns) Len() int { return len(c.clients) }
