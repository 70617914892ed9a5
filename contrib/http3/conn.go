package http3filo

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/pace"
)

const (
	// manyHandshakes is how many handshakes may run before further clients must validate their addresses.
	manyHandshakes = 64
	// connSlack is by how many connections MaxConns may be exceeded while idle connections that make room are about to end.
	connSlack = 16
	// shedLooks is how many connections are looked at to find one that has been idle for long.
	shedLooks = 64
	// A connection that was told to leave, and whose client doesn't close it, stays for leaveTime and four round trips after its last
	// answer, and for leaveMost at most: packets may have to be sent again.
	leaveTime, leaveMost = 200 * time.Millisecond, 2 * time.Second
	// forever is for timers without a limit.
	forever = 100 * 365 * 24 * time.Hour
)

var errFull = errors.New("http3filo: too many connections")

// listener holds the connections of one call of Serve.
type listener struct {
	server           *filo.Server
	handler          http.Handler
	logger           *slog.Logger
	limits           filo.Limits
	reading, writing pace.Limits
	headBytes        int     // how large a head may be
	resets           float64 // how many requests a client may cancel at once; negative for any number
	draining         chan struct{}
	clock            clock.Coarse
	windows          atomic.Int64 // by how many bytes the connections' windows have grown

	mu         sync.Mutex
	conns      map[*conn]struct{} // guarded by mu
	open       int                // connections, those in handshakes included; guarded by mu
	handshakes int                // guarded by mu
	clients    census.Conns       // guarded by mu
	empty      chan struct{}      // closed when the last connection ends; nil if nobody waits; guarded by mu
}

func newListener(s *filo.Server) *listener {
	l := &listener{
		server: s, handler: adaptor.ToProtocol(s), logger: s.Logger, limits: s.Stats().Limits, draining: make(chan struct{}),
		headBytes: cmp.Or(s.MaxHeaderBytes, filo.DefaultMaxHeaderBytes), resets: float64(cmp.Or(s.HTTP2.MaxGlitches, http2.DefaultGlitches.Burst)),
		conns: make(map[*conn]struct{}),
	}
	if l.logger == nil {
		l.logger = slog.Default()
	}
	if l.headBytes < 0 {
		l.headBytes = 1 << 20 // all of the head is in memory
	}
	rate := cmp.Or(s.MinTransferRate, filo.DefaultMinTransferRate)
	l.reading = pace.Limits{Grace: cmp.Or(l.limits.ReadTimeout, -1), Rate: rate}
	l.writing = pace.Limits{Grace: cmp.Or(l.limits.WriteTimeout, -1), Rate: rate}
	return l
}

// admission is a connection as the limits count it, from its first packet on.
type admission struct {
	listener  *listener
	client    netip.Addr
	counted   bool // by address
	handshake bool // it isn't over; guarded by the listener's mu
	widened   atomic.Int64
}

// enter counts a connection, or returns why it is refused.
func (l *listener) enter(a *admission) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.limits.MaxConns; most > 0 && l.open >= most && (l.open >= most+connSlack || !l.shedLocked()) {
		return errFull
	}
	if most := l.limits.MaxConnsPerIP; most > 0 && a.client.IsValid() {
		if a.counted = l.clients.Count(a.client, most); !a.counted {
			return errFull
		}
	}
	a.handshake = true
	l.open++
	l.handshakes++
	return nil
}

// leave undoes enter.
func (a *admission) leave() {
	l := a.listener
	l.windows.Add(-a.widened.Load())
	l.mu.Lock()
	defer l.mu.Unlock()
	a.establishedLocked()
	if a.counted {
		l.clients.Uncount(a.client)
	}
	if l.open--; l.open == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

func (a *admission) establishedLocked() {
	if a.handshake {
		a.handshake = false
		a.listener.handshakes--
	}
}

// widen reports whether the client may send more bytes ahead. The windows of all connections together grow by MaxBufferedBodies at most.
func (a *admission) widen(more int64) bool {
	l := a.listener
	if most := l.limits.MaxBufferedBodies; l.windows.Add(more) > most && most > 0 {
		l.windows.Add(-more)
		return false
	}
	a.widened.Add(more)
	return true
}

// shedLocked ends a connection without a request, to make room: the one that has been idle for longest, of those that it looks at. It reports
// false if it finds none.
func (l *listener) shedLocked() bool {
	var found *conn
	var first time.Time
	looks := 0
	for c := range l.conns {
		if since, idle := c.idleSince(); idle && (found == nil || since.Before(first)) {
			found, first = c, since
		}
		if looks++; looks == shedLooks {
			break
		}
	}
	if found != nil {
		delete(l.conns, found)
		go found.close(errNone)
	}
	return found != nil
}

// add adds a connection whose handshake is over. It may be silent at first for as long as a head may take.
func (l *listener) add(c *conn, a *admission) {
	c.timer = time.AfterFunc(cmp.Or(l.limits.ReadHeaderTimeout, forever), c.expire)
	l.mu.Lock()
	a.establishedLocked()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
}

func (l *listener) drains() bool {
	select {
	case <-l.draining:
		return true
	default:
		return false
	}
}

// drain tells all clients to leave, and waits until they have.
func (l *listener) drain() {
	empty := make(chan struct{})
	l.mu.Lock()
	if l.empty = empty; l.open == 0 {
		close(empty)
	}
	for c := range l.conns {
		c.leave()
	}
	l.mu.Unlock()
	select {
	case <-empty:
	case <-time.After(l.limits.GracePeriod + leaveMost): // requests may take the GracePeriod, and their answers are on their way then
		l.closeAll()
		<-empty
	}
}

// closeAll ends all connections.
func (l *listener) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		go c.close(errNone)
	}
}

