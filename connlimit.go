package filo

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// This file implements Server.MaxConns: its default, and how a server at its limit makes room for a new connection.

// descriptorReserve is the least number of descriptors that the default of MaxConns leaves to files, upstreams and databases.
const descriptorReserve = 32

// defaultMaxConns returns the default of MaxConns for a process that may open that many descriptors.
func defaultMaxConns(descriptors uint64) int {
	reserve := max(descriptors/8, descriptorReserve)
	if descriptors <= reserve {
		return 1
	}
	return int(min(descriptors-reserve, math.MaxInt32))
}

// maxConns returns how many connections may be open; 0 means any number.
func (s *Server) maxConns() int {
	if s.MaxConns != 0 {
		return max(s.MaxConns, 0)
	}
	if n, ok := sock.MaxDescriptors(); ok {
		return defaultMaxConns(n)
	}
	return 0
}

// connRoom closes idle connections to make room for new ones. Connections without a request so far are closed first: they cost their
// clients nothing, and they may come from many addresses. Next, of the address with the most idle connections, the connection that has been
// idle for the longest is closed. So a client that opens many connections, and uses each of them from time to time, takes no place from
// other clients. All clients without an IP address count as one.
//
// To find these connections, connRoom visits all connections. It keeps many of the idle connections that it finds (found), so a new
// connection costs only a few visits on average. If a client sends a request on a kept connection, the visit was in vain, but the client
// has paid for that with the request. If few connections are idle, connRoom rests between two searches.
type connRoom struct {
	mu    sync.Mutex
	found []idleConn // the connection to be closed first comes last
	next  clock.Time // when the connections may be visited again
}

// idleConn is a connection that waits for a request.
type idleConn struct {
	conn   *conn
	word   int64 // conn's word when it was visited; it changes when the wait ends
	since  clock.Time
	silent bool  // it has had no request
	client int32 // the number of its client's address
	rank   int32 // among the idle connections of its client: 1 is the most recently used one
}

const (
	// newConnTime is how long a new connection without a request doesn't count as idle. The client most likely opened it to send a request,
	// whose packets may be lost and sent again. The time is short: if new connections arrive faster than they become idle, they take the
	// places of clients that were served.
	newConnTime = time.Second
	// roomShare: if at least 1/16 of the connections were idle, the next search may follow at once, since a new connection then costs at most
	// 16 visits. roomRest: if fewer were idle, the next search waits 20 times as long as the last search took, so that searches use about 1/20
	// of a processor.
	roomShare, roomRest = 16, 20
	// roomSlack is by how many connections the limit may be exceeded: a connection that is told to close needs a moment.
	roomSlack = descriptorReserve / 2
)

// roomBatch is the maximum number of idle connections that are kept from a search. New connections that are accepted before the next search
// aren't ranked by address. So until then one client can take at most about roomBatch places from clients that have fewer connections.
func (s *connSet) roomBatch() int { return s.max/roomShare + 1 }

// needsRoomLocked reports whether a new connection from the address needs the place of another connection. A connection that will be
// refused anyway needs none.
func (s *connSet) needsRoomLocked(address netip.Addr) bool {
	s.mu.AssertHeld()
	if s.addresses.IsFull(address, s.perAddress) {
		return false
	}
	return s.max > 0 && s.conns.Len() >= s.max && s.conns.Len() < s.max+roomSlack && !s.closed
}

// makeRoom tells an idle connection to close. It reports false if no connection is idle. It doesn't wait while another goroutine searches:
// new connections may exceed the limit by roomSlack during a search.
func (s *connSet) makeRoom() bool {
	r := &s.room
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	if s.shedFirst() {
		return true
	}
	begin := s.clock.Exact()
	if begin < r.next {
		return false
	}
	all := s.findIdle(begin)
	if len(r.found) < all/roomShare {
		end := s.clock.Exact()
		r.next = end.Add(roomRest * end.Sub(begin))
	}
	made := s.shedFirst()
	kept := copy(r.found, r.found[max(0, len(r.found)-s.roomBatch()):])
	clear(r.found[kept:])
	r.found = r.found[:kept]
	return made
}

