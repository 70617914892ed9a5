package filo

import (
	"slices"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// The oldest waiter is served first, and the newest once the queue has been standing for too long. One that was woken in vain keeps its
// place in the order.
func TestPlaceQueueOrder(t *testing.T) {
	q := &placeQueue{maxWait: time.Second}
	late := clock.Time(0).Add(2 * time.Second)
	var waiters []*placeWaiter
	add := func(now clock.Time) {
		w := &placeWaiter{woken: make(chan struct{}, 1), newest: true}
		waiters = append(waiters, w)
		q.arrive(now)
		q.join(w)
	}
	wake := func(now clock.Time, want int) {
		t.Helper()
		q.wake(now)
		got := slices.IndexFunc(waiters, func(w *placeWaiter) bool { return len(w.woken) > 0 })
		if got != want {
			t.Fatalf("waiter %d is woken, want %d", got, want)
		}
		<-waiters[got].woken
	}
	for range 4 {
		add(0)
	}
	wake(0, 0)
	q.join(waiters[0])
	wake(0, 0)
	wake(late, 3)
	q.join(waiters[3])
	wake(late, 3)
	if !q.leave(waiters[1]) || q.leave(waiters[1]) {
		t.Error("a waiter leaves once")
	}
	wake(late, 2)
	q.wake(late) // nobody waits
	add(late)
	add(late)
	wake(late, 4) // the queue was empty in between
}
