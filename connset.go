package filo

import (
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/answerconn"
	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sweep"
	"github.com/filohttp/filo/internal/walklist"
)

// connSet holds the connections being served, and sweeps them to enforce their deadlines.
type connSet struct {
	max        int // 0: no limit; immutable
	perAddress int // 0: no limit; immutable

	// answered counts the answers by status class. Each seat of a loop has an element, for the connections that its leader serves. Other
	// connections are assigned the elements in turn, so that few processors write to the same element.
	answered []sharedCounts // set once, by configure, in life.Hold

	schedule sweep.Schedule // when the next sweep begins; guarded by mu, except for IsLate
	clock    *coarseClock

	_    apart.Lines // requests read the fields above; connections that begin or end write the fields below
	room connRoom

	mu        race.Mutex[race.OfConns]
	conns     walklist.List[*conn] // guarded by mu
	counting  int                  // number of the last element of the field answered that was assigned; guarded by mu
	streams   int                  // parked streams of HTTP/2, for which a shutdown waits too; guarded by mu
	carried   int                  // requests of other servers, for which a shutdown waits too; guarded by mu
	addresses census.Conns         // the clients, if perAddress is set; guarded by mu
	strangers map[*conn]net.Addr   // addresses that the RemoteAddr of strangers has returned: see tellsAddress; guarded by mu
	empty     chan struct{}        // closed when the last connection is removed; nil if nobody waits; guarded by mu
	closed    bool                 // set by closeAll or seal: no connection is added any more; guarded by mu

	// waking is held while an owner is woken. An owner whose deadline the sweep has taken waits for this lock, so that the wake-up
	// can't hit a later wait. The goroutine that wakes the owner doesn't hold mu, since the wake-up calls a net.Conn that may be the user's.
	waking race.Mutex[race.OfWaking]
}

// sharedCounts is answerCounts, padded to fill cache lines of its own.
type sharedCounts struct {
	answerCounts
	_ [128 - 6*8]byte
}

// add adds a connection to the set, or returns the reason for a refusal. The result client is the client's address if it is known.
func (s *connSet) add(c *conn) (client netip.AddrPort, refused *HTTPError) {
	var told net.Addr
	if s.perAddress > 0 && !c.awaitsProxy {
		told = c.netConn.RemoteAddr()
	}
	address := census.Of(told)
	if client = addrPortOf(told); !client.IsValid() {
		client = c.knownRemote()
	}
	limit := s.max
	s.mu.Lock()
	if s.needsRoomLocked(address) {
		s.mu.Unlock()
		if s.makeRoom() {
			limit += roomSlack
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock() // deferred only now: a user's net.Conn may panic in makeRoom
	switch {
	case s.closed:
		return client, errEnding
	case limit > 0 && s.conns.Len() >= limit:
		return client, errTooManyConns
	case address.IsValid() && !s.countLocked(c, address):
		return client, errConnsPerIP
	}
	s.addLocked(c)
	if told != nil {
		s.rememberLocked(c, told)
	}
	return client, nil
}

// adopt adds a connection that another server has accepted. The other server's limits apply.
func (s *connSet) adopt(c *conn) *HTTPError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errEnding
	}
	s.addLocked(c)
	return nil
}

// ListIndex implements walklist.Member.
func (c *conn) ListIndex() *int32 { return &c.index }

// isClosed reports whether the set refuses new connections.
func (s *connSet) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *connSet) addLocked(c *conn) {
	s.mu.AssertHeld()
	s.conns.Add(c)
	c.member = true
	c.answered = s.nextCountsLocked()
	s.schedule.Added()
}

// nextCountsLocked returns the next element of s.answered, round robin.
func (s *connSet) nextCountsLocked() *answerCounts {
	s.mu.AssertHeld()
	s.counting++
	return &s.answered[s.counting%len(s.answered)].answerCounts
}

