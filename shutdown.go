package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/life"
)

// shutdownPoll is how often a shutdown looks for connections that have become idle. A connection checks for draining before it waits,
// but draining may begin between the check and the wait.
const shutdownPoll = 5 * time.Millisecond

// Shutdown ends the server without losing requests that clients have sent. It stops accepting. It closes idle connections after a short
// last check for a request that is on its way, or after IdleGrace. Connections that have been idle for less than a second get a tenth of a
// second for this check, while the server still accepts new ones. A connection opened less than a second ago has one more second for its
// TLS handshake and its first request. Running requests may finish, with Connection: close in their answers, and so may the tasks started
// by Ctx.Go. Shutdown returns nil when all are done. It doesn't wait for hijacked connections. Requests that another server has received
// (adaptor.ToHTTP) may finish as well, and further ones get a 503.
//
// If ctx is done first, Shutdown cancels the contexts of the requests and tasks that still run, and returns ctx's error.
// Shutdown or Close may be called again afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.shutdown(ctx)
	if err != nil {
		s.life.CancelBase(ErrServerClosed)
		s.tasks.Cancel(ErrServerClosed)
	}
	return err
}

// RegisterOnShutdown registers f to run, on its own goroutine, when Shutdown or Close is first called; if that has already
// happened, f runs at once. Neither method waits for f.
func (s *Server) RegisterOnShutdown(f func()) {
	s.life.OnShutdown(f)
}

func (s *Server) shutdown(ctx context.Context) error {
	s.letLeave(ctx)
	s.stopAccepting(false)
	select {
	case <-s.life.NotAccepting:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lastAcceptLimit):
		// A listener whose type is the program's own may ignore its deadline.
		s.stopAccepting(true)
	}
	handshakes := time.AfterFunc(lastReadTimeNew, func() { s.life.CancelHandshakes(ErrServerClosed) })
	defer handshakes.Stop()
	for sealed := false; !sealed; sealed = s.conns.seal() {
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	if err := s.tasks.Wait(ctx); err != nil {
		return err
	}
	s.lingerer.Wait(ctx)
	s.life.CancelBase(ErrServerClosed)
	s.loops.Load().Stop()
	if err := s.loops.Load().Await(ctx); err != nil {
		return err
	}
	if err := s.awaitWorkers(ctx); err != nil { // wait for the workers that were leaders during drain
		return err
	}
	s.stopClocks()
	s.logStopped()
	return nil
}

// letLeave waits for the next requests on connections that were in use a moment ago, and answers them with Connection: close, for
// lastReadTimeBusy at most. The server goes on accepting during this wait: a new instance can replace this one only when this one has
// ended, so clients are refused from the end of accepting until the end of the process.
func (s *Server) letLeave(ctx context.Context) {
	s.configure() // Serve may be about to begin
	if !s.life.Accepts() {
		return
	}
	s.SetKeepAlivesEnabled(false)
	for end := s.clock.Exact().Add(lastReadTimeBusy); s.conns.anyUsedSince(s.clock.Exact() - clock.Time(busyTime)); {
		if s.clock.Exact() >= end {
			s.life.LetLeft.Store(true)
			return
		}
		select {
		case <-time.After(shutdownPoll):
		case <-s.life.DrainBegun: // Close was called
			return
		case <-ctx.Done():
			return
		}
	}
}

// drain waits until there is no connection, and then until the workers have ended. Until then a worker may still add a connection
// that was accepted before, so the sweep goes on enforcing deadlines.
func (s *Server) drain(ctx context.Context) error {
	empty := s.conns.whenEmpty()
	for waiting := true; waiting; {
		s.conns.wakeIdle(s.clock.Exact())
		select {
		case <-empty:
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(shutdownPoll):
		}
	}
	s.pool.Stop()
	return s.awaitWorkers(ctx)
}

