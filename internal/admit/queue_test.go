package admit

import (
	"slices"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// The oldest waiter is served first. But if the oldest waiter has waited for nearly maxWait, the newest waiter is served first. A waiter
// that was woken but found no free place keeps its position.
func TestQueueOrder(t *testing.T) {
	q := &queue{maxWait: 8 * time.Second}
	at := func(seconds int) clock.Time { return clock.Time(0).Add(time.Duration(seconds) * time.Second) }
	var waiters []*waiter
	add := func(second int) {
		w := &waiter{woken: make(chan struct{}, 1), since: at(second)}
		waiters = append(waiters, w)
		q.join(w)
	}
	wake := func(second int, want int) {
		t.Helper()
		q.wake(at(second))
		got := slices.IndexFunc(waiters, func(w *waiter) bool { return len(w.woken) > 0 })
		if got != want {
			t.Fatalf("waiter %d is woken, want %d", got, want)
		}
		<-waiters[got].woken
	}
	for i := range 4 {
		add(i)
	}
	wake(7, 0)
	q.join(waiters[0])
	wake(7, 0)
	q.join(waiters[0])
	wake(8, 3)
	q.join(waiters[3])
	wake(8, 3)
	if !q.leave(waiters[0]) || q.leave(waiters[0]) {
		t.Error("a waiter leaves once")
	}
	add(9)
	add(10)
	wake(8, 1)
	wake(10, 5)
	wake(9, 2)  // the old waiters have left, though the queue has never been empty
	wake(90, 4) // the only waiter
	q.wake(at(90))
}

// A queue that is never empty refuses no waiter if each can be served in time. Here 40 clients, which send the next request at once, share 2
// places, and each request takes 5 ms.
func TestQueueStanding(t *testing.T) {
	const clients, places, service = 40, 2, 5 * time.Millisecond
	q := &queue{maxWait: 300 * time.Millisecond}
	now, longest := clock.Time(0), time.Duration(0)
	var waiters []*waiter
	join := func() {
		w := &waiter{woken: make(chan struct{}, 1), since: now}
		waiters = append(waiters, w)
		q.join(w)
	}
	for range clients - places {
		join()
	}
	for range 1000 {
		now = now.Add(service / places)
		q.wake(now)
		i := slices.IndexFunc(waiters, func(w *waiter) bool { return len(w.woken) > 0 })
		longest = max(longest, now.Sub(waiters[i].since))
		waiters = slices.Delete(waiters, i, i+1)
		join()
	}
	for _, w := range waiters {
		longest = max(longest, now.Sub(w.since))
	}
	if want := (clients - places) * service / places; longest != want {
		t.Errorf("the longest wait is %v, want %v", longest, want)
	}
}
