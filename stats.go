package filo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/linger"
)

// ConnState is the state of a connection.
type ConnState int

// The states that Server.ConnState reports. A connection begins as new. It is active from the first byte of a request until its
// answer is written, idle between requests, and closed or hijacked at the end.
const (
	StateNew ConnState = iota
	StateActive
	StateIdle
	StateHijacked
	StateClosed
)

// String returns the state's name.
func (s ConnState) String() string {
	names := [...]string{"new", "active", "idle", "hijacked", "closed"}
	if s < 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Stats holds the counters of a server and its current state.
type Stats struct {
	// ConnsOpen is the number of connections being served. ConnsIdle of them wait for a request (new ones too), ConnsActive have a request,
	// and ConnsParked wait after Ctx.Park has taken them over.
	ConnsOpen, ConnsIdle, ConnsActive, ConnsParked int
	// ConnsHTTP2 is how many of the open connections use HTTP/2, and Streams how many requests are open on them.
	ConnsHTTP2, Streams int
	// ConnsHTTP3 is how many connections of HTTP/3 are open, and StreamsHTTP3 how many requests they have open: see contrib/http3. ConnsOpen
	// doesn't include them. RequestsCarried includes those of their requests that are being handled.
	ConnsHTTP3, StreamsHTTP3 int
	// ConnsAccepted and ConnsRefused count since the start. A refused connection is also an accepted one; it got a 503, a 429
	// or no answer.
	ConnsAccepted, ConnsRefused uint64
	// ConnsShed counts the idle connections that were closed since the start because new ones needed their place: see MaxConns.
	ConnsShed uint64
	// AcceptFailures counts since the start how often accepting a connection failed for a while, mostly because descriptors ran out.
	AcceptFailures uint64
	// HandshakeErrors counts TLS handshakes that failed since the start. Those that took too long are in Timeouts. A client that closed
	// its connection before it sent anything, such as a balancer's check, isn't counted.
	HandshakeErrors uint64
	// Timeouts and Refusals count since the start.
	Timeouts Timeouts
	Refusals Refusals
	// Limits are the limits in force, to compare the figures with.
	Limits Limits
	// Draining says that Shutdown or Close was called, at DrainingSince. KeepAlivesOff says that the server tells clients to leave: see
	// SetKeepAlivesEnabled.
	Draining, KeepAlivesOff bool
	DrainingSince           time.Time
	// Requests counts the answers by status class: Requests[2] is 200 to 299. It includes the answers to refused connections.
	Requests [6]uint64
	// WorkersRunning, WorkersReady and WorkersLeading are the numbers of workers that serve a connection, wait for one, and
	// lead a loop. A request that another server has received counts as a running worker while it counts against Concurrency.
	WorkersRunning, WorkersReady, WorkersLeading int
	// WorkersSpawned and WorkersRetired count since the start.
	WorkersSpawned, WorkersRetired uint64
	// RequestsRefused counts the requests that the server answered with 503, or refused over HTTP/2, because Concurrency was reached, or too
	// many bytes of request bodies or answers waited. Refusals counts them by reason.
	RequestsRefused uint64
	// RequestsCarried is the number of requests that are being handled here, but that another server has received (adaptor.ToHTTP) or that
	// arrived over HTTP/3. Their connections aren't this server's: ConnsOpen counts only those that are parked.
	RequestsCarried int
	// RequestsQueued is the number of requests that wait in Server.Queue.
	RequestsQueued int
	// BodiesBuffered is how many bytes count against Server.MaxBufferedBodies.
	BodiesBuffered int64
	// AnswersBuffered is how many bytes count against Server.MaxBufferedAnswers.
	AnswersBuffered int64
	// TasksRunning is the number of tasks started by Ctx.Go, including those that wait for a worker of the pool.
	TasksRunning int
	// Handoffs counts how often a worker gave its place as a loop's leader to another worker because a handler might block.
	// Retakes counts how often that place was taken from a worker whose handler took too long.
	Handoffs, Retakes uint64
	// Classes are the handler classes in use. The first is the class of the server's handler.
	Classes []ClassStats
}

// serverCounts holds the counters that no worker, loop or connection keeps. They are independent of each other.
type serverCounts struct {
	accepted, refused atomic.Uint64 // connections
	shed              atomic.Uint64 // idle connections that were closed to make room for other connections
	refusalAnswers    answerCounts  // the answers to refused connections
	overloads         atomic.Uint64 // requests, see Stats.RequestsRefused
	acceptFailures    atomic.Uint64
	handshakeErrors   atomic.Uint64
	timeouts          timeoutCounts
	refusals          refusalCounts
}

// slowWriter counts a client that took an answer too slowly, if err says so.
func (c *serverCounts) slowWriter(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.timeouts.write.Add(1)
	}
}

