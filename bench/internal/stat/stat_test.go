package stat

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 100, 2}, 3},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v", got)
	}
}

func TestGeometricMean(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{5}, 5}, {[]float64{0.5, 2}, 1}, {[]float64{1, 10, 100}, 10},
	} {
		if got := GeometricMean(c.values); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("geometric mean of %v is %v, want %v", c.values, got, c.want)
		}
	}
	if got := GeometricMean(nil); !math.IsNaN(got) {
		t.Errorf("geometric mean of nothing is %v", got)
	}
}

func TestRange(t *testing.T) {
	if least, largest := Range([]float64{3, 1, 2}); least != 1 || largest != 3 {
		t.Errorf("range is %v to %v, want 1 to 3", least, largest)
	}
	if least, largest := Range(nil); !math.IsNaN(least) || !math.IsNaN(largest) {
		t.Errorf("range of nothing is %v to %v", least, largest)
	}
}
