package http3filo

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/inside"
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
	// maxEarned is the number of answers a client may cancel a request later.
	maxEarned = 1000
)

var errFull = errors.New("http3filo: too many connections")

// listener holds the connections of one call to Serve.
type listener struct {
	server           *filo.Server
	logger           *slog.Logger
	limits           filo.Limits
	reading, writing pace.Limits
	headBytes        int                // how large a head may be
	glitches         http2.GlitchLimits // how many requests a client may cancel
	draining         atomic.Bool
	clock            clock.Coarse
	counts           *hooks.HTTP3Counts
	windows          atomic.Int64 // by how many bytes the connections' windows have grown

	mu         sync.Mutex
	conns      map[*conn]struct{} // those in handshakes included; guarded by mu
	handshakes int                // guarded by mu
	clients    census.Conns       // guarded by mu
	empty      chan struct{}      // closed when the last connection ends; nil if nobody waits; guarded by mu
}

func newListener(s *filo.Server) *listener {
	inside.Configure(s)
	l := &listener{
		server: s, logger: cmp.Or(s.Logger, slog.Default()), limits: s.Stats().Limits,
		headBytes: cmp.Or(s.MaxHeaderBytes, filo.DefaultMaxHeaderBytes), glitches: http2.DefaultGlitches, counts: inside.HTTP3(s), conns: make(map[*conn]struct{}),
	}
	l.glitches.Burst = cmp.Or(s.HTTP2.MaxGlitches, l.glitches.Burst)
	if l.headBytes < 0 {
		l.headBytes = 1 << 20 // all of the head is in memory
	}
	rate := cmp.Or(s.MinTransferRate, filo.DefaultMinTransferRate)
	l.reading = pace.Limits{Grace: cmp.Or(l.limits.ReadTimeout, -1), Rate: rate}
	l.writing = pace.Limits{Grace: cmp.Or(l.limits.WriteTimeout, -1), Rate: rate}
	return l
}

// enter counts a connection from its first packet on, or returns why it is refused.
func (l *listener) enter(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.limits.MaxConns; most > 0 && len(l.conns) >= most && (len(l.conns) >= most+connSlack || !l.shedLocked()) {
		return errFull
	}
	if most := l.limits.MaxConnsPerIP; most > 0 && c.client.IsValid() {
		if c.counted = l.clients.Count(c.client, most); !c.counted {
			return errFull
		}
	}
	c.handshake = true
	l.handshakes++
	l.conns[c] = struct{}{}
	l.counts.Conns.Add(1)
	return nil
}

// leave undoes enter: the connection is over.
func (l *listener) leave(c *conn) {
	l.windows.Add(-c.widened.Load())
	l.counts.Conns.Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.establishedLocked(c)
	if c.counted {
		l.clients.Uncount(c.client)
	}
	if delete(l.conns, c); len(l.conns) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (l *listener) establishedLocked(c *conn) {
	if c.handshake {
		c.handshake = false
		l.handshakes--
	}
}

// established records that a connection's handshake is over. It may be silent at first for as long as a head may take.
func (l *listener) established(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.establishedLocked(c)
	c.timer = time.AfterFunc(cmp.Or(l.limits.ReadHeaderTimeout, forever), c.expire)
}

// widen reports whether a client may send more bytes ahead. The windows of all connections together grow by MaxBufferedBodies at most.
func (c *conn) widen(more int64) bool {
	l := c.listener
	if most := l.limits.MaxBufferedBodies; l.windows.Add(more) > most && most > 0 {
		l.windows.Add(-more)
		return false
	}
	c.widened.Add(more)
	return true
}

// shedLocked ends a connection without a request, to make room: the one that has been idle for longest, of those that it looks at. It reports
// false if it finds none.
func (l *listener) shedLocked() bool {
	var found *conn
	var first time.Time
	looks := 0
	for c := range l.conns {
		if since, idle := c.idleSince(); idle && !c.handshake && (found == nil || since.Before(first)) {
			found, first = c, since
		}
		if looks++; looks == shedLooks {
			break
		}
	}
	if found != nil {
		found.mu.Lock()
		found.shed = true
		found.mu.Unlock()
		go found.close(errNone)
	}
	return found != nil
}

// drain tells all clients to leave, and waits until they have.
func (l *listener) drain() {
	empty := make(chan struct{})
	l.mu.Lock()
	if l.empty = empty; len(l.conns) == 0 {
		close(empty)
		l.empty = nil
	}
	for c := range l.conns {
		if !c.handshake {
			c.leave()
		}
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
		if !c.handshake {
			go c.close(errNone)
		}
	}
}

// conn is a connection of HTTP/3.
type conn struct {
	listener  *listener
	client    netip.Addr // under which MaxConnsPerIP counts it
	counted   bool       // by address
	handshake bool       // it isn't over; guarded by the listener's mu
	widened   atomic.Int64

	// Set before the first request.
	*quicConn
	control *sendStream
	tls     tls.ConnectionState
	local   net.Addr
	timer   *time.Timer // calls expire

	mu       sync.Mutex
	running  int            // open requests, those without a whole head included; guarded by mu
	requests int            // so far; guarded by mu
	leaving  bool           // the client was told that no further request is answered; guarded by mu
	shed     bool           // it ends to make room; guarded by mu
	idle     time.Time      // when the last request ended; guarded by mu
	earned   int            // for how many answers the client may cancel a request; guarded by mu
	glitches http2.Glitches // guarded by mu
}

// idleSince returns since when the connection has had no request, and whether it has none.
func (c *conn) idleSince() (since time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle, c.running == 0 && !c.shed
}

// expire ends a connection that has been idle for too long: the client is told to leave first, since a request may be on its way.
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

// leave tells the client by GOAWAY how many of its requests are answered. The connection ends when they are.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return
	}
	c.leaving = true
	next := appendInt(nil, 4*uint64(c.requests)) // the number of the stream of the first request that isn't answered
	go c.control.Write(append(appendFrame(nil, frameGoAway, len(next)), next...))
	if c.running == 0 {
		c.timer.Reset(c.leaveTime())
	}
}

