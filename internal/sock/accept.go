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
	// acceptLogInterval is how far apart log records of failing accepts are.
	acceptLogInterval = time.Minute
)

// NextAcceptDelay returns how long to wait before accepting again, when it has failed after that delay; 0 is the first time.
func NextAcceptDelay(delay time.Duration) time.Duration {
	return min(max(2*delay, minAcceptDelay), maxAcceptDelay)
}

// AcceptLog logs that accepting on a listener fails for the moment, and later that it works again.
type AcceptLog struct {
	failing atomic.Bool // it was logged that accepting fails, and not yet that it works again
	mu      sync.Mutex
	logged  time.Time // when it was logged last that accepting fails; guarded by mu
}

// Failed takes note that accepting has failed.
func (a *AcceptLog) Failed(logger *slog.Logger, err error) {
	if a.isDue() {
		logger.Error("accepting connections fails; trying again", "error", err)
	}
}

// isDue reports whether a failure is to be logged.
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

// Succeeded takes note that a connection was accepted.
func (a *AcceptLog) Succeeded(logger *slog.Logger) {
	if a.failing.Load() && a.failing.Swap(false) {
		logger.Info("accepting connections again")
	}
}

// passingErrors are those of accept that say nothing about the listener: no descriptors or memory for the moment, a
// connection that broke before it was accepted, a firewall's verdict on one. See accept(2).
var passingErrors = [...]error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET,
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
	// Deprecated since nobody could say what it means; but a listener of the user's own has no other way to say it.
	var netError net.Error
	//lint:ignore SA1019 see above
	return errors.As(err, &netError) && netError.Temporary()
}