func (c *serverCounts) addTo(st *Stats) {
	st.ConnsAccepted += c.accepted.Load()
	st.ConnsRefused += c.refused.Load()
	st.RequestsRefused += c.overloads.Load()
	st.ConnsShed += c.shed.Load()
	c.refusalAnswers.addTo(&st.Requests)
	st.AcceptFailures, st.HandshakeErrors = c.acceptFailures.Load(), c.handshakeErrors.Load()
	st.Timeouts, st.Refusals = c.timeouts.load(), c.refusals.load()
	st.Timeouts.Queue = st.Refusals.QueueTimeout
}

// Stats returns the server's counters. It visits every connection, so call it at intervals, not for each request. A connection that changes
// its state during the call may be counted in its old or its new state.
func (s *Server) Stats() Stats {
	st := Stats{BodiesBuffered: s.bodies.Used(), AnswersBuffered: s.answers.Used(), TasksRunning: s.tasks.Count(), Classes: s.classes.stats()}
	s.counts.addTo(&st)
	loops := s.loops.Load().Counts()
	st.Handoffs, st.Retakes = loops.Handoffs, loops.Retakes
	st.DrainingSince, st.KeepAlivesOff = s.life.DrainingSince(), s.life.NoReuse.Load()
	st.Draining = !st.DrainingSince.IsZero()
	var answered []sharedCounts
	s.life.Hold(func() {
		if answered = s.conns.answered; s.pool != nil {
			s.pool.stats(&st)
			st.Limits = s.limits()
		}
	})
	for i := range answered {
		answered[i].addTo(&st.Requests)
	}
	st.RequestsCarried = s.conns.carriedNow()
	st.ConnsHTTP3, st.StreamsHTTP3 = int(s.http3.Conns.Load()), int(s.http3.Streams.Load())
	s.conns.walk(func(c *conn) {
		st.ConnsOpen++
		if h := c.http2.Load(); h != nil {
			streams := h.OpenStreams()
			st.ConnsHTTP2++
			if st.Streams += streams; streams == 0 {
				st.ConnsIdle++
			}
			return
		}
		switch state := c.state(); {
		case state.idle():
			st.ConnsIdle++
		case state == stateParked:
			st.ConnsParked++
		}
	})
	st.ConnsActive = st.ConnsOpen - st.ConnsIdle - st.ConnsParked
	return st
}

// changed calls Server.ConnState, if it is set.
func (s *Server) changed(c *conn, state ConnState) {
	if s.ConnState != nil {
		s.ConnState((*observedConn)(c), state)
	}
}

// tellTaken tells ConnState that a handler has taken the connection over. The handler owns the connection by then, so a panic in ConnState
// is only logged.
func (c *conn) tellTaken() {
	survive(c.server.logger(), "panic in ConnState", func() { c.server.changed(c, StateHijacked) })
}

// connHijacked makes the server forget a connection that a handler has taken over.
func (s *Server) connHijacked(c *conn) {
	told := false
	c.scratch.running.End()
	s.conns.remove(c)
	s.conns.awaitWakeUp() // the wake-up must not hit the new owner
	if worker := c.scratch.worker; worker != nil {
		worker.pool.forget(worker)
	}
	defer func() {
		if !told { // ConnState has ended the goroutine, so nobody gets the connection
			linger.Cut(c.netConn)
		}
	}()
	c.tellTaken()
	told = true
}

// observedConn is the net.Conn that Server.ConnState and ConnContext get: the conn itself, with other methods. So it costs nothing, is
// the same in all states of the connection, and can be compared and used as the key of a map.
//
// User code may keep it, and call its methods at any time on any goroutine, while the owner, the lingerer or the handler that has hijacked
// the connection uses the socket. So the methods touch none of the owner's fields: the addresses are immutable or read under the loop's
// lock, and linger.Cut may run while the owner uses the connection.
type observedConn conn

