package filotest

import (
	"testing"
	"time"
)

// Bound is how long the tests wait for an event that has to come. A passing test never waits so long.
const Bound = 60 * time.Second

// Try asks again and again whether a condition holds, until it does or a long time has passed.
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

// Await fails the test if a condition doesn't come true.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !Try(condition) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// Recv receives from a channel, or waits until it is closed.
func Recv[T any](t testing.TB, channel <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-channel:
	case <-time.After(Bound):
		t.Fatalf("waited in vain for %s", what)
	}
	return value
}