func (c *conn) leaveTime() time.Duration { return min(leaveTime+4*c.roundTrip(), leaveMost) }

// begin counts a request, and reports false if it isn't answered.
func (c *conn) begin() bool {
	most := c.listener.limits.MaxRequestsPerConn
	c.mu.Lock()
	if c.leaving {
		c.mu.Unlock()
		return false
	}
	c.running++
	c.requests++
	full := most > 0 && c.requests >= most
	c.timer.Stop()
	c.mu.Unlock()
	c.listener.counts.Streams.Add(1)
	if full {
		c.leave()
	}
	return true
}

// end counts a request's end. whole says that the client has its answer, which allows another request to be cancelled.
func (c *conn) end(whole bool) {
	now, fault := time.Now(), http2.NoFault
	c.listener.counts.Streams.Add(-1)
	c.mu.Lock()
	c.idle = now
	if c.running--; c.running == 0 && c.leaving {
		c.timer.Reset(c.leaveTime())
	} else if c.running == 0 {
		c.timer.Reset(cmp.Or(c.listener.limits.IdleTimeout, forever))
	}
	switch {
	case whole:
		c.earned = min(c.earned+1, maxEarned)
	case c.earned > 0:
		c.earned--
	default:
		fault = c.glitches.Charge(1, c.listener.clock.Exact(), c.listener.glitches)
	}
	c.mu.Unlock()
	if fault != http2.NoFault {
		c.close(errExcessiveLoad)
	}
}

// handle answers the request of a stream.
func (c *conn) handle(s *stream) {
	growStack()
	whole := false
	defer func() {
		if p := recover(); p != nil { // what panicked isn't a handler: filo answers their panics
			c.listener.logger.Error("panic in a request of HTTP/3", "panic", p)
		}
		c.end(whole)
	}()
	whole = c.serve(s)
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

// readControl reads a one-way stream that the client has opened. It returns the code with which the connection ends, or errNone.
func (c *conn) readControl(in *bufio.Reader, seen *[4]atomic.Bool) closeCode {
	kind, err := readInt(in)
	switch {
	case err != nil:
		return errNone
	case kind == streamPush, kind < uint64(len(seen)) && seen[kind].Swap(true):
		return errStreamCreation
	case kind == streamEncoder, kind == streamDecoder: // nothing can come: the dynamic table has no room
		return errNone
	case kind != streamControl:
		io.Copy(io.Discard, in)
		return errNone
	}
	frame, length, err := readFrame(in)
	if err == nil && frame != frameSettings {
		return errMissingSettings
	}
	for err == nil {
		if err = skip(in, length); err != nil {
			break
		}
		if frame, length, err = readFrame(in); err == nil && frame.in(onControl) {
			return errFrameUnexpected
		}
	}
	return errClosedCritical
}