var errObserved = errors.New("filo: only the server reads, writes and sets the deadlines of the connection that ConnState is told of; " +
	"Ctx.Hijack takes a connection over")

// Read implements net.Conn. It fails.
func (c *observedConn) Read([]byte) (int, error) { return 0, errObserved }

// Write implements net.Conn. It fails.
func (c *observedConn) Write([]byte) (int, error) { return 0, errObserved }

// Close ends the connection. It doesn't wait, and TLS sends no close_notify.
func (c *observedConn) Close() error { return linger.Cut(c.netConn) }

// LocalAddr implements net.Conn.
func (c *observedConn) LocalAddr() net.Addr { return c.netConn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *observedConn) RemoteAddr() net.Addr { return c.netConn.RemoteAddr() }

// SetDeadline implements net.Conn. It fails.
func (c *observedConn) SetDeadline(time.Time) error { return errObserved }

// SetReadDeadline implements net.Conn. It fails.
func (c *observedConn) SetReadDeadline(time.Time) error { return errObserved }

// SetWriteDeadline implements net.Conn. It fails.
func (c *observedConn) SetWriteDeadline(time.Time) error { return errObserved }

// Limits are the limits that a server applies, with the defaults filled in. 0 means no limit, except for Queue, where it means that no
// request waits. Until the server serves something, all limits are 0.
type Limits struct {
	// Driver is "loop" if loops serve a listener, and otherwise "blocking".
	Driver string
	// Leaders is the number of leaders, 0 in the blocking driver. The other limits are the values of the fields of Server, and of
	// HTTP2Options, with the same names.
	Leaders                                      int
	Concurrency, Queue                           int
	MaxConns, MaxConnsPerIP, MaxRequestsPerConn  int
	MaxConcurrentStreams                         int // of a connection of HTTP/2
	MaxBodyBytes                                 int64
	MaxBufferedBodies, MaxBufferedAnswers        int64
	QueueTimeout, ReadHeaderTimeout, IdleTimeout time.Duration
	ReadTimeout, WriteTimeout, GracePeriod       time.Duration
}

// limits returns the limits of a server that is configured.
func (s *Server) limits() Limits {
	c := &s.config
	l := Limits{
		Driver: DriverBlocking.String(), Concurrency: c.concurrency, Queue: max(s.Queue, 0), QueueTimeout: s.pool.MaxWait,
		MaxConns: max(s.conns.max, 0), MaxConnsPerIP: max(s.MaxConnsPerIP, 0), MaxRequestsPerConn: max(c.maxRequests, 0),
		MaxConcurrentStreams: c.http2.MaxStreams, MaxBodyBytes: max(c.maxBody, 0), MaxBufferedBodies: max(s.bodies.Limit(), 0),
		MaxBufferedAnswers: max(s.answers.Limit(), 0),
		ReadHeaderTimeout:  max(c.readHeaderTimeout, 0), IdleTimeout: max(c.idleTimeout, 0),
		ReadTimeout: max(c.reading.Grace, 0), WriteTimeout: max(c.writing.Grace, 0),
		GracePeriod: max(withDefault(s.GracePeriod, DefaultGracePeriod), 0),
	}
	if s.loops.Load() != nil {
		l.Driver, l.Leaders = DriverLoop.String(), c.leaders
	}
	return l
}

// Timeouts counts, since the start, what has ended because it took too long.
type Timeouts struct {
	// Handshake counts TLS handshakes that took longer than ReadHeaderTimeout. In the loop driver it also counts handshakes whose clients
	// were slow while more than 1,024 other handshakes waited for their clients.
	Handshake uint64
	// Silent counts connections that sent nothing within ReadHeaderTimeout, such as those that browsers open in advance.
	Silent uint64
	// Head counts request heads that took longer than ReadHeaderTimeout.
	Head uint64
	// Idle counts connections that waited for another request for IdleTimeout.
	Idle uint64
	// Body counts request bodies that arrived too slowly: see ReadTimeout, MinTransferRate and Ctx.SetReadDeadline.
	Body uint64
	// Write counts answers that their clients took too slowly: see WriteTimeout, MinTransferRate and Ctx.SetWriteDeadline. Messages to parked
	// connections count too.
	Write uint64
	// Handler counts handlers that took longer than Ctx.SetTimeout allows.
	Handler uint64
	// Queue counts requests that waited in Server.Queue for QueueTimeout. They are in Refusals.QueueTimeout, too.
	Queue uint64
	// Ping counts connections of HTTP/2 whose clients didn't answer a PING: see HTTP2Options.PingInterval.
	Ping uint64
	// Settings counts connections of HTTP/2 whose clients didn't acknowledge the server's SETTINGS.
	Settings uint64
}

