// Package filo is a server of HTTP/1.1 and HTTP/2 whose handlers are ordinary blocking functions. On Linux, a connection that waits for its
// client costs neither a goroutine nor a buffer.
//
//	go get github.com/filohttp/filo@latest
//
// The first program:
//
//	package main
//
//	import (
//		"log"
//
//		"github.com/filohttp/filo"
//	)
//
//	func main() {
//		log.Fatal(filo.ListenAndServe("localhost:8080", func(c *filo.Ctx) error {
//			return c.Text(200, "Hello, World!\n")
//		}))
//	}
//
// In production, [Server.Run] serves until its context ends, and shuts down without losing a request. [Ctx] lists what a handler can do, by
// purpose.
//
// Package router adds routes, groups and middleware; Router.Serve is a Handler. The server keeps its idle workers on a stack: new work
// goes to the worker that finished last, whose memory is still in the processor's caches. Workers that stay idle end.
//
// Every []byte that a Ctx returns is borrowed: it is valid until the handler returns. A string belongs to the caller.
package filo

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/handshakes"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/life"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/running"
	"github.com/filohttp/filo/internal/sweep"
	"github.com/filohttp/filo/internal/tasks"
	"github.com/filohttp/filo/pool"
)

// Default limits of a Server, chosen for a server on the open internet.
const (
	DefaultConcurrency           = 256 << 10
	DefaultMaxIdleWorkerDuration = 10 * time.Second
	DefaultReadHeaderTimeout     = 10 * time.Second
	DefaultReadTimeout           = 30 * time.Second
	DefaultWriteTimeout          = 30 * time.Second
	DefaultIdleTimeout           = 60 * time.Second
	DefaultQueueTimeout          = 100 * time.Millisecond
	DefaultMinTransferRate       = 500
	DefaultMaxHeaderBytes        = 16 << 10
	DefaultMaxHeaderFields       = 100
	DefaultMaxRequestLineBytes   = 8000
	DefaultMaxBodyBytes          = 4 << 20
	DefaultMaxBufferedBodies     = 128 << 20
	DefaultMaxBufferedAnswers    = 128 << 20
)

