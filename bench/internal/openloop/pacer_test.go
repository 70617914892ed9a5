package openloop

import (
	"math"
	"slices"
	"testing"
	"time"
)

// However long a run is, its n-th request is due at n/rate seconds, and the parts of a schedule are one.
func TestScheduleIsExact(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		parts int
	}{{1, 1}, {3, 1}, {33333.3, 1}, {1e6, 1}, {7, 3}, {20000, 4}} {
		var got []int64
		n := 3000
		for part := range c.parts {
			s := newSchedule(c.rate, false, 0, part, c.parts)
			for range n / c.parts {
				got = append(got, s.next())
			}
		}
		slices.Sort(got)
		for i, at := range got {
			if want := float64(i) / c.rate * 1e9; math.Abs(float64(at)-want) > 2 {
				t.Fatalf("%v per second in %d parts: request %d at %d ns, want %.0f", c.rate, c.parts, i, at, want)
			}
		}
	}
	s := newSchedule(33333.3, false, 0, 0, 1)
	s.count = 33333.3 * 3600 * 24
	if at := s.next(); at != int64(24*time.Hour) {
		t.Errorf("after a day it is off by %v", time.Duration(at)-24*time.Hour)
	}
}

// A Poisson process of rate r has r arrivals per second with a deviation of √r, and as many in its parts together.
func TestSchedulePoisson(t *testing.T) {
	for parts := 1; parts <= 4; parts++ {
		const rate, seconds = 10000, 10
		count, short := 0, 0
		for part := range parts {
			s := newSchedule(rate, true, 7, part, parts)
			last := int64(0)
			for at := s.next(); at < seconds*1e9; at = s.next() {
				if at < last {
					t.Fatal("time goes backwards")
				}
				if float64(at-last) < s.interval*math.Ln2 {
					short++
				}
				last = at
				count++
			}
		}
		if deviation := math.Abs(float64(count) - rate*seconds); deviation > 5*math.Sqrt(rate*seconds) {
			t.Errorf("%d parts: %d arrivals, want about %d", parts, count, rate*seconds)
		}
		// Half of the distances of an exponential distribution are below ln 2 of its mean.
		if part := float64(short) / float64(count); math.Abs(part-0.5) > 0.01 {
			t.Errorf("%d parts: %.3f of the distances are below the median", parts, part)
		}
	}
}

// simulate runs one connection to a server that answers at once, except that it stops for a while, on a clock that is only a
// number. It returns what is recorded.
func simulate(rate float64, duration, stallFrom, stallTo time.Duration, queue int) *recorder {
	p := newPacer(newSchedule(rate, false, 0, 0, 1), 0, int64(duration), queue)
	r := newRecorder(window{0, int64(duration), false}, 1)
	request := &prepared{want: Want{Status: 200}}
	for !p.over(max(int64(duration), p.end)) {
		now := p.upcoming
		if now >= int64(stallFrom) && now < int64(stallTo) || now == never {
			now = int64(stallTo)
		}
		for intended, ok := p.due(now); ok; intended, ok = p.due(now) {
			r.offered++
			if !p.wait(intended) {
				r.dropped++
			}
		}
		for intended, ok := p.take(now); ok; intended, ok = p.take(now) {
			r.answered(request, 200, false, intended, now)
		}
	}
	return r
}

// A stall of 200 ms delays everything that was due in it: that is what coordinated omission hides.
func TestStallOnPaper(t *testing.T) {
	r := simulate(1000, 2*time.Second, 500*time.Millisecond, 700*time.Millisecond, 1000)
	h := r.latency[0]
	if h.TotalCount() != 2000 || r.dropped != 0 || r.completed != 2000 {
		t.Fatalf("%d answers, %d dropped, %d completed", h.TotalCount(), r.dropped, r.completed)
	}
	late := func(d time.Duration) (n int64) {
		for _, bar := range h.Distribution() {
			if bar.From > int64(d)*1001/1000 {
				n += bar.Count
			}
		}
		return n
	}
	// Due at 500, 501, ... 699 ms, answered at 700.
	for d, want := range map[time.Duration]int64{0: 200, 50 * time.Millisecond: 150, 100 * time.Millisecond: 100,
		190 * time.Millisecond: 10, 200 * time.Millisecond: 0} {
		if got := late(d); got != want {
			t.Errorf("%d requests took longer than %v, want %d", got, d, want)
		}
	}
	if p99 := time.Duration(h.ValueAtQuantile(99)); p99 < 179*time.Millisecond || p99 > 182*time.Millisecond {
		t.Errorf("the 99th percentile is %v: of 2000 requests 20 took more than 180 ms", p99)
	}
}

// What finds the queue full is dropped, and counted.
func TestQueueIsBounded(t *testing.T) {
	r := simulate(1000, 2*time.Second, 500*time.Millisecond, 700*time.Millisecond, 50)
	// Due at 500, 501, ... 700 ms, of which 50 have room.
	if r.offered != 2000 || r.dropped != 151 || r.latency[0].TotalCount() != 1849 {
		t.Errorf("offered %d, dropped %d, answered %d; want 2000, 151, 1849", r.offered, r.dropped, r.latency[0].TotalCount())
	}
}

// The last arrival is before the end, and the run isn't over before it.
func TestPacerEnds(t *testing.T) {
	p := newPacer(newSchedule(10, false, 0, 0, 1), 5, 5+1e9, 100)
	for i := range 10 {
		want := 5 + int64(i)*1e8
		if _, ok := p.due(want - 1); ok {
			t.Fatalf("arrival %d is due too early", i)
		}
		if got, ok := p.due(want); got != want || !ok {
			t.Fatalf("arrival %d: %d, %v; want %d", i, got, ok, want)
		}
	}
	if _, ok := p.due(never - 1); ok {
		t.Error("there is an arrival after the end")
	}
	if p.over(p.end-1) || !p.over(p.end) {
		t.Error("it isn't over at its end and not before")
	}
	p.wait(7)
	if p.over(p.end) {
		t.Error("it is over while something waits")
	}
	closed := newPacer(nil, 10, 20, 1)
	for now, want := range map[int64]bool{9: false, 10: true, 19: true, 20: false} {
		if at, ok := closed.take(now); ok != want || ok && at != now {
			t.Errorf("closed loop at %d: %d, %v", now, at, ok)
		}
	}
}

func TestRing(t *testing.T) {
	var r ring[int]
	var want []int
	for i := range 1000 {
		if i%7 < 4 {
			r.push(i)
			want = append(want, i)
		} else if got := r.pop(); got != want[0] {
			t.Fatalf("step %d: %d, want %d", i, got, want[0])
		} else {
			want = want[1:]
		}
		for j, w := range want {
			if *r.at(j) != w {
				t.Fatalf("step %d: item %d is %d, want %d", i, j, *r.at(j), w)
			}
		}
	}
}
