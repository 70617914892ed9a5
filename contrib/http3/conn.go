package http3filo

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
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
	// connSlack is by how many connections MaxConns may be exceeded while idle connections are being closed to make room.
	connSlack = 16
	// shedLooks is how many connections shedLocked examines.
	shedLooks = 64
	// After GOAWAY the client should close the connection. If it doesn't, the server does: leaveTime and four round trips after the last
	// answer, so that lost packets can be sent again, but not later than leaveMost after it.
	leaveTime, leaveMost = 200 * time.Millisecond, 2 * time.Second
	// forever is for timers without a limit.
	forever = 100 * 365 * 24 * time.Hour
	// maxHeads is how many requests of a connection may have an incomplete head. Further requests wait in QUIC's flow-control windows. So the
	// memory for incomplete heads is bounded for each connection, however many requests it has.
	maxHeads = 16
)

var errFull = errors.New("http3filo: too many connections")

// listener holds the connections of one call to Serve.
type listener struct {
	server           *filo.Server
	logger           *slog.Logger
	limits           filo.Limits
	reading, writing pace.Limits
	headBytes        int                // the maximum size of a head
	glitches         http2.GlitchLimits // how many requests a client may cancel
	draining         atomic.Bool
	clock            clock.Coarse
	counts           *hooks.HTTP3Counts
	windows          atomic.Int64 // by how many bytes the connections' windows have grown

	mu         sync.Mutex
	conns      map[*conn]struct{} // all connections, including those in handshakes; guarded by mu
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
		l.headBytes = 1 << 20 // a bound even if the server has none, since the whole head is in memory
	}
	rate := cmp.Or(s.MinTransferRate, filo.DefaultMinTransferRate)
	l.reading = pace.Limits{Grace: cmp.Or(l.limits.ReadTimeout, -1), Rate: rate}
	l.writing = pace.Limits{Grace: cmp.Or(l.limits.WriteTimeout, -1), Rate: rate}
	return l
}

// enter counts a connection as soon as its first packet has arrived. If the connection must be refused, enter returns an error.
func (l *listener) enter(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	perIP := l.limits.MaxConnsPerIP
	counts := perIP > 0 && c.client.IsValid()
	if counts && l.clients.IsFull(c.client, perIP) { // first, since a client that is refused must not displace others
		return errFull
	}
	if most := l.limits.MaxConns; most > 0 && len(l.conns) >= most && (len(l.conns) >= most+connSlack || !l.shedLocked()) {
		return errFull
	}
	c.counted = counts && l.clients.Count(c.client, perIP)
	c.handshake = true
	l.handshakes++
	l.conns[c] = struct{}{}
	l.counts.Conns.Add(1)
	return nil
}

// leave undoes enter when the connection has ended.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends = true; c.timer != nil {
		c.timer.Stop()
	}
}

func (l *listener) establishedLocked(c *conn) {
	if c.handshake {
		c.handshake = false
		l.handshakes--
	}
}

// established records that a connection's handshake has ended. The client must begin its first request within ReadHeaderTimeout.
func (l *listener) established(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.establishedLocked(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer = time.AfterFunc(cmp.Or(l.limits.ReadHeaderTimeout, forever), c.expire); c.ends {
		c.timer.Stop()
	}
}

// widen reports whether the connection's flow-control window may grow by more bytes. The windows of all connections together grow by
// MaxBufferedBodies at most.
func (c *conn) widen(more int64) bool {
	l := c.listener
	if most := l.limits.MaxBufferedBodies; l.windows.Add(more) > most && most > 0 {
		l.windows.Add(-more)
		return false
	}
	c.widened.Add(more)
	return true
}

// shedLocked makes room by closing an idle connection. It examines up to shedLooks connections, and closes the one that has been idle for the
// longest time. It reports false if none of them is idle.
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
	if found == nil {
		return false
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.running > 0 { // a request has begun since
		return false
	}
	found.ends = true
	go found.close(errNone)
	return true
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
	if !l.await(empty) {
		l.closeAll()
		<-empty
	}
}

// await waits until all connections have ended. It reports false when the GracePeriod has passed. If there is none, it reports false when the
// server has been closed, or its shutdown is complete or has given up. In both cases answers that are still being sent have leaveMost more.
func (l *listener) await(empty <-chan struct{}) bool {
	over := inside.Base(l.server).Done()
	if grace := l.limits.GracePeriod; grace > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		over = ctx.Done()
	}
	select {
	case <-empty:
		return true
	case <-over:
	}
	select {
	case <-empty:
		return true
	case <-time.After(leaveMost):
		return false
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
	client    netip.Addr // the address for MaxConnsPerIP
	counted   bool       // MaxConnsPerIP counts the connection
	handshake bool       // the handshake hasn't ended; guarded by the listener's mu
	widened   atomic.Int64

	// Set before the first request.
	*quicConn
	control *sendStream
	tls     tls.ConnectionState
	local   net.Addr
	timer   *time.Timer   // calls expire
	heads   chan struct{} // has a value for each request whose head is incomplete

	mu       sync.Mutex
	running  int            // open requests, including those with incomplete heads; guarded by mu
	requests int            // all requests since the connection began; guarded by mu
	leaving  bool           // GOAWAY was sent, so no further request is answered; guarded by mu
	ends     bool           // the connection is being closed to make room, or has ended; guarded by mu
	idle     time.Time      // when the last request ended; guarded by mu
	earned   http2.Earned   // how many cancellations the client has earned by receiving whole answers; guarded by mu
	glitches http2.Glitches // guarded by mu
}

// idleSince reports whether the connection is idle, and since when it has had no request. A connection isn't idle during its handshake, or while
// parts of its last answer may still be on their way. The listener's mu is held.
func (c *conn) idleSince() (since time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handshake || c.running > 0 || c.ends {
		return c.idle, false
	}
	return c.idle, c.requests == 0 || time.Since(c.idle) >= c.leaveTime()
}

// expire handles the timer of a connection that has been idle for too long. It first sends GOAWAY, since a request may be on its way. When the timer
// fires again, expire closes the connection.
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

// leave sends GOAWAY, which tells the client which of its requests will be answered. The connection ends after these answers.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return
	}
	c.leaving = true
	next := appendInt(nil, 4*uint64(c.requests)) // the stream ID of the first request that won't be answered
	go c.control.Write(append(appendFrame(nil, frameGoAway, len(next)), next...))
	c.awaitEndLocked()
}

