package filo

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/sock"
)

// This file has Server.Clients, and the log records of clients that the server refuses. They cost no request anything: the server looks up
// the figures of open connections when somebody asks, and counts the others where a connection ends, or something is refused.

// Client has the figures of the clients of one address.
type Client struct {
	// Address is the IPv4 address, or the first address of the /64 of the IPv6 address: what MaxConnsPerIP counts by. It is the
	// connection's, or the one that a header of the PROXY protocol tells. Behind other proxies it is the proxy's. Connections that aren't
	// IP connections are counted together, with an invalid Address. So are connections of a type of the program's own that haven't had a
	// request yet.
	Address netip.Addr
	// Conns is the number of open connections.
	Conns int
	// ConnsEnded is the number of connections that have ended in the last one to two minutes. Refused ones aren't among them.
	ConnsEnded uint64
	// Requests is the number of requests of the connections that Conns and ConnsEnded count, since each was opened.
	Requests uint64
	// BytesReceived and BytesSent count the bytes that have come by the open connections since each was opened, and the bytes that their
	// clients have acknowledged, those of TLS included. They are 0 unless the system counts them, as Linux does for TCP.
	BytesReceived, BytesSent uint64
	// Refusals is how many connections and requests were refused in the last one to two minutes, by the limits and policies of Refusals
	// except Tasks.
	Refusals uint64
}

// maxClients is how many clients Clients returns by each figure.
const maxClients = 100

// Clients returns the clients with the highest figures, those with most open connections first: 100 by open connections, and as many by
// requests, by the sum of bytes, and by refusals. Ended connections and refusals are counted for at least 1,024 clients at a time. If there
// are more, then those that come again and again keep their places, and the figures of others may be too low. Requests that another server has
// received (adaptor.ToHTTP) aren't counted.
//
// Clients looks at each open connection, and asks the system about it, so call it when somebody asks, or now and then.
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

// topOf returns the clients that are among the first ones by a figure.
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
	for _, client := range all { // sorted by the last figure
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

// refusedRequest is refused for a request that was refused because the server is overloaded: see Stats.RequestsRefused.
func (s *Server) refusedRequest(reason refusalReason, client netip.AddrPort) {
	s.counts.overloads.Add(1)
	s.refused(reason, client)
}

// tellRefused counts a refusal for the client, and logs it unless another one for the reason was logged shortly before.
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
