package filo

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/sock"
)

// This file has Server.Clients, and the log records of clients that the server refuses. They add no work to served requests: the server
// looks up the figures of open connections when Clients is called, and updates the other figures when a connection ends or something is
// refused.

// Client has the figures of the clients of one address.
type Client struct {
	// Address is the IPv4 address, or the first address of the IPv6 address's /64, as MaxConnsPerIP counts clients. It is the peer address of
	// the connection, or the client's address from a header of the PROXY protocol. Behind any other proxy it is the proxy's address.
	// Connections that aren't IP connections are counted together, with an invalid Address. So are connections whose net.Conn is a type of the
	// program's own, until their first request.
	Address netip.Addr
	// Conns is the number of open connections.
	Conns int
	// ConnsEnded is the number of connections that have ended in the last one to two minutes. Refused connections aren't included.
	ConnsEnded uint64
	// Requests is the number of requests on the connections that Conns and ConnsEnded count, over each connection's whole life.
	Requests uint64
	// BytesReceived counts the bytes that have arrived on the open connections since each was opened, and BytesSent the bytes that their
	// clients have acknowledged. Both include the overhead of TLS. They are 0 unless the system counts them, as Linux does for TCP.
	BytesReceived, BytesSent uint64
	// Refusals is how many connections and requests were refused in the last one to two minutes, by the limits and policies that the type
	// Refusals lists, except Tasks.
	Refusals uint64
}

// maxClients is how many clients Clients returns for each figure.
const maxClients = 100

// Clients returns the clients with the highest figures: the first 100 by open connections, and as many by requests, by the sum of bytes,
// and by refusals. The clients with the most open connections come first. The server counts ended connections and refusals for at least
// 1,024 clients at a time. If there are more clients, it keeps the counts of the clients that return again and again, and the figures of all
// other clients may be too low. Requests that another server has received (adaptor.ToHTTP) aren't counted.
//
// Clients visits every open connection and makes a system call for it, so call it on demand or at long intervals.
func (s *Server) Clients() []Client {
	found := make(map[netip.Addr]*Client)
	of := func(address netip.Addr) *Client {
		c := found[address]
		if c == nil {
			c = &Client{Address: address}
			found[address] = c
		}
		return c
	}
	s.conns.walk(func(c *conn) {
		client := of(census.OfIP(c.knownRemote().Addr()))
		client.Conns++
		client.Requests += uint64(c.requestCount())
		if received, sent, ok := sock.Transferred(c.netConn); ok {
			client.BytesReceived += received
			client.BytesSent += sent
		}
	})
	for _, each := range s.clients.All(s.clock.Now()) {
		client := of(each.Address)
		client.ConnsEnded += each.Ended
		client.Requests += each.Requests
		client.Refusals += each.Refusals
	}
	return topOf(found)
}

// topOf returns the clients that are among the first maxClients by at least one figure.
func topOf(found map[netip.Addr]*Client) []Client {
	all := make([]*Client, 0, len(found))
	for _, client := range found {
		all = append(all, client)
	}
	top := make(map[*Client]bool)
	figures := [...]func(c *Client) uint64{
		func(c *Client) uint64 { return c.Refusals },
		func(c *Client) uint64 { return c.BytesReceived + c.BytesSent },
		func(c *Client) uint64 { return c.Requests },
		func(c *Client) uint64 { return uint64(c.Conns) },
	}
	for _, figure := range figures {
		slices.SortFunc(all, func(a, b *Client) int {
			return cmp.Or(cmp.Compare(figure(b), figure(a)), a.Address.Compare(b.Address))
		})
		for _, client := range all[:min(len(all), maxClients)] {
			if figure(client) > 0 {
				top[client] = true
			}
		}
	}
	clients := make([]Client, 0, len(top))
	for _, client := range all { // all is sorted by the last figure
		if top[client] {
			clients = append(clients, *client)
		}
	}
	return clients
}

// refused counts a refusal and logs it, with more attributes if there are any. The caller holds no lock, since the logger is the user's.
func (s *Server) refused(reason refusalReason, client netip.AddrPort, more ...any) {
	s.counts.refusals[reason].Add(1)
	s.tellRefused(reason, func() netip.AddrPort { return client }, more...)
}

// refusedRequest does what refused does, and also counts the request for Stats.RequestsRefused: the server has refused it because of
// overload.
func (s *Server) refusedRequest(reason refusalReason, client netip.AddrPort) {
	s.counts.overloads.Add(1)
	s.refused(reason, client)
}

// tellRefused counts a refusal for the client, and logs it unless another refusal for the same reason was logged shortly before.
func (s *Server) tellRefused(reason refusalReason, client func() netip.AddrPort, more ...any) {
	address := census.OfIP(client().Addr())
	count := s.clients.AddRefused(s.clock.Now(), uint8(reason), address)
	if count == 0 {
		return
	}
	text := "unknown"
	if address.IsValid() {
		text = address.String()
	}
	s.logger().Warn("refused", append([]any{"reason", reason.String(), "client", text, "count", count}, more...)...)
}
