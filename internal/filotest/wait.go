package filotest

import (
	"testing"
	"time"
)

// Bound is how long the tests wait for an event that must happen. A passing test never waits that long.
const Bound = 60 * time.Second

// Try calls condition repeatedly until it returns true, or until Bound has passed. It reports whether condition has returned true.
func Try(condition func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(Bound); !condition(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// Await waits until condition returns true. It fails the test after Bound.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !Try(condition) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// Recv receives from a channel, or waits until the channel is closed. It fails the test after Bound.
func Recv[T any](t testing.TB, channel <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-channel:
	case <-time.After(Bound):
		t.Fatalf("waited in vain for %s", what)
	}
	return value
}
