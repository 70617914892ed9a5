package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Running counts workers or accepted tasks, whichever number is larger. Free is Cap minus Running. Waiting counts only
// submitters.
func TestCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 3)
		counts := func(what string, running, free, waiting int) {
			t.Helper()
			want(t, what+": Running", p.Running(), running)
			want(t, what+": Free", p.Free(), free)
			want(t, what+": Waiting", p.Waiting(), waiting)
			want(t, what+": Cap", p.Cap(), 3)
		}
		counts("new", 0, 3, 0)
		release := occupy(t, p, 2)
		counts("two tasks", 2, 1, 0)
		synctest.Wait()
		counts("two tasks that run", 2, 1, 0)
		release2 := occupy(t, p, 1)
		go p.Submit(func() {})
		synctest.Wait()
		counts("full, one waits", 3, 0, 1)
		release()
		release2()
		synctest.Wait()
		counts("all done, workers idle", 3, 0, 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		counts("workers expired", 0, 3, 0)
	})
}

func TestUnlimited(t *testing.T) {
	p := newPool(t, 0)
	release := occupy(t, p, 100)
	defer release()
	want(t, "Cap", p.Cap(), -1)
	want(t, "Free", p.Free(), -1)
	want(t, "Running", p.Running(), 100)
	p.Tune(5)
	want(t, "Cap after Tune", p.Cap(), -1)
}

// Tasks start in the order of acceptance; a pool of one runs them one after another.
func TestSerialOrder(t *testing.T) {
	p := newPool(t, 1)
	var got []int // not guarded: the tasks follow each other
	for i := range 10000 {
		must(t, p.Submit(func() { got = append(got, i) }))
	}
	drain(t, p)
	for i := range 10000 {
		if got[i] != i {
			t.Fatalf("task %d was run at place %d", got[i], i)
		}
	}
}

// Waiters are admitted in the order of their calls, and new submitters wait behind them.
func TestWaitersInOrder(t *testing.T) {
	for _, queued := range []int{0, 2} {
		t.Run(fmt.Sprint("queue ", queued), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPool(t, 1, WithQueueSize(queued))
				release := occupy(t, p, 1)
				var got []int
				for i := range 20 {
					go func() { must(t, p.Submit(func() { got = append(got, i) })) }()
					synctest.Wait()
				}
				want(t, "Waiting", p.Waiting(), 20-queued)
				release()
				synctest.Wait()
				drain(t, p)
				if !slices.IsSorted(got) || len(got) != 20 {
					t.Fatal("run in the order", got)
				}
			})
		})
	}
}

// An admitted waiter's task doesn't overtake queued tasks.
func TestWaiterBehindQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1, WithQueueSize(1))
		release := occupy(t, p, 1)
		var got []string
		must(t, p.Submit(func() { got = append(got, "queued") }))
		go p.Submit(func() { got = append(got, "waiter") })
		synctest.Wait()
		release()
		synctest.Wait()
		drain(t, p)
		want(t, "order", fmt.Sprint(got), "[queued waiter]")
	})
}

func TestChecks(t *testing.T) {
	open := newPool(t, 1, WithNonblocking(true))
	full := newPool(t, 1, WithNonblocking(true))
	defer occupy(t, full, 1)()
	closed := newPool(t, 1)
	closed.Release()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	ctx := context.Background()
	for _, test := range []struct {
		what string
		p    *Pool
		ctx  context.Context
		task func()
		err  error
	}{
		{"closed before nil", closed, ctx, nil, ErrPoolClosed},
		{"closed before the context", closed, ended, func() {}, ErrPoolClosed},
		{"nil before full", full, ctx, nil, ErrNilTask},
		{"nil", open, ctx, nil, ErrNilTask},
		{"full", full, ctx, func() {}, ErrPoolOverload},
		{"context is done", open, ended, func() {}, context.Canceled},
	} {
		if test.ctx == ctx {
			want(t, test.what+": Submit", test.p.Submit(test.task), test.err)
			want(t, test.what+": TrySubmit", test.p.TrySubmit(test.task), test.err)
			_, err := test.p.SubmitBatch([]func(){test.task})
			want(t, test.what+": SubmitBatch", err, test.err)
			want(t, test.what+": SubmitKeyed", test.p.SubmitKeyed("key", test.task), test.err)
		}
		want(t, test.what+": SubmitContext", test.p.SubmitContext(test.ctx, test.task), test.err)
	}
}

