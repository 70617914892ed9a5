package filo

import (
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connSet is the connections that are being served, and the sweep that looks after their deadlines: one goroutine and
// one timer for all of them, where a timer for each wait of each connection would be set twice a request.
type connSet struct {
	max        int // 0: no limit; immutable
	perAddress int // 0: no limit; immutable

	mu        sync.Mutex
	first     *conn              // guarded by mu
	count     int                // guarded by mu
	addresses map[netip.Addr]int // connections by client, if perAddress is set; guarded by mu
	answered  [6]uint64          // by the connections that are gone; guarded by mu
	sweeping  bool               // a sweep is due, since there are connections; guarded by mu
	empty     chan struct{}      // closed when the last connection goes; nil if nobody waits; guarded by mu
	closed    bool               // Close has begun: no connection is added; guarded by mu

	// due is when the next sweep is, on the clock's scale: at the earliest deadline that the last one saw, and no later than
	// a wait that began after it could end. Who sets an earlier deadline moves it. It is the largest value during a sweep.
	due      atomic.Int64
	clock    *coarseClock
	timer    *time.Timer   // guarded by mu
	interval time.Duration // the least between two sweeps
	shortest time.Duration // of the time-outs
	swept    int64         // when the last sweep was; guarded by mu
}

// add puts a connection into the set, or says why not.
func (s *connSet) add(c *conn) *HTTPError {
	var address netip.Addr
	if s.perAddress > 0 {
		address = limitAddress(c.netConn.RemoteAddr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed, s.max > 0 && s.count >= s.max:
		return errOverload
	case address.IsValid():
		if s.addresses[address] >= s.perAddress {
			return errConnsPerIP
		}
		if s.addresses == nil {
			s.addresses = make(map[netip.Addr]int)
		}
		s.addresses[address]++
		c.counted = true
	}
	if c.following = s.first; s.first != nil {
		s.first.previous = c
	}
	s.first, c.member = c, true
	s.count++
	if !s.sweeping && s.timer != nil {
		s.sweeping = true
		s.due.Store(s.clock.now() + int64(s.interval))
		s.timer.Reset(s.interval)
	}
	return nil
}

// remove takes a connection out of the set, if it is in it.
func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.member {
		return
	}
	c.member = false
	if c.previous != nil {
		c.previous.following = c.following
	} else {
		s.first = c.following
	}
	if c.following != nil {
		c.following.previous = c.previous
	}
	c.previous, c.following = nil, nil
	s.count--
	if c.counted {
		c.counted = false
		address := limitAddress(c.netConn.RemoteAddr())
		if s.addresses[address]--; s.addresses[address] == 0 {
			delete(s.addresses, address)
		}
	}
	if c.looped == nil {
		c.answered.addTo(&s.answered)
	}
	if s.count == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// limitAddress returns what MaxConnsPerIP counts a client under: its IPv4 address, or the /64 of its IPv6 address.
// Clients without an IP address aren't counted.
func limitAddress(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	if !ok {
		return netip.Addr{}
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}

// startSweep makes the deadlines count. The sweep rests while there are no connections.
func (s *connSet) startSweep(server *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock, s.shortest = &server.clock, server.config.shortestTimeout()
	s.interval = max(min(time.Second, s.shortest/4), time.Millisecond)
	s.sweeping = s.count > 0
	s.due.Store(s.clock.now() + int64(s.interval))
	s.timer = time.AfterFunc(s.interval, s.sweep)
	if !s.sweeping {
		s.timer.Stop()
	}
}

func (s *connSet) stopSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// sweep wakes the owners whose deadline has passed.
func (s *connSet) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return
	}
	// From here on every wait that begins asks for the lock, and so finds out when it is due after this sweep.
	s.due.Store(math.MaxInt64)
	now := s.clock.exact()
	due := now + int64(s.shortest)
	for c := s.first; c != nil; c = c.following {
		word := c.word.Load()
		if deadline := word &^ stateMask; deadline == 0 || deadline > now {
			if deadline != 0 {
				due = min(due, deadline)
			}
			continue
		}
		// The owner may have gone on since: then the exchange fails. If it goes on just after it, it finds a wake-up
		// that isn't for it, looks at the clock, and waits on.
		if !c.word.CompareAndSwap(word, word&stateMask) {
			continue
		}
		if waitState(word&stateMask) == stateWrite {
			c.netConn.SetWriteDeadline(longAgo)
		} else {
			c.netConn.SetReadDeadline(longAgo)
		}
	}
	if s.sweeping = s.count > 0; s.sweeping {
		s.swept = now
		s.setDueLocked(now, max(due, now+int64(s.interval)))
	}
}

// setDueLocked sets when the next sweep is.
func (s *connSet) setDueLocked(now, due int64) {
	s.due.Store(due)
	s.timer.Reset(time.Duration(due - now))
}

// hasten makes the next sweep come in time for a deadline.
func (s *connSet) hasten(deadline int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The least between two sweeps counts from the last one: or else deadlines that are set again and again would put off
	// the sweep for good.
	if due := max(deadline, s.swept+int64(s.interval)); s.timer != nil && s.sweeping && due < s.due.Load() {
		s.setDueLocked(s.clock.exact(), due)
	}
}

// awaitSweep returns when a sweep that is under way has ended.
func (s *connSet) awaitSweep() {
	s.mu.Lock()
	//lint:ignore SA2001 having had the lock is all it takes
	s.mu.Unlock()
}

// wakeIdle makes the connections that wait for a request notice that the server is draining.
func (s *connSet) wakeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.first; c != nil; c = c.following {
		word := c.word.Load()
		state := waitState(word & stateMask)
		if state > stateIdle && state != stateParked && (state != stateLast || c.looped == nil) {
			continue
		}
		// As in a sweep: the owner of a connection in a loop may have gone on since, and a TLS handshake must not be told.
		if c.looped != nil && !c.word.CompareAndSwap(word, word&stateMask) {
			continue
		}
		c.netConn.SetReadDeadline(longAgo)
	}
}

// closeAll closes every connection, and keeps new ones out.
func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := s.first; c != nil; c = c.following {
		if c.looped != nil {
			c.looped.Close()
		} else {
			c.netConn.Close()
		}
	}
}

// seal keeps new connections out if there are none now, and reports whether it did.
func (s *connSet) seal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || s.count == 0
	return s.closed
}

// whenEmpty returns a channel that is closed when there are no connections.
func (s *connSet) whenEmpty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	return s.empty
}