// countAddress counts a member against MaxConnsPerIP, once a proxy has sent its client's address. It returns a refusal if that address has
// too many connections.
func (s *connSet) countAddress(c *conn) *HTTPError {
	if s.perAddress <= 0 {
		return nil
	}
	address := census.Of(c.remoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	if address.IsValid() && c.member && !s.countLocked(c, address) {
		return errConnsPerIP
	}
	return nil
}

// countLocked counts c for its client's address. It reports false if the address already has the maximum number of connections.
func (s *connSet) countLocked(c *conn, address netip.Addr) bool {
	s.mu.AssertHeld()
	c.counted = s.addresses.Count(address, s.perAddress)
	return c.counted
}

// remove takes a connection out of the set, if it is a member.
func (s *connSet) remove(c *conn) {
	client := c.knownRemote()
	if s.removeMember(c) {
		c.server.clients.AddEnded(c.server.clock.Now(), census.OfIP(client.Addr()), c.requestCount())
	}
}

// removeMember does what remove does, but doesn't record the ended connection in Server.clients. It reports whether the connection was a
// member.
func (s *connSet) removeMember(c *conn) bool {
	var address netip.Addr
	if s.perAddress > 0 && !c.isStranger() {
		address = census.Of(c.netConn.RemoteAddr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.member {
		return false
	}
	c.member = false
	s.conns.Remove(c)
	if told, ok := s.strangers[c]; ok {
		address = census.Of(told)
		delete(s.strangers, c)
	}
	if c.counted {
		c.counted = false
		s.addresses.Uncount(address)
	}
	s.maybeEmptyLocked()
	return true
}

// maybeEmptyLocked wakes the goroutines that wait for an empty set, if the set is empty now.
func (s *connSet) maybeEmptyLocked() {
	s.mu.AssertHeld()
	if s.isEmptyLocked() && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// isEmptyLocked reports whether nothing is left that a shutdown waits for.
func (s *connSet) isEmptyLocked() bool {
	s.mu.AssertHeld()
	return s.conns.Len() == 0 && s.streams == 0 && s.carried == 0
}

// addStream counts a parked stream of HTTP/2, or returns the reason for a refusal.
func (s *connSet) addStream() *HTTPError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errEnding
	}
	s.streams++
	return nil
}

// removeStream undoes addStream.
func (s *connSet) removeStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	s.maybeEmptyLocked()
}

// addCarried counts a request of another server, or returns the reason for a refusal. The request's answer must be counted in the returned
// answerCounts.
func (s *connSet) addCarried() (*answerCounts, *HTTPError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errEnding
	}
	s.carried++
	return s.nextCountsLocked(), nil
}

// keepCarried does what addCarried does, for a part (see carried) that outlives the request around it. It never refuses.
func (s *connSet) keepCarried() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carried++
}

// removeCarried undoes addCarried or keepCarried.
func (s *connSet) removeCarried() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carried--
	s.maybeEmptyLocked()
}

// carriedNow returns how many requests of other servers are being handled.
func (s *connSet) carriedNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carried
}

// bodiesOf returns the counter of the buffered bodies of a connection's client.
func (s *connSet) bodiesOf(c *conn) *atomic.Int64 {
	var address netip.Addr
	if s.perAddress > 0 {
		address = census.Of(c.knownAddr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bodies := s.addresses.Bodies(address); c.counted && bodies != nil {
		return bodies
	}
	return new(atomic.Int64)
}

// startSweep begins to enforce deadlines.
func (s *connSet) startSweep(server *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = &server.clock
	s.schedule.Start(&server.clock.Coarse, server.config.shortestTimeout(), s.conns.Len() > 0, s.sweep)
}

func (s *connSet) stopSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule.Stop()
}

// walk calls visit, without holding mu, for the connections that are in the set when walk begins, except those removed before their turn. A
// connection may be removed just before its visit. walk holds mu only while it copies one page of connections.
func (s *connSet) walk(visit func(c *conn)) {
	s.mu.Lock()
	w := s.conns.Begin()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns.End(w)
	}()
	var batch [walklist.PageSize]*conn
	for n := s.take(w, &batch); n > 0; n = s.take(w, &batch) {
		for _, c := range batch[:n] {
			visit(c)
		}
		runtime.Gosched() // let other goroutines run first
	}
}

