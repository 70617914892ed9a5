package filo

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

// This file has Server.Clients, and the records of whom the server refuses. No request does anything for it: the figures of open connections
// are looked up when somebody asks, and the others are counted where a connection ends, or something is refused.

// Client has the figures of the clients of one address.
type Client struct {
	// Address is the IPv4 address, or the first address of the /64 of the IPv6 address: what MaxConnsPerIP counts by. It is the connection's,
	// or the one that a header of the PROXY protocol tells. Behind other proxies it is the proxy's. It is invalid for all connections together
	// that aren't IP connections, or whose type is the program's own and that have had no request.
	Address netip.Addr
	// Conns is the number of open connections.
	Conns int
	// ConnsEnded is the number of connections that have ended in the last one to two minutes. Refused ones aren't among them.
	ConnsEnded uint64
	// Requests is the number of requests of the connections that Conns and ConnsEnded count, since each was opened.
	Requests uint64
	// BytesReceived and BytesSent are what has come by the open connections since each was opened, and what their clients have acknowledged.
	// The bytes of TLS are among them. They are 0 where the system doesn't tell: it does on Linux, for TCP.
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
		client := of(limitIP(c.knownRemote().Addr()))
		client.Conns++
		client.Requests += uint64(c.requestCount())
		if received, sent, ok := sock.Transferred(c.netConn); ok {
			client.BytesReceived += received
			client.BytesSent += sent
		}
	})
	for _, each := range s.clients.all(s.clock.Now()) {
		client := of(each.address)
		client.ConnsEnded += each.ended
		client.Requests += each.requests
		client.Refusals += each.refusals
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
	for _, client := range all { // in the order of the last figure
		if top[client] {
			clients = append(clients, *client)
		}
	}
	return clients
}

const (
	// clientTurn is after which time a half of a clientHistory gives way to a new one.
	clientTurn = time.Minute
	// maxHeavy is how many clients a heavyClients counts.
	maxHeavy = 1024
	// refusalLogInterval is the least time between two records of refusals for one reason.
	refusalLogInterval = 10 * time.Second
)

// clientHistory has what Clients says of the past, in halves: the current one, and the one of the minute before.
type clientHistory struct {
	mu             race.Mutex[race.OfLeaf]
	turned         clock.Time // when the current halves began; guarded by mu
	ended, refused [2]heavyClients
	logged         [refusalReasons]struct { // guarded by mu
		next  clock.Time // no record before
		count int        // refusals since the last record
	}
}

// addEnded counts a connection that has ended.
func (h *clientHistory) addEnded(now clock.Time, address netip.Addr, requests int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	client := h.ended[0].add(address, 1+uint64(requests))
	client.ended++
	client.requests += uint64(requests)
}

// addRefused counts a refusal. It returns how many refusals the record has that is due now, or 0.
func (h *clientHistory) addRefused(now clock.Time, reason refusalReason, address netip.Addr) (due int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	h.refused[0].add(address, 1).refusals++
	record := &h.logged[reason]
	if record.count++; now < record.next {
		return 0
	}
	due, record.count, record.next = record.count, 0, now.Add(refusalLogInterval)
	return due
}

// all returns the clients of both halves, some of them more than once.
func (h *clientHistory) all(now clock.Time) (all []heavyClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	for i := range h.ended {
		for _, kind := range [...]*heavyClients{&h.ended[i], &h.refused[i]} {
			for _, client := range kind.heap {
				all = append(all, *client)
			}
		}
	}
	return all
}

// turnLocked drops the halves that are too old.
func (h *clientHistory) turnLocked(now clock.Time) {
	h.mu.AssertHeld()
	switch age := now.Sub(h.turned); {
	case age < clientTurn:
	case age < 2*clientTurn:
		h.ended[1], h.refused[1] = h.ended[0], h.refused[0]
		h.ended[0], h.refused[0] = heavyClients{}, heavyClients{}
		h.turned = h.turned.Add(clientTurn)
	default:
		h.ended, h.refused = [2]heavyClients{}, [2]heavyClients{}
		h.turned = now
	}
}

// heavyClients counts the clients that come most often, in bounded memory. A new client takes the place of the one that weighs least, and
// inherits its weight, so a client with more than a maxHeavy-th of all weight has a place (the Space-Saving algorithm of Metwally, Agrawal and
// El Abbadi).
type heavyClients struct {
	known map[netip.Addr]*heavyClient
	heap  []*heavyClient // no element weighs more than those at twice its index plus 1 and 2
}

type heavyClient struct {
	address                   netip.Addr
	index                     int    // in the heap
	weight                    uint64 // with that of clients that had the place before
	ended, requests, refusals uint64 // its own
}

// add adds to the weight of a client, and returns it.
func (h *heavyClients) add(address netip.Addr, weight uint64) *heavyClient {
	c := h.known[address]
	switch {
	case c != nil:
	case len(h.heap) < maxHeavy:
		if h.known == nil {
			h.known = make(map[netip.Addr]*heavyClient)
		}
		c = &heavyClient{address: address, index: len(h.heap)}
		h.heap = append(h.heap, c)
		h.known[address] = c
		for c.index > 0 { // it weighs nothing yet
			h.swap(c, h.heap[(c.index-1)/2])
		}
	default:
		c = h.heap[0]
		delete(h.known, c.address)
		*c = heavyClient{address: address, weight: c.weight}
		h.known[address] = c
	}
	c.weight += weight
	for {
		least := c
		for child := 2*c.index + 1; child <= 2*c.index+2 && child < len(h.heap); child++ {
			if h.heap[child].weight < least.weight {
				least = h.heap[child]
			}
		}
		if least == c {
			return c
		}
		h.swap(c, least)
	}
}

func (h *heavyClients) swap(a, b *heavyClient) {
	a.index, b.index = b.index, a.index
	h.heap[a.index], h.heap[b.index] = a, b
}

// refused counts a refusal and logs it. The caller holds no lock, since the logger is the user's.
func (s *Server) refused(reason refusalReason, client netip.AddrPort) {
	s.counts.refusals[reason].Add(1)
	s.tellRefused(reason, func() netip.AddrPort { return client })
}

// refusedRequest is refused for a request that was refused because the server is overloaded: see Stats.RequestsRefused.
func (s *Server) refusedRequest(reason refusalReason, client netip.AddrPort) {
	s.counts.overloads.Add(1)
	s.refused(reason, client)
}

// tellRefused counts a refusal for the client, and logs it unless another one for the reason was logged shortly before. The PROXY protocol
// has records of its own.
func (s *Server) tellRefused(reason refusalReason, client func() netip.AddrPort) {
	address := limitIP(client().Addr())
	count := s.clients.addRefused(s.clock.Now(), reason, address)
	if count == 0 || reason == refusedProxyProtocol {
		return
	}
	text := "unknown"
	if address.IsValid() {
		text = address.String()
	}
	s.logger().Warn("refused", "reason", reason.String(), "client", text, "count", count)
}