// timeoutCounts has the counters of Timeouts, except Queue.
type timeoutCounts struct {
	handshake, silent, head, idle, body, write, handler, ping, settings atomic.Uint64
}

func (c *timeoutCounts) load() Timeouts {
	return Timeouts{
		Handshake: c.handshake.Load(), Silent: c.silent.Load(), Head: c.head.Load(), Idle: c.idle.Load(), Body: c.body.Load(),
		Write: c.write.Load(), Handler: c.handler.Load(), Ping: c.ping.Load(), Settings: c.settings.Load(),
	}
}

// Refusals counts, since the start, what the server has refused because of a limit or a policy of its own. Refusals by handlers and
// middleware aren't counted here.
type Refusals struct {
	// MaxConns and MaxConnsPerIP count connections over these limits.
	MaxConns, MaxConnsPerIP uint64
	// Concurrency counts requests, and in the blocking driver connections, that were refused at once because Server.Concurrency was
	// reached and Server.Queue is 0 or doesn't apply to them.
	Concurrency uint64
	// QueueFull counts requests for which Server.Queue had no room, and QueueTimeout counts requests that waited there until
	// Server.QueueTimeout had passed, or until the client had closed its sending side.
	QueueFull, QueueTimeout uint64
	// BufferedBodies counts requests whose bodies had no room: see Server.MaxBufferedBodies.
	BufferedBodies uint64
	// UnsentAnswers counts requests that got a 503 because too many bytes of answers waited for their clients: see Server.MaxBufferedAnswers.
	UnsentAnswers uint64
	// Tasks counts tasks that Ctx.Go refused because the pool was full.
	Tasks uint64
	// ProxyProtocol counts connections whose peer isn't trusted, or that had no valid header: see ProxyProtocol.
	ProxyProtocol uint64
	// HTTP2Streams counts requests over HTTP2Options.MaxConcurrentStreams. HTTP2Calm counts connections that were ended because the client
	// wasted the server's time: by more glitches than HTTP2Options.MaxGlitches, or by heads far over their limit.
	HTTP2Streams, HTTP2Calm uint64
}

// refusalReason is a counter of Refusals.
type refusalReason uint8

const (
	refusedMaxConns refusalReason = iota
	refusedMaxConnsPerIP
	refusedConcurrency
	refusedQueueFull
	refusedQueueTimeout
	refusedBufferedBodies
	refusedUnsentAnswers
	refusedTasks
	refusedProxyProtocol
	refusedHTTP2Streams
	refusedHTTP2Calm
	refusalReasons
)

// String returns the reason's name in logs. The series filo_refusals_total uses it as the policy.
func (r refusalReason) String() string {
	return [refusalReasons]string{
		"max_conns", "max_conns_per_ip", "concurrency", "queue_full", "queue_timeout", "buffered_bodies", "unsent_answers", "tasks",
		"proxy_protocol", "http2_streams", "http2_calm",
	}[r]
}

// The history of the clients has room for each reason.
const _ = uint(census.MaxReasons - refusalReasons)

// refusalCounts has the counters of Refusals.
type refusalCounts [refusalReasons]atomic.Uint64

func (c *refusalCounts) load() Refusals {
	return Refusals{
		MaxConns: c[refusedMaxConns].Load(), MaxConnsPerIP: c[refusedMaxConnsPerIP].Load(),
		Concurrency: c[refusedConcurrency].Load(), QueueFull: c[refusedQueueFull].Load(), QueueTimeout: c[refusedQueueTimeout].Load(),
		BufferedBodies: c[refusedBufferedBodies].Load(), UnsentAnswers: c[refusedUnsentAnswers].Load(), Tasks: c[refusedTasks].Load(),
		ProxyProtocol: c[refusedProxyProtocol].Load(), HTTP2Streams: c[refusedHTTP2Streams].Load(), HTTP2Calm: c[refusedHTTP2Calm].Load(),
	}
}

