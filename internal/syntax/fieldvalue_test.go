package syntax

import "testing"

func TestWeight(t *testing.T) {
	for weight, want := range map[string]int{
		"": 1000, "q=1": 1000, "Q=0.5": 500, "q=0.123": 123, "q=0.": 0, "q=1.000": 1000, "q=0": 0,
		"q=1.001": 0, "q=2": 0, "q=0.1234": 0, "q=": 0, "q": 0, "p=1": 0, "q=0,5": 0, "q=0.x": 0, "q=-1": 0, "q =1": 0,
	} {
		if got := Weight([]byte(weight)); got != want {
			t.Errorf("%q: %d, want %d", weight, got, want)
		}
	}
}
