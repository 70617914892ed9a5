package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A release refuses waiting submitters, and runs accepted tasks. After a release that waits has returned nil, no task runs.
func TestRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 2, WithQueueSize(2))
		var ran atomic.Int32
		for range 4 {
			must(t, p.Submit(func() { time.Sleep(time.Second); ran.Add(1) }))
		}
		refused := make(chan error, 1)
		go func() { refused <- p.Submit(func() { ran.Add(100) }) }()
		synctest.Wait()
		start := time.Now()
		must(t, p.ReleaseTimeout(time.Minute))
		want(t, "waited for", time.Since(start), 2*time.Second)
		want(t, "the waiter", <-refused, ErrPoolClosed)
		want(t, "run", ran.Load(), 4)
		want(t, "Running", p.Running(), 0)
		want(t, "IsClosed", p.IsClosed(), true)
		p.mu.Lock()
		goroutines := p.goroutines
		p.mu.Unlock()
		want(t, "goroutines", goroutines, 0)
	})
}

// One caller waits; the others get ErrPoolClosed at once, and can Wait.
func TestReleaseAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1)
		must(t, p.Submit(func() { time.Sleep(time.Second) }))
		start := time.Now()
		want(t, "timeout", p.ReleaseTimeout(time.Millisecond), ErrTimeout)
		want(t, "ReleaseTimeout", p.ReleaseTimeout(time.Minute), ErrPoolClosed)
		want(t, "ReleaseContext", p.ReleaseContext(context.Background()), ErrPoolClosed)
		p.Release()
		want(t, "time passed", time.Since(start), time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		want(t, "Wait", p.Wait(ctx), context.DeadlineExceeded)
		must(t, p.Wait(context.Background()))
		want(t, "time passed", time.Since(start), time.Second)
	})
}

func TestConcurrentReleases(t *testing.T) {
	p := newPool(t, 4)
	for range 4 {
		must(t, p.Submit(func() { time.Sleep(10 * time.Millisecond) }))
	}
	var group sync.WaitGroup
	var first atomic.Int32
	for range 5 {
		group.Go(func() {
			switch err := p.ReleaseContext(context.Background()); err {
			case nil:
				first.Add(1)
			case ErrPoolClosed:
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	want(t, "releases that have waited", first.Load(), 1)
}

func TestReleaseWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1)
		must(t, p.Submit(func() { time.Sleep(time.Second) }))
		start := time.Now()
		must(t, p.ReleaseContext(nil)) //lint:ignore SA1012 nil has a meaning here
		want(t, "time passed", time.Since(start), 0)
		must(t, p.Wait(context.Background()))
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		must(t, p.Wait(ended)) // the pool's tasks have ended, so the ended context doesn't matter
		idle := newPool(t, 1)
		must(t, idle.ReleaseContext(ended))
	})
}

// Reboot waits for running tasks. Then the pool works as before.
func TestReboot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 2)
		p.Reboot() // has no effect on an open pool
		must(t, p.Submit(func() { time.Sleep(time.Second) }))
		p.Release()
		start := time.Now()
		var group sync.WaitGroup
		for range 5 {
			group.Go(p.Reboot)
		}
		group.Wait()
		want(t, "time passed", time.Since(start), time.Second)
		want(t, "IsClosed", p.IsClosed(), false)
		ran := false
		must(t, p.Submit(func() { ran = true }))
		drain(t, p)
		want(t, "run", ran, true)
	})
}

// Tasks that a task submits are run or refused, even during a release.
func TestReleaseFromTask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1)
		errs := make(chan error, 2)
		must(t, p.Submit(func() {
			errs <- p.ReleaseTimeout(time.Second) // the task waits for itself
			errs <- p.Submit(func() {})
		}))
		want(t, "ReleaseTimeout", <-errs, ErrTimeout)
		want(t, "Submit", <-errs, ErrPoolClosed)
		must(t, p.Wait(context.Background()))
	})
}
