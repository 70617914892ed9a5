package filo

import (
	"net"
	"net/netip"
	"sync"
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

	timer    *time.Timer
	interval time.Duration
}

// add puts a connection into the set, or says why not.
func (s *connSet) add(c *conn) *HTTPError {
	if s.perAddress > 0 {
		c.address = limitAddress(c.netConn.RemoteAddr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed, s.max > 0 && s.count >= s.max:
		return errOverload
	case c.address.IsValid():
		if s.addresses[c.address] >= s.perAddress {
			return errConnsPerIP
		}
		if s.addresses == nil {
			s.addresses = make(map[netip.Addr]int)
		}
		s.addresses[c.address]++
	}
	if c.following = s.first; s.first != nil {
		s.first.previous = c
	}
	s.first = c
	s.count++
	if !s.sweeping && s.timer != nil {
		s.sweeping = true
		s.timer.Reset(s.interval)
	}
	return nil
}

// remove takes a connection out of the set.
func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	if c.address.IsValid() {
		if s.addresses[c.address]--; s.addresses[c.address] == 0 {
			delete(s.addresses, c.address)
		}
	}
	for class := range c.answered {
		s.answered[class] += c.answered[class].Load()
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
	s.interval = min(time.Second, server.config.shortestTimeout()/4)
	s.interval = max(s.interval, time.Millisecond)
	s.sweeping = s.count > 0
	s.timer = time.AfterFunc(s.interval, func() { s.sweep(&server.clock) })
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
func (s *connSet) sweep(clock *coarseClock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return
	}
	now := clock.exact()
	for c := s.first; c != nil; c = c.following {
		word := c.word.Load()
		if deadline := word &^ stateMask; deadline == 0 || deadline > now {
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
		s.timer.Reset(s.interval)
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
		if state := c.state(); state <= stateIdle || state == stateParked || state == stateLast && c.looped != nil {
			c.netConn.SetReadDeadline(longAgo)
		}
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
