package filo

import (
	"cmp"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/race"
)

// connSet is the connections that are being served, and the sweep that looks after their deadlines: one goroutine and
// one timer for all of them, where a timer for each wait of each connection would be set twice a request.
type connSet struct {
	max        int // 0: no limit; immutable
	perAddress int // 0: no limit; immutable

	mu        race.Mutex
	conns     connList           // guarded by mu
	addresses map[netip.Addr]int // connections by client, if perAddress is set; guarded by mu
	sweeping  bool               // a sweep is due or under way, since there are connections; guarded by mu
	underway  bool               // a sweep is; guarded by mu
	empty     chan struct{}      // closed when the last connection goes; nil if nobody waits; guarded by mu
	closed    bool               // Close has begun: no connection is added; guarded by mu

	// waking is held while an owner is woken: one whose deadline was taken out waits for it, so that the wake-up can't hit a
	// later wait. What wakes may be the user's, and so mu isn't held for it.
	waking sync.Mutex

	// answered counts the answers by status class, of all connections that ever were. Each connection has one of them, so that few
	// processors share one, and those of a loop have the same.
	answered []sharedCounts // set once, by configure, under the server's mu
	counting int            // the one that the next connection gets; guarded by mu

	// due is when the next sweep begins: at the earliest deadline that the last sweep saw, and no later than the shortest time-out
	// after that sweep. Whoever sets an earlier deadline moves it (hasten). While a sweep is under way, due is when the next one
	// begins at the latest.
	due      clock.Atomic[clock.Time]
	clock    *coarseClock
	timer    *time.Timer   // guarded by mu
	interval time.Duration // the least between two sweeps
	shortest time.Duration // of the time-outs
	swept    clock.Time    // when the last sweep ended; guarded by mu
}

// sharedCounts is answerCounts in cache lines of their own.
type sharedCounts struct {
	answerCounts
	_ [128 - 6*8]byte
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
	case s.closed, s.max > 0 && s.conns.count >= s.max:
		return errTooManyConns
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
	s.conns.add(c)
	c.member = true
	if c.answered == nil {
		c.answered = s.countsOf(s.counting)
		s.counting++
	}
	if !s.sweeping && s.timer != nil {
		s.sweeping = true
		s.due.Store(s.clock.now().Add(s.interval))
		s.timer.Reset(s.interval)
	}
	return nil
}

// countsOf returns the answer counts of a loop, or of something else, that has this number.
func (s *connSet) countsOf(number int) *answerCounts {
	return &s.answered[number%len(s.answered)].answerCounts
}

// remove takes a connection out of the set, if it is in it.
func (s *connSet) remove(c *conn) {
	var address netip.Addr
	if s.perAddress > 0 {
		address = limitAddress(c.netConn.RemoteAddr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.member {
		return
	}
	c.member = false
	s.conns.remove(c)
	if c.counted {
		c.counted = false
		if s.addresses[address]--; s.addresses[address] == 0 {
			delete(s.addresses, address)
		}
	}
	if s.conns.count == 0 && s.empty != nil {
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
	s.sweeping = s.conns.count > 0
	s.due.Store(s.clock.now().Add(s.interval))
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

// walk calls visit, without the lock, for the connections that there are when it begins, but for those that are gone before
// their turn. One may go just before visit is called. However many there are, the lock is held for a page at a time.
func (s *connSet) walk(visit func(c *conn)) {
	s.mu.Lock()
	w := s.conns.begin()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns.end(w)
	}()
	var batch [connPage]*conn
	for n := s.take(w, &batch); n > 0; n = s.take(w, &batch) {
		for _, c := range batch[:n] {
			visit(c)
		}
		runtime.Gosched() // other goroutines come first, as often as they like
	}
}

// take takes a page of connections out of a walk.
func (s *connSet) take(w *connWalk, batch *[connPage]*conn) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns.take(w, batch)
}

// sweep wakes the owners whose deadline has passed.
func (s *connSet) sweep() {
	now, ok := s.beginSweep()
	if !ok {
		return
	}
	due := now.Add(s.shortest)
	s.walk(func(c *conn) {
		switch deadline := deadlineIn(c.word.Load()); {
		case deadline > now:
			due = min(due, deadline)
		case deadline != 0:
			s.expire(c, now)
		}
	})
	s.endSweep(due)
}

// beginSweep returns the time of a sweep that begins now, or false if there is to be none any more. From here on a wait that
// begins, and ends before the next sweep would be at the latest, moves that.
func (s *connSet) beginSweep() (now clock.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return 0, false
	}
	now = s.clock.exact()
	s.underway = true
	s.due.Store(now.Add(s.shortest))
	return now, true
}

// endSweep sets when the next one is, for the earliest of the deadlines that it has seen.
func (s *connSet) endSweep(due clock.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underway = false
	if s.sweeping = s.conns.count > 0; s.sweeping && s.timer != nil {
		s.swept = s.clock.exact()
		s.setDueLocked(s.swept, max(min(due, s.due.Load()), s.swept.Add(s.interval)))
	}
}

// setDueLocked sets when the next sweep is.
func (s *connSet) setDueLocked(now, due clock.Time) {
	s.mu.AssertHeld()
	s.due.Store(due)
	if !s.underway {
		s.timer.Reset(due.Sub(now))
	}
}

// expire wakes the owner of a connection whose deadline has passed.
func (s *connSet) expire(c *conn, now clock.Time) {
	s.waking.Lock()
	defer s.waking.Unlock()
	// The owner may have gone on since, or do so before the exchange, which fails then. If it goes on just after it, it finds
	// a wake-up that isn't for it, looks at the clock, and waits on.
	word := c.word.Load()
	if deadline := deadlineIn(word); deadline == 0 || deadline > now || !c.word.CompareAndSwap(word, word&stateMask) {
		return
	}
	if waitState(word&stateMask) == stateWrite {
		c.netConn.SetWriteDeadline(clock.Past)
	} else {
		c.netConn.SetReadDeadline(clock.Past)
	}
}

// hasten makes the next sweep come in time for a deadline.
func (s *connSet) hasten(deadline clock.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The least between two sweeps counts from the last one: or else deadlines that are set again and again would put off
	// the sweep for good.
	if due := max(deadline, s.swept.Add(s.interval)); s.timer != nil && s.sweeping && due < s.due.Load() {
		s.setDueLocked(s.clock.exact(), due)
	}
}

// awaitWakeUp returns when a wake-up that is under way has arrived.
func (s *connSet) awaitWakeUp() {
	s.waking.Lock()
	//lint:ignore SA2001 having had the lock is all it takes
	s.waking.Unlock()
}

// wakeIdle makes the connections that wait for a request notice that the server is draining.
func (s *connSet) wakeIdle(now clock.Time) {
	s.walk(func(c *conn) {
		if c.isToldOfDraining(c.word.Load(), now) {
			s.tellOfDraining(c, now)
		}
	})
}

// isToldOfDraining reports whether the owner of a connection, whose word is given, is to be woken since the server is draining.
func (c *conn) isToldOfDraining(word int64, now clock.Time) bool {
	switch state := waitState(word & stateMask); state {
	case stateNew, stateIdle, stateParked:
		return true
	case stateRest:
		return c.server.life.endsRest(func() clock.Time { return now })
	case stateLast:
		return c.looped != nil && deadlineIn(word) <= now // the sweep may come much later
	}
	return false
}

func (s *connSet) tellOfDraining(c *conn, now clock.Time) {
	s.waking.Lock()
	defer s.waking.Unlock()
	word := c.word.Load()
	// As in a sweep: the owner of a connection in a loop may have gone on since, and a TLS handshake must not be told.
	if !c.isToldOfDraining(word, now) || c.looped != nil && !c.word.CompareAndSwap(word, word&stateMask) {
		return
	}
	c.netConn.SetReadDeadline(clock.Past)
}

// closeAll closes every connection, and keeps new ones out.
func (s *connSet) closeAll() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.walk(func(c *conn) { linger.Cut(c.netConn) })
}