// Server serves HTTP connections. Its fields must not be changed once it serves. Where a field has a default, zero selects the
// default and a negative value means no limit, unless the field says otherwise. A zero Server with a Handler is ready for use.
type Server struct {
	// Handler answers the requests, except OPTIONS *, which the server answers itself. Required.
	Handler Handler

	// ErrorHandler turns an error into a response: an error that Handler returned, its panic (a *PanicError), or a 503 for a
	// request refused because Concurrency is reached. It should be quick, and can't take the connection over. The default is
	// DefaultErrorHandler.
	ErrorHandler func(c *Ctx, err error)

	// Name is the value of the Server header field. The default is "filo"; "-" omits the field.
	Name string

	// Concurrency limits how many requests are handled at once; further requests get a 503 immediately. Quick handlers, which the loop driver
	// runs directly in the loop, don't count, and their requests are always answered. In the blocking driver a worker serves one connection
	// for its whole life, so Concurrency limits connections there, idle ones included. If Handler is a router, 256 further connections may
	// send a request, which is answered if its handler is quick. Default 262,144; it can't be unlimited.
	Concurrency int

	// Queue is how many requests may wait, when Concurrency is reached, until another request has ended. Further requests get a 503
	// immediately. With a queue, short bursts cause no refusals. Each waiting request takes a goroutine. Default 0: no request waits. In the
	// blocking driver only requests of HTTP/2 wait, since a connection of HTTP/1.1 has its worker before it sends a request.
	Queue int

	// QueueTimeout limits how long a request waits in Queue; after that it gets a 503. The oldest request is served first. While the oldest
	// has waited for more than seven eighths of QueueTimeout, the newest is served first, because its client is the least likely to have given
	// up. Default 100 ms; it can't be unlimited.
	QueueTimeout time.Duration

	// Driver selects how connections are served. The default is the loop driver where it is available. The environment variable
	// FILO_DRIVER overrides this field.
	Driver Driver

	// Leaders is the number of workers that serve the connections of the loop driver at the same time, each as the leader of a loop. Up to eight of
	// them share a loop. Default GOMAXPROCS.
	Leaders int

	// SocketOptions are set on the listening sockets that the server opens.
	SocketOptions SocketOptions

	// Tasks is the pool that runs the tasks started by Ctx.Go. Other code may share it, and the server never releases it. By default the
	// server creates its own pool, for DefaultMaxTasks tasks, when the first task needs it.
	Tasks *pool.Pool

	// MaxIdleWorkerDuration is how long an idle worker is kept. A longer duration saves starting goroutines when load comes in
	// bursts, at a few KB of memory per worker. Default 10 s; it can't be unlimited.
	MaxIdleWorkerDuration time.Duration

	// MaxConns limits how many connections may be open at once, hijacked ones excluded. At the limit, the server closes an idle connection to
	// make room for a new one: it chooses the client address with the most idle connections, and closes the one that has been idle for the
	// longest time. An IPv6 /64 counts as one address, and so do all clients without an IP address. A connection that has had no request in
	// its first second counts as idle, too, and is closed before all connections that have had a request. If no connection is idle, the new
	// one gets 503. The default on Unix is the number of descriptors that the process may have (RLIMIT_NOFILE), minus an eighth, and at least
	// 32, which are left for files, upstreams and databases. Elsewhere there is no limit. If the process needs more descriptors for these, so
	// that accepting fails before the limit is reached, idle connections are closed as well, unless MaxConns is negative.
	MaxConns int

	// MaxConnsPerIP limits how many connections one client address may have open; further connections get 429. An IPv6 /64
	// counts as one address, since a client can use all of it. Set it only where clients connect directly: behind a load
	// balancer all connections come from the balancer's address. Default no limit.
	MaxConnsPerIP int

	// MaxRequestsPerConn limits how many requests a connection may carry before the server closes it, so that long-lived
	// connections spread over new instances. Default no limit.
	MaxRequestsPerConn int

	// ReadHeaderTimeout limits how long a request head may take from its first byte (408 after that), how long a new connection
	// may stay silent, and how long a TLS handshake may take. Default 10 s.
	ReadHeaderTimeout time.Duration

	// ReadTimeout and WriteTimeout limit how long the server waits for a client that sends nothing of a request body, and for one that takes
	// nothing of an answer. They also limit the sum of these waits in one body or answer, minus the time that the client has earned by
	// MinTransferRate. Time spent in the handler doesn't count. Default 30 s each.
	ReadTimeout, WriteTimeout time.Duration

	// IdleTimeout is how long a connection may wait between requests. Default 60 s; negative: for ever. Behind a load balancer
	// or a proxy, set it to more than they keep idle connections (often 60 s or more): otherwise they send requests on connections that filo is closing.
	IdleTimeout time.Duration

	// GracePeriod is the time for work that runs when a shutdown begins: how long Run and its variants wait for running requests and for
	// tasks started by Ctx.Go. Whatever isn't finished by then is cut off. A shutdown with nothing to do doesn't take that long. Shutdown
	// itself is limited by its context instead. Default 20 s.
	GracePeriod time.Duration

	// IdleGrace is how long a connection without a request stays open for one more request after a shutdown has begun. The answer to that
	// request says Connection: close. A request that a client sends just when the server closes the connection is lost. So IdleGrace should be
	// longer than clients wait between two requests, and shorter than GracePeriod, which includes it. Connections of HTTP/2 don't need it.
	// Default a few milliseconds, or 100 ms if the connection was used within the last second, so that an idle server ends at once.
	IdleGrace time.Duration

	// MinTransferRate is the rate, in bytes per second, at which a client earns back the time for which the server has waited for it. The
	// client can't earn more than one ReadTimeout or WriteTimeout in advance, so even a client that has sent or taken much can't stay silent
	// for longer than that. Default 500, slower than any modem. If it is negative there is no such rate: each single wait for the client may
	// last as long as ReadTimeout or WriteTimeout.
	MinTransferRate int

	// MaxHeaderBytes limits the size of a request head, request line included (431). Default 16 KB.
	MaxHeaderBytes int

	// MaxHeaderFields limits the number of fields in a request head (431). Default 100.
	MaxHeaderFields int

	// MaxRequestLineBytes limits the length of a request line (414). Default 8,000, the minimum that RFC 9112 recommends.
	MaxRequestLineBytes int

	// MaxBodyBytes limits the size of a request body (413). A handler can change the limit for its request with
	// Ctx.SetMaxBodyBytes. Default 4 MB.
	MaxBodyBytes int64

	// MaxBufferedBodies limits how many bytes of request bodies the server keeps in memory, for all connections together: bytes that have
	// arrived over HTTP/2 and wait for their handler, bodies of more than 64 KB that handlers read as a whole, and the memory of zstd's decoders
	// in middleware.Decompress. Handlers that read piece by piece (Request.BodyReader) hold no body. If there is no room for a body, the server
	// ends another request with 408 to make room. The server chooses among the requests whose bodies take up room and whose handlers wait for
	// more: the one whose client has been silent for the longest time, if that is at least a second. If there is no such request, the request
	// without room gets a 503 with Retry-After, or over HTTP/2 is refused in a way that lets the client retry it. Over HTTP/1.1 a body that is
	// larger than the whole limit has room as long as there is no other body. Once half of the limit is used, the waiting bytes of a connection
	// of HTTP/2, or of a client address if MaxConnsPerIP is set, may take up at most 1/32 of the limit. Default DefaultMaxBufferedBodies, 128 MB.
	MaxBufferedBodies int64

	// MaxBufferedAnswers limits how many bytes of answers wait for their clients after their handlers have returned or gone on, for all
	// connections together. Over HTTP/2 these are whole answers for which the client's windows have no room, and bytes that streaming
	// handlers have written ahead. Over HTTP/1.1 they are bodies of more than 256 KB for which no worker waits. Without room a streaming
	// handler waits in its Write. A whole answer waits in its worker, which counts against Concurrency. It is replaced by a 503 with
	// Retry-After if its body is a copy that was made for it (Ctx.JSON, Ctx.Bytes, Response.Write), or if no place for the worker is free.
	// Once half of the limit is used, a connection of HTTP/2 may take up at most 1/32 of it, and clients must open their
	// windows within a tenth of WriteTimeout, at least a second. The encoders with which middleware.Compress compresses streams may take as much
	// memory again. Default DefaultMaxBufferedAnswers, 128 MB.
	MaxBufferedAnswers int64

	// MultipartLimits bounds what Request.MultipartForm reads. Its zero value selects safe defaults.
	MultipartLimits MultipartLimits

	// JSON encodes the values given to Ctx.JSON, and decodes JSON for Ctx.DecodeJSON and package bind. The default is encoding/json.
	JSON JSONCodec

	// Renderer renders documents for Ctx.Render. Package templates provides one for html/template.
	Renderer Renderer

	// TLSConfig is used by ListenAndServeTLS, ServeTLS, RunTLS and RunListenerTLS, which clone it. If NextProtos names
	// neither "h2" nor "http/1.1", clients are offered both as well; the same holds for the configurations that GetConfigForClient returns.
	//
	// GetConfigForClient is also called for requests whose host differs from the server name in their connection's handshake. Its
	// ClientHelloInfo then has no Context, and only the addresses of its Conn can be used. If it demands another client certificate for the
	// host, or returns an error, the answer is 421: see docs/internals/HTTP2.md.
	TLSConfig *tls.Config

	// HTTP2 configures HTTP/2.
	HTTP2 HTTP2Options

	// ProxyProtocol makes the server take the clients' addresses from headers of the PROXY protocol, which proxies send. By default it is off.
	ProxyProtocol ProxyProtocol

	// ForOperator declares that only the program's operator reaches this server: that it listens on loopback addresses or Unix sockets, and
	// that no proxy passes requests on to it. Pages about the program (packages debug and dashboard, prometheus.Handler, middleware.Guard)
	// then need no token here. The field keeps nobody out by itself, so never set it on a server that has other clients, not even on one
	// behind a proxy on the same machine: give the pages a second server. By default it is false, and the pages admit nobody without a
	// token.
	ForOperator bool

	// Logger receives the server's log records. The default is slog.Default.
	Logger *slog.Logger

	// LogAllErrors also logs client errors: malformed requests, failed handshakes, 4xx errors. A public server sees them all
	// the time.
	LogAllErrors bool

	// ConnState, if set, is called when a connection changes its state. It runs on the goroutine that serves the connection, so
	// it must be quick. The net.Conn identifies the connection: it is the same value in every state, and may be compared, kept,
	// and used as a map key. Its addresses and its Close, which ends the connection at once, may be used at any time and on any
	// goroutine. Reading, writing and setting deadlines return errors.
	ConnState func(net.Conn, ConnState)

	// ConnContext, if set, returns the parent context of a connection's requests: their contexts take their values from it and
	// end with it. It replaces BaseContext and ConnContext of net/http. The server calls it once per connection, when a handler
	// first asks for a request's context, and passes the same net.Conn as to ConnState. It isn't called for requests that
	// package adaptor carries over from a net/http server.
	ConnContext func(net.Conn) context.Context

	// The parts of the server. The file with a part's methods describes its invariant and its lock.
	//
	// Requests read the parts before the apart.Lines, and seldom write them. The parts after it are written for connections, large bodies,
	// handshakes and the like.
	configOnce sync.Once
	config     serverConfig
	life       life.Life
	clock      coarseClock
	pool       *workerPool                // set once, by configure, in life.Hold
	loops      atomic.Pointer[loop.Group] // nil until loops serve a listener; set once, in life.Hold
	classes    serverClasses
	conns      connSet
	http3      hooks.HTTP3Counts
	_          apart.Lines
	bodies     budget.Bodies
	lingerer   linger.Group
	handshakes handshakes.Queue
	counts     serverCounts
	tasks      tasks.Tasks
	answers    budget.Answers
	encoders   budget.Answers // the memory of the encoders that compress streams
	warned     warnings
	running    running.Set[conn]
	clients    census.History
	// parkedWaiting is how many parked connections wait for a free worker.
	parkedWaiting atomic.Int32
}

