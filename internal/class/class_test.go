package class

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// From any initial value, the estimate approaches the median of the calls. A few slow calls don't distort it, however slow they are.
func TestHandlerTimingMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	around := func(d time.Duration) time.Duration { return d*3/4 + time.Duration(random.Int64N(int64(d/2))) }
	for _, test := range []struct {
		name     string
		begin    time.Duration
		call     func() time.Duration
		from, to time.Duration // the range in which the final estimate must be
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
		timing.Median.Store(int64(test.begin))
		for range 2000 {
			timing.Add(test.call())
		}
		// Each call moves the estimate up or down by an eighth, so not every estimate can be in the range, but most of them must be.
		inside := 0
		for range 200 {
			timing.Add(test.call())
			if got := time.Duration(timing.Median.Load()); test.from <= got && got <= test.to {
				inside++
			}
		}
		if inside < 150 {
			t.Errorf("%s: %d of 200 estimates are within %v and %v, the last is %v", test.name, inside, test.from, test.to,
				time.Duration(timing.Median.Load()))
		}
	}
}

// IsQuick compares the estimated median with Quick. The server relies on it to decide whether earlier pipelined answers may wait for a
// handler.
func TestHandlerTimingQuick(t *testing.T) {
	for _, test := range []struct {
		median time.Duration
		want   bool
	}{{0, false}, {1, true}, {Quick, true}, {Quick + 1, false}, {time.Second, false}} {
		var timing Class
		timing.Median.Store(int64(test.median))
		if timing.IsQuick() != test.want {
			t.Errorf("a median of %v isn't quick: %t", test.median, test.want)
		}
	}
	// The first measured call sets the estimate. After that a few slow calls don't change the result, but many do.
	var timing Class
	timing.Add(2 * time.Microsecond)
	for range 5 {
		timing.Add(time.Second)
	}
	if !timing.IsQuick() {
		t.Error("five slow calls made the handler a slow one")
	}
	for range 50 {
		timing.Add(time.Second)
	}
	if timing.IsQuick() {
		t.Error("only slow calls, and the handler is still quick")
	}
}

// A trusted class counts as quick until it has been timed. One slow call doesn't change that, but two do. Each call is timed until the class
// is known to be quick.
func TestTrustedClass(t *testing.T) {
	var k Class
	if k.IsQuick() {
		t.Error("a class that nothing is known of is quick")
	}
	k.Trusted.Store(true)
	for i, test := range []struct {
		took         time.Duration
		quick, known bool
	}{{0, true, false}, {time.Second, true, false}, {time.Microsecond, true, true}, {time.Second, true, true}, {time.Second, false, false}} {
		if test.took > 0 {
			k.Add(test.took)
		}
		if k.IsQuick() != test.quick || k.Known() != test.known {
			t.Errorf("after %d calls: quick %v, known %v, at %v", i, k.IsQuick(), k.Known(), time.Duration(k.Median.Load()))
		}
	}
}

// A class whose kind the program has set keeps that kind, however long its calls take and however often they lose their loop.
func TestFixedClass(t *testing.T) {
	var inline, offload Class
	inline.SetInline()
	offload.SetOffload()
	for range 100 {
		inline.Add(time.Second)
		inline.Retaken()
		offload.Add(time.Nanosecond)
	}
	if !inline.MayRunInline() || inline.Kind() != "inline" {
		t.Errorf("the class that was told to be inline is %s", inline.Kind())
	}
	if offload.MayRunInline() || offload.Kind() != "offload" {
		t.Errorf("the class that was told to be offloaded is %s", offload.Kind())
	}
}

