package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// After a burst, a task every 20 ms keeps just one worker from expiring, although the expiry is 100 ms.
func TestExpiryUnderLightLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 50, WithExpiryDuration(100*time.Millisecond))
		release := occupy(t, p, 50)
		synctest.Wait()
		release()
		synctest.Wait()
		want(t, "workers after the burst", p.Stats().Workers, 50)
		for range 50 {
			time.Sleep(20 * time.Millisecond)
			must(t, p.Submit(func() {}))
		}
		synctest.Wait()
		s := p.Stats()
		want(t, "workers", s.Workers, 1)
		want(t, "spawned", s.Spawned, 50)
	})
}

// An idle worker ends after one to two times the expiry, whenever it became idle.
func TestExpiryTime(t *testing.T) {
	const expiry = 100 * time.Millisecond
	for delay := time.Duration(0); delay < 2*expiry; delay += 30 * time.Millisecond {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPool(t, 2, WithExpiryDuration(expiry))
				must(t, p.Submit(func() {})) // begins the period
				synctest.Wait()
				must(t, p.Submit(func() { time.Sleep(expiry + delay) }))
				must(t, p.Submit(func() { time.Sleep(expiry + delay) }))
				time.Sleep(expiry + delay)
				synctest.Wait()
				want(t, "workers when the tasks end", p.Stats().Workers, 2)
				time.Sleep(expiry - time.Millisecond)
				synctest.Wait()
				want(t, "workers before the expiry", p.Stats().Workers, 2)
				time.Sleep(expiry + 2*time.Millisecond)
				synctest.Wait()
				want(t, "workers after twice the expiry", p.Stats().Workers, 0)
			})
		})
	}
}

// A pool without idle workers has no timer, and no goroutine of its own.
func TestNothingIdleNothingTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 5)
		state := func() (goroutines int, ticking bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.goroutines, p.ticking
		}
		goroutines, ticking := state()
		want(t, "goroutines of a new pool", goroutines, 0)
		want(t, "a new pool ticks", ticking, false)
		must(t, p.Submit(func() {}))
		synctest.Wait()
		_, ticking = state()
		want(t, "ticks with a parked worker", ticking, true)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		goroutines, ticking = state()
		want(t, "goroutines when all have expired", goroutines, 0)
		want(t, "ticks when all have expired", ticking, false)
	})
}

func TestDisablePurge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 5, WithDisablePurge(true), WithExpiryDuration(time.Millisecond))
		release := occupy(t, p, 5)
		synctest.Wait()
		release()
		time.Sleep(time.Hour)
		synctest.Wait()
		want(t, "Running", p.Running(), 5)
	})
}

// The memory that a burst has used is freed after the burst has ended.
func TestMemoryIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 10000, WithExpiryDuration(time.Second))
		release := occupy(t, p, 10000)
		synctest.Wait()
		release()
		for range 20 {
			time.Sleep(time.Second)
			must(t, p.Submit(func() {}))
		}
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if got := len(p.queue.buf); got > minQueue {
			t.Errorf("the queue keeps %d slots", got)
		}
		if got := cap(p.parked); got > 64 {
			t.Errorf("the stack keeps %d slots", got)
		}
	})
}

func TestPreAlloc(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1000, WithPreAlloc(true))
		for range 20 {
			p.mu.Lock()
			slots, places := len(p.queue.buf), cap(p.parked)
			p.mu.Unlock()
			want(t, "the queue's slots", slots, 1024)
			want(t, "the stack's slots", places, 1000)
			time.Sleep(time.Second)
			must(t, p.Submit(func() {}))
			synctest.Wait()
		}
	})
}

func TestWarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 10)
		p.Warm(4)
		synctest.Wait()
		want(t, "workers", p.Stats().Workers, 4)
		want(t, "parked", p.Stats().Parked, 4)
		p.Warm(100)
		want(t, "workers, asked for more than cap", p.Stats().Workers, 10)
		release := occupy(t, p, 10)
		synctest.Wait()
		want(t, "spawned", p.Stats().Spawned, 10)
		release()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want(t, "workers after the expiry", p.Stats().Workers, 0)
		p.Warm(1)
		time.Sleep(500 * time.Millisecond)
		p.Warm(3) // in the middle of a period
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		want(t, "workers at the period's end", p.Stats().Workers, 2)
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "workers at the next", p.Stats().Workers, 0)
		p.Release()
		p.Warm(1)
		want(t, "workers of a closed pool", p.Stats().Workers, 0)
	})
}

// A step of the system's clock has no effect: the package never reads the wall clock, and measures time with internal/clock.
func TestNoWallClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	calls := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		must(t, err)
		calls += strings.Count(string(source), "time.Now") + strings.Count(string(source), "Unix")
	}
	want(t, "calls of time.Now", calls, 0)
}