// The function of a pool is called with nil if that is the argument.
func TestInvokeNil(t *testing.T) {
	got := make(chan any, 1)
	p, err := NewPoolWithFunc(1, func(arg any) { got <- arg })
	must(t, err)
	must(t, p.Invoke(nil))
	want(t, "argument", <-got, nil)
	drain(t, p)
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		what    string
		size    int
		options Options
		err     error
	}{
		{"none", 1, Options{}, nil},
		{"negative expiry", 1, Options{ExpiryDuration: -1}, ErrInvalidPoolExpiry},
		{"negative expiry that doesn't matter", 1, Options{ExpiryDuration: -1, DisablePurge: true}, nil},
		{"allocation in advance without a limit", 0, Options{PreAlloc: true}, ErrInvalidPreAllocSize},
		{"allocation in advance", 5, Options{PreAlloc: true}, nil},
		{"growth", 5, Options{QueueSize: 5, Growth: Growth{1, 0.5, 0.25}}, nil},
		{"growth without a queue", 5, Options{Growth: Growth{1, 0.5, 0.25}}, ErrInvalidGrowth},
		{"growth without a limit", 0, Options{QueueSize: 5, Growth: Growth{1, 0.5, 0.25}}, ErrInvalidGrowth},
		{"growth without a step", 5, Options{QueueSize: 5, Growth: Growth{0, 0.5, 0.25}}, ErrInvalidGrowth},
		{"growth without a band", 5, Options{QueueSize: 5, Growth: Growth{1, 0.5, 0.5}}, ErrInvalidGrowth},
	} {
		_, err := NewPool(test.size, WithOptions(test.options))
		want(t, test.what, err, test.err)
	}
	_, err := NewPoolWithFunc(1, nil)
	want(t, "no function", err, ErrLackPoolFunc)
}

func TestMaxBlockingTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1, WithMaxBlockingTasks(2))
		release := occupy(t, p, 1)
		for range 2 {
			go p.Submit(func() {})
		}
		synctest.Wait()
		want(t, "third waiter", p.Submit(func() {}), ErrPoolOverload)
		release()
	})
}

// No task is refused while fewer tasks than Cap are accepted, not even during a purge.
func TestNoRefusalBelowCap(t *testing.T) {
	p := newPool(t, 4, WithNonblocking(true), WithExpiryDuration(50*time.Microsecond))
	for i := range 20000 {
		for s := p.Stats(); s.Busy+s.Queued >= 4; s = p.Stats() {
			runtime.Gosched()
		}
		if err := p.Submit(func() {}); err != nil {
			t.Fatalf("task %d was refused: %v", i, err)
		}
		if i%1000 == 0 {
			time.Sleep(200 * time.Microsecond) // so that workers expire
		}
	}
}

func TestSubmitContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1)
		release := occupy(t, p, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ran := false
		if err := p.SubmitContext(ctx, func() { ran = true }); err != context.DeadlineExceeded {
			t.Fatal("got", err)
		}
		want(t, "Waiting", p.Waiting(), 0)
		release()
		drain(t, p)
		want(t, "a task was given up and run", ran, false)
	})
}

