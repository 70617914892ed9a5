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
	// Tasks counts the tasks of Ctx.Go that had not ended.
	Tasks int
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
	return fmt.Sprintf("filo: not finished within the grace period of %v: %s", e.GracePeriod, strings.Join(cut, ", "))
}

// Unwrap returns context.DeadlineExceeded.
func (e *UnfinishedError) Unwrap() error { return context.DeadlineExceeded }

// Run listens on the TCP address and serves until ctx is done. It then shuts the server down and waits, so that the program can
// exit when Run returns. Run returns nil if everything finished, or an *UnfinishedError if GracePeriod ended first.
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	context.AfterFunc(ctx, stop) // a second signal ends the process at once
//	err := server.Run(ctx, ":8080")
//
// The shutdown is that of Shutdown: no request that was sent is lost, and the tasks of Ctx.Go may finish. Other code may also
// begin it, with Shutdown or Close; Run then waits for its end too, for at most GracePeriod. Behind a load balancer,
// Health.DrainContext of package health turns the readiness probe red before the shutdown begins.
//
// Run returns an error at once if it can't listen on the address, and ErrServerClosed if the server was shut down before. If
// accepting fails permanently, Run shuts the server down in the same way and returns that error. A server may run on several
// addresses, with one call for each; the first call to end ends them all.
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

// RunListener is Run on a listener. Like Serve, it closes the listener.
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
	if s.life.draining.Load() {
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
