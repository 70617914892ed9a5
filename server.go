// Package filo is an HTTP/1.1 server whose handlers are ordinary blocking functions. On Linux a connection that waits for its client
// costs no goroutine and no buffer.
//
//	go get github.com/filohttp/filo@latest
//
// A program that ends without losing a request:
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	s := &filo.Server{Handler: func(c *filo.Ctx) error {
//		return c.Text(200, "Hello, World!")
//	}}
//	if err := s.Run(ctx, ":8080"); err != nil {
//		log.Fatal(err)
//	}
//
// Package router has routes, groups and middleware; its Router.Serve is a Handler. Requests run on a stack of workers: work goes to the
// worker that was busy last, whose stack and buffers are warm, and workers that are idle for a while end.
//
// Every []byte that a Ctx hands out is borrowed until the handler returns; a string is the caller's own.
package filo

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/classes"
	"github.com/filohttp/filo/pool"
)

// Defaults of a Server's limits. They are meant for a server on the open internet.
const (
	DefaultConcurrency           = 256 << 10
	DefaultMaxIdleWorkerDuration = 10 * time.Second
	DefaultReadHeaderTimeout     = 10 * time.Second
	DefaultReadTimeout           = 30 * time.Second
	DefaultWriteTimeout          = 30 * time.Second
	DefaultIdleTimeout           = 60 * time.Second
	DefaultMinTransferRate       = 500
	DefaultMaxHeaderBytes        = 16 << 10
	DefaultMaxHeaderFields       = 100
	DefaultMaxRequestLineBytes   = 8000
	DefaultMaxBodyBytes          = 4 << 20
)

// Server serves HTTP connections. Its fields must not be changed once it serves. For those with a default, zero is
// the default and a negative value is no limit, unless said otherwise. The zero Server with a Handler is ready for use.
type Server struct {
	// Handler answers the requests, but for OPTIONS *, which the server answers itself. Required.
	Handler Handler

	// ErrorHandler turns an error that Handler returned, its panic (a *PanicError), or the refusal of a request that there is no
	// place for in Handler (a 503), into a response. It is to be quick. The default is DefaultErrorHandler.
	ErrorHandler func(c *Ctx, err error)

	// Name is the Server field of the answers, "filo" by default; "-" sends none.
	Name string

	// Concurrency is how many requests are being handled at once; further ones get 503 at once. Those of quick handlers,
	// which the loop driver runs where they are read, don't count and are answered all the same. In the blocking driver a
	// worker serves one connection for as long as that lives, so there it bounds connections, idle ones included; if Handler is a
	// router, 32 more may send a request, which is answered if its handler is quick. Default 262,144; there is always a limit.
	Concurrency int

	// Driver is how connections are served: see Driver. The default is the loop driver where it is possible. The environment
	// variable FILO_DRIVER overrides this field.
	Driver Driver

	// Loops is how many loops the loop driver has. Default GOMAXPROCS.
	Loops int

	// SocketOptions are options of the listening sockets that the server opens.
	SocketOptions SocketOptions

	// Tasks is the pool for the work that handlers leave behind: see Ctx.Go. A server shares it with whoever else uses it, and
	// never releases it. The default is a pool of the server's own for DefaultMaxTasks tasks, made when it is first needed.
	Tasks *pool.Pool

	// MaxIdleWorkerDuration is how long a worker without a connection is kept. A longer time saves starting goroutines
	// when load comes in bursts, at a few KB of memory each. Default 10 s; there is always a limit.
	MaxIdleWorkerDuration time.Duration

	// MaxConns is how many connections may be open at once, hijacked ones aside; further ones get 503. Default no limit.
	MaxConns int

	// MaxConnsPerIP is how many connections one client address may have open; further ones get 429. An IPv6 client
	// has a whole /64 to choose addresses from, so that counts as one. Set it only where clients connect directly: behind a
	// balancer all have its address. Default no limit.
	MaxConnsPerIP int

	// MaxRequestsPerConn is how many requests a connection may carry before it is closed, so that long-lived ones
	// spread over new instances. Default no limit.
	MaxRequestsPerConn int

	// ReadHeaderTimeout is how long a request head may take from its first byte (408 after that), a new connection may
	// stay silent, and a TLS handshake may take. Default 10 s.
	ReadHeaderTimeout time.Duration

	// ReadTimeout and WriteTimeout are how long a client may keep the server waiting for a request's body, and with
	// taking an answer, before the average rate since the beginning must be MinTransferRate. Time that the handler takes
	// doesn't count. Default 30 s each.
	ReadTimeout, WriteTimeout time.Duration

	// IdleTimeout is how long a connection may wait between requests. Default 60 s, a little more than most balancers
	// and browsers keep one.
	IdleTimeout time.Duration

	// GracePeriod is how long Run and its relatives let running requests and the tasks of Ctx.Go take once they shut the server
	// down; what isn't finished by then is cut off. Default 20 s.
	GracePeriod time.Duration

	// MinTransferRate is how many bytes a second, on average, a client must send of a body or take of an answer once the
	// time-outs above are used up. Default 500, slower than any modem; negative: each single wait may last the time-out.
	MinTransferRate int

	// MaxHeaderBytes is how large a request head may be (431), request line included. Default 16 KB.
	MaxHeaderBytes int

	// MaxHeaderFields is how many fields a request head may have (431). Default 100.
	MaxHeaderFields int

	// MaxRequestLineBytes is how long a request line may be (414). Default 8,000, the least that RFC 9112 recommends.
	MaxRequestLineBytes int

	// MaxBodyBytes is how large a request body may be (413). A handler can change it for its request: see
	// Ctx.SetMaxBodyBytes. Default 4 MB.
	MaxBodyBytes int64

	// MultipartLimits bounds what Request.MultipartForm reads. The zero value has defaults.
	MultipartLimits MultipartLimits

	// JSON encodes what Ctx.JSON is given, and decodes what Ctx.DecodeJSON and package bind are. The default is encoding/json.
	JSON JSONCodec

	// Renderer makes the documents of Ctx.Render. Package templates has one for html/template.
	Renderer Renderer

	// TLSConfig is used by ListenAndServeTLS, ServeTLS, RunTLS and RunListenerTLS. It is cloned, and "h2", which the server doesn't
	// speak, taken out of its NextProtos and those of what its GetConfigForClient returns.
	TLSConfig *tls.Config

	// Logger gets the server's log records. The default is slog.Default.
	Logger *slog.Logger

	// LogAllErrors also logs what clients do wrong: malformed requests, failed handshakes, errors of 4xx. A public server
	// has them all the time.
	LogAllErrors bool

	// ConnState, if set, is called when a connection changes its state, by the goroutine that serves it: it must be quick.
	// The net.Conn stands for the connection: it is the same one in each state, may be compared, kept, and be the key of a map.
	// At any time, on any goroutine, it may be asked for its addresses and closed, which ends the connection at once. To read
	// from it, to write to it and to set its deadlines are errors.
	ConnState func(net.Conn, ConnState)

	// ConnContext, if set, returns the context that those of a connection's requests have their values from, and end with. It is
	// called when the first of them is asked for, once for each connection, and so does what BaseContext and ConnContext of
	// net/http's server do. The net.Conn is the one that ConnState gets. It doesn't apply to requests that package adaptor
	// brings from a server of net/http.
	ConnContext func(net.Conn) context.Context

	config     serverConfig
	clock      coarseClock
	pools      []*workerPool // one for each loop, of which the first serves what isn't in a loop; set once, by configure, under mu
	conns      connSet
	lingerer   lingerer
	loops      []*loop // set once, before anybody else sees them
	monitor    monitor
	loopsLeft  atomic.Int32 // loops that have not ended, and who else needs their descriptors
	hosting    hosting
	handshakes handshakeQueue
	overloads  atomic.Uint64 // requests that were refused
	held       atomic.Int64  // bytes that count against maxHeld
	// parkedWaiting is how many parked connections wait for a worker to be free.
	parkedWaiting atomic.Int32
	class         classes.Class // of Handler, until it enters another one; trusted when it has done so once
	classes       classes.Set   // that were entered
	draining      atomic.Bool   // Shutdown or Close was called
	restUntil     atomic.Int64  // until when it waits for bodies that nobody reads, on the coarse clock's scale; set before draining

	tasks      serverTasks
	configOnce sync.Once
	accepted   atomic.Uint64
	refused    atomic.Uint64
	refusals   [6]atomic.Uint64 // answers to connections that were refused, by status class

	mu           sync.Mutex
	started      bool                    // the clock, the pool and the sweep run; guarded by mu
	stopped      bool                    // guarded by mu
	listeners    map[*net.Listener]bool  // one for each call of Serve, which need not be comparable themselves; guarded by mu
	notAccepting chan struct{}           // closed when it drains and no listener is left; guarded by mu
	stopAccept   chan struct{}           // closed when draining begins; guarded by mu
	onShutdown   []func()                // guarded by mu
	base         context.Context         // parent of the requests' contexts; guarded by mu
	cancelBase   context.CancelCauseFunc // guarded by mu
	// handshaking is the parent of the contexts of TLS handshakes, and ends before base when the server shuts down.
	handshaking      context.Context         // guarded by mu
	cancelHandshakes context.CancelCauseFunc // guarded by mu
}

// serverConfig is the Server's fields with their defaults, worked out once.
type serverConfig struct {
	serverLine        []byte // "Server: filo\r\n"
	head              headLimits
	maxBody           int64
	maxRequests       int
	readHeaderTimeout time.Duration
	readTimeout       time.Duration
	writeTimeout      time.Duration
	idleTimeout       time.Duration
	minRate           int
	tick              time.Duration // of the coarse clock
	loops             int
	driver            Driver
	driverErr         error // FILO_DRIVER names no driver
}

// configure works out the configuration.
func (s *Server) configure() {
	s.configOnce.Do(func() {
		const unlimited = 1<<31 - 1
		limit := func(value, standard int) int {
			if value = withDefault(value, standard); value < 0 {
				return unlimited
			}
			return value
		}
		c := &s.config
		if s.Name != "-" {
			name := s.Name
			if name == "" {
				name = "filo"
			}
			var h Header
			h.setID(fieldServer, name)
			c.serverLine = h.appendLine(nil, 0)
		}
		c.head = headLimits{
			bytes:  limit(s.MaxHeaderBytes, DefaultMaxHeaderBytes),
			line:   limit(s.MaxRequestLineBytes, DefaultMaxRequestLineBytes),
			fields: min(limit(s.MaxHeaderFields, DefaultMaxHeaderFields), 1<<16-2),
		}
		c.maxBody = withDefault(s.MaxBodyBytes, DefaultMaxBodyBytes)
		c.maxRequests = s.MaxRequestsPerConn
		c.readHeaderTimeout = withDefault(s.ReadHeaderTimeout, DefaultReadHeaderTimeout)
		c.readTimeout = withDefault(s.ReadTimeout, DefaultReadTimeout)
		c.writeTimeout = withDefault(s.WriteTimeout, DefaultWriteTimeout)
		c.idleTimeout = withDefault(s.IdleTimeout, DefaultIdleTimeout)
		c.minRate = withDefault(s.MinTransferRate, DefaultMinTransferRate)
		idleWorker := s.MaxIdleWorkerDuration
		if idleWorker <= 0 {
			idleWorker = DefaultMaxIdleWorkerDuration
		}
		idleWorker = min(idleWorker, maxPaceSeconds*time.Second)
		concurrency := s.Concurrency
		if concurrency <= 0 {
			concurrency = DefaultConcurrency
		}
		if c.loops = s.Loops; c.loops <= 0 {
			c.loops = runtime.GOMAXPROCS(0)
		}
		c.driver, c.driverErr = chooseDriver(s.Driver)
		c.tick = clockTick(min(idleWorker, c.shortestTimeout()))
		places := &workerPlaces{keptMost: keptPlaces}
		for range c.loops {
			places.pools = append(places.pools, &workerPool{
				WorkerFunc:            s.serveWorker,
				Linger:                func(netConn net.Conn) bool { return s.lingerer.takeOver(netConn, nil) },
				MaxWorkersCount:       concurrency,
				MaxIdleWorkerDuration: idleWorker,
				Logger:                s.logger(),
				clock:                 &s.clock,
				places:                places,
			})
		}
		s.mu.Lock()
		s.pools = places.pools
		s.conns.answered = make([]sharedCounts, 4*c.loops)
		s.mu.Unlock()
		s.conns.perAddress = s.MaxConnsPerIP
		s.conns.max = s.MaxConns
		s.listeners = make(map[*net.Listener]bool)
		s.stopAccept, s.notAccepting = make(chan struct{}), make(chan struct{})
		s.tasks.pool = s.Tasks
		s.tasks.ctx, s.tasks.cancel = context.WithCancelCause(context.Background())
		s.base, s.cancelBase = context.WithCancelCause(context.Background())
		s.handshaking, s.cancelHandshakes = context.WithCancelCause(s.base)
	})
}

func withDefault[T int | int64 | time.Duration](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}

// shortestTimeout returns the shortest of the time-outs that are set: the clock and the sweep must be finer.
func (c *serverConfig) shortestTimeout() time.Duration {
	shortest := DefaultIdleTimeout
	for _, timeout := range [...]time.Duration{c.readHeaderTimeout, c.readTimeout, c.writeTimeout, c.idleTimeout} {
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

// start makes the server's background goroutines run. It fails after Shutdown or Close.
func (s *Server) start() error {
	if s.Handler == nil {
		return errNoHandler
	}
	s.configure()
	if s.config.driverErr != nil {
		return s.config.driverErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.draining.Load() {
		return ErrServerClosed
	}
	if !s.started {
		s.started = true
		s.clock.start(s.config.tick)
		s.pools[0].Start()
		s.conns.startSweep(s)
	}
	return nil
}

// stopPools ends the pools. Connections that are still being served keep their workers.
func (s *Server) stopPools() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	for _, pool := range s.pools {
		pool.Stop()
	}
}

// stopClocks ends what looks after deadlines, when nothing needs that any more.
func (s *Server) stopClocks() {
	s.conns.stopSweep()
	s.clock.stop()
}

func (s *Server) baseContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

func (s *Server) handshakeContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handshaking
}

func (s *Server) shuttingDown() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopAccept
}

// serveWorker is what a worker does with a connection. It reports whether the connection is to be closed.
func (s *Server) serveWorker(w *workerChan, netConn net.Conn) bool {
	if w.scratch == nil {
		w.scratch = &scratch{worker: w}
	}
	w.scratch.handedOver, w.scratch.linger = false, false
	defer func() { w.handedOver, w.linger = w.scratch.handedOver, w.scratch.linger }()
	return s.serveConn(w.scratch, netConn)
}

// serveConn serves an admitted connection and reports whether it is to be closed, or left to the lingerer if w.linger is
// set. It isn't once it was hijacked.
func (s *Server) serveConn(w *scratch, netConn net.Conn) (closeConn bool) {
	c := &conn{server: s, netConn: netConn}
	if _, ok := netConn.(*tls.Conn); ok {
		c.setState(stateHandshake) // before a shutdown sees it
	}
	if reason := s.conns.add(c); reason != nil {
		s.refuseConn(netConn, reason)
		return false
	}
	c.attach(w)
	// Deferred, since a handler may end its goroutine: then nobody gets the result.
	defer func() {
		if closeConn = s.connEnded(c); closeConn && c.unserved {
			s.refuseConn(netConn, errOverload)
			closeConn = false
		}
		w.handedOver = !closeConn
	}()
	s.changed(c, StateNew)
	if s.handshake(c, false) {
		c.serve()
	}
	return
}

// connEnded takes a connection that isn't served any more out of the books and reports whether it is to be closed.
func (s *Server) connEnded(c *conn) bool {
	if c.hijacked {
		c.detach()
		if c.parked != nil {
			go c.parked.run()
		}
		return false
	}
	if c.broken {
		resetOnClose(c.netConn)
	}
	c.worker.linger = c.linger && !c.failed
	c.detach()
	c.setState(stateClosed)
	s.conns.remove(c)
	s.changed(c, StateClosed)
	return true
}

// handshake makes the TLS handshake, if there is one to make, in its time, which is short while there is a crowd.
func (s *Server) handshake(c *conn, crowded bool) bool {
	tlsConn, ok := c.netConn.(*tls.Conn)
	if !ok {
		return true
	}
	ctx := s.handshakeContext()
	if timeout := s.config.readHeaderTimeout; timeout > 0 {
		if c.headSince != 0 {
			timeout -= time.Duration(s.clock.now() - c.headSince) // the client's first byte came then
		}
		if crowded {
			timeout = min(timeout, s.config.readHeaderTimeout/10)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		if s.LogAllErrors {
			s.logger().Warn("TLS handshake failed", "error", err, "remote", fmt.Sprint(c.netConn.RemoteAddr()))
		}
		s.answerPlainHTTP(c, err)
		return false
	}
	state := tlsConn.ConnectionState()
	c.tlsState = &state
	return true
}
