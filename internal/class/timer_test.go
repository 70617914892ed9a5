package class

import (
	"testing"
	"time"
)

// Each call of a class that isn't quick is measured, the first among them, and one in TimedCalls of a quick one, of which those that
// run inline count.
func TestTimerMeasures(t *testing.T) {
	for _, inline := range []bool{false, true} {
		var timer Timer
		var own, entered Class
		measured := func(k *Class, median time.Duration, calls int) (n int) {
			for range calls {
				own.Median.Store(int64(median))
				entered.Median.Store(int64(median))
				own.trend.Store(-steady) // so that each measured call shows in the estimate
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

// What a panic has left behind is no class's time, nor is the first call of a server's handler that enters a class.
func TestTimerDrops(t *testing.T) {
	var timer Timer
	var own, next Class
	timer.Begin(&own, false)
	timer.Begin(&next, false) // the handler before didn't return
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

// One in SampledCalls of a worker's brief calls is sampled, and the samples tell a handler that computes from one that waits. A handler
// that waits may wait for others of its thread.
func TestTimerSamples(t *testing.T) {
	if thread, _ := threadTime(); thread == 0 {
		t.Skip("no thread's time is known here")
	}
	spin := func() {
		for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
		}
	}
	for _, test := range []struct {
		name     string
		handler  func()
		computes bool
	}{
		{"computes", spin, true},
		{"waits", func() { time.Sleep(50 * time.Microsecond) }, false},
		{"computes, and waits as long", func() { spin(); time.Sleep(50 * time.Microsecond) }, false},
	} {
		var timer Timer
		var k Class
		sampled, computed := 0, 0
		const calls = 50 * SampledCalls
		for range calls {
			k.Median.Store(int64(Brief) / 2)
			k.computed.Store(waitWeight)
			timer.Switch(&k)
			if timer.SampleTurn() {
				timer.SampleNext()
			}
			timer.Start(false)
			test.handler()
			timer.End()
			switch balance := k.computed.Load(); {
			case balance > waitWeight:
				computed++
				fallthrough
			case balance < waitWeight:
				sampled++
			}
		}
		if sampled != calls/SampledCalls {
			t.Errorf("%s: %d of %d calls were sampled", test.name, sampled, calls)
		}
		if (computed > sampled/2) != test.computes {
			t.Errorf("%s: %d of %d samples say that it computes", test.name, computed, sampled)
		}
	}
}

// A sample that no call has begun, or whose call has panicked, is none of the next class's.
func TestTimerDropsSample(t *testing.T) {
	var timer Timer
	var before, next Class
	timer.Switch(&before)
	timer.SampleNext()
	timer.Switch(&next)
	timer.Start(false)
	if timer.thread != 0 {
		t.Error("the next class's call is sampled")
	}
	timer.SampleNext()
	timer.Start(false) // the handler panics
	timer.Begin(&next, false)
	if timer.thread != 0 || timer.sampling {
		t.Error("a call after one that has panicked is sampled")
	}
}
