package pace

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
		pace Pace
		rate int
		want bool
	}{
		{"nothing was waited for", Pace{}, 500, false},
		{"within the grace", Pace{waited: grace - 1}, 500, false},
		{"the grace is used up", Pace{waited: grace}, 500, true},
		{"a second's bytes earn a second", Pace{waited: grace, moved: 500}, 500, false},
		{"... and no more", Pace{waited: grace + time.Second, moved: 500}, 500, true},
		{"less than a second's bytes earn nothing", Pace{waited: grace, moved: 499}, 500, true},
		{"a slow rate is enough for a long time", Pace{waited: time.Hour, moved: 3600 * 500}, 500, false},
		{"too slow on average", Pace{waited: time.Hour, moved: 3500 * 500}, 500, true},
		{"the largest transfer", Pace{waited: 24 * time.Hour, moved: math.MaxInt64}, 1, false},
	} {
		if got := test.pace.Late(Limits{grace, test.rate}, 1); got != test.want {
			t.Errorf("%s: late is %t", test.name, got)
		}
	}
}

// "Without a rate, it is too slow if n, the number of bytes that moved in that wait, is 0."
func TestPaceLateWithoutRate(t *testing.T) {
	for _, rate := range []int{0, -1} {
		p, limits := Pace{}, Limits{time.Second, rate}
		p.Add(1, time.Hour)
		if p.Late(limits, 1) || !p.Late(limits, 0) {
			t.Errorf("rate %d: late is %t after a byte, and %t after none", rate, p.Late(limits, 1), p.Late(limits, 0))
		}
	}
}

// The deadline of a wait is when the peer will be late, if nothing comes until then.
func TestPaceDeadlineIsWhenLate(t *testing.T) {
	const now = clock.Time(time.Hour)
	limits := Limits{3 * time.Second, 500}
	for _, moved := range []int64{0, 1, 499, 500, 1000, 12_345, 1 << 30} {
		for _, waited := range []time.Duration{0, time.Second, 2999 * time.Millisecond} {
			p := Pace{waited: waited, moved: moved}
			left := p.Deadline(now, limits, 0).Sub(now)
			early, late := p, p
			early.Add(0, left-1)
			late.Add(0, left)
			if early.Late(limits, 1) || !late.Late(limits, 1) {
				t.Errorf("%+v: the deadline is in %v", p, left)
			}
		}
	}
}

// Bytes that are still to be moved count for a deadline only where the caller says so.
func TestPaceDeadlineOfSize(t *testing.T) {
	p := Pace{}
	p.Add(1000, time.Second)
	if p != (Pace{waited: time.Second, moved: 1000}) {
		t.Fatalf("%+v", p)
	}
	for _, test := range []struct {
		size int
		want time.Duration
	}{{0, 31 * time.Second}, {499, 31 * time.Second}, {500, 32 * time.Second}, {16 << 10, 63 * time.Second}} {
		if got := time.Duration(p.Deadline(0, Limits{30 * time.Second, 500}, test.size)); got != test.want {
			t.Errorf("%d bytes have %v, want %v", test.size, got, test.want)
		}
	}
}

// A time-out that is as long as can be is as good as none: it doesn't overflow, and end every wait at once.
func TestPaceLongestTimeout(t *testing.T) {
	const now = clock.Time(365 * 24 * time.Hour)
	for _, grace := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Duration(now), math.MaxInt64 / 2, 100 * 365 * 24 * time.Hour} {
		for _, rate := range []int{-1, 1, 500} {
			limits := Limits{grace, rate}
			for _, p := range []Pace{{}, {moved: 1 << 40, waited: time.Hour}, {moved: math.MaxInt64, waited: time.Hour}} {
				deadline := p.Deadline(now, limits, 0)
				if deadline < now.Add(time.Hour) {
					t.Errorf("grace %v, rate %d, %+v: at %v the deadline is at %v", grace, rate, p, time.Duration(now), time.Duration(deadline))
				}
				if p.Late(limits, 1) {
					t.Errorf("grace %v, rate %d, %+v: late", grace, rate, p)
				}
			}
		}
	}
}

// A pace's deadline is the time of grace, and then what the average rate allows, for any number of bytes.
func TestPaceDeadline(t *testing.T) {
	const second = clock.Time(time.Second)
	for _, test := range []struct {
		name  string
		pace  Pace
		grace time.Duration
		rate  int
		size  int
		want  clock.Time // from now on; 0 for no deadline
	}{
		{"grace alone at first", Pace{}, 30 * time.Second, 500, 0, 30 * second},
		{"no time-out", Pace{}, -1, 500, 0, 0},
		{"waiting uses the grace up", Pace{waited: 10 * time.Second}, 30 * time.Second, 500, 0, 20 * second},
		{"bytes that came give time", Pace{waited: 30 * time.Second, moved: 5000}, 30 * time.Second, 500, 0, 10 * second},
		{"without a rate each wait has the time-out", Pace{waited: time.Hour, moved: 1}, 30 * time.Second, -1, 0, 30 * second},
		{"too slow: at once", Pace{waited: time.Hour, moved: 5000}, 30 * time.Second, 500, 0, 1},
		{"as much as a connection can carry", Pace{waited: time.Hour, moved: math.MaxInt64 / 2000}, 30 * time.Second, 500, 0, math.MaxInt64},
		{"10 GB at a byte a second", Pace{waited: time.Hour, moved: 10 << 30}, 30 * time.Second, 1, 0, math.MaxInt64},
		{"10 TB at 500 bytes a second", Pace{waited: time.Hour, moved: 10 << 40}, 30 * time.Second, 500, 0, math.MaxInt64},
	} {
		const now = 1000 * second
		got := test.pace.Deadline(now, Limits{test.grace, test.rate}, test.size)
		switch {
		case test.want == math.MaxInt64: // far away
			if got < now.Add(1000*time.Hour) {
				t.Errorf("%s: the deadline is in %v", test.name, got.Sub(now))
			}
		case test.want == 0 && got != 0 || test.want != 0 && got != now+test.want:
			t.Errorf("%s: the deadline is in %v, want %v", test.name, got.Sub(now), time.Duration(test.want))
		}
	}
}
