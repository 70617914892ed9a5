package dashboard

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Every duration is between the bounds of its bucket. The distance of the bounds is at most 1/16 of the duration, or one unit.
func TestBuckets(t *testing.T) {
	last := 0
	for d := time.Duration(0); d < 3*time.Minute; d += 1 + d/300 {
		bucket := bucketOf(d)
		if bucket < last || bucket > last+1 {
			t.Fatalf("%v is in bucket %d, after %d", d, bucket, last)
		}
		last = bucket
		low, high := lowest(bucket), lowest(bucket+1)
		if bucket == bucketsNumber-1 {
			if low < float64(2*time.Minute) {
				t.Fatalf("the last bucket begins at %v", time.Duration(low))
			}
			continue
		}
		if float64(d) < low || float64(d) >= high || high-low > max(1<<unitBits, low/subBuckets) {
			t.Fatalf("%v is in bucket %d, from %v to %v", d, bucket, time.Duration(low), time.Duration(high))
		}
	}
	if last != bucketsNumber-1 {
		t.Errorf("three minutes are in bucket %d, and the last is %d", last, bucketsNumber-1)
	}
	for d, want := range map[time.Duration]int{-1: 0, math.MinInt64: 0, math.MaxInt64: bucketsNumber - 1} {
		if got := bucketOf(d); got != want {
			t.Errorf("%d ns: bucket %d, want %d", int64(d), got, want)
		}
	}
}

// Whatever the distribution, each quantile is within 6 % of the true one.
func TestQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"even":        func() float64 { return random.Float64() * 1e6 },
		"exponential": func() float64 { return random.ExpFloat64() * 1e7 },
		"two humps":   func() float64 { return []float64{2e3, 5e8}[random.IntN(2)] * (1 + random.Float64()) },
		"constant":    func() float64 { return 123456 },
	} {
		var histogram counts
		values := make([]float64, 20000)
		for i := range values {
			values[i] = draw()
			histogram[bucketOf(time.Duration(values[i]))]++
		}
		slices.Sort(values)
		for _, part := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
			want := values[int(math.Ceil(part*float64(len(values))))-1]
			got := float64(histogram.quantile(part, histogram.total()))
			if math.Abs(got-want) > max(want/16, 1<<unitBits) {
				t.Errorf("%s: the quantile %g is %v, want %v", name, part, time.Duration(got), time.Duration(want))
			}
		}
	}
	var one counts
	one[bucketOf(time.Millisecond)] = 1
	if got := one.quantile(0.999, 1); got < 950*time.Microsecond || got > 1050*time.Microsecond {
		t.Errorf("of one value: %v", got)
	}
}