// Driver is a way to serve connections. Handlers behave the same in each driver.
//
// An operator can choose the driver without a new build: the environment variable FILO_DRIVER, "loop" or "blocking", overrides
// Server.Driver in every server of the process. So if the loop driver fails in production, FILO_DRIVER=blocking switches any
// program to the other driver. A server reads the variable once, when it starts to serve, and logs a line for each listener
// whose driver changes because of it. With any other value the server doesn't start.
type Driver int

const (
	// DriverAuto selects DriverLoop where it is available, for TCP and Unix sockets on Linux, and DriverBlocking otherwise.
	DriverAuto Driver = iota
	// DriverBlocking gives each connection a worker for its whole life.
	DriverBlocking
	// DriverLoop lets connections wait in loops, and gives a worker only to a request that may block. Serve fails if the
	// listener can't be served this way.
	DriverLoop
)

// String returns the driver's name: "auto", "blocking" or "loop".
func (d Driver) String() string {
	names := [...]string{"auto", "blocking", "loop"}
	if d < 0 || int(d) >= len(names) {
		return "unknown"
	}
	return names[d]
}

// driverVariable is the environment variable that overrides Server.Driver.
const driverVariable = "FILO_DRIVER"

// chooseDriver returns the driver that the environment asks for, or the program's choice if the environment asks for none. The
// environment overrides even a driver that the program names, since an operator can't change the program.
func chooseDriver(program Driver) (Driver, error) {
	switch value := os.Getenv(driverVariable); value {
	case "":
		return program, nil
	case DriverLoop.String():
		return DriverLoop, nil
	case DriverBlocking.String():
		return DriverBlocking, nil
	default:
		return program, fmt.Errorf(`filo: the environment variable %s is %q: set it to "loop" or "blocking", or unset it to leave the choice to the program`,
			driverVariable, value)
	}
}

