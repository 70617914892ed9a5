package filo

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/life"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/listening"
	"github.com/filohttp/filo/internal/running"
	"github.com/filohttp/filo/internal/sock"
)

var errNoHandler = errors.New("filo: Server.Handler is nil: set it, to the Serve of a router for example")

// ListenAndServe serves h on the TCP address, such as ":8080", with default settings. It always returns an error.
func ListenAndServe(addr string, h Handler) error {
	s := &Server{Handler: h}
	defer s.Close()
	return s.ListenAndServe(addr)
}

// ListenAndServeTLS is like ListenAndServe, over TLS, with the certificate and key from the files.
func ListenAndServeTLS(addr, certFile, keyFile string, h Handler) error {
	s := &Server{Handler: h}
	defer s.Close()
	return s.ListenAndServeTLS(addr, certFile, keyFile)
}

// ListenAndServeUnix is like ListenAndServe, on a Unix socket whose file has the given permissions.
func ListenAndServeUnix(path string, mode fs.FileMode, h Handler) error {
	s := &Server{Handler: h}
	defer s.Close()
	return s.ListenAndServeUnix(path, mode)
}

// Serve serves h on the connections that the listener accepts, with default settings.
func Serve(listener net.Listener, h Handler) error {
	s := &Server{Handler: h}
	defer s.Close()
	return s.Serve(listener)
}

// ServeConn serves h on one connection until the connection ends, with default settings, and closes it.
func ServeConn(netConn net.Conn, h Handler) error {
	s := &Server{Handler: h}
	defer s.Close()
	return s.ServeConn(netConn)
}

// ListenAndServe listens on the TCP address and serves. It returns ErrServerClosed as soon as Shutdown or Close is called,
// while Shutdown still waits for running requests. Use Run in a program that exits when serving ends.
func (s *Server) ListenAndServe(addr string) error {
	listener, err := s.Listen(addr)
	if err != nil {
		return err
	}
	return s.Serve(listener)
}

// Listen opens a listening socket on the TCP address with the server's SocketOptions, for Serve or ServeTLS. Unlike a listener
// of net.Listen, it lets each loop of the loop driver have its own socket.
func (s *Server) Listen(addr string) (net.Listener, error) {
	listener, err := (*sock.Options)(&s.SocketOptions).Listen(addr, false)
	if err != nil {
		return nil, err
	}
	return &serverListener{listener.(*net.TCPListener)}, nil
}

// SocketOptions are options of the TCP sockets that Listen, ListenAndServe, Run and their TLS variants open. They don't apply
// to a listener that the program opens itself. The zero value suits most servers. Options that the system doesn't support are
// ignored.
type SocketOptions struct {
	// Backlog is how many connections the system holds before they are accepted; it drops further connections, and their clients try again
	// after a second. Default the system's maximum (net.core.somaxconn), which is right unless waiting in line is worse than failing. Linux.
	Backlog int

	// ReusePort lets other processes listen on the same address, and the system spreads connections over them, for example for
	// a restart without a gap. Off by default, so that a second instance fails (EADDRINUSE) instead of silently taking half of
	// the connections. Linux.
	ReusePort bool

	// DeferAccept is how long the system holds back a connection that hasn't sent a byte, in whole seconds. It saves a wake-up
	// per connection, and hides silent connections from MaxConns and ConnState. Default 0, which disables it. Linux.
	DeferAccept time.Duration

	// FastOpen is how many connections may be pending after sending data with their first packet (RFC 7413). Such data may
	// arrive twice, so set it only if every request may be repeated. Default 0, none. Linux.
	FastOpen int

	// KeepAlive is how long a connection is silent before the system probes the other end, and the interval of further probes.
	// It detects vanished clients where IdleTimeout doesn't apply, as in a hijacked connection. Default 15 s; negative: never.
	KeepAlive time.Duration

	// ReadBuffer and WriteBuffer are the sizes of the system's buffers per connection, in bytes. Default 0, which lets the
	// system adapt them to the connection; a fixed size is for machines with very many connections.
	ReadBuffer, WriteBuffer int
}

// serverListener is a listener that the server has opened itself.
type serverListener struct{ *net.TCPListener }

// ListenAndServeTLS listens on the TCP address and serves over TLS. Both file names may be "" if TLSConfig has
// certificates.
func (s *Server) ListenAndServeTLS(addr, certFile, keyFile string) error {
	listener, err := s.Listen(addr)
	if err != nil {
		return err
	}
	return s.ServeTLS(listener, certFile, keyFile)
}

// ServeTLS is like Serve, over TLS: see ListenAndServeTLS.
func (s *Server) ServeTLS(listener net.Listener, certFile, keyFile string) error {
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		listener.Close()
		return err
	}
	return s.serveListener(listener, config, ignoreServing)
}

// ListenAndServeUnix listens on a Unix socket and serves. It replaces a socket file that no process listens on, and removes its
// own file at the end.
func (s *Server) ListenAndServeUnix(path string, mode fs.FileMode) error {
	listener, err := ListenUnix(path, mode)
	if err != nil {
		return err
	}
	return s.Serve(listener)
}