// Whether the context ends first or a place becomes free first, a refused task never runs, and an accepted one does.
func TestSubmitContextRace(t *testing.T) {
	p := newPool(t, 1)
	var ran, accepted atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithCancel(context.Background())
				go cancel()
				switch err := p.SubmitContext(ctx, func() { ran.Add(1) }); err {
				case nil:
					accepted.Add(1)
				case context.Canceled:
				default:
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	drain(t, p)
	want(t, "tasks run", ran.Load(), accepted.Load())
}

func TestSubmitBatch(t *testing.T) {
	var got []int
	task := func(i int) func() { return func() { got = append(got, i) } }
	var tasks []func()
	for i := range 100 {
		tasks = append(tasks, task(i))
	}
	p := newPool(t, 1, WithQueueSize(10))
	n, err := p.SubmitBatch(tasks)
	must(t, err)
	want(t, "accepted", n, 100)
	drain(t, p)
	want(t, "run", len(got), 100)
	want(t, "in order", slices.IsSorted(got), true)

	full := newPool(t, 2, WithNonblocking(true))
	release := occupy(t, full, 1)
	gate := make(chan struct{})
	defer close(gate)
	n, err = full.SubmitBatch([]func(){func() { <-gate }, func() {}})
	want(t, "accepted by a pool with one place", n, 1)
	want(t, "error", err, ErrPoolOverload)
	n, err = full.SubmitBatch([]func(){nil})
	want(t, "accepted of nil", n, 0)
	want(t, "error for nil", err, ErrNilTask)
	release()
}

// Tasks with the same key run one after another, in order. Tasks with other keys don't wait for them.
func TestSubmitKeyed(t *testing.T) {
	p := newPool(t, 8)
	got := map[int][]int{}
	lists := make([][]int, 5) // each list belongs to one key
	for i := range 5000 {
		must(t, p.SubmitKeyed(i%5, func() {
			if i%7 == 0 {
				runtime.Gosched()
			}
			lists[i%5] = append(lists[i%5], i)
		}))
	}
	drain(t, p)
	for key, list := range lists {
		if got[key] = list; len(list) != 1000 || !slices.IsSorted(list) {
			t.Fatalf("key %d: %d tasks, sorted: %t", key, len(list), slices.IsSorted(list))
		}
	}
	want(t, "keys kept", len(p.keys.behind), 0)
}

func TestSubmitKeyedPlaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 3, WithNonblocking(true), WithPanicHandler(func(any) {}))
		gate := make(chan struct{})
		must(t, p.SubmitKeyed("a", func() { <-gate; panic("the next is run all the same") }))
		ran := false
		must(t, p.SubmitKeyed("a", func() { ran = true }))
		other := false
		must(t, p.SubmitKeyed("b", func() { other = true }))
		synctest.Wait()
		want(t, "another key's task has run", other, true)
		want(t, "the second has run", ran, false)
		must(t, p.Submit(func() { <-gate }))
		want(t, "one that waits for its key has its place", p.Submit(func() {}), ErrPoolOverload)
		close(gate)
		drain(t, p)
		want(t, "the second has run", ran, true)
	})
}

func TestSubmitKeyedStrangeKeys(t *testing.T) {
	p := newPool(t, 1)
	zero := 0.0
	for range 3 {
		must(t, p.SubmitKeyed(zero/zero, func() {}))
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a key that can't be compared was taken")
			}
		}()
		p.SubmitKeyed([]int{1}, func() {})
	}()
	must(t, p.SubmitKeyed(1, func() {}))
	drain(t, p)
	want(t, "keys kept", len(p.keys.behind), 0)
}

// Submit and Invoke allocate nothing, and neither does a worker that goes on to the next task.
func TestAllocations(t *testing.T) {
	p := newPool(t, 2, WithDisablePurge(true))
	done := make(chan struct{}, 1)
	task := func() { done <- struct{}{} }
	if n := testing.AllocsPerRun(1000, func() { p.Submit(task); <-done }); n != 0 {
		t.Errorf("Submit allocates %v times", n)
	}
	ints, err := NewPoolWithFuncGeneric(2, func(int) { done <- struct{}{} }, WithDisablePurge(true))
	must(t, err)
	defer ints.Release()
	if n := testing.AllocsPerRun(1000, func() { ints.Invoke(1000); <-done }); n != 0 {
		t.Errorf("Invoke allocates %v times", n)
	}
	if raceEnabled {
		return // with the race detector, a sync.Pool randomly drops values
	}
	one := newPool(t, 1, WithDisablePurge(true))
	nothing := func() {}
	if n := testing.AllocsPerRun(1000, func() {
		for range 3 {
			one.Submit(nothing) // at least one of them waits
		}
	}); n != 0 {
		t.Errorf("a wait for a place allocates %v times", n)
	}
}

