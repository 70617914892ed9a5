package redisfilo

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFailures is how many calls must fail in a row before further calls fail at once.
	maxFailures = 5
	// retryInterval is the time between two attempts to reach Redis while calls fail at once.
	retryInterval = 500 * time.Millisecond
	// logInterval is the minimum time between two records of the same kind of failure.
	logInterval = time.Minute
	// maxLate is the longest time by which a call normally exceeds its time limit. A call that ends later had to wait for a processor.
	maxLate = 50 * time.Millisecond
)

// access is the kind of a call, which either reads from Redis or writes to it.
type access int

const (
	reading access = iota
	writing
	accesses // the number of constants above
)

// failure is why a call has failed.
type failure int

const (
	none        failure = iota
	timeout             // Redis has answered no call since the failed call began
	busy                // Redis has answered other calls, but this call got no connection in time; or this process was paused
	unreachable         // there is no connection
	full                // Redis has no memory left
	refused             // Redis has sent another error reply
	skipped             // the call wasn't tried, since the calls before it have failed
	failures            // the number of constants above
)

var accessNames = [accesses]string{"read", "write"}

var failureNames = [failures]string{timeout: "timeout", busy: "busy", unreachable: "unreachable", full: "full", refused: "refused", skipped: "skipped"}

// state records whether Redis answers, and whether it executes the commands that it gets. After too many failures in a row, Redis is treated
// as not answering. state logs when either changes.
type state struct {
	start    time.Time    // all times are measured from here
	answered atomic.Int64 // the time of the last answer
	inARow   atomic.Int32 // calls in a row that got no answer
	retry    atomic.Int64 // when Redis may be tried again, while it is down
	verify   atomic.Int64 // when a refused kind of command may be tried again
	waited   atomic.Int64 // when a call last failed because it waited too long for a connection
	refuses  [accesses]atomic.Bool

	silent    notice
	crowded   notice
	unwilling [accesses]notice
	odd       notice
}

func newState(log *slog.Logger) *state {
	return &state{
		start:  time.Now(),
		silent: notice{log: log, level: slog.LevelError, fails: "redisfilo: Redis doesn't answer", works: "redisfilo: Redis answers again"},
		crowded: notice{log: log, level: slog.LevelWarn, fails: "redisfilo: calls wait too long for a connection to Redis",
			works: "redisfilo: calls get connections to Redis in time again"},
		odd: notice{log: log, level: slog.LevelError, fails: "redisfilo: Redis refuses a call"},
		unwilling: [accesses]notice{
			reading: {log: log, level: slog.LevelError, fails: "redisfilo: Redis refuses to read", works: "redisfilo: Redis reads again"},
			writing: {log: log, level: slog.LevelError, fails: "redisfilo: Redis refuses to write", works: "redisfilo: Redis writes again"},
		},
	}
}

// now returns the time in nanoseconds since the state was created; changes of the system's clock don't affect it. It is never 0.
func (s *state) now() int64 { return int64(time.Since(s.start)) + 1 }

// down reports whether Redis is treated as not answering.
func (s *state) down() bool { return s.inARow.Load() >= maxFailures }

// up reports whether Redis answers, and executes commands of this kind of access.
func (s *state) up(a access) bool { return !s.down() && !s.refuses[a].Load() }

// claim returns true to only one caller in each retryInterval: that caller may act.
func (s *state) claim(next *atomic.Int64) bool {
	now, due := s.now(), next.Load()
	return now >= due && next.CompareAndSwap(due, now+int64(retryInterval))
}

// succeeded records that a call was answered and executed.
func (s *state) succeeded(a access) {
	s.heard()
	// A successful script may have had nothing to write, so that even a full Redis executes it: only Check proves that Redis writes.
	if a == reading {
		s.willing(reading)
	}
}

// heard records that Redis has answered.
func (s *state) heard() {
	now := s.now()
	s.answered.Store(now)
	if s.inARow.Load() != 0 {
		s.inARow.Store(0)
	}
	s.silent.over()
	if now-s.waited.Load() >= int64(logInterval) { // one call in time doesn't suffice, since others may still wait too long
		s.crowded.over()
	}
}