// serverConfig holds the Server's settings with the defaults applied. It is computed once.
type serverConfig struct {
	serverLine        []byte // "Server: filo\r\n"
	head              http1.Limits
	maxBody           int64
	maxRequests       int
	readHeaderTimeout time.Duration
	reading           pace.Limits // for reading a body
	writing           pace.Limits // for writing an answer
	idleTimeout       time.Duration
	pause             time.Duration // if a wait ends later than this after its deadline, the process was paused: see clock.Waited
	unencryptedHTTP2  bool
	http2             *http2conn.Shared
	tick              time.Duration // the tick of the coarse clock
	idleWorker        time.Duration // how long an idle worker is kept
	concurrency       int
	leaders           int // the number of workers that lead loops
	driver            Driver
	driverErr         error // set if FILO_DRIVER names no driver
}

// configure computes the configuration and creates the parts that depend on it, once.
func (s *Server) configure() {
	s.configOnce.Do(func() {
		s.config = s.newConfig()
		s.conns.max, s.conns.perAddress = s.maxConns(), s.MaxConnsPerIP
		if s.conns.max > 0 {
			s.lingerer.SetLimit(max(s.conns.max/16, 1024)) // these connections have left the connSet, but have descriptors
		}
		s.bodies.SetLimit(withDefault(s.MaxBufferedBodies, DefaultMaxBufferedBodies))
		s.answers.SetLimit(withDefault(s.MaxBufferedAnswers, DefaultMaxBufferedAnswers))
		s.encoders.SetLimit(s.answers.Limit())
		pool := s.newPool()
		s.life.Hold(func() {
			s.pool = pool // from here on Stats may read the configuration
			s.conns.answered = make([]sharedCounts, 4*s.config.leaders)
		})
		s.initTasks()
		s.life.Init()
	})
}

