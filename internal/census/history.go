package census

import (
	"net/netip"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

const (
	// clientTurn is how long a half of a History is the current one, to which new counts are added.
	clientTurn = time.Minute
	// maxHeavy is how many clients a sketch counts.
	maxHeavy = 1024
	// MaxReasons is how many reasons for refusals there may be.
	MaxReasons = 16
	// LogInterval is the least time between two records of refusals for one reason.
	LogInterval = 10 * time.Second
)

// History counts the ended connections and the refusals of clients in the last one to two minutes. It has two halves: the current one, and that of
// the minute before.
type History struct {
	mu             race.Mutex[race.OfLeaf]
	turned         clock.Time // when the current halves began; guarded by mu
	ended, refused [2]sketch
	logged         [MaxReasons]struct { // guarded by mu
		next  clock.Time // before that moment nothing is logged
		count int        // refusals since the last record
	}
}

// AddEnded counts a connection that has ended.
func (h *History) AddEnded(now clock.Time, address netip.Addr, requests int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	client := h.ended[0].add(address, 1+uint64(requests))
	client.Ended++
	client.Requests += uint64(requests)
}

// AddRefused counts a refusal; reason is less than MaxReasons. If the caller should log a record of the refusals for this reason now, AddRefused
// returns how many refusals there were since the last record. Otherwise it returns 0.
func (h *History) AddRefused(now clock.Time, reason uint8, address netip.Addr) (due int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	h.refused[0].add(address, 1).Refusals++
	record := &h.logged[reason]
	if record.count++; now < record.next {
		return 0
	}
	due, record.count, record.next = record.count, 0, now.Add(LogInterval)
	return due
}

// All returns the clients of both halves, some of them more than once.
func (h *History) All(now clock.Time) (all []Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	for i := range h.ended {
		for _, kind := range [...]*sketch{&h.ended[i], &h.refused[i]} {
			for _, client := range kind.heap {
				all = append(all, *client)
			}
		}
	}
	return all
}

// turnLocked drops the halves that are too old.
func (h *History) turnLocked(now clock.Time) {
	h.mu.AssertHeld()
	switch age := now.Sub(h.turned); {
	case age < clientTurn:
	case age < 2*clientTurn:
		h.ended[1], h.refused[1] = h.ended[0], h.refused[0]
		h.ended[0], h.refused[0] = sketch{}, sketch{}
		h.turned = h.turned.Add(clientTurn)
	default:
		h.ended, h.refused = [2]sketch{}, [2]sketch{}
		h.turned = now
	}
}

// sketch counts the clients with the most weight, in bounded memory. When it is full, a new client replaces the client that weighs least, and
// inherits that weight. So a client with more than a maxHeavy-th of all weight is in the sketch (the Space-Saving algorithm of Metwally, Agrawal and
// El Abbadi).
type sketch struct {
	known map[netip.Addr]*Client
	heap  []*Client // no element weighs more than those at twice its index plus 1 and 2
}

// Client holds the counts of one client.
type Client struct {
	Address netip.Addr
	// Ended is the number of the client's connections that have ended, and Requests the number of requests on those connections.
	Ended, Requests, Refusals uint64

	index  int    // in the heap
	weight uint64 // including the weight inherited from clients that it has replaced
}

// add adds to the weight of a client, and returns the client.
func (h *sketch) add(address netip.Addr, weight uint64) *Client {
	c := h.known[address]
	switch {
	case c != nil:
	case len(h.heap) < maxHeavy:
		if h.known == nil {
			h.known = make(map[netip.Addr]*Client)
		}
		c = &Client{Address: address, index: len(h.heap)}
		h.heap = append(h.heap, c)
		h.known[address] = c
		for c.index > 0 { // the new client weighs nothing yet, so it belongs at the top
			h.swap(c, h.heap[(c.index-1)/2])
		}
	default:
		c = h.heap[0]
		delete(h.known, c.Address)
		*c = Client{Address: address, weight: c.weight}
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

func (h *sketch) swap(a, b *Client) {
	a.index, b.index = b.index, a.index
	h.heap[a.index], h.heap[b.index] = a, b
}