// awaitEndLocked starts the timer if the connection has no request, since nothing else would end such a connection. If the connection has ended,
// the timer stays off, since it would keep the connection's memory.
func (c *conn) awaitEndLocked() {
	switch {
	case c.running > 0 || c.ends:
	case c.leaving:
		c.timer.Reset(c.leaveTime())
	default:
		c.timer.Reset(cmp.Or(c.listener.limits.IdleTimeout, forever))
	}
}

func (c *conn) leaveTime() time.Duration { return min(leaveTime+4*c.roundTrip(), leaveMost) }

// begin counts a request. It reports false if the request must be rejected, since the client was told to leave, or the connection is being closed.
func (c *conn) begin() bool {
	most := c.listener.limits.MaxRequestsPerConn
	c.mu.Lock()
	if c.leaving || c.ends {
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

// end counts the end of a request. whole says that the whole answer was sent. For each whole answer, the client may cancel another request.
func (c *conn) end(whole bool) {
	c.listener.counts.Streams.Add(-1)
	c.mu.Lock()
	c.idle = time.Now()
	c.running--
	c.awaitEndLocked()
	if whole {
		c.earned.Answer(0)
	}
	c.mu.Unlock()
	if !whole {
		c.charge()
	}
}

// charge counts a glitch: a request without a whole answer, or a one-way stream of an unknown kind or without a kind. A client with too many
// glitches loses its connection, since they cost the client nothing.
func (c *conn) charge() {
	c.mu.Lock()
	fault := c.glitches.Charge(c.earned.GiveUp(), c.listener.clock.Exact(), c.listener.glitches)
	c.mu.Unlock()
	if fault != http2.NoFault {
		c.close(errExcessiveLoad)
	}
}

// handle answers the request of a stream.
func (c *conn) handle(s *stream) {
	whole := false
	defer func() {
		if p := recover(); p != nil { // a fault of this package: filo itself recovers the panics of handlers
			c.listener.logger.Error("panic in a request of HTTP/3", "panic", p, "stack", string(debug.Stack()))
		}
		c.end(whole)
		s.ReleaseStreamCredit() // not earlier: the handler may have continued after the client had cancelled the request
	}()
	whole = c.serve(s)
}

// readOneWay reads a one-way stream that the client has opened. It returns the code with which the connection ends, or errNone.
func (c *conn) readOneWay(in *bufio.Reader, seen *[4]atomic.Bool) closeCode {
	kind, err := readInt(in)
	switch {
	case err != nil || kind >= uint64(len(seen)):
		c.charge()
		return errNone
	case kind == streamPush, seen[kind].Swap(true):
		return errStreamCreation
	case kind == streamControl:
		err = readControl(in)
	default:
		err = readQPACK(in, kind == streamEncoder)
	}
	if code, ok := err.(closeCode); ok {
		return code
	}
	return errClosedCritical
}

// readControl reads the control stream. It returns when the stream ends, or the client breaks the protocol.
func readControl(in *bufio.Reader) error {
	kind, length, err := readFrame(in)
	if err == nil && kind != frameSettings {
		return errMissingSettings
	}
	if err == nil {
		err = readSettings(in, length)
	}
	maxPush, goAway, id := uint64(0), uint64(1<<62), uint64(0)
	for err == nil {
		kind, length, err = readFrame(in)
		switch {
		case err != nil:
		case kind.in(onControl):
			return errFrameUnexpected
		case kind != frameCancel && kind != frameGoAway && kind != frameMaxPush:
			err = skip(in, length)
		default:
			id, err = readID(in, length)
			switch {
			case err != nil:
			case kind == frameMaxPush && id >= maxPush:
				maxPush = id
			case kind == frameGoAway && id <= goAway:
				goAway = id
			default: // CANCEL_PUSH, although the server never pushes; a lower MAX_PUSH_ID; or a higher GOAWAY
				err = errID
			}
		}
	}
	return err
}

// readQPACK reads the instructions of the client's encoder or decoder. Instructions about entries of the dynamic table are invalid, since its
// capacity is 0 (RFC 9204, section 4).
func readQPACK(in *bufio.Reader, encoder bool) error {
	for {
		b, err := in.ReadByte()
		switch {
		case err != nil:
			return err
		case encoder && b != 0x20: // "the table's capacity is 0"
			return errEncoderStream
		case !encoder && b>>6 != 1: // the cancellation of a request
			return errDecoderStream
		}
		for more := !encoder && b&0x3f == 0x3f; more && err == nil; more = b >= 0x80 {
			b, err = in.ReadByte()
		}
	}
}