// conn is a connection of HTTP/3.
type conn struct {
	listener  *listener
	close     func(code closeCode)
	goAway    func()               // tells the client to send no further requests; returns at the connection's end
	roundTrip func() time.Duration // to the client and back
	timer     *time.Timer          // calls expire

	mu       sync.Mutex
	running  int       // open requests; guarded by mu
	requests int       // so far; guarded by mu
	leaving  bool      // goAway was called; guarded by mu
	idle     time.Time // when the last request ended; guarded by mu
	resets   float64   // how many requests the client may still cancel; guarded by mu
	resetsAt time.Time // when resets was computed; guarded by mu
}

// ended forgets the connection.
func (c *conn) ended() {
	c.timer.Stop()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	delete(c.listener.conns, c)
}

// idleSince returns since when the connection has had no request, and whether it has none.
func (c *conn) idleSince() (since time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle, c.running == 0
}

// expire ends a connection that has been idle for too long: the client is told to leave first, since a request may be on its way. Heads that
// aren't complete don't count as requests.
func (c *conn) expire() {
	c.mu.Lock()
	ends := c.running == 0 && c.leaving
	c.mu.Unlock()
	if ends {
		c.close(errNone)
	} else {
		c.leave()
	}
}

// leave tells the client to leave. The connection ends when the open requests are answered.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return
	}
	c.leaving = true
	go c.goAway()
	if c.running == 0 {
		c.timer.Reset(c.leaveTime())
	}
}

func (c *conn) leaveTime() time.Duration { return min(leaveTime+4*c.roundTrip(), leaveMost) }

// ServeHTTP implements http.Handler.
func (c *conn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	growStack()
	c.enter()
	whole := false
	defer func() { c.exit(whole) }()
	s, err := take(w)
	switch {
	case err != nil:
	case c.listener.drains(): // the request was on its way when the client was told to leave
		s.reset(errRejected)
		whole = true
	default:
		whole = c.serve(w, r, s)
	}
}

// enter counts a request.
func (c *conn) enter() {
	most := c.listener.limits.MaxRequestsPerConn
	c.mu.Lock()
	c.running++
	c.requests++
	full := most > 0 && c.requests >= most
	c.timer.Stop()
	c.mu.Unlock()
	if full {
		c.leave()
	}
}

// exit counts a request's end. whole says that the client didn't cancel it, which allows another one to be cancelled.
func (c *conn) exit(whole bool) {
	now, most := time.Now(), c.listener.resets
	c.mu.Lock()
	c.idle = now
	if c.running--; c.running == 0 && c.leaving {
		c.timer.Reset(c.leaveTime())
	} else if c.running == 0 {
		c.timer.Reset(cmp.Or(c.listener.limits.IdleTimeout, forever))
	}
	c.resets = min(c.resets+float64(http2.DefaultGlitches.Second)*now.Sub(c.resetsAt).Seconds(), most)
	c.resetsAt = now
	if whole {
		c.resets = min(c.resets+1, most)
	} else {
		c.resets--
	}
	floods := most >= 0 && c.resets < 0
	c.mu.Unlock()
	if floods {
		c.close(errExcessiveLoad)
	}
}

// growStack makes the stack of a request's goroutine as large as most requests need it, at once instead of in steps, each of which copies it.
//
//go:noinline
func growStack() {
	var room [8 << 10]byte
	use(&room)
}

//go:noinline
func use(*[8 << 10]byte) {}