// awaitWorkers waits until only leaders are left.
func (s *Server) awaitWorkers(ctx context.Context) error {
	select {
	case <-s.pool.done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the server at once. It closes the listeners and all connections except hijacked ones and those that other servers have
// accepted, and cancels the contexts of the running requests. Handlers that still run may go on for a while, without a client.
func (s *Server) Close() error {
	s.stopAccepting(true)
	s.life.Cut(s.conns.open(), s.tasks.Count(), describeRunning(s.Running())) // first, since the end of the contexts may end requests and tasks, and with them a Shutdown
	s.life.CancelBase(ErrServerClosed)
	s.tasks.Close(ErrServerClosed)
	s.conns.closeAll()
	s.loops.Load().Stop()
	s.pool.Stop()
	s.stopClocks()
	s.lingerer.Close()
	s.logStopped()
	return nil
}

const (
	// lastReadTimeIdle is how long a shutdown waits on an idle connection for a request that may be on its way.
	lastReadTimeIdle = 2 * time.Millisecond
	// lastReadTimeBusy is the same time for a connection that has been idle for less than busyTime. Its client is probably about to send the
	// next request, and learns from the answer that this request was the last.
	lastReadTimeBusy = 100 * time.Millisecond
	// lastReadTimeNew is the same time for a connection that was opened less than busyTime ago, probably to send a request. A TLS handshake in
	// progress gets the same time.
	lastReadTimeNew = time.Second
	busyTime        = time.Second
	// lastRestTime is how long a draining server goes on discarding a body that nobody reads, and answering pipelined requests. The server
	// waits that long since the last answer hasn't announced the connection's end, so the client may send another request. It doesn't wait
	// longer since the whole shutdown waits for this client.
	lastRestTime = time.Second
)

// lastReadTime returns how long a shutdown waits for a request on a connection in this state that has already waited for the given time.
func (s *Server) lastReadTime(state waitState, waited time.Duration) time.Duration {
	least := lastReadTimeBusy
	switch {
	case waited >= busyTime, waited > 0 && state == stateIdle && s.life.LetLeft.Load():
		least = lastReadTimeIdle
	case state == stateNew:
		least = lastReadTimeNew
	}
	return max(least, s.IdleGrace)
}

// SetKeepAlivesEnabled, called with false, tells clients to open new connections. Called with true, it lets them reuse connections again.
// While keep-alives are off, each answer says Connection: close and is its connection's last one. Connections of HTTP/2 and HTTP/3 accept no new
// requests (GOAWAY) once they have had one. The server goes on accepting, and idle connections stay open until their next request, so nothing
// is lost.
//
// Call it some time before Shutdown, so that clients leave by themselves. The Drain and DrainContext of package health do this. Unlike
// net/http's method of the same name, it closes no idle connection.
func (s *Server) SetKeepAlivesEnabled(enabled bool) {
	if wasOff := s.life.NoReuse.Swap(!enabled); enabled || wasOff {
		return
	}
	s.conns.walk(func(c *conn) {
		if h := c.http2.Load(); h != nil {
			h.CloseSoon()
		}
	})
}

// lastLooks is how many waits for a last request or connection must time out before the server gives up. On a busy machine a short wait may
// time out before it has begun, and so without a check of what has arrived.
const lastLooks = 3

const (
	// lastAcceptTime is how long a shutdown waits on a listener for a last connection, lastLooks times.
	lastAcceptTime = 10 * time.Millisecond
	// lastAcceptTimeLate is the shortest of these waits, when accepting has used up the time. It is enough for connections that
	// have already arrived, and hardly waits for further connections.
	lastAcceptTimeLate = lastAcceptTime / 20
	// lastAcceptLimit is how long the listener stays open at most.
	lastAcceptLimit = time.Second
)

// stopAccepting makes the server drain: connections end when they can, and listeners are closed, now or after a last check for connections
// that the system has accepted for them.
func (s *Server) stopAccepting(now bool) {
	s.configure()
	listeners, first := s.life.BeginDraining(s.clock.Exact().Add(lastRestTime), s.answered())
	if first && !now {
		s.logDraining()
	}
	for _, listener := range listeners {
		patient, ok := (*listener).(interface{ SetDeadline(time.Time) error })
		// Only the first call sets a deadline: after that, acceptLast does.
		if now || first && (!ok || patient.SetDeadline(clock.Past) != nil) {
			(*listener).Close()
		}
	}
}

// acceptLast admits the connections that the system has accepted, once the server drains.
func (s *Server) acceptLast(listener net.Listener, wrap func(net.Conn) net.Conn) {
	patient, ok := listener.(interface{ SetDeadline(time.Time) error })
	looks, start := 0, time.Now() // looks counts the waits that timed out; see lastLooks
	for now := start; ok && looks < lastLooks && now.Sub(start) < lastAcceptLimit; now = time.Now() {
		left := start.Add(time.Duration(looks+1) * lastAcceptTime).Sub(now)
		if patient.SetDeadline(now.Add(max(left, lastAcceptTimeLate))) != nil {
			return
		}
		netConn, err := listener.Accept()
		switch {
		case err == nil:
			if netConn = s.expectProxy(netConn); netConn != nil {
				s.admit(wrap(netConn))
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			looks++
		default:
			return
		}
	}
}

// DefaultGracePeriod leaves 10 of the 30 seconds that Kubernetes allows a process between SIGTERM and SIGKILL.
const DefaultGracePeriod = 20 * time.Second

// UnfinishedError is returned by Run and its variants when GracePeriod ended before the shutdown was complete. It counts what
// was cut off, as far as the server knows; handlers whose connections were closed may still be running. It wraps
// context.DeadlineExceeded.
type UnfinishedError struct {
	// GracePeriod is how long the server waited.
	GracePeriod time.Duration
	// Conns counts the closed connections that had a request or were parked.
	Conns int
	// Tasks counts the tasks started by Ctx.Go that had not ended.
	Tasks int
	// Running are the requests that were being handled, the oldest first: see Server.Running.
	Running []RunningRequest
}

// Error describes in one line what was cut off.
func (e *UnfinishedError) Error() string {
	var cut []string
	for _, each := range [...]struct {
		n    int
		noun string
	}{{e.Conns, "connection"}, {e.Tasks, "task"}} {
		switch each.n {
		case 0:
		case 1:
			cut = append(cut, "1 "+each.noun)
		default:
			cut = append(cut, fmt.Sprintf("%d %ss", each.n, each.noun))
		}
	}
	if cut == nil {
		cut = append(cut, "handlers without a connection")
	}
	text := fmt.Sprintf("filo: not finished within the grace period of %v: %s", e.GracePeriod, strings.Join(cut, ", "))
	if len(e.Running) > 0 {
		text += "; running: " + describeRunning(e.Running)
	}
	return text
}

// Unwrap returns context.DeadlineExceeded.
func (e *UnfinishedError) Unwrap() error { return context.DeadlineExceeded }

// Run listens on the TCP address and serves until ctx is done. It then shuts the server down and waits, so that the program can
// exit when Run returns. Run returns nil if everything finished, or an *UnfinishedError if GracePeriod ended first.
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) }) // a second Ctrl-C ends the process at once; a second SIGTERM doesn't
//	err := server.Run(ctx, ":8080")
//
// Run shuts down as Shutdown does: no request that was sent is lost, and the tasks started by Ctx.Go may finish. Other code may also begin
// the shutdown, with Shutdown or Close; Run then waits for its end too, for at most GracePeriod. Behind a load balancer,
// Health.DrainContext of package health turns the readiness probe red before the shutdown begins.
//
// Run returns an error at once if it can't listen on the address, and ErrServerClosed if the server was shut down before. If
// accepting fails permanently, Run shuts the server down in the same way and returns that error. Each error that Run returns is also logged, at
// level Error. A server may run on several addresses, with one call for each. The first call that ends shuts the server down, which ends
// all calls.
func (s *Server) Run(ctx context.Context, addr string) error {
	listener, err := s.Listen(addr)
	if err != nil {
		return s.failed(addr, err)
	}
	return s.run(ctx, listener, nil)
}

