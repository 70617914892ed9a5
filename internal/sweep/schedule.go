// Package sweep schedules sweeps. A sweep is a walk through all connections of a server that ends the waits whose deadline has passed. One timer
// serves all connections: if each wait had a timer, it would have to be set twice per request.
package sweep

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Schedule says when the next sweep begins: at the earliest deadline that the last sweep saw, or when the shortest timeout has passed since that
// sweep, if that is earlier. Sweeps rest while there are no connections.
//
// Any goroutine may call IsLate. The caller's lock guards the other methods. The zero Schedule is stopped.
type Schedule struct {
	// due is when the next sweep begins. While a sweep is running, due is the latest time for the next one.
	due      clock.Atomic[clock.Time]
	clock    *clock.Coarse
	timer    *time.Timer   // nil while the schedule is stopped
	interval time.Duration // minimum time between two sweeps
	shortest time.Duration // the shortest timeout
	swept    clock.Time    // when the last sweep ended
	needed   bool          // a sweep is scheduled or running, since there are connections
	underway bool          // a sweep is running
}

// Interval returns the minimum time between two sweeps if shortest is the shortest timeout.
func Interval(shortest time.Duration) time.Duration {
	return max(min(time.Second, shortest/4), time.Millisecond)
}

// Start starts the schedule. Its timer calls sweep, which calls Begin and End. exist says whether there are connections.
func (s *Schedule) Start(c *clock.Coarse, shortest time.Duration, exist bool, sweep func()) {
	s.clock, s.shortest, s.interval, s.needed = c, shortest, Interval(shortest), exist
	s.due.Store(c.Now().Add(s.interval))
	s.timer = time.AfterFunc(s.interval, sweep)
	if !exist {
		s.timer.Stop()
	}
}

// Stop stops the schedule. A sweep that is running goes on.
func (s *Schedule) Stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// Added ends the rest of the schedule, because a connection was added.
func (s *Schedule) Added() {
	if !s.needed && s.timer != nil {
		s.needed = true
		s.due.Store(s.clock.Now().Add(s.interval))
		s.timer.Reset(s.interval)
	}
}

// Begin begins a sweep, and returns its time, and the latest time for the next one. It returns false if the schedule is stopped. The running sweep
// may miss deadlines that are set from now on, so IsLate already compares them with the time of the next sweep.
func (s *Schedule) Begin() (now, latest clock.Time, ok bool) {
	if s.timer == nil {
		return 0, 0, false
	}
	now = s.clock.Exact()
	latest = now.Add(s.shortest)
	s.underway = true
	s.due.Store(latest)
	return now, latest, true
}

// End ends a sweep, and schedules the next one. earliest is the earliest deadline that the sweep has seen, and exist says whether there are
// connections.
func (s *Schedule) End(earliest clock.Time, exist bool) {
	s.underway = false
	if s.needed = exist; exist && s.timer != nil {
		s.swept = s.clock.Exact()
		s.set(s.swept, max(min(earliest, s.due.Load()), s.swept.Add(s.interval)))
	}
}

// IsLate reports whether the next sweep is too late for a deadline, so that Hasten must be called. 0 is no deadline.
func (s *Schedule) IsLate(deadline clock.Time) bool { return deadline != 0 && deadline < s.due.Load() }

// Hasten makes the next sweep begin in time for a deadline.
func (s *Schedule) Hasten(deadline clock.Time) {
	// interval counts from the last sweep. If it counted from now, repeated calls would postpone the sweep for ever.
	if due := max(deadline, s.swept.Add(s.interval)); s.timer != nil && s.needed && due < s.due.Load() {
		s.set(s.clock.Exact(), due)
	}
}

// set sets the time of the next sweep. If a sweep is running, End sets the timer.
func (s *Schedule) set(now, due clock.Time) {
	s.due.Store(due)
	if !s.underway {
		s.timer.Reset(due.Sub(now))
	}
}
