package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Whatever concurrent calls do to the pool, an accepted task runs exactly once and a refused one never, no more tasks run at once than
// allowed, and after a release that waits no task runs until the pool is rebooted.
func TestModel(t *testing.T) {
	tasks := 30000
	if testing.Short() {
		tasks = 3000
	}
	for _, test := range []struct {
		what    string
		size    int
		options []Option
	}{
		{"cap 1", 1, nil},
		{"cap 4", 4, nil},
		{"nonblocking", 4, []Option{WithNonblocking(true)}},
		{"few may wait", 2, []Option{WithMaxBlockingTasks(3)}},
		{"with a queue", 3, []Option{WithQueueSize(5)}},
		{"growing", 8, []Option{WithQueueSize(10), WithGrowth(2, 0.5, 0.2)}},
		{"allocated in advance", 8, []Option{WithPreAlloc(true)}},
		{"large", 1000, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			options := append(test.options, WithExpiryDuration(100*time.Microsecond), WithPanicHandler(func(any) {}))
			p := newPool(t, test.size, options...)
			hammer(t, tasks, func(ctx context.Context, key int, task func()) error {
				switch key % 5 {
				case 0:
					return p.SubmitContext(ctx, task)
				case 1:
					return p.TrySubmit(task)
				case 2:
					return p.SubmitKeyed(key%3, task)
				case 3:
					_, err := p.SubmitBatch([]func(){task})
					return err
				}
				return p.Submit(task)
			}, p, func() { p.Tune(1 + rand.IntN(2*test.size)) })
			if s := p.Stats(); s.Busy != 0 || s.Queued != 0 || s.Waiting != 0 || s.Workers != 0 || s.Spawned != s.Retired {
				t.Errorf("left in the end: %+v", s)
			}
		})
	}
}

func TestModelMultiPool(t *testing.T) {
	for _, strategy := range []LoadBalancingStrategy{RoundRobin, LeastTasks} {
		p, err := NewMultiPool(3, 2, strategy, WithExpiryDuration(100*time.Microsecond), WithPanicHandler(func(any) {}))
		must(t, err)
		hammer(t, 10000, func(ctx context.Context, key int, task func()) error {
			switch key % 3 {
			case 0:
				return p.SubmitContext(ctx, task)
			case 1:
				return p.TrySubmit(task)
			}
			return p.Submit(task)
		}, p, func() { p.Tune(1 + rand.IntN(4)) })
	}
}

// releasable has the other methods that the model calls, besides those that submit tasks and tune the pool.
type releasable interface {
	Release()
	ReleaseContext(context.Context) error
	Wait(context.Context) error
	Reboot()
}

func hammer(t *testing.T, tasks int, submit func(context.Context, int, func()) error, p releasable, tune func()) {
	const submitters = 8
	fates := make([]struct{ accepted, ran atomic.Int32 }, tasks)
	var open sync.RWMutex // held for reading by goroutines that may reboot the pool
	var running atomic.Int32
	var submitting, meddling sync.WaitGroup
	stop := make(chan struct{})
	meddle := func(every time.Duration, f func()) {
		meddling.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(rand.N(every)):
					f()
				}
			}
		})
	}
	meddle(200*time.Microsecond, tune)
	meddle(2*time.Millisecond, func() {
		open.RLock()
		defer open.RUnlock()
		p.Release()
		p.Reboot()
	})
	meddle(3*time.Millisecond, func() {
		open.RLock()
		defer open.RUnlock()
		p.Reboot()
	})
	meddle(3*time.Millisecond, func() {
		open.Lock() // from now on no goroutine reboots the pool
		defer open.Unlock()
		if p.ReleaseContext(context.Background()) == ErrPoolClosed {
			must(t, p.Wait(context.Background()))
		}
		if n := running.Load(); n != 0 {
			t.Errorf("%d tasks run after a release", n)
		}
		p.Reboot()
	})
	for s := range submitters {
		submitting.Go(func() {
			for i := s; i < tasks; i += submitters {
				kind := rand.IntN(100)
				task := func() {
					running.Add(1)
					defer running.Add(-1)
					fates[i].ran.Add(1)
					switch {
					case kind < 5:
						panic(kind)
					case kind < 8:
						runtime.Goexit()
					case kind < 20:
						runtime.Gosched()
					case kind < 22:
						time.Sleep(100 * time.Microsecond)
					}
				}
				ctx, cancel := context.Background(), func() {}
				if kind%2 == 0 {
					ctx, cancel = context.WithTimeout(ctx, rand.N(time.Millisecond))
				}
				err := submit(ctx, rand.IntN(1000), task)
				cancel()
				switch {
				case err == nil:
					fates[i].accepted.Store(1)
				case errors.Is(err, context.DeadlineExceeded):
				case err == ErrPoolOverload, err == ErrPoolClosed:
					time.Sleep(rand.N(20 * time.Microsecond))
				default:
					t.Error(err)
				}
			}
		})
	}
	submitting.Wait()
	close(stop)
	meddling.Wait()
	if p.ReleaseContext(context.Background()) == ErrPoolClosed {
		must(t, p.Wait(context.Background()))
	}
	accepted := 0
	for i := range fates {
		if a, r := fates[i].accepted.Load(), fates[i].ran.Load(); a != r {
			t.Fatalf("task %d was accepted %d times and run %d times", i, a, r)
		}
		accepted += int(fates[i].accepted.Load())
	}
	if accepted < tasks/100 {
		t.Errorf("only %d of %d tasks were accepted", accepted, tasks)
	}
	t.Logf("%d of %d tasks were accepted", accepted, tasks)
}

// After the capacity was lowered and running tasks have ended, no more tasks run at once than the new capacity.
func TestModelCapacity(t *testing.T) {
	p := newPool(t, 20)
	var running atomic.Int32
	for round := range 50 {
		size := 1 + rand.IntN(20)
		p.Tune(size)
		// Tasks that were started under the previous capacity must end first.
		eventually(t, "tasks end", func() bool { return p.Stats().Busy == 0 })
		var group sync.WaitGroup
		for range 100 {
			group.Add(1)
			must(t, p.Submit(func() {
				defer group.Done()
				if n := running.Add(1); int(n) > size {
					t.Errorf("round %d: %d tasks run, %d may", round, n, size)
				}
				runtime.Gosched()
				running.Add(-1)
			}))
		}
		group.Wait()
	}
}
