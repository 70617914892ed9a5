package pace

import (
	"math"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// step is a wait, and then bytes that move.
type step struct {
	waited time.Duration
	n      int
}

const begin = clock.Time(365 * 24 * time.Hour)

// after returns the pace of a transfer after some steps.
func after(limits Limits, steps ...step) (p Pace) {
	for _, s := range steps {
		p.Add(limits, s.n, s.waited)
	}
	return p
}

// "A peer has an account of time, which begins with a grace period. Each wait uses up time, and each byte adds time".
func TestDeadline(t *testing.T) {
	limits := Limits{30 * time.Second, 500}
	for _, test := range []struct {
		name  string
		steps []step
		want  time.Duration
	}{
		{"the grace period at first", nil, 30 * time.Second},
		{"waiting takes from it", []step{{10 * time.Second, 0}}, 20 * time.Second},
		{"a second's bytes add a second", []step{{10 * time.Second, 500}}, 21 * time.Second},
		{"... and few bytes a little", []step{{10 * time.Second, 5}}, 20*time.Second + 10*time.Millisecond},
		{"4 MB at once, and then nothing", []step{{0, 4 << 20}}, 30 * time.Second},
		{"4 MB at once, and a byte before the time is over", []step{{0, 4 << 20}, {29 * time.Second, 1}}, 30 * time.Second},
		{"... and another one", []step{{0, 4 << 20}, {29 * time.Second, 1}, {29 * time.Second, 1}}, 2*time.Second + 4*time.Millisecond},
		{"bytes after a wait can't pay for two", []step{{29 * time.Second, 4 << 20}, {29 * time.Second, 1}, {29 * time.Second, 1}}, 2*time.Second + 4*time.Millisecond},
		{"too slow: at once", []step{{time.Hour, 5000}}, 1},
		{"1 KB a second", steady(3600, step{time.Second, 1024}), 30 * time.Second},
		{"20 KB after each pause", steady(100, step{29 * time.Second, 20_000}), 30 * time.Second},
		{"the largest transfer", []step{{time.Second, math.MaxInt / 2}, {time.Second, math.MaxInt / 2}}, 30 * time.Second},
	} {
		p := after(limits, test.steps...)
		if got := p.Deadline(begin, limits).Sub(begin); got.Round(time.Microsecond) != test.want.Round(time.Microsecond) {
			t.Errorf("%s: the deadline is in %v, want %v", test.name, got, test.want)
		}
	}
	if p := after(limits, step{time.Hour, 0}); p.Deadline(begin, Limits{-1, 500}) != 0 {
		t.Error("without a time-out there is a deadline")
	}
	if p := after(Limits{time.Second, -1}, step{time.Hour, 0}); p.Deadline(begin, Limits{time.Second, -1}) != begin.Add(time.Second) {
		t.Error("without a rate, a wait doesn't have the whole time-out")
	}
}

// steady repeats a step.
func steady(n int, each step) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = each
	}
	return steps
}

// Regardless of how many bytes have moved, a peer that is silent for longer than the grace period is too slow. Sending a byte occasionally gains no
// more than twice that period.
func TestBoughtSilence(t *testing.T) {
	limits := Limits{30 * time.Second, 500}
	for _, first := range []int{0, 1, 499, 64 << 10, 4 << 20, math.MaxInt} {
		for _, pause := range []time.Duration{100 * time.Millisecond, time.Second, 15 * time.Second, 29 * time.Second} {
			p, total := after(limits, step{0, first}), time.Duration(0)
			for {
				left := p.Deadline(begin, limits).Sub(begin)
				if left > limits.Grace {
					t.Fatalf("%d bytes bought %v of silence", first, left)
				}
				if total += min(left, pause); left <= pause {
					break
				}
				p.Add(limits, 1, pause)
			}
			if bound := 2*limits.Grace + 2*time.Second; total > bound {
				t.Errorf("%d bytes, and then one each %v, bought %v", first, pause, total)
			}
		}
	}
}

// The deadline of a wait is the moment at which the peer is late if too few bytes have moved by then.
func TestDeadlineIsWhenLate(t *testing.T) {
	limits := Limits{3 * time.Second, 500}
	for _, moved := range []int{0, 1, 499, 500, 1000, 12_345, 1 << 30} {
		for _, waited := range []time.Duration{0, time.Second, 2999 * time.Millisecond} {
			p := after(limits, step{waited, moved})
			left := p.Deadline(begin, limits).Sub(begin)
			if silent := after(limits, step{waited, moved}, step{left, 0}); !silent.Late(limits) {
				t.Errorf("%v, %d bytes: not late after %v of silence", waited, moved, left)
			}
			if enough := after(limits, step{waited, moved}, step{left, 500}); enough.Late(limits) {
				t.Errorf("%v, %d bytes: late with a second's bytes after %v", waited, moved, left)
			}
		}
	}
}

// Without a rate, a peer is too slow only if no bytes have moved since the wait began.
func TestLateWithoutRate(t *testing.T) {
	for _, rate := range []int{0, -1} {
		limits := Limits{time.Second, rate}
		none, one := after(limits, step{time.Hour, 0}), after(limits, step{time.Hour, 1})
		if one.Late(limits) || !none.Late(limits) {
			t.Errorf("rate %d: late is %t after a byte, and %t after none", rate, one.Late(limits), none.Late(limits))
		}
	}
}

// The longest possible time-out works like no time-out: no sum overflows, which would end every wait at once.
func TestLongestTimeout(t *testing.T) {
	for _, grace := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Duration(begin), math.MaxInt64 / 2, 100 * 365 * 24 * time.Hour} {
		for _, rate := range []int{-1, 1, 500, math.MaxInt} {
			limits := Limits{grace, rate}
			for _, steps := range [][]step{nil, {{time.Hour, math.MaxInt / 2}}, {{time.Hour, math.MaxInt}, {time.Hour, math.MaxInt}, {time.Hour, 1}}} {
				p := after(limits, steps...)
				if deadline := p.Deadline(begin, limits); deadline < begin.Add(time.Hour) {
					t.Errorf("grace %v, rate %d, %+v: the deadline is at %v", grace, rate, p, time.Duration(deadline))
				}
				if p.Add(limits, 1, time.Hour); p.Late(limits) {
					t.Errorf("grace %v, rate %d, %+v: late", grace, rate, p)
				}
			}
		}
	}
}

// The looks are frequent enough to notice silence in time, and rare enough to cost nothing.
func TestLook(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{
		-1: time.Second, 30 * time.Second: time.Second, 400 * time.Millisecond: 100 * time.Millisecond, 1: 1, math.MaxInt64: time.Second,
	} {
		if got := (Limits{Grace: grace}).Look(); got != want {
			t.Errorf("a grace of %v: a look each %v, want %v", grace, got, want)
		}
	}
}