// OnServing returns a context for Run and its variants. They call f with the address of their listener once they serve it: by then every
// step at which a start may fail, such as reading a certificate, has succeeded. If OnServing has already added a function to ctx, that
// function is called first. f may be called by several goroutines at once, and should return soon. Package contrib/restart uses this to
// learn when a program is ready.
func OnServing(ctx context.Context, f func(net.Addr)) context.Context {
	earlier := onServing(ctx)
	return context.WithValue(ctx, servingKey{}, func(address net.Addr) {
		earlier(address)
		f(address)
	})
}

// servingKey is the key of the function given to OnServing in a context.
type servingKey struct{}

// onServing returns the function given to OnServing in a context.
func onServing(ctx context.Context) func(net.Addr) {
	if f, ok := ctx.Value(servingKey{}).(func(net.Addr)); ok {
		return f
	}
	return ignoreServing
}

func ignoreServing(net.Addr) {}

// RunTLS is like Run, over TLS: see ListenAndServeTLS.
func (s *Server) RunTLS(ctx context.Context, addr, certFile, keyFile string) error {
	listener, err := s.Listen(addr)
	if err != nil {
		return s.failed(addr, err)
	}
	return s.RunListenerTLS(ctx, listener, certFile, keyFile)
}

// RunUnix is like Run, on a Unix socket: see ListenAndServeUnix.
func (s *Server) RunUnix(ctx context.Context, path string, mode fs.FileMode) error {
	listener, err := ListenUnix(path, mode)
	if err != nil {
		return s.failed(path, err)
	}
	return s.run(ctx, listener, nil)
}

// RunListener is like Run, on the given listener. Like Serve, it closes the listener.
func (s *Server) RunListener(ctx context.Context, listener net.Listener) error {
	return s.run(ctx, listener, nil)
}

// RunListenerTLS is like RunListener, over TLS: see ServeTLS.
func (s *Server) RunListenerTLS(ctx context.Context, listener net.Listener, certFile, keyFile string) error {
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		listener.Close()
		return s.failed(life.AddressOf(listener), err)
	}
	return s.run(ctx, listener, config)
}

// run serves until ctx is done or serving ends for another reason. In either case it then finishes the server.
func (s *Server) run(ctx context.Context, listener net.Listener, config *tls.Config) error {
	if s.life.Draining.Load() {
		listener.Close()
		return s.failed(life.AddressOf(listener), ErrServerClosed)
	}
	ended := make(chan error, 1)
	notDone := context.AfterFunc(ctx, func() { ended <- s.finish() })
	served := s.serveListener(listener, config, onServing(ctx))
	if notDone() {
		ended <- s.finish()
	}
	if errors.Is(served, ErrServerClosed) {
		served = nil
	}
	return s.failed(life.AddressOf(listener), errors.Join(served, <-ended))
}

// finish shuts the server down, and closes it if the shutdown takes longer than the grace period.
func (s *Server) finish() error {
	ctx, grace := context.Background(), withDefault(s.GracePeriod, DefaultGracePeriod)
	if grace > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace)
		defer cancel()
	}
	if s.shutdown(ctx) == nil {
		return nil
	}
	stats, running := s.Stats(), s.Running() // read before Close ends the contexts, which may end requests and tasks
	s.Close()
	return &UnfinishedError{GracePeriod: grace, Conns: stats.ConnsOpen, Tasks: stats.TasksRunning, Running: running}
}
