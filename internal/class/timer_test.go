package class

import (
	"testing"
	"time"
)

// Each call of a class that isn't quick is measured, including the first one. Of a quick class, one in TimedCalls calls is measured, and
// counted in Inlined if it ran inline.
func TestTimerMeasures(t *testing.T) {
	for _, inline := range []bool{false, true} {
		var timer Timer
		var own, entered Class
		measured := func(k *Class, median time.Duration, calls int) (n int) {
			for range calls {
				own.Median.Store(int64(median))
				entered.Median.Store(int64(median))
				own.trend.Store(-steady) // so that each measured call changes the estimate
				entered.trend.Store(-steady)
				timer.Begin(&own, inline)
				timer.End()
				timer.Switch(&entered)
				timer.Start(inline)
				timer.End()
				if k.Median.Load() != int64(median) {
					n++
				}
			}
			return n
		}
		for _, k := range []*Class{&own, &entered} {
			if n := measured(k, 0, 1); n != 1 {
				t.Error("the first call isn't measured")
			}
			if n := measured(k, time.Second, 100); n != 100 {
				t.Errorf("%d of 100 calls of a slow class are measured", n)
			}
			before := k.Inlined.Load()
			if n := measured(k, Quick/2, 10*TimedCalls); n != 10 {
				t.Errorf("%d of %d calls of a quick class are measured", n, 10*TimedCalls)
			}
			if counted := k.Inlined.Load() - before; inline != (counted == 10) || !inline && counted != 0 {
				t.Errorf("inline %v: %d calls are counted", inline, counted)
			}
		}
	}
}

// A measurement that a panic has left unfinished changes no class. Neither does the first call of a server's handler that enters a class.
func TestTimerDrops(t *testing.T) {
	var timer Timer
	var own, next Class
	timer.Begin(&own, false)
	timer.Begin(&next, false) // the previous handler has panicked, so End wasn't called
	timer.End()
	if own.Median.Load() != 0 || next.Median.Load() == 0 {
		t.Errorf("the estimates are %d and %d", own.Median.Load(), next.Median.Load())
	}
	timer.Begin(&own, false)
	timer.Trust(&own)
	timer.End()
	if own.Median.Load() != 0 || !own.IsQuick() {
		t.Errorf("the call that trust begins with is measured: %d", own.Median.Load())
	}
	timer.Begin(&own, false)
	timer.Trust(&own)
	timer.End()
	if own.Median.Load() == 0 {
		t.Error("the second call isn't measured")
	}
}

// If a call that should have been sampled didn't begin, or has panicked, no call of another class is sampled instead.
func TestTimerDropsSample(t *testing.T) {
	var timer Timer
	var before, next Class
	begins := func(name string, begin func()) {
		t.Helper()
		timer.Switch(&before)
		timer.SampleNext(&before)
		begin()
		if timer.thread != 0 {
			t.Errorf("%s: a call that wasn't to be sampled is", name)
		}
	}
	begins("switched", func() { timer.Switch(&next); timer.Start(false) })
	begins("another server's class", func() { timer.Begin(&next, false) })
	begins("dropped", func() { timer.DropSample(); timer.Start(false) })
	begins("panicked", func() { timer.Start(false); timer.Begin(&before, false) })
	begins("the next call's turn", func() { timer.SampleTurn(); timer.Start(false) })
}