// take puts the next page of a walk into batch, and returns its size.
func (s *connSet) take(w *walklist.Walk, batch *[walklist.PageSize]*conn) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns.Take(w, batch)
}

// sweep wakes the owners whose deadline has passed.
func (s *connSet) sweep() {
	s.mu.Lock()
	now, due, ok := s.schedule.Begin()
	s.mu.Unlock()
	if !ok {
		return
	}
	s.clock.CatchUp() // after a pause of the process, woken owners set deadlines for bytes that haven't arrived yet
	s.walk(func(c *conn) {
		switch deadline := deadlineIn(c.word.Load()); {
		case deadline > now:
			due = min(due, deadline)
		case deadline != 0:
			if next := s.expire(c, now); next != 0 {
				due = min(due, next)
			}
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule.End(due, s.conns.Len() > 0)
}

// expire wakes the owner of a connection whose deadline has passed. In a wait to write it first checks how much the client has taken. While
// the word has no deadline and s.waking is held, only the sweep uses c.since, c.buffered and c.writePace. If the wait goes on, expire returns
// the time of the next check.
func (s *connSet) expire(c *conn, now clock.Time) (next clock.Time) {
	s.waking.Lock()
	defer s.waking.Unlock()
	// If the owner ends the wait before the exchange, the exchange fails. If the owner begins another wait just after the exchange, this
	// wake-up may end that wait: the owner then checks the clock and waits again.
	word := c.word.Load()
	if deadline := deadlineIn(word); deadline == 0 || deadline > now || !c.word.CompareAndSwap(word, word&stateMask) {
		return 0
	}
	if waitState(word&stateMask) != stateWrite {
		c.wakeReader()
	} else if next = c.lookAtWrite(now); next != 0 {
		c.word.CompareAndSwap(word&stateMask, waitWord(stateWrite, next)) // unless the owner has ended the wait
	} else if c.netConn.SetWriteDeadline(clock.Past) != nil {
		linger.Cut(c.netConn)
	}
	return next
}

// hasten makes the next sweep begin in time for a deadline.
func (s *connSet) hasten(deadline clock.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule.Hasten(deadline)
}

// awaitWakeUp waits until a wake-up in progress has arrived.
func (s *connSet) awaitWakeUp() {
	s.waking.Lock()
	//lint:ignore SA2001 the lock itself is the wait
	s.waking.Unlock()
}

// wakeIdle wakes the owners that must notice that the server is draining.
func (s *connSet) wakeIdle(now clock.Time) {
	s.walk(func(c *conn) {
		if c.isToldOfDraining(c.word.Load(), now) {
			s.tellOfDraining(c, now)
		}
	})
}

// anyUsedSince reports whether any connection of HTTP/1.1 is idle now, and was in use at the given moment or later.
func (s *connSet) anyUsedSince(moment clock.Time) (used bool) {
	s.walk(func(c *conn) {
		if word := c.word.Load(); !used && waitState(word&stateMask) == stateIdle && c.http2.Load() == nil {
			since, _, _ := c.idleSince(word, 0)
			used = since >= moment
		}
	})
	return used
}

// isToldOfDraining reports whether a connection's owner must be woken because the server is draining. word is the value of c.word.
func (c *conn) isToldOfDraining(word int64, now clock.Time) bool {
	switch state := waitState(word & stateMask); state {
	case stateNew, stateIdle, stateParked, stateStreams:
		return true
	case stateRest:
		return c.server.life.EndsRest(func() clock.Time { return now })
	case stateLast:
		// The owner is woken now, since the sweep may run much later. If the word has no deadline, the owner has been told already, or ends the
		// wait itself: see lastRead.
		deadline := deadlineIn(word)
		return deadline != 0 && deadline <= now
	}
	return false
}

func (s *connSet) tellOfDraining(c *conn, now clock.Time) {
	s.waking.Lock()
	defer s.waking.Unlock()
	word := c.word.Load()
	// As in expire, the owner may have ended the wait. A TLS handshake must not be woken.
	if !c.isToldOfDraining(word, now) || !c.word.CompareAndSwap(word, word&stateMask) {
		return
	}
	c.wakeReader()
}

// wakeReader ends the wait of the connection's owner. A net.Conn that doesn't support deadlines is closed; with HTTP/2 only if no stream is
// open.
func (c *conn) wakeReader() {
	if c.netConn.SetReadDeadline(clock.Past) == nil {
		return
	}
	if h := c.http2.Load(); h == nil || h.OpenStreams() == 0 {
		linger.Cut(c.netConn)
	}
}

// open returns the number of connections.
func (s *connSet) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns.Len()
}

// closeAll closes every connection, and makes the set refuse new ones.
func (s *connSet) closeAll() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.walk(func(c *conn) { linger.Cut(c.netConn) })
}

// seal makes the set refuse new connections, and requests of other servers, if the set is empty. It reports whether the set refuses them.
func (s *connSet) seal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || s.isEmptyLocked()
	return s.closed
}

