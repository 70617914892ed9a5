package sweep

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// run calls test in a bubble, with a schedule whose sweeps see the deadlines that see returns, 0 for none. began returns the seconds at which sweeps
// have begun.
func run(t *testing.T, shortest time.Duration, test func(s *locked, start func(exist bool), began func() []float64), see func(now clock.Time) clock.Time) {
	synctest.Test(t, func(t *testing.T) {
		var s locked
		var at []float64
		c, origin := new(clock.Coarse), time.Now()
		sweep := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			now, latest, ok := s.Begin()
			if !ok {
				return
			}
			at = append(at, time.Since(origin).Seconds())
			if seen := see(now); seen != 0 {
				latest = min(latest, seen)
			}
			s.End(latest, true)
		}
		start := func(exist bool) { s.use(func(s *Schedule) { s.Start(c, shortest, exist, sweep) }) }
		test(&s, start, func() []float64 {
			synctest.Wait()
			return at
		})
		s.use((*Schedule).Stop)
	})
}

// locked is a schedule with its caller's lock.
type locked struct {
	mu sync.Mutex
	Schedule
}

// use calls f with the lock.
func (l *locked) use(f func(s *Schedule)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.Schedule)
}

func nothing(clock.Time) clock.Time { return 0 }

func isAt(got []float64, want ...float64) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if d := got[i] - want[i]; d < -0.001 || d > 0.001 {
			return false
		}
	}
	return true
}

// The next sweep begins "at the earliest deadline that the last sweep saw, or when the shortest timeout has passed since that sweep, if that is
// earlier".
func TestNextSweep(t *testing.T) {
	run(t, 10*time.Second, func(s *locked, start func(bool), began func() []float64) {
		start(true)
		time.Sleep(25 * time.Second)
		if got := began(); !isAt(got, 1, 11, 21) {
			t.Errorf("without deadlines, sweeps began after %v s", got)
		}
	}, nothing)
	run(t, 10*time.Second, func(s *locked, start func(bool), began func() []float64) {
		start(true)
		time.Sleep(9 * time.Second)
		if got := began(); !isAt(got, 1, 4, 7) {
			t.Errorf("with a deadline 3 s after each sweep, sweeps began after %v s", got)
		}
	}, func(now clock.Time) clock.Time { return now.Add(3 * time.Second) })
	run(t, 10*time.Second, func(s *locked, start func(bool), began func() []float64) {
		start(true)
		time.Sleep(4500 * time.Millisecond)
		if got := began(); !isAt(got, 1, 2, 3, 4) {
			t.Errorf("with deadlines that come at once, sweeps began after %v s, want one each second", got)
		}
	}, func(now clock.Time) clock.Time { return now.Add(time.Millisecond) })
}

// Hasten "makes the next sweep begin in time for a deadline", but not before the minimum time since the last one, and however often it is called.
func TestHasten(t *testing.T) {
	run(t, 10*time.Second, func(s *locked, start func(bool), began func() []float64) {
		start(true)
		time.Sleep(1500 * time.Millisecond) // a sweep has begun after 1 s
		for range 20 {
			if deadline := s.clock.Exact().Add(100 * time.Millisecond); s.IsLate(deadline) {
				s.use(func(s *Schedule) { s.Hasten(deadline) })
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if got := began(); !isAt(got, 1, 2, 3) {
			t.Errorf("sweeps began after %v s", got)
		}
		deadline := s.clock.Exact().Add(5 * time.Second)
		if !s.IsLate(deadline) || s.IsLate(0) || s.IsLate(deadline.Add(10*time.Second)) {
			t.Error("IsLate is wrong")
		}
		s.use(func(s *Schedule) { s.Hasten(deadline) })
		s.use(func(s *Schedule) { s.Hasten(deadline.Add(time.Second)) }) // later: changes nothing
		time.Sleep(6 * time.Second)
		if got := began(); !isAt(got, 1, 2, 3, 8.5) {
			t.Errorf("sweeps began after %v s", got)
		}
	}, nothing)
}

// A deadline that is set while a sweep is running, which may have passed its connection, counts for the next sweep.
func TestHastenDuringASweep(t *testing.T) {
	first := true
	var late *locked
	run(t, 10*time.Second, func(s *locked, start func(bool), began func() []float64) {
		late = s
		start(true)
		time.Sleep(8 * time.Second)
		if got := began(); !isAt(got, 1, 6) {
			t.Errorf("sweeps began after %v s", got)
		}
	}, func(now clock.Time) clock.Time {
		if deadline := now.Add(5 * time.Second); first && late.IsLate(deadline) {
			late.Hasten(deadline)
		}
		first = false
		return 0
	})
}

// "Sweeps rest while there are no connections", and a stopped schedule has none.
func TestRest(t *testing.T) {
	run(t, 10*time.Second, func(s *locked, start func(bool), began func() []float64) {
		s.use((*Schedule).Added) // stopped: nothing happens
		start(false)
		time.Sleep(time.Minute)
		if got := began(); len(got) != 0 {
			t.Errorf("without connections, sweeps began after %v s", got)
		}
		s.use(func(s *Schedule) { s.Hasten(s.clock.Exact().Add(time.Millisecond)) }) // there is nothing to sweep
		s.use((*Schedule).Added)
		s.use((*Schedule).Added)
		time.Sleep(1500 * time.Millisecond)
		if got := began(); !isAt(got, 61) {
			t.Errorf("sweeps began after %v s", got)
		}
		s.use((*Schedule).Stop)
		s.use(func(s *Schedule) { s.Hasten(s.clock.Exact().Add(time.Millisecond)) })
		time.Sleep(time.Minute)
		if got := began(); len(got) != 1 {
			t.Errorf("stopped, sweeps began after %v s", got)
		}
	}, nothing)
	if Interval(time.Hour) != time.Second || Interval(2*time.Second) != 500*time.Millisecond || Interval(0) != time.Millisecond {
		t.Error("the minimum time between two sweeps is wrong")
	}
}
