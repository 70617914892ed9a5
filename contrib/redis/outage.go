package redisfilo

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxFailures is how many calls may fail in a row before others fail at once.
	maxFailures = 5
	// retryInterval is how often one of them is tried then.
	retryInterval = 500 * time.Millisecond
	// logInterval is how often an outage is logged at most.
	logInterval = time.Minute
)

// outage knows whether Redis is down, which it is after too many failures in a row, and logs that.
type outage struct {
	log      *slog.Logger
	inARow   atomic.Int32 // calls that got no answer
	retry    atomic.Int64 // when one may try, while it is down, in nanoseconds since 1970
	uncalled atomic.Int64 // calls that have failed since the last record
	told     atomic.Bool  // there was a record that Redis is down, and none since that it is back

	mu     sync.Mutex
	downAt time.Time // of the last record; guarded by mu
	backAt time.Time // of the last record; guarded by mu
}

// admit reports whether a call is to be tried.
func (o *outage) admit(now time.Time) bool {
	if o.inARow.Load() < maxFailures {
		return true
	}
	retry := o.retry.Load()
	return now.UnixNano() >= retry && o.retry.CompareAndSwap(retry, now.Add(retryInterval).UnixNano())
}

// failed notes that a call got no answer, or one that says that it couldn't be done.
func (o *outage) failed(now time.Time, answered bool) {
	if answered {
		o.inARow.Store(0)
		return
	}
	o.retry.Store(now.Add(retryInterval).UnixNano())
	o.inARow.Add(1)
}

// count counts a call that has failed.
func (o *outage) count() { o.uncalled.Add(1) }

// note logs a failure, unless one was logged less than a minute ago.
func (o *outage) note(now time.Time, err error) {
	o.count()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.downAt.IsZero() && now.Sub(o.downAt) < logInterval {
		return
	}
	o.downAt = now
	o.told.Store(true)
	o.log.Error("redisfilo: Redis doesn't answer", "error", err, "failed", o.uncalled.Swap(0))
}

// succeeded notes that Redis has answered.
func (o *outage) succeeded() {
	if o.inARow.Load() != 0 {
		o.inARow.Store(0)
	}
	if o.told.Load() && o.told.CompareAndSwap(true, false) {
		o.back(time.Now())
	}
}

// back logs that Redis answers again, unless that was logged less than a minute ago.
func (o *outage) back(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.backAt.IsZero() && now.Sub(o.backAt) < logInterval {
		return
	}
	o.backAt = now
	o.log.Info("redisfilo: Redis answers again", "failed", o.uncalled.Swap(0))
}
