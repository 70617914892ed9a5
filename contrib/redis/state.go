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
	// maxFailures is how many calls may fail in a row before others fail at once.
	maxFailures = 5
	// retryInterval is how often Redis is tried again then.
	retryInterval = 500 * time.Millisecond
	// logInterval is how often a failure of one kind is logged at most.
	logInterval = time.Minute
)

// access is what a call does in Redis.
type access int

const (
	reading access = iota
	writing
	accesses // their number
)

// failure is why a call has failed.
type failure int

const (
	none        failure = iota
	timeout             // nobody was answered for as long as the call took
	busy                // others were answered, so the call had no connection, or had none early enough
	unreachable         // there is no connection
	full                // Redis has no memory left
	refused             // another reply that is an error
	skipped             // the calls before have failed
	failures            // their number
)

var accessNames = [accesses]string{"read", "write"}

var failureNames = [failures]string{timeout: "timeout", busy: "busy", unreachable: "unreachable", full: "full", refused: "refused", skipped: "skipped"}

// state knows whether Redis answers, which it doesn't after too many failures in a row, and whether it does what it is asked. It logs both.
type state struct {
	start    time.Time    // what times are counted from
	answered atomic.Int64 // when an answer came last
	inARow   atomic.Int32 // calls that got no answer
	retry    atomic.Int64 // when Redis may be tried again, while it is down
	verify   atomic.Int64 // when it may be asked again whether it does all, while it refuses something
	measure  atomic.Int64 // when a connection may be made to find out whether Redis is slow, while all that there may be exist
	refuses  [accesses]atomic.Bool

	silent    notice
	crowded   notice
	unwilling [accesses]notice
	odd       notice
}

func newState(log *slog.Logger) *state {
	return &state{
		start:   time.Now(),
		silent:  notice{log: log, level: slog.LevelError, fails: "redisfilo: Redis doesn't answer", works: "redisfilo: Redis answers again"},
		crowded: notice{log: log, level: slog.LevelWarn, fails: "redisfilo: calls wait too long for a connection to Redis"},
		odd:     notice{log: log, level: slog.LevelError, fails: "redisfilo: Redis refuses a call"},
		unwilling: [accesses]notice{
			reading: {log: log, level: slog.LevelError, fails: "redisfilo: Redis refuses to read", works: "redisfilo: Redis reads again"},
			writing: {log: log, level: slog.LevelError, fails: "redisfilo: Redis refuses to write", works: "redisfilo: Redis writes again"},
		},
	}
}

// now returns the time in nanoseconds since the state was made, which no change of the date moves. It is never 0.
func (s *state) now() int64 { return int64(time.Since(s.start)) + 1 }

// down reports whether Redis doesn't answer.
func (s *state) down() bool { return s.inARow.Load() >= maxFailures }

// up reports whether Redis does what is asked of it.
func (s *state) up(a access) bool { return !s.down() && !s.refuses[a].Load() }

// claim reports whether the caller is the one of each interval that may do something.
func (s *state) claim(next *atomic.Int64) bool {
	now, due := s.now(), next.Load()
	return now >= due && next.CompareAndSwap(due, now+int64(retryInterval))
}

// succeeded says that a call was answered, and has done what it should.
func (s *state) succeeded(a access) {
	s.heard()
	// A script that needn't write does nothing that a full Redis refuses: what proves that Redis writes is the check.
	if a == reading {
		s.willing(reading)
	}
}

// heard says that Redis has answered.
func (s *state) heard() {
	s.answered.Store(s.now())
	if s.inARow.Load() != 0 {
		s.inARow.Store(0)
	}
	s.silent.over()
}

// willing says that Redis has done what it may have refused.
func (s *state) willing(a access) {
	if s.refuses[a].Load() {
		s.refuses[a].Store(false)
	}
	s.unwilling[a].over()
}

// failed says that a call that began at a time has failed, and returns why.
func (s *state) failed(a access, began int64, err error) failure {
	why := s.classify(began, err)
	switch why {
	case timeout, unreachable:
		s.retry.Store(s.now() + int64(retryInterval))
		s.inARow.Add(1)
		s.silent.note(err)
	case busy:
		s.crowded.note(err)
	case full, refused:
		s.heard()
		s.refused(a, err)
	}
	return why
}

// refused says that Redis has answered with an error.
func (s *state) refused(a access, err error) {
	if !isGeneral(err) {
		s.odd.note(err)
		return
	}
	s.refuses[a].Store(true)
	s.unwilling[a].note(err)
}

// generalErrors are the errors of a Redis that refuses everybody, and not just one call.
var generalErrors = []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "BUSY", "ERR max number of clients"}

// isGeneral reports whether a reply is about Redis, rather than about one call. Redis before version 7 tells the error of a script's
// command within another one.
func isGeneral(err error) bool {
	return slices.ContainsFunc(generalErrors, func(code string) bool {
		return redis.HasErrorPrefix(err, code+" ") || strings.Contains(err.Error(), ": -"+code+" ")
	})
}

// lost says that a broker gets no messages.
func (s *state) lost(err error) {
	var reply redis.Error
	switch {
	case isDown(err): // a call that has failed has said so
	case errors.As(err, &reply):
		s.refused(reading, err)
	default:
		s.silent.note(err)
	}
}

// classify returns why a call has failed that began at a time.
func (s *state) classify(began int64, err error) failure {
	var reply redis.Error
	var network net.Error
	switch {
	case err == errNoConnection, errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return busy
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		// go-redis's error doesn't tell a call that waits for a connection from one that waits for its answer. But while Redis
		// answers others, it isn't down.
		if s.answered.Load() > began {
			return busy
		}
		return timeout
	case errors.As(err, &reply):
		if strings.Contains(err.Error(), "OOM command not allowed") {
			return full
		}
		return refused
	}
	return unreachable
}

// notice logs that something fails, and that it works again, each at most once a minute.
type notice struct {
	log          *slog.Logger
	level        slog.Level
	fails, works string

	count atomic.Int64 // failures since the last record
	told  atomic.Bool  // there was a record of a failure, and none since that it works

	mu               sync.Mutex
	failsAt, worksAt time.Time // of the last records; guarded by mu
}

// note logs a failure, unless one was logged less than a minute ago.
func (n *notice) note(err error) {
	n.count.Add(1)
	if n.due(&n.failsAt) {
		n.told.Store(true)
		n.log.Log(context.Background(), n.level, n.fails, "error", err, "failed", n.count.Swap(0))
	}
}

// over logs that it works again if a failure was logged. If that was logged less than a minute ago, a later call does it: the last record must
// not be about a failure for ever.
func (n *notice) over() {
	if n.told.Load() && n.due(&n.worksAt) && n.told.CompareAndSwap(true, false) {
		n.log.Info(n.works, "failed", n.count.Swap(0))
	}
}

// due reports whether the last record of a kind was long enough ago, and takes it for made now.
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
