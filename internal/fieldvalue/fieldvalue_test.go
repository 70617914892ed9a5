package fieldvalue_test

import (
	"testing"

	"github.com/filohttp/filo/internal/fieldvalue"
)

func TestWeight(t *testing.T) {
	for weight, want := range map[string]int{
		"": 1000, "q=1": 1000, "Q=0.5": 500, "q=0.123": 123, "q=0.": 0, "q=1.000": 1000, "q=0": 0,
		"q=1.001": 0, "q=2": 0, "q=0.1234": 0, "q=": 0, "q": 0, "p=1": 0, "q=0,5": 0, "q=0.x": 0, "q=-1": 0, "q =1": 0,
	} {
		if got := fieldvalue.Weight([]byte(weight)); got != want {
			t.Errorf("%q: %d, want %d", weight, got, want)
		}
	}
}

func TestEqualFold(t *testing.T) {
	for b, want := range map[string]bool{"gzip": true, "GZip": true, "gzi": false, "gzi0": false, "GZI\x50": true, "gzi\x10": false} {
		if got := fieldvalue.EqualFold([]byte(b), "gzip"); got != want {
			t.Errorf("%q: %v", b, got)
		}
	}
}
