package filo

import (
	"context"
	"time"
)

// shutdownPoll is how often a shutdown looks for connections that have become idle: they notice by themselves before
// they wait, but one may have been on its way into that wait.
const shutdownPoll = 50 * time.Millisecond

// Shutdown ends the server without losing what was sent to it: it stops accepting, closes the connections that wait for
// a request at once (after a last look for one that is on its way), lets running requests finish, tells their clients
// Connection: close, and returns nil when all are gone. If ctx is done before, it cancels the contexts of the requests that
// are still running and returns ctx's error; it can then be called again, or Close. Hijacked connections are not waited
// for.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopAccepting()
	empty := s.conns.whenEmpty()
	for {
		s.conns.wakeIdle()
		select {
		case <-empty:
			return s.finishShutdown(ctx)
		case <-ctx.Done():
			s.cancelBase(ErrServerClosed)
			return ctx.Err()
		case <-time.After(shutdownPoll):
		}
	}
}

// Close ends the server now: it closes the listeners and every connection but hijacked ones, and cancels the contexts of
// the running requests. Handlers that are still running may go on for a while, without a client.
func (s *Server) Close() error {
	s.stopAccepting()
	s.cancelBase(ErrServerClosed)
	s.conns.closeAll()
	s.stopPool()
	s.stopClocks()
	s.lingerer.close()
	return nil
}

// stopAccepting makes the server drain: from now on it accepts nothing, and connections end when they can.
func (s *Server) stopAccepting() {
	s.configure()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Swap(true) {
		return
	}
	close(s.stopAccept)
	for listener := range s.listeners {
		listener.Close()
	}
}

// finishShutdown ends the server's own goroutines when no connection is left. One that was accepted but not counted yet
// may still come, so deadlines are looked after until the workers have ended.
func (s *Server) finishShutdown(ctx context.Context) error {
	s.stopPool()
	select {
	case <-s.pool.done():
	case <-ctx.Done():
		s.cancelBase(ErrServerClosed)
		return ctx.Err()
	}
	s.lingerer.wait(ctx)
	s.cancelBase(ErrServerClosed)
	s.stopClocks()
	return nil
}
