package filo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"
)

// DefaultGracePeriod leaves 10 of the 30 seconds that Kubernetes gives a process between SIGTERM and SIGKILL.
const DefaultGracePeriod = 20 * time.Second

// UnfinishedError is returned by Run and its relatives when GracePeriod ended before the server was done. It says what was cut
// off, as far as it is known; handlers whose connections were closed may still be running. It wraps context.DeadlineExceeded.
type UnfinishedError struct {
	// GracePeriod is how long the server has waited.
	GracePeriod time.Duration
	// Conns is how many connections were closed that had a request, or were parked.
	Conns int
	// Tasks is how many tasks of Ctx.Go had not ended.
	Tasks int
}

// Error returns what was cut off in one line.
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
	return fmt.Sprintf("filo: not finished within the grace period of %v: %s", e.GracePeriod, strings.Join(cut, ", "))
}

// Unwrap returns context.DeadlineExceeded.
func (e *UnfinishedError) Unwrap() error { return context.DeadlineExceeded }

// Run listens on the TCP address and serves until ctx is done. Then it shuts the server down, and returns when all is over, so
// that a program may end: nil if everything was finished, or an *UnfinishedError if GracePeriod ended before.
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	context.AfterFunc(ctx, stop) // a second signal ends the process at once
//	err := server.Run(ctx, ":8080")
//
// The shutdown is that of Shutdown: nothing that was sent is lost, and the tasks of Ctx.Go are waited for. It may also be begun
// by somebody else, with Shutdown or Close: Run then waits for the end of it as well, for GracePeriod at most. Behind a balancer,
// Health.DrainContext of package health lets the readiness probe turn red some time before.
//
// Run returns an error at once if the address can't be listened on, and ErrServerClosed if the server was shut down before. If
// accepting fails for good, the server is shut down likewise, and that error is returned. A server may run on several addresses,
// one call for each: all end with the first.
func (s *Server) Run(ctx context.Context, addr string) error {
	listener, err := s.Listen(addr)
	if err != nil {
		return err
	}
	return s.run(ctx, listener, nil)
}

// RunTLS is Run over TLS: see ListenAndServeTLS.
func (s *Server) RunTLS(ctx context.Context, addr, certFile, keyFile string) error {
	listener, err := s.Listen(addr)
	if err != nil {
		return err
	}
	return s.RunListenerTLS(ctx, listener, certFile, keyFile)
}

// RunUnix is Run on a Unix socket: see ListenAndServeUnix.
func (s *Server) RunUnix(ctx context.Context, path string, mode fs.FileMode) error {
	listener, err := listenUnix(path, mode)
	if err != nil {
		return err
	}
	return s.run(ctx, listener, nil)
}

// RunListener is Run on a listener, as Serve: it closes the listener.
func (s *Server) RunListener(ctx context.Context, listener net.Listener) error {
	return s.run(ctx, listener, nil)
}

// RunListenerTLS is RunListener over TLS: see ServeTLS.
func (s *Server) RunListenerTLS(ctx context.Context, listener net.Listener, certFile, keyFile string) error {
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		listener.Close()
		return err
	}
	return s.run(ctx, listener, config)
}

// run serves until ctx is done, or serving ends for another reason, and waits for what is left in either case.
func (s *Server) run(ctx context.Context, listener net.Listener, config *tls.Config) error {
	if s.draining.Load() {
		listener.Close()
		return ErrServerClosed
	}
	ended := make(chan error, 1)
	notDone := context.AfterFunc(ctx, func() { ended <- s.finish() })
	served := s.serveListener(listener, config)
	if notDone() {
		ended <- s.finish()
	}
	if errors.Is(served, ErrServerClosed) {
		served = nil
	}
	return errors.Join(served, <-ended)
}

// finish shuts the server down within its grace period, and closes it behind that.
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
	stats := s.Stats() // before their contexts end, by which they might
	s.Close()
	return &UnfinishedError{GracePeriod: grace, Conns: stats.ConnsOpen, Tasks: stats.TasksRunning}
}
