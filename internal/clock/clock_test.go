package clock

import (
	"math"
	"testing"
	"time"
)

// "Last if that moment is beyond the scale": a deadline that is too far in the future never becomes one that has passed.
func TestAdd(t *testing.T) {
	const hour = Time(time.Hour)
	for _, test := range []struct {
		from Time
		d    time.Duration
		want Time
	}{
		{hour, 0, hour},
		{hour, time.Minute, hour + Time(time.Minute)},
		{hour, math.MaxInt64 - time.Hour, Last},
		{hour, math.MaxInt64 - time.Hour + 1, Last},
		{hour, math.MaxInt64 - time.Hour - 1, Last - 1},
		{hour, math.MaxInt64, Last},
		{Last, 1, Last},
		{Last, math.MaxInt64, Last},
	} {
		if got := test.from.Add(test.d); got != test.want {
			t.Errorf("%d and %v make %d, want %d", test.from, test.d, got, test.want)
		}
		if got := test.from.Deadline(test.d); got != test.want {
			t.Errorf("%d and a time-out of %v make the deadline %d, want %d", test.from, test.d, got, test.want)
		}
	}
}

// "It returns 0, no deadline, if the timeout is negative, which means unlimited."
func TestDeadlineUnlimited(t *testing.T) {
	for _, timeout := range []time.Duration{-1, -time.Hour, math.MinInt64} {
		if got := Time(time.Hour).Deadline(timeout); got != 0 {
			t.Errorf("a time-out of %v has the deadline %d", timeout, got)
		}
	}
}

func TestSub(t *testing.T) {
	for _, test := range []struct {
		t, u Time
		want time.Duration
	}{{Time(time.Hour), Time(time.Minute), 59 * time.Minute}, {Time(time.Minute), Time(time.Hour), -59 * time.Minute}, {Last, 1, math.MaxInt64 - 1}} {
		if got := test.t.Sub(test.u); got != test.want {
			t.Errorf("from %d to %d it is %v, want %v", test.u, test.t, got, test.want)
		}
	}
}

// "It is never 0", and it doesn't go back.
func TestNanotime(t *testing.T) {
	last := Nanos(0)
	for range 1000 {
		now := Nanotime()
		if now <= 0 || now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
}
