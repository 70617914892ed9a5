package filo

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// "Estimates the median": it comes to where half of the calls are below, from wherever it began, and slow calls don't spoil
// it however slow they are.
func TestHandlerTimingMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	around := func(d time.Duration) time.Duration { return d*3/4 + time.Duration(random.Int64N(int64(d/2))) }
	for _, test := range []struct {
		name     string
		begin    time.Duration
		call     func() time.Duration
		from, to time.Duration // where the estimate must be in the end
	}{
		{"constant", 0, func() time.Duration { return 5 * time.Microsecond }, 4 * time.Microsecond, 6 * time.Microsecond},
		{"about 5 µs", 0, func() time.Duration { return around(5 * time.Microsecond) }, 3 * time.Microsecond, 7 * time.Microsecond},
		{"from far above", time.Second, func() time.Duration { return around(5 * time.Microsecond) }, 3 * time.Microsecond, 7 * time.Microsecond},
		{"from far below", time.Nanosecond, func() time.Duration { return around(time.Millisecond) }, 600 * time.Microsecond, 1500 * time.Microsecond},
		{"one in five takes a second", 0, func() time.Duration {
			if random.IntN(5) == 0 {
				return time.Second
			}
			return around(2 * time.Microsecond)
		}, 1400 * time.Nanosecond, 4 * time.Microsecond},
		{"no time at all", 0, func() time.Duration { return 0 }, 1, 200},
	} {
		var timing Class
		timing.median.Store(int64(test.begin))
		for range 2000 {
			timing.add(test.call())
		}
		// The estimate moves by an eighth up and down, so its own median counts.
		inside := 0
		for range 200 {
			timing.add(test.call())
			if got := time.Duration(timing.median.Load()); test.from <= got && got <= test.to {
				inside++
			}
		}
		if inside < 150 {
			t.Errorf("%s: %d of 200 estimates are within %v and %v, the last is %v", test.name, inside, test.from, test.to,
				time.Duration(timing.median.Load()))
		}
	}
}

// "The answers of earlier pipelined requests wait for a quick handler, but not for one that may be slow."
func TestHandlerTimingQuick(t *testing.T) {
	for _, test := range []struct {
		median time.Duration
		want   bool
	}{{0, false}, {1, true}, {quickHandler, true}, {quickHandler + 1, false}, {time.Second, false}} {
		var timing Class
		timing.median.Store(int64(test.median))
		if timing.quick() != test.want {
			t.Errorf("a median of %v isn't quick: %t", test.median, test.want)
		}
	}
	// The first call decides at once; a few slow ones then change nothing, many do.
	var timing Class
	timing.add(2 * time.Microsecond)
	for range 5 {
		timing.add(time.Second)
	}
	if !timing.quick() {
		t.Error("five slow calls made the handler a slow one")
	}
	for range 50 {
		timing.add(time.Second)
	}
	if timing.quick() {
		t.Error("only slow calls, and the handler is still quick")
	}
}

// A class that is trusted is quick until it was timed, and one slow call doesn't end that, but more do; each call is timed
// until it is decided.
func TestTrustedClass(t *testing.T) {
	var k Class
	if k.quick() {
		t.Error("a class that nothing is known of is quick")
	}
	k.trusted.Store(true)
	for i, test := range []struct {
		took         time.Duration
		quick, known bool
	}{{0, true, false}, {time.Second, true, false}, {time.Microsecond, true, true}, {time.Second, true, true}, {time.Second, false, false}} {
		if test.took > 0 {
			k.add(test.took)
		}
		if k.quick() != test.quick || k.known() != test.known {
			t.Errorf("after %d calls: quick %v, known %v, at %v", i, k.quick(), k.known(), time.Duration(k.median.Load()))
		}
	}
}

// What a class was told is so, whatever it is timed at and however often it costs a loop its leader.
func TestFixedClass(t *testing.T) {
	var inline, offload Class
	inline.SetInline()
	offload.SetOffload()
	for range 100 {
		inline.add(time.Second)
		inline.retaken()
		offload.add(time.Nanosecond)
	}
	if !inline.inline() || inline.stats().Kind != "inline" {
		t.Errorf("the class that was told to be inline is %+v", inline.stats())
	}
	if offload.inline() || offload.stats().Kind != "offload" {
		t.Errorf("the class that was told to be offloaded is %+v", offload.stats())
	}
}

// Each call of a class that isn't quick is timed, the first among them, and one in timedCalls of a quick one; each is made,
// and its error comes back.
func TestClassTimes(t *testing.T) {
	failure := errors.New("failure")
	calls, slow := 0, true
	s := &Server{Handler: func(c *Ctx) error {
		calls++
		if slow {
			time.Sleep(time.Millisecond) // so that the estimate shows whether the call was timed
		}
		return failure
	}}
	c := &conn{server: s, worker: &scratch{}}
	run := func() {
		if err := c.call(&Ctx{}); err != failure {
			t.Fatalf("the call returned %v", err)
		}
	}
	run()
	if s.class.median.Load() < int64(time.Millisecond) {
		t.Errorf("after the first call the estimate is %v", time.Duration(s.class.median.Load()))
	}
	slow = false
	quickAfter := 1
	for ; !s.class.quick() && quickAfter < 1000; quickAfter++ {
		before := s.class.median.Load()
		if run(); s.class.median.Load() == before {
			t.Fatalf("call %d of a slow class wasn't timed", quickAfter)
		}
	}
	timed := 0
	for range 10 * timedCalls {
		s.class.median.Store(5000)
		if run(); s.class.median.Load() != 5000 {
			timed++
		}
	}
	if timed != 10 {
		t.Errorf("%d of %d calls of a quick class were timed", timed, 10*timedCalls)
	}
	if want := quickAfter + 10*timedCalls; calls != want {
		t.Errorf("%d calls, want %d", calls, want)
	}
}
