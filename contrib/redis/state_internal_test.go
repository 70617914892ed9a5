package redisfilo

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Whenever outages begin and end, the last record says that Redis answers again, at most a minute after the last outage.
func TestNoticeEnds(t *testing.T) {
	for long := time.Second; long < 2*logInterval; long += time.Second {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			n := notice{log: slog.New(slog.NewTextHandler(&log, nil)), fails: "fails", works: "works"}
			for _, outage := range []time.Duration{long, time.Second, long, time.Second} {
				n.note(errors.New("no"))
				time.Sleep(outage)
				n.over()
				n.over() // every successful call calls over
				time.Sleep(10 * time.Second)
			}
			time.Sleep(logInterval)
			n.over()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if !strings.Contains(lines[len(lines)-1], "works") {
				t.Errorf("with outages of %v the log ends with %s", long, lines[len(lines)-1])
			}
		})
	}
}

// After a pause of this process, all calls have exceeded their time limits, although Redis may have answered all of them. That isn't treated
// as an outage.
func TestPausedProcess(t *testing.T) {
	for _, test := range []struct {
		took time.Duration
		why  failure
		down bool
	}{{time.Second, timeout, true}, {2 * time.Second, busy, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := newState(slog.New(slog.DiscardHandler))
			for range maxFailures {
				began := s.now()
				time.Sleep(test.took)
				if why := s.failed(reading, began, time.Second, context.DeadlineExceeded); why != test.why {
					t.Errorf("a call of a second has failed after %v: %s, want %s", test.took, failureNames[why], failureNames[test.why])
				}
			}
			if s.down() != test.down {
				t.Errorf("after calls of a second that have failed after %v Redis is down: %v", test.took, s.down())
			}
		})
	}
}

// While some calls wait too long for a connection, answers to other calls don't show that this has ended. The end is logged a minute after
// the last call that waited too long.
func TestCrowdEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newState(slog.New(slog.NewTextHandler(&log, nil)))
		const fails, works = "calls wait too long", "in time again"
		for range 100 {
			s.failed(reading, s.now(), time.Second, redis.ErrPoolTimeout)
			s.heard()
			time.Sleep(time.Second)
		}
		if got := log.String(); strings.Count(got, fails) != 2 || strings.Contains(got, works) {
			t.Errorf("while they wait, the log has\n%s", got)
		}
		time.Sleep(logInterval)
		s.heard()
		s.heard()
		if got := log.String(); strings.Count(got, fails) != 2 || strings.Count(got, works) != 1 {
			t.Errorf("when they wait no longer, the log has\n%s", got)
		}
	})
}

// The next quick answer shows that a slow Redis is quick again, even if no connection is made. Otherwise, in the next burst, calls that find
// no free connection would fail.
func TestQuickAgain(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	r := New(client, Options{Timeout: time.Hour})
	for range 2 { // the first call makes a connection
		if err := r.Check(t.Context()); err != nil || r.slow.Load() {
			t.Errorf("got %v, and Redis counts as slow: %v", err, r.slow.Load())
		}
		r.slow.Store(true)
	}
}