// ListenUnix opens a listening Unix socket whose file has the given permissions, for Serve or RunListener. It replaces a socket file that
// no process listens on. Closing the listener removes the file. On Linux a path that begins with @ is a name without a file, to which
// everybody who shares the network namespace may connect: mode doesn't apply.
func ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	return listening.Unix(path, mode)
}

// Serve accepts connections and passes each one to a worker. It closes the listener when it returns. The error is
// ErrServerClosed after Shutdown or Close, or the error with which accepting failed permanently. Serve may be called for
// several listeners at once.
func (s *Server) Serve(listener net.Listener) error {
	return s.serveListener(listener, nil, ignoreServing)
}

// serveListener does the work of Serve, over TLS if config isn't nil. It calls begun once connections are accepted and the start can't fail
// any more.
func (s *Server) serveListener(listener net.Listener, config *tls.Config, begun func(net.Addr)) error {
	once := &listening.Once{Listener: listener}
	defer once.Close()
	if err := s.start(); err != nil {
		return err
	}
	driver := s.config.driver
	if (driver == DriverBlocking) != (s.Driver == DriverBlocking) && loopable(listener) {
		s.logger().Info(driverVariable+" overrides the server's driver", "driver", driver.String(), "program", s.Driver.String(),
			"address", life.AddressOf(listener))
	}
	if driver != DriverBlocking {
		if served, err := s.serveLoops(listener, config, begun); served {
			return err
		}
		if driver == DriverLoop {
			remedy := "DriverAuto serves it"
			if driver != s.Driver {
				remedy = "unset " + driverVariable
			}
			return fmt.Errorf("filo: the loop driver is for TCP and Unix sockets on Linux (but 386) and can't accept from a %T on %s/%s: %s",
				listener, runtime.GOOS, runtime.GOARCH, remedy)
		}
	}
	wrap := func(netConn net.Conn) net.Conn { return netConn }
	if config != nil {
		wrap = func(netConn net.Conn) net.Conn { return tls.Server(netConn, config) }
	}
	listener = once
	if !s.life.Track(&listener) {
		return ErrServerClosed
	}
	defer s.life.Untrack(&listener)
	s.logServing(life.AddressOf(listener), DriverBlocking, config)
	begun(listener.Addr())
	err := s.acceptLoop(listener, wrap)
	if s.life.Draining.Load() {
		s.acceptLast(listener, wrap)
		return ErrServerClosed
	}
	return err
}

// acceptLoop accepts until the listener is closed. When descriptors or memory run out, it waits a little, longer each time, and
// tries again. It logs that once a minute at most.
func (s *Server) acceptLoop(listener net.Listener, wrap func(net.Conn) net.Conn) error {
	var delay time.Duration
	log := sock.AcceptLog{Failures: &s.counts.acceptFailures}
	for {
		netConn, err := listener.Accept()
		if err == nil {
			delay = 0
			log.Succeeded(s.logger())
			if netConn = s.expectProxy(netConn); netConn != nil {
				s.admit(wrap(netConn))
			}
			continue
		}
		if s.life.Draining.Load() || !sock.IsTemporary(err) {
			return err
		}
		s.freeDescriptors()
		log.Failed(s.logger(), err)
		delay = sock.NextAcceptDelay(delay)
		select {
		case <-time.After(delay):
		case <-s.life.DrainBegun:
			return ErrServerClosed
		}
	}
}

// admit passes a connection to a worker, or refuses it. It never waits for the client.
func (s *Server) admit(netConn net.Conn) {
	s.counts.accepted.Add(1)
	pool := s.pool
	// If the handler enters classes, the request may be for a quick one, such as a health check. The connection gets a reserved place, in
	// which the server finds that out.
	if !pool.Serve(netConn) && !(s.classes.handler.Trusted.Load() && pool.serveIn(admit.QuickConn, netConn)) {
		var client netip.AddrPort
		if tellsAddress(netConn) {
			client = addrPortOf(netConn.RemoteAddr())
		}
		s.refuseConn(netConn, client, errNoPlace)
	}
}

// ServeConn serves one connection on the caller's goroutine, and closes it unless a handler hijacks it. The connection doesn't count
// against Concurrency. ServeConn returns ErrServerClosed if Shutdown or Close was called. The caller must finally shut the server down or
// close it, since its clock keeps running.
func (s *Server) ServeConn(netConn net.Conn) (err error) {
	if err := s.start(); err != nil {
		netConn.Close()
		return err
	}
	s.counts.accepted.Add(1)
	if netConn = s.expectProxy(netConn); netConn == nil {
		return nil
	}
	w, j, returned := scratches.Get().(*scratch), connJob{conn: netConn}, false
	s.running.Add(w.running)
	defer func() { // deferred, since a handler may end the goroutine
		if s.running.Remove(w.running); returned {
			scratches.Put(w) // not after a panic: the buffers may be in any state
		}
		if j.conn != nil && !(j.lingers && s.lingerer.TakeOver(netConn, nil)) {
			err = linger.Close(netConn)
		}
	}()
	s.serveConn(w, &j)
	returned = true
	return nil
}

// scratches are the buffers for ServeConn, which has no worker.
var scratches = sync.Pool{New: func() any { return &scratch{running: new(running.Record[conn])} }}