// An estimate that is far from Quick doesn't move with every call, since each processor that runs such calls would have to load its cache
// line again. It moves when many calls in a row are above it or below it.
func TestSteadyMedian(t *testing.T) {
	var k Class
	for _, median := range []time.Duration{2 * time.Microsecond, 200 * time.Microsecond} {
		k.Median.Store(int64(median))
		k.trend.Store(0)
		for i := range 100 {
			if k.Add(median/2 + median*time.Duration(i%2)); k.Median.Load() != int64(median) {
				t.Fatalf("call %d, above and below in turn, moved the estimate to %d", i, k.Median.Load())
			}
		}
		for i := range steady + 1 {
			if k.Median.Load() != int64(median) {
				t.Fatalf("%d calls above %v moved the estimate to %d", i, median, k.Median.Load())
			}
			k.Add(2 * median)
		}
		if k.Median.Load() <= int64(median) {
			t.Fatalf("the estimate of %v is still %d", median, k.Median.Load())
		}
	}
	for range 60 {
		k.Add(time.Microsecond)
	}
	if !k.IsQuick() {
		t.Errorf("after 60 quick calls the estimate is %d", k.Median.Load())
	}
	for range 60 {
		k.Add(time.Millisecond)
	}
	if k.IsQuick() {
		t.Errorf("after 60 slow calls the estimate is %d", k.Median.Load())
	}
}

// A brief handler counts as computing once enough samples say so, until some samples say that it waits. Many samples that say that it
// computes outweigh a few others. A quick or a long handler never counts as computing, nor does one that has held up its loop, or whose kind
// the program has set.
func TestComputes(t *testing.T) {
	var k Class
	k.Median.Store(int64(Brief))
	add := func(computed bool, n int) {
		for range n {
			k.AddSample(computed)
		}
	}
	want := func(computes bool, when string) {
		t.Helper()
		if k.Computes() != computes {
			t.Errorf("%s: it computes: %v", when, !computes)
		}
	}
	add(true, minComputed-1)
	want(false, "one sample too few")
	add(true, 1)
	want(true, "enough samples")
	add(false, 1)
	want(false, "the newest says that it waits")
	add(true, 100)
	add(false, (maxComputed-minComputed)/waitWeight)
	want(true, "few have said that it waits")
	add(false, 1)
	want(false, "one more")
	add(false, 100)
	add(true, minComputed)
	want(true, "none has said so lately")

	for _, test := range []struct {
		median   time.Duration
		computes bool
	}{{0, false}, {Quick, false}, {Quick + 1, true}, {Brief, true}, {Brief + 1, false}} {
		k.Median.Store(int64(test.median))
		want(test.computes, test.median.String())
	}
	k.Median.Store(int64(Brief))
	k.slowUntil.Store(clock.Nanotime() + clock.Nanos(time.Hour))
	want(false, "it has held up its loop")

	var offload Class
	offload.SetOffload()
	offload.Median.Store(int64(Brief))
	for range maxComputed {
		offload.AddSample(true)
	}
	if offload.Computes() {
		t.Error("a class that was told not to run inline computes")
	}
}

// TakeBlocks distinguishes calls that block from calls that a busy machine has stopped, and reports a class once. Only a class that the
// program has made inline is reported. For other classes, measurements decide where the calls run.
func TestTakeBlocks(t *testing.T) {
	for name, test := range map[string]struct {
		told    func(*Class)
		calls   uint64
		retakes int
		want    bool
	}{
		"each call blocks":          {(*Class).SetInline, TimedCalls, TimedCalls, true},
		"none is measured":          {(*Class).SetInline, 0, minBlocked, true},
		"few calls":                 {(*Class).SetInline, 0, minBlocked - 1, false},
		"one in twenty was stopped": {(*Class).SetInline, 20 * TimedCalls, TimedCalls, false},
		"a class that learns":       {func(*Class) {}, TimedCalls, TimedCalls, false},
	} {
		var k Class
		test.told(&k)
		k.Inlined.Store(test.calls / TimedCalls)
		for range test.retakes {
			k.Retaken()
		}
		if got := k.TakeBlocks(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if k.TakeBlocks() {
			t.Errorf("%s: said twice", name)
		}
	}
}
