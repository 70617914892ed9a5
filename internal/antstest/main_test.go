package main

import "testing"

// TestAnts runs all of them once. Beside the other packages' tests it costs little time: for most of it they sleep.
func TestAnts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	if err := antstest(1, ".", "", false); err != nil {
		t.Fatal(err)
	}
}
