package sock

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
	// acceptLogInterval is the minimum time between two log records about failing accepts.
	acceptLogInterval = time.Minute
)

// NextAcceptDelay returns the pause before the next accept. delay is the pause before the accept that has just failed, 0 if there was no
// pause.
func NextAcceptDelay(delay time.Duration) time.Duration {
	return min(max(2*delay, minAcceptDelay), maxAcceptDelay)
}

// AcceptLog logs that accepting from a listener fails temporarily, and later that it succeeds again.
type AcceptLog struct {
	// Failures, if set, counts the failures.
	Failures *atomic.Uint64

	failing atomic.Bool // the last log record says that accepting fails
	mu      sync.Mutex
	logged  time.Time // time of the last log record of a failure; guarded by mu
}

// Failed records that accepting has failed.
func (a *AcceptLog) Failed(logger *slog.Logger, err error) {
	if a.Failures != nil {
		a.Failures.Add(1)
	}
	if a.isDue() {
		logger.Error("accepting connections fails; trying again", "error", err)
	}
}

// isDue reports whether a failure must be logged now. If so, it records that.
func (a *AcceptLog) isDue() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.logged) <= acceptLogInterval {
		return false
	}
	a.logged = time.Now()
	a.failing.Store(true)
	return true
}

// Succeeded records that a connection was accepted.
func (a *AcceptLog) Succeeded(logger *slog.Logger) {
	if a.failing.Load() && a.failing.Swap(false) {
		logger.Info("accepting connections again")
	}
}

// passingErrors are the errors of accept whose cause isn't the listener: a temporary lack of descriptors, memory or epoll watches, a
// connection that broke before it was accepted, a firewall's refusal. See accept(2) and epoll_ctl(2); the Accept of package net calls both.
var passingErrors = [...]error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC, syscall.ECONNABORTED, syscall.ECONNRESET,
	syscall.EPROTO, syscall.EPERM, syscall.EINTR, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN,
	syscall.EHOSTUNREACH, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP,
}

// IsTemporary reports whether accepting may succeed later.
func IsTemporary(err error) bool {
	for _, passing := range passingErrors {
		if errors.Is(err, passing) {
			return true
		}
	}
	// Temporary is deprecated because its meaning was never clear. But a program's own listener has no other way to say that an error is
	// temporary.
	var netError net.Error
	//lint:ignore SA1019 see above
	return errors.As(err, &netError) && netError.Temporary()
}