func TestStats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 2, WithQueueSize(2), WithMaxBlockingTasks(1), WithPanicHandler(func(any) {}))
		release := occupy(t, p, 4)
		go p.Submit(func() { panic("!") })
		synctest.Wait()
		want(t, "one more", p.Submit(func() {}), ErrPoolOverload)
		s := p.Stats()
		s.Waits = WaitHistogram{}
		want(t, "full", s, Stats{Submitted: 4, Refused: 1, Spawned: 2, Workers: 2, Busy: 2, Queued: 2, Waiting: 1})
		release()
		synctest.Wait()
		s = p.Stats()
		s.Waits = WaitHistogram{}
		// No worker replaces the one that panicked, since no task was left.
		want(t, "done", s, Stats{Submitted: 5, Done: 4, Panicked: 1, Refused: 1, Spawned: 2, Retired: 1, Workers: 1, Parked: 1})
	})
}

// The wait of one task in 64 is measured, whether the task waits in the queue or its submitter waits for room.
func TestWaitHistogram(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, queued := range []int{0, 1 << 20} {
			p := newPool(t, 1, WithQueueSize(queued))
			for range 640 {
				must(t, p.Submit(func() { time.Sleep(time.Millisecond) }))
			}
			drain(t, p)
			waits := p.Stats().Waits
			if n := waits.Count(); n == 0 || n > 20 {
				t.Errorf("queue of %d: %d waits were measured", queued, n)
			}
			if queued == 0 {
				if q := waits.Quantile(0.99); q > 4*time.Millisecond {
					t.Errorf("a wait of a millisecond was measured as %v", q)
				}
			}
		}
	})
	var h WaitHistogram
	want(t, "of none", h.Quantile(0.5), 0)
	h[0], h[10] = 90, 10
	want(t, "median", h.Quantile(0.5), h.Bound(0))
	want(t, "p99", h.Quantile(0.99), h.Bound(10))
	want(t, "all", h.Quantile(1), h.Bound(10))
}

func TestQueue(t *testing.T) {
	var q queue[int]
	next, oldest := 0, 0
	for round := range 200 {
		for range (round * 7) % 50 {
			q.push(next)
			next++
		}
		for range min(q.n, (round*11)%50) {
			want(t, "head", q.pop(), oldest)
			oldest++
		}
		q.shrink()
	}
	for q.n > 0 {
		want(t, "head", q.pop(), oldest)
		oldest++
	}
	want(t, "popped", oldest, next)
	for range 10 {
		q.shrink()
	}
	want(t, "buffer of an empty queue", len(q.buf), minQueue)
	for _, left := range q.buf {
		want(t, "left behind", left, 0)
	}
}

// The package's own pool starts no goroutine before it is used, and can be released and used again.
func TestDefaultPool(t *testing.T) {
	capacity, free := DefaultAntsPoolSize, DefaultAntsPoolSize-1
	if strconv.IntSize == 32 {
		capacity, free = -1, -1
	}
	want(t, "Running", Running(), 0)
	want(t, "Cap", Cap(), capacity)
	done := make(chan struct{})
	must(t, Submit(func() { close(done) }))
	<-done
	want(t, "Running", Running(), 1)
	want(t, "Free", Free(), free)
	must(t, ReleaseTimeout(time.Minute))
	want(t, "Submit", Submit(func() {}), ErrPoolClosed)
	want(t, "ReleaseContext", ReleaseContext(context.Background()), ErrPoolClosed)
	Reboot()
	must(t, ReleaseContext(context.Background()))
	Reboot()
}

func TestPanicErrorUnwraps(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", &PanicError{Value: context.Canceled})
	want(t, "Is", errors.Is(err, context.Canceled), true)
	want(t, "Is for no error", errors.Is(&PanicError{Value: 1}, context.Canceled), false)
}
