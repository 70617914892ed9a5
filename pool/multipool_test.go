package pool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newMultiPool(t *testing.T, size, sizePerPool int, strategy LoadBalancingStrategy, options ...Option) *MultiPool {
	t.Helper()
	p, err := NewMultiPool(size, sizePerPool, strategy, options...)
	must(t, err)
	t.Cleanup(p.Release)
	return p
}

func TestNewMultiPool(t *testing.T) {
	for _, test := range []struct {
		what              string
		size, sizePerPool int
		strategy          LoadBalancingStrategy
		options           Options
		err               error
	}{
		{"size", 0, 1, 0, Options{}, ErrInvalidMultiPoolSize},
		{"strategy", 1, 1, 8, Options{}, ErrInvalidLoadBalancingStrategy},
		{"expiry", 1, 1, LeastTasks, Options{ExpiryDuration: -1}, ErrInvalidPoolExpiry},
	} {
		_, err := NewMultiPool(test.size, test.sizePerPool, test.strategy, WithOptions(test.options))
		want(t, test.what, err, test.err)
	}
	_, err := NewMultiPoolWithFunc(1, 1, nil, RoundRobin)
	want(t, "no function", err, ErrLackPoolFunc)
}

// A submitter doesn't wait while any pool has room. If it has to wait, it is admitted by the first pool that gets room.
func TestMultiPoolSiblings(t *testing.T) {
	for _, strategy := range []LoadBalancingStrategy{RoundRobin, LeastTasks} {
		bubble(t, func(t *testing.T) {
			p := newMultiPool(t, 4, 1, strategy)
			gates := make([]chan struct{}, 4)
			for i := range gates {
				gates[i] = make(chan struct{})
				must(t, p.Submit(func() { <-gates[i] }))
			}
			close(gates[2]) // this pool gets room, although RoundRobin would choose another one next
			synctest.Wait()
			again := make(chan struct{})
			must(t, p.Submit(func() { <-again }))
			admitted := make(chan struct{})
			go func() {
				must(t, p.Submit(func() {}))
				close(admitted)
			}()
			synctest.Wait()
			want(t, "Waiting", p.Waiting(), 1)
			n := 0
			for i := range 4 {
				waiting, err := p.WaitingByIndex(i)
				must(t, err)
				n += waiting
			}
			want(t, "the sum of WaitingByIndex", n, 1)
			close(gates[3])
			<-admitted
			close(gates[0])
			close(gates[1])
			close(again)
		})
	}
}

// A submitter that is about to wait doesn't miss a place that becomes free at the same moment.
func TestMultiPoolNoLostPlace(t *testing.T) {
	p := newMultiPool(t, 2, 1, RoundRobin)
	for range 20000 {
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { must(t, p.Submit(func() {})) })
		}
		group.Wait()
	}
}

// Waiting submitters are admitted in the order of their calls.
func TestMultiPoolWaitersInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newMultiPool(t, 1, 1, LeastTasks)
		gate := make(chan struct{})
		must(t, p.Submit(func() { <-gate }))
		var got []int
		for i := range 10 {
			go p.Submit(func() { got = append(got, i) })
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		want(t, "run in order", len(got) == 10 && slices.IsSorted(got), true)
	})
}

func TestMultiPoolCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newMultiPool(t, 3, 2, LeastTasks)
		gate := make(chan struct{})
		for range 4 {
			must(t, p.Submit(func() { <-gate }))
		}
		want(t, "Running", p.Running(), 4)
		want(t, "Free", p.Free(), 2)
		want(t, "Cap", p.Cap(), 6)
		for i := range 3 {
			n, err := p.RunningByIndex(i)
			must(t, err)
			if n < 1 {
				t.Errorf("pool %d has %d tasks", i, n)
			}
		}
		for _, i := range []int{-1, 3} {
			_, err := p.RunningByIndex(i)
			want(t, "RunningByIndex", err, ErrInvalidPoolIndex)
			_, err = p.FreeByIndex(i)
			want(t, "FreeByIndex", err, ErrInvalidPoolIndex)
			_, err = p.WaitingByIndex(i)
			want(t, "WaitingByIndex", err, ErrInvalidPoolIndex)
		}
		p.Tune(5)
		want(t, "Cap after Tune", p.Cap(), 15)
		close(gate)
	})
	unlimited := newMultiPool(t, 3, -1, RoundRobin)
	want(t, "Cap", unlimited.Cap(), -1)
	want(t, "Free", unlimited.Free(), -1)
}

func TestMultiPoolOverload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newMultiPool(t, 2, 1, RoundRobin, WithMaxBlockingTasks(1))
		gate := make(chan struct{})
		var ran atomic.Int32
		task := func() { <-gate; ran.Add(1) }
		for range 2 {
			must(t, p.Submit(task))
		}
		want(t, "TrySubmit", p.TrySubmit(task), ErrPoolOverload)
		for range 2 {
			go p.Submit(task)
		}
		synctest.Wait()
		want(t, "Submit", p.Submit(task), ErrPoolOverload)
		want(t, "nil", p.Submit(nil), ErrNilTask)
		close(gate)
		must(t, p.ReleaseTimeout(time.Second))
	})
}

func TestMultiPoolRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newMultiPool(t, 2, 1, RoundRobin)
		for range 2 {
			must(t, p.Submit(func() { time.Sleep(time.Second) }))
		}
		refused := make(chan error, 1)
		go func() { refused <- p.Submit(func() {}) }()
		synctest.Wait()
		err := p.ReleaseTimeout(time.Millisecond)
		want(t, "errors.Is ErrTimeout", errors.Is(err, ErrTimeout), true)
		want(t, "the waiter", <-refused, ErrPoolClosed)
		want(t, "Submit", p.Submit(func() {}), ErrPoolClosed)
		want(t, "ReleaseContext", p.ReleaseContext(nil), ErrPoolClosed) //lint:ignore SA1012 nil has a meaning here
		start := time.Now()
		p.Reboot()
		want(t, "Reboot has waited", time.Since(start), time.Second-time.Millisecond)
		must(t, p.Submit(func() { time.Sleep(time.Second) }))
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		want(t, "errors.Is Canceled", errors.Is(p.ReleaseContext(ended), context.Canceled), true)
		must(t, p.Wait(context.Background()))
	})
}

func TestMultiPoolSubmitContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newMultiPool(t, 2, 1, RoundRobin)
		gate := make(chan struct{})
		for range 2 {
			must(t, p.Submit(func() { <-gate }))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ran := false
		want(t, "SubmitContext", p.SubmitContext(ctx, func() { ran = true }), context.DeadlineExceeded)
		want(t, "Waiting", p.Waiting(), 0)
		close(gate)
		must(t, p.ReleaseTimeout(time.Second))
		want(t, "run", ran, false)
	})
}

func TestMultiPoolWithFunc(t *testing.T) {
	var sum atomic.Int64
	ints, err := NewMultiPoolWithFuncGeneric(3, 2, func(n int) { sum.Add(int64(n)) }, LeastTasks)
	must(t, err)
	anys, err := NewMultiPoolWithFunc(3, 2, func(n any) { sum.Add(int64(n.(int))) }, RoundRobin)
	must(t, err)
	for i := range 1000 {
		must(t, ints.Invoke(i))
		must(t, anys.Invoke(i))
	}
	must(t, ints.ReleaseTimeout(time.Minute))
	must(t, anys.ReleaseTimeout(time.Minute))
	want(t, "sum", sum.Load(), 999*1000)
}
