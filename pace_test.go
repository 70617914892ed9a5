package filo

import (
	"math"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// "A time of grace, and then an average rate."
func TestPaceLate(t *testing.T) {
	const grace = 30 * time.Second
	for _, test := range []struct {
		name string
		pace pace
		rate int
		want bool
	}{
		{"nothing was waited for", pace{}, 500, false},
		{"within the grace", pace{waited: grace - 1}, 500, false},
		{"the grace is used up", pace{waited: grace}, 500, true},
		{"a second's bytes earn a second", pace{waited: grace, moved: 500}, 500, false},
		{"... and no more", pace{waited: grace + time.Second, moved: 500}, 500, true},
		{"less than a second's bytes earn nothing", pace{waited: grace, moved: 499}, 500, true},
		{"a slow rate is enough for a long time", pace{waited: time.Hour, moved: 3600 * 500}, 500, false},
		{"too slow on average", pace{waited: time.Hour, moved: 3500 * 500}, 500, true},
		{"the largest transfer", pace{waited: 24 * time.Hour, moved: math.MaxInt64}, 1, false},
	} {
		if got := test.pace.late(grace, test.rate); got != test.want {
			t.Errorf("%s: late is %t", test.name, got)
		}
	}
}

// The deadline of a wait is when the peer will be late, if nothing comes until then.
func TestPaceDeadlineIsWhenLate(t *testing.T) {
	const now, grace, rate = clock.Time(time.Hour), 3 * time.Second, 500
	for _, moved := range []int64{0, 1, 499, 500, 1000, 12_345, 1 << 30} {
		for _, waited := range []time.Duration{0, time.Second, 2999 * time.Millisecond} {
			p := pace{waited: waited, moved: moved}
			left := p.deadline(now, grace, rate, 0).Sub(now)
			early, late := p, p
			early.add(0, left-1)
			late.add(0, left)
			if early.late(grace, rate) || !late.late(grace, rate) {
				t.Errorf("%+v: the deadline is in %v", p, left)
			}
		}
	}
}

// Bytes that are still to be moved count for a deadline only where the caller says so.
func TestPaceDeadlineOfSize(t *testing.T) {
	p := pace{}
	p.add(1000, time.Second)
	if p != (pace{waited: time.Second, moved: 1000}) {
		t.Fatalf("%+v", p)
	}
	for _, test := range []struct {
		size int
		want time.Duration
	}{{0, 31 * time.Second}, {499, 31 * time.Second}, {500, 32 * time.Second}, {16 << 10, 63 * time.Second}} {
		if got := time.Duration(p.deadline(0, 30*time.Second, 500, test.size)); got != test.want {
			t.Errorf("%d bytes have %v, want %v", test.size, got, test.want)
		}
	}
}

// A time-out that is as long as can be is as good as none: it doesn't overflow, and end every wait at once.
func TestPaceLongestTimeout(t *testing.T) {
	const now = clock.Time(365 * 24 * time.Hour)
	for _, grace := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Duration(now), math.MaxInt64 / 2, 100 * 365 * 24 * time.Hour} {
		s := &Server{Handler: benchHello, ReadTimeout: grace, WriteTimeout: grace, ReadHeaderTimeout: grace, IdleTimeout: grace}
		s.configure()
		for _, rate := range []int{-1, 1, 500} {
			for _, p := range []pace{{}, {moved: 1 << 40, waited: time.Hour}, {moved: math.MaxInt64, waited: time.Hour}} {
				deadline := p.deadline(now, s.config.readTimeout, rate, 0)
				if deadline != 0 && deadline < now.Add(time.Hour) {
					t.Errorf("grace %v, rate %d, %+v: at %v the deadline is at %v", grace, rate, p, time.Duration(now), time.Duration(deadline))
				}
				if rate > 0 && p.late(s.config.writeTimeout, rate) {
					t.Errorf("grace %v, rate %d, %+v: late", grace, rate, p)
				}
			}
		}
		for _, timeout := range []time.Duration{s.config.readHeaderTimeout, s.config.idleTimeout} {
			if deadline := now.Deadline(timeout); deadline != 0 && deadline < now.Add(time.Hour) {
				t.Errorf("a time-out of %v: at %v the deadline is at %v", grace, time.Duration(now), time.Duration(deadline))
			}
		}
	}
}