// whenEmpty returns a channel that is closed when nothing is left that a shutdown waits for.
func (s *connSet) whenEmpty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEmptyLocked() {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	return s.empty
}

// The listener and its connections may be types of the program's own. Their RemoteAddr may block, for example to read a header of the PROXY
// protocol, and a later call may return another address. So only the goroutine that serves such a connection calls RemoteAddr, at its first
// request or for MaxConnsPerIP, and only once. The connSet keeps the address for other goroutines. Server.ProxyProtocol is an exception:
// with it, the server calls RemoteAddr of each accepted connection, to decide whether to trust its header.

// tellsAddress reports whether the RemoteAddr of a connection is known to return without blocking.
func tellsAddress(netConn net.Conn) bool {
	switch c := netConn.(type) {
	case driver, *net.TCPConn, *net.UnixConn, *answerconn.Conn:
		return true
	case *tls.Conn:
		return tellsAddress(c.NetConn())
	case *proxyproto.Conn:
		return tellsAddress(c.Conn)
	}
	return false
}

// isStranger reports whether the connection's RemoteAddr may block, so that only its own goroutine may call it.
func (c *conn) isStranger() bool { return !tellsAddress(c.netConn) }

// remoteAddr implements wire. Only the goroutine that serves the connection, or one that works for that goroutine, calls it.
func (c *conn) remoteAddr() net.Addr {
	if !c.isStranger() {
		return c.netConn.RemoteAddr()
	}
	s := &c.server.conns
	if address, ok := s.addressOf(c); ok {
		return address
	}
	address := c.netConn.RemoteAddr()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.member {
		s.rememberLocked(c, address)
	}
	return address
}

// rememberLocked stores the address that a stranger's RemoteAddr has returned.
func (s *connSet) rememberLocked(c *conn, address net.Addr) {
	s.mu.AssertHeld()
	if !c.isStranger() {
		return
	}
	if s.strangers == nil {
		s.strangers = make(map[*conn]net.Addr)
	}
	s.strangers[c] = address
}

// remote implements wire. Like remoteAddr it returns the client's address, but only of an IP connection.
func (c *conn) remote() netip.AddrPort { return c.driver.remote() }

// knownAddr is like remoteAddr, but any goroutine may call it. It returns nil if RemoteAddr would have to be called and may block.
func (c *conn) knownAddr() net.Addr {
	if !c.isStranger() {
		return c.netConn.RemoteAddr()
	}
	address, _ := c.server.conns.addressOf(c)
	return address
}

// knownRemote is like remote, but any goroutine may call it. The result is invalid if RemoteAddr would have to be called and may block.
func (c *conn) knownRemote() netip.AddrPort {
	if !c.isStranger() {
		return c.driver.remote()
	}
	return addrPortOf(c.knownAddr())
}

// addressOf returns the address that rememberLocked has stored.
func (s *connSet) addressOf(c *conn) (address net.Addr, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, ok = s.strangers[c]
	return address, ok
}