// refusedConn counts a refused connection by the policy that refused it. A connection that arrived while the server was ending isn't
// counted, since no policy refused it.
func (s *Server) refusedConn(client netip.AddrPort, reason *HTTPError) {
	switch reason {
	case errTooManyConns:
		s.refused(refusedMaxConns, client)
	case errConnsPerIP:
		s.refused(refusedMaxConnsPerIP, client)
	case errNoPlace:
		s.refused(refusedConcurrency, client)
	}
}

// refusedBusy reports whether a request that has failed with err failed because Concurrency was reached, and counts such a request. Other
// errors that wrap ErrBusy come from middleware.
func (x *exchange) refusedBusy(err error) bool {
	var reason refusalReason
	switch {
	case !errors.Is(err, ErrBusy):
		return false
	case errors.Is(err, errBusy):
		reason = refusedConcurrency
	case errors.Is(err, errQueueFull):
		reason = refusedQueueFull
	case errors.Is(err, errQueueTimeout):
		reason = refusedQueueTimeout
	default:
		return false
	}
	x.server.refusedRequest(reason, x.wire.remote())
	return true
}

// Only tests call the functions below, through package inside. They find counts that aren't 0 although nothing is open, and waits that go
// on although their event has happened.

// leftover is called while no connection and no request is open. It describes the counts that must be 0 then and aren't, or returns "".
// Without this check, nobody would notice a wrong count for a long time: a count below 0 admits more requests than Server.Concurrency, and a
// count above 0 fewer.
func (s *Server) leftover() string {
	var all strings.Builder
	check := func(name string, n int64) {
		if n != 0 {
			fmt.Fprintf(&all, "%s: %d\n", name, n)
		}
	}
	if s.pool == nil {
		return ""
	}
	s.pool.audit(check)
	check("places of handshakes", int64(s.handshakes.Used()))
	waiting, polled := s.loops.Load().Waiting()
	check("goroutines that wait for clients", waiting)
	check("second descriptors", polled)
	check("bytes of bodies", s.bodies.Used())
	check("bytes of answers", s.answers.Used())
	check("bytes of encoders", s.encoders.Used())
	check("handlers that wait for windows", s.answers.Waiting())
	check("silent bodies", int64(s.bodies.Silents(clock.Last, 0)))
	s.conns.mu.Lock()
	check("connections", int64(s.conns.conns.Len()))
	check("parked streams", int64(s.conns.streams))
	check("carried requests", int64(s.conns.carried))
	check("addresses of clients", int64(s.conns.addresses.Len()+len(s.conns.strangers)))
	s.conns.mu.Unlock()
	return all.String()
}

// audit calls check with each count that must be 0 while no worker serves.
func (wp *workerPool) audit(check func(name string, n int64)) {
	for k, name := range map[admit.Kind]string{admit.Ordinary: "ordinary", admit.Quick: "quick", admit.QuickConn: "quick connections'",
		admit.Always: "reserve's", admit.Closing: "closing"} {
		check(name+" places", int64(wp.places.Taken(k)))
	}
	check("requests in the queue", int64(wp.places.Joined()))
	check("requests that wait in the queue", int64(wp.places.Waiting()))
	wp.mu.Lock()
	defer wp.mu.Unlock()
	check("workers that haven't retired", int64(wp.spawned-wp.retired)-int64(len(wp.ready)+wp.leading))
}

// overdueSocket is a socket in a loop: see loop.Socket.
type overdueSocket interface {
	Overdue() (what string, progress [2]uint64)
	Looks() int64
}

// overdue calls found for each wait that should have ended, or is about to end: a connection waits for input or room that is already there,
// or a request waits in the queue although a place is free. It checks only connections in loops.
func (s *Server) overdue(found func(hooks.OverdueWait)) {
	var pool *workerPool
	s.life.Hold(func() { pool = s.pool })
	if pool == nil {
		return // not configured yet
	}
	if since := pool.places.Oldest(); since != 0 && !pool.places.IsFull() {
		found(hooks.OverdueWait{Of: pool, What: "a request in the queue: a place is free", Progress: [2]uint64{uint64(since)}})
	}
	s.conns.walk(func(c *conn) {
		socket, ok := c.driver.(overdueSocket)
		if !ok {
			return
		}
		if what, progress := socket.Overdue(); what != "" {
			found(hooks.OverdueWait{Of: c, What: fmt.Sprintf("the connection of %s in state %d: %s", c.netConn.RemoteAddr(), c.state(), what),
				Progress: progress, Looks: socket.Looks()})
		}
	})
}