// seal keeps new connections out if there are none now, and reports whether it did.
func (s *connSet) seal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || s.conns.count == 0
	return s.closed
}

// whenEmpty returns a channel that is closed when there are no connections.
func (s *connSet) whenEmpty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns.count == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	return s.empty
}

// connPage is how many connections lie together in a connList. A walk takes as many at a time.
const connPage = 256

// connList is a list of connections in no particular order. They lie close together, so that who looks at all of them needn't
// have seen one to find the next: the processor fetches many at once, where a chain of pointers would have it wait for each.
type connList struct {
	pages []*[connPage]*conn
	count int
	walks []*connWalk // that are under way
}

// connWalk is a walk through a list, from its end to its beginning.
type connWalk struct {
	left int // the connections before this index are still to be visited
}

func (l *connList) at(i int) **conn { return &l.pages[i/connPage][i%connPage] }

// put makes a connection the one at an index.
func (l *connList) put(i int, c *conn) {
	*l.at(i) = c
	c.index = i
}

// add puts a connection at the end, where walks that are under way have been already.
func (l *connList) add(c *conn) {
	if l.count == len(l.pages)*connPage {
		l.pages = append(l.pages, new([connPage]*conn))
	}
	l.put(l.count, c)
	l.count++
}

// remove takes a connection out. Another one is moved to where it was: the last of all, or of those that are still to be
// visited by a walk, so that this misses none and visits none twice.
func (l *connList) remove(c *conn) {
	hole := c.index
	if len(l.walks) > 1 {
		slices.SortFunc(l.walks, func(a, b *connWalk) int { return cmp.Compare(a.left, b.left) })
	}
	for _, w := range l.walks {
		if hole < w.left {
			w.left--
			hole = l.fill(hole, w.left)
		}
	}
	l.count--
	*l.at(l.fill(hole, l.count)) = nil
	if spare := len(l.pages) - 2; spare >= 0 && l.count <= spare*connPage {
		l.pages[spare+1] = nil
		l.pages = l.pages[:spare+1]
	}
}

// fill moves the connection at an index into a hole, unless that is the hole itself, and returns where the hole is then.
func (l *connList) fill(hole, from int) int {
	if from != hole {
		l.put(hole, *l.at(from))
	}
	return from
}

// begin begins a walk, which is to be ended.
func (l *connList) begin() *connWalk {
	w := &connWalk{left: l.count}
	l.walks = append(l.walks, w)
	return w
}

// end ends a walk.
func (l *connList) end(w *connWalk) {
	l.walks = slices.DeleteFunc(l.walks, func(each *connWalk) bool { return each == w })
}

// take visits the next connections of a walk: it puts them into batch, and returns how many there are. With none left the walk
// is over.
func (l *connList) take(w *connWalk, batch *[connPage]*conn) int {
	if w.left == 0 {
		return 0
	}
	page := (w.left - 1) / connPage
	n := copy(batch[:], l.pages[page][:w.left-page*connPage])
	w.left -= n
	return n
}