func (s *Server) newConfig() serverConfig {
	rate := withDefault(s.MinTransferRate, DefaultMinTransferRate)
	c := serverConfig{
		serverLine: newServerLine(s.Name),
		head: http1.Limits{
			Bytes:  sizeLimit(s.MaxHeaderBytes, DefaultMaxHeaderBytes),
			Line:   sizeLimit(s.MaxRequestLineBytes, DefaultMaxRequestLineBytes),
			Fields: min(sizeLimit(s.MaxHeaderFields, DefaultMaxHeaderFields), 1<<16-2),
		},
		maxBody:           withDefault(s.MaxBodyBytes, DefaultMaxBodyBytes),
		maxRequests:       s.MaxRequestsPerConn,
		readHeaderTimeout: withDefault(s.ReadHeaderTimeout, DefaultReadHeaderTimeout),
		reading:           pace.Limits{Grace: withDefault(s.ReadTimeout, DefaultReadTimeout), Rate: rate},
		writing:           pace.Limits{Grace: withDefault(s.WriteTimeout, DefaultWriteTimeout), Rate: rate},
		idleTimeout:       withDefault(s.IdleTimeout, DefaultIdleTimeout),
		idleWorker:        min(positive(s.MaxIdleWorkerDuration, DefaultMaxIdleWorkerDuration), 100*365*24*time.Hour),
		concurrency:       positive(s.Concurrency, DefaultConcurrency),
		leaders:           positive(s.Leaders, runtime.GOMAXPROCS(0)),
	}
	c.pause = 2 * sweep.Interval(c.shortestTimeout())
	c.unencryptedHTTP2, c.http2 = s.HTTP2.Unencrypted && !s.HTTP2.Disabled, s.newHTTP2Shared(&c)
	c.driver, c.driverErr = chooseDriver(s.Driver)
	c.tick = clock.Tick(min(c.idleWorker, c.shortestTimeout()))
	return c
}

func (s *Server) newPool() *workerPool {
	wp := &workerPool{
		WorkerFunc:            s.serveWorker,
		Linger:                func(netConn net.Conn) bool { return s.lingerer.TakeOver(netConn, nil) },
		MaxWorkersCount:       s.config.concurrency,
		MaxIdleWorkerDuration: s.config.idleWorker,
		Logger:                s.logger(),
		Queue:                 max(s.Queue, 0),
		MaxWait:               positive(s.QueueTimeout, DefaultQueueTimeout),
		clock:                 &s.clock,
		running:               &s.running,
	}
	wp.init()
	return wp
}