// freeDescriptors makes room when descriptors have run out before MaxConns is reached, since other parts of the process take more
// descriptors than the limit leaves them. Lingering connections end first: their clients have their answers. Without a limit it closes no
// idle connection.
func (s *Server) freeDescriptors() {
	for range shedTogether {
		if !s.lingerer.EndOldest() && (s.conns.max <= 0 || !s.conns.makeRoom()) {
			return
		}
	}
}

// shedTogether is how many connections are closed at a time when descriptors have run out: accepting is tried again only some milliseconds
// later.
const shedTogether = 4

// shedFirst takes connections from the end of s.room.found. It drops those that aren't idle any more, and tells the first one that is still
// idle to close. It reports whether it has found such a connection.
func (s *connSet) shedFirst() bool {
	r := &s.room
	for n := len(r.found); n > 0; n = len(r.found) {
		each := r.found[n-1]
		r.found[n-1] = idleConn{}
		r.found = r.found[:n-1]
		if s.shed(each) {
			return true
		}
	}
	return false
}

// findIdle finds the idle connections. It returns the number of all connections.
func (s *connSet) findIdle(now clock.Time) (all int) {
	r := &s.room
	clients := make(map[netip.Addr]int32)
	s.walk(func(c *conn) {
		all++
		word := c.word.Load()
		since, silent, ok := c.idleSince(word, now)
		if !ok {
			return
		}
		address := census.Of(c.knownAddr())
		client, known := clients[address]
		if !known {
			client = int32(len(clients))
			clients[address] = client
		}
		r.found = append(r.found, idleConn{conn: c, word: word, since: since, silent: silent, client: client})
	})
	rankIdle(r.found, len(clients))
	return all
}

// rankIdle sorts idle connections so that the one to be closed first comes last. Connections without a request come after all other
// connections, and higher ranks after lower ones: a connection's rank is how many idle connections its client still has when it would be
// closed. Among equal ranks the connection that has been idle for the longest comes last.
func rankIdle(found []idleConn, clients int) {
	slices.SortFunc(found, func(a, b idleConn) int { return cmp.Or(silentLast(a, b), cmp.Compare(b.since, a.since)) })
	ranks := make([]int32, clients)
	for i := range found {
		rank := &ranks[found[i].client]
		*rank++
		found[i].rank = *rank
	}
	slices.SortFunc(found, func(a, b idleConn) int {
		return cmp.Or(silentLast(a, b), cmp.Compare(a.rank, b.rank), cmp.Compare(b.since, a.since))
	})
}

func silentLast(a, b idleConn) int {
	switch {
	case a.silent == b.silent:
		return 0
	case a.silent:
		return 1
	}
	return -1
}

// idleSince returns since when a connection has been idle, and whether it has had no request. The time is computed back from the deadline
// in the word, so that no request has to store it. Without IdleTimeout there is no deadline, and since is 0 for all connections between two
// requests. Connections of HTTP/2 have other deadlines, too, and store their last use. A new connection that keeps its worker never counts
// as idle, since its deadline may come from findOutTime.
func (c *conn) idleSince(word int64, now clock.Time) (since clock.Time, silent, ok bool) {
	deadline, h := deadlineIn(word), c.http2.Load()
	switch state := waitState(word & stateMask); {
	case h != nil && (state == stateNew || state == stateIdle):
		since, silent = h.LastUse()
		return since, silent, !silent || now.Sub(since) >= newConnTime
	case state == stateIdle:
		if deadline != 0 {
			since = deadline - clock.Time(c.server.config.idleTimeout)
		}
		return since, false, true
	case state == stateNew && !c.driver.keepsWorker():
		since = deadline - clock.Time(c.server.config.readHeaderTimeout)
		return since, true, deadline != 0 && now.Sub(since) >= newConnTime
	}
	return 0, false, false
}

// shed tells a connection to close if it is still idle. If a request arrives at this moment, it may be answered, or the connection may end
// without an answer.
func (s *connSet) shed(idle idleConn) bool {
	s.waking.Lock()
	defer s.waking.Unlock()
	c := idle.conn
	// The exchange works as in expire. The state tells the owner that it must close, and that this wake-up wasn't meant for an earlier wait.
	if !c.word.CompareAndSwap(idle.word, int64(stateShed)) {
		return false
	}
	c.server.counts.shed.Add(1)
	c.wakeReader()
	return true
}