// willing records that Redis has executed a command of this access, which it may have refused before.
func (s *state) willing(a access) {
	if s.refuses[a].Load() {
		s.refuses[a].Store(false)
	}
	s.unwilling[a].over()
}

// failed records that a call which began at the given time, with this time limit, has failed, and returns the reason.
func (s *state) failed(a access, began int64, limit time.Duration, err error) failure {
	why := s.classify(began, limit, err)
	switch why {
	case timeout, unreachable:
		s.retry.Store(s.now() + int64(retryInterval))
		s.inARow.Add(1)
		s.silent.note(err)
	case busy:
		s.waited.Store(s.now())
		s.crowded.note(err)
	case full, refused:
		s.heard()
		s.refused(a, err)
	}
	return why
}

// refused records that Redis has answered with an error.
func (s *state) refused(a access, err error) {
	if !isGeneral(err) {
		s.odd.note(err)
		return
	}
	s.refuses[a].Store(true)
	s.unwilling[a].note(err)
}

// generalErrors are the errors with which Redis refuses calls in general, not a particular call.
var generalErrors = []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "BUSY", "ERR max number of clients"}

// isGeneral reports whether an error reply is about the state of Redis, rather than about one call. Redis before version 7 wraps the error of
// a script's command in another error.
func isGeneral(err error) bool {
	return slices.ContainsFunc(generalErrors, func(code string) bool {
		return redis.HasErrorPrefix(err, code+" ") || strings.Contains(err.Error(), ": -"+code+" ")
	})
}

// isReply reports whether Redis has answered a call with an error.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// lost records that a broker can't receive messages.
func (s *state) lost(err error) {
	switch {
	case isDown(err): // the call that failed has already recorded it
	case isReply(err):
		s.refused(reading, err)
	default:
		s.silent.note(err)
	}
}

// classify returns the reason why a call that began at the given time, with this time limit, has failed.
func (s *state) classify(began int64, limit time.Duration, err error) failure {
	var network net.Error
	switch {
	case err == errNoConnection, errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return busy
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		// go-redis's error doesn't distinguish a call that waits for a connection from a call that waits for its answer. But while Redis
		// answers other calls, it isn't down. And after a pause of this process, all calls have exceeded their limits, even those that Redis
		// has answered.
		if s.answered.Load() > began || s.now()-began > int64(limit+maxLate) {
			return busy
		}
		return timeout
	case isReply(err):
		if strings.Contains(err.Error(), "OOM command not allowed") {
			return full
		}
		return refused
	}
	return unreachable
}

// notice logs that some operation fails, and that it works again, each at most once a minute.
type notice struct {
	log          *slog.Logger
	level        slog.Level
	fails, works string

	count atomic.Int64 // failures since the last record
	told  atomic.Bool  // a failure was logged, but not yet the recovery

	mu               sync.Mutex
	failsAt, worksAt time.Time // the times of the last records; guarded by mu
}

// note logs a failure, unless one was logged less than a minute ago.
func (n *notice) note(err error) {
	n.count.Add(1)
	if n.due(&n.failsAt) {
		n.told.Store(true)
		n.log.Log(context.Background(), n.level, n.fails, "error", err, "failed", n.count.Swap(0))
	}
}

// over logs that the operation works again, if a failure was logged. If the last such record is less than a minute old, over logs nothing,
// and a later call of over does it. So a failure doesn't remain the last record forever.
func (n *notice) over() {
	if n.told.Load() && n.due(&n.worksAt) && n.told.CompareAndSwap(true, false) {
		n.log.Info(n.works, "failed", n.count.Swap(0))
	}
}

// due reports whether the last record of a kind is at least logInterval old. If so, due stores the present time as the time of a new record.
func (n *notice) due(last *time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if !last.IsZero() && now.Sub(*last) < logInterval {
		return false
	}
	*last = now
	return true
}