// newServerLine returns the Server field for a Server's Name.
func newServerLine(name string) []byte {
	switch name {
	case "-":
		return nil
	case "":
		name = "filo"
	}
	var h Header
	h.list.SetID(field.Server, name)
	return h.list.AppendLine(nil, 0)
}

// positive returns value, or standard if value isn't positive.
func positive[T int | time.Duration](value, standard T) T {
	if value <= 0 {
		return standard
	}
	return value
}

// sizeLimit returns a limit for the size of a request head. A negative value means no limit.
func sizeLimit(value, standard int) int {
	if value = withDefault(value, standard); value < 0 {
		return 1<<31 - 1
	}
	return value
}

func withDefault[T int | int64 | time.Duration](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}

// shortestTimeout returns the shortest timeout that is set, at most DefaultIdleTimeout. The clock and the sweep must be finer than
// that.
func (c *serverConfig) shortestTimeout() time.Duration {
	shortest := DefaultIdleTimeout
	for _, timeout := range [...]time.Duration{c.readHeaderTimeout, c.reading.Grace, c.writing.Grace, c.idleTimeout} {
		if timeout > 0 {
			shortest = min(shortest, timeout)
		}
	}
	return shortest
}

func (s *Server) logger() *slog.Logger {
	if s.Logger != nil {
		return s.Logger
	}
	return slog.Default()
}

// start starts the server's background goroutines, once. It fails after Shutdown or Close.
func (s *Server) start() error {
	if s.Handler == nil {
		return errNoHandler
	}
	s.configure()
	if s.config.driverErr != nil {
		return s.config.driverErr
	}
	if !s.life.Start(func() {
		s.clock.start(s.config.tick)
		s.pool.Start()
		s.conns.startSweep(s)
	}) {
		return ErrServerClosed
	}
	return nil
}

// stopClocks stops the sweep and the clock once no deadline needs them.
func (s *Server) stopClocks() {
	s.conns.stopSweep()
	s.clock.Stop()
}

// serveWorker is the pool's WorkerFunc.
func (s *Server) serveWorker(w *workerChan, j *connJob) {
	w.own()
	s.serveConn(w.scratch, j)
}

// serveConn serves an accepted connection. The caller must then close j.conn, which is nil if the connection was refused or hijacked, or has
// switched to HTTP/2.
func (s *Server) serveConn(w *scratch, j *connJob) {
	netConn := j.conn
	c := newConn(s, netConn)
	_, secure := netConn.(*tls.Conn)
	if c.awaitsProxy = s.ProxyProtocol.enabled(); secure || c.awaitsProxy {
		c.setState(stateHandshake) // set before add lists the connection, since a shutdown may then wake it
	}
	if client, reason := s.conns.add(c); reason != nil {
		s.refuseConn(netConn, client, reason)
		j.conn = nil
		return
	}
	c.attach(w)
	var d *blockingHTTP2
	var refusal *HTTPError
	// Deferred, since a handler may end its goroutine.
	defer func() {
		switch {
		case d != nil:
			j.conn = nil
			return
		case c.hijacked:
			j.conn = nil
			defer func() { // deferred, since a body's Close may end the goroutine
				if c.parked != nil {
					go c.parked.run()
				}
			}()
			c.detach()
			return
		case c.closing == closingUnserved:
			refusal = errNoPlace
		}
		client, lingers := c.knownRemote(), c.lingers()
		defer c.endConnBy(func() { // deferred, since a body's Close may end the goroutine
			if j.lingers = lingers; refusal != nil {
				s.refuseConn(netConn, client, refusal)
				j.conn = nil
			}
		})
		c.detach()
	}()
	s.changed(c, StateNew)
	if c.awaitsProxy {
		if !s.readProxyHeader(c) {
			return
		}
		if refusal = s.conns.countAddress(c); refusal != nil {
			return
		}
	}
	if !s.handshake(c) {
		return
	}
	if c.tlsState != nil && c.tlsState.NegotiatedProtocol == "h2" || c.serve() {
		d = c.startHTTP2(w)
		if d.serve(w); w.worker == nil {
			<-d.ended // ServeConn's caller waits for the connection's end
		}
	}
}
