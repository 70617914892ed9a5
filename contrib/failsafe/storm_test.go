package failsafe_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/filohttp/filo/contrib/failsafe"
)

// storm protects a resource that can serve 1,000 requests a second, 20 at once, by a limiter. It sends 500 requests a second for three
// seconds, and then, as the storm, 2,000 a second. It returns how many requests were served in each second of the storm. It uses the clock of
// a synctest bubble.
func storm(t *testing.T, builder adaptivelimiter.Builder[any], seconds int) []int64 {
	const capacity, maxWait = 1000, 50 * time.Millisecond
	done := make([]atomic.Int64, seconds)
	synctest.Test(t, func(t *testing.T) {
		limiter := builder.Build()
		places := make(chan struct{}, 20)
		var requests sync.WaitGroup
		begun := time.Now().Add(3 * time.Second)
		send := func(rate int, until time.Time) {
			for start, i := time.Now(), 0; time.Now().Before(until); i++ {
				time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				requests.Go(func() {
					permit, err := limiter.AcquirePermitWithMaxWait(context.Background(), maxWait)
					if err != nil {
						return
					}
					places <- struct{}{}
					time.Sleep(20 * time.Millisecond)
					<-places
					permit.Record()
					if second := int(time.Since(begun) / time.Second); time.Since(begun) >= 0 && second < seconds {
						done[second].Add(1)
					}
				})
			}
		}
		send(capacity/2, begun)
		send(2*capacity, begun.Add(time.Duration(seconds)*time.Second))
		requests.Wait()
	})
	each := make([]int64, seconds)
	for i := range each {
		each[i] = done[i].Load()
	}
	return each
}

// With the recommended limiter, a resource is used nearly to its capacity in each second of a storm, and the limit stays low. With
// failsafe-go's default correlation window, only a third of the capacity is used in some seconds after the tenth: see Recommended.
func TestStorm(t *testing.T) {
	var limit atomic.Uint64 // the limiter calls the function on several goroutines
	builder := failsafe.Recommended(4, 1000, 10).OnLimitChanged(func(e adaptivelimiter.LimitChangedEvent) { limit.Store(uint64(e.NewLimit)) })
	done := storm(t, builder, 25)
	for second, n := range done {
		if n < 900 {
			t.Errorf("second %d: %d of 1,000 were done", second, n)
		}
	}
	if limit := limit.Load(); limit < 20 || limit > 40 {
		t.Errorf("the limit is %d for a resource that does 20 at once", limit)
	}
}
