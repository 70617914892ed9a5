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

// This file has Server.MaxConns: its default, and the room that a server at its limit makes for a new connection.

// descriptorReserve is the least number of descriptors that the default of MaxConns leaves to files, upstreams and databases.
const descriptorReserve = 32

// defaultMaxConns returns the default of MaxConns for a process that may have that many descriptors.
func defaultMaxConns(descriptors uint64) int {
	reserve := max(descriptors/8, descriptorReserve)
	if descriptors <= reserve {
		return 1
	}
	return int(min(descriptors-reserve, math.MaxInt32))
}

// maxConns returns how many connections may be open; 0 for any number.
func (s *Server) maxConns() int {
	if s.MaxConns != 0 {
		return max(s.MaxConns, 0)
	}
	if n, ok := sock.MaxDescriptors(); ok {
		return defaultMaxConns(n)
	}
	return 0
}

// connRoom closes idle connections to make room for new ones. Those that have had no request go first: they cost their clients nothing, and
// many clients may have opened them. Then, of the address that has most idle connections, the connection that has been idle for the longest
// goes: so a client that opens many, and uses each now and then, takes no place of others. All clients without an IP address count as one.
//
// To find these connections, connRoom visits all connections. It keeps many of those found, so a new connection costs only a few visits on
// average. A client that uses a kept connection makes that visit useless, but only at the price of a request. If few connections are idle,
// connRoom rests between two searches.
type connRoom struct {
	mu    sync.Mutex
	found []idleConn // the one to be closed first comes last
	next  clock.Time // when the connections may be visited again
}

// idleConn is a connection that waits for a request.
type idleConn struct {
	conn   *conn
	word   int64 // the conn's; it changes when the wait ends
	since  clock.Time
	silent bool  // it has had no request
	client int32 // the number of its client's address
	rank   int32 // among the idle ones of its client: 1 for the one that was used last
}

const (
	// newConnTime is how long a connection without a request isn't taken for idle. Its client has most likely opened it to send a request,
	// whose packets may be lost and sent again. The time isn't longer, since new connections that come faster than they become idle take
	// the places of clients that were served.
	newConnTime = time.Second
	// If at least one in roomShare connections was idle, another search may follow at once: then a new connection costs roomShare visits at
	// most. If fewer were, the next search waits for roomRest times as long as the last one took: so searches take a twentieth of a
	// processor.
	roomShare, roomRest = 16, 20
	// roomSlack is by how many connections the limit may be exceeded: a connection that is told to close needs a moment.
	roomSlack = descriptorReserve / 2
)

// roomBatch is how many of the connections that a search finds are kept at most. New connections that come before the next search aren't
// counted by address, so meanwhile one client can take about roomBatch places of clients that have fewer, but no more.
func (s *connSet) roomBatch() int { return s.max/roomShare + 1 }

// needsRoomLocked reports whether a connection from the address needs the place of another one. A connection that is refused anyway
// doesn't.
func (s *connSet) needsRoomLocked(address netip.Addr) bool {
	s.mu.AssertHeld()
	if s.addresses.IsFull(address, s.perAddress) {
		return false
	}
	return s.max > 0 && s.conns.Len() >= s.max && s.conns.Len() < s.max+roomSlack && !s.closed
}

// makeRoom tells an idle connection to close. It reports false if there is none. It doesn't wait while another goroutine searches: the
// connections that come meanwhile may exceed the limit by roomSlack.
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
// descriptors than the limit leaves them. Without a limit it closes nothing.
func (s *connSet) freeDescriptors() {
	if s.max <= 0 {
		return
	}
	for range shedTogether {
		if !s.makeRoom() {
			return
		}
	}
}

// shedTogether is how many connections make room at a time when descriptors have run out: the next search for them comes some milliseconds
// later.
const shedTogether = 4

// shedFirst tells the first of the connections found to close. Those that aren't idle any more are left alone.
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

// findIdle finds the idle connections. It returns how many connections there are in all.
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

// rankIdle sorts idle connections. The one to be closed first comes last. Connections without a request come behind all others, and higher
// ranks behind lower ones: the rank is how many idle connections the client still has when this one's turn comes. Of equal ranks the
// connection that has been idle for the longest comes last.
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

// idleSince returns since when a connection has been idle, and whether it has had no request. The time is reckoned back from the deadline
// in the word, so that no request has to store it. Without IdleTimeout there is no deadline: all connections between two requests are
// alike. HTTP/2 has other deadlines, too, and stores its last use. A new connection that keeps its worker never counts as idle, since its
// deadline may be another one.
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

// shed tells a connection to close if it is still idle. A request that arrives at this moment may be answered, or the client sees the
// connection end without an answer.
func (s *connSet) shed(idle idleConn) bool {
	s.waking.Lock()
	defer s.waking.Unlock()
	c := idle.conn
	// As in expire. By the state the owner knows that it must close, and that this wake-up wasn't meant for an earlier wait.
	if !c.word.CompareAndSwap(idle.word, int64(stateShed)) {
		return false
	}
	c.server.counts.shed.Add(1)
	c.wakeReader()
	return true
}
