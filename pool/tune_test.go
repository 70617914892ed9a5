package pool

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// After Tune from 20 to 5 with 20 idle workers, the surplus workers end at once, and no more than 5 tasks run.
func TestTuneDownIdle(t *testing.T) {
	for _, preAlloc := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPool(t, 20, WithPreAlloc(preAlloc))
			release := occupy(t, p, 20)
			synctest.Wait()
			release()
			synctest.Wait()
			want(t, "idle workers", p.Stats().Parked, 20)
			p.Tune(5)
			want(t, "workers", p.Stats().Workers, 5)
			want(t, "Running", p.Running(), 5)
			want(t, "Cap", p.Cap(), 5)
			want(t, "most at once", mostAtOnce(p, 100), 5)
		})
	}
}

// After Tune to less than the number of running tasks, no task starts until fewer run than the new capacity, not even a task that was accepted
// before Tune.
func TestTuneDownBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 10)
		var gates []chan struct{}
		var running atomic.Int32
		for range 10 {
			gate := make(chan struct{})
			gates = append(gates, gate)
			must(t, p.Submit(func() { running.Add(1); <-gate; running.Add(-1) }))
		}
		synctest.Wait()
		go p.Submit(func() { running.Add(1); <-gates[0]; running.Add(-1) })
		p.Tune(3)
		for i := range gates {
			synctest.Wait()
			if i < 8 {
				want(t, "run", int(running.Load()), 10-i)
				want(t, "Waiting", p.Waiting(), 1)
			}
			if i > 0 {
				close(gates[i])
			} else {
				close(gates[9])
				gates[9] = make(chan struct{})
			}
		}
		close(gates[0])
		synctest.Wait()
		if n := p.Stats().Workers; n > 3 {
			t.Errorf("%d workers are kept, 3 may be", n)
		}
	})
}

// After Tune to less than the number of running tasks, an admitted waiter's task in the queue doesn't start too early, either.
func TestTuneDownBusyWithQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 4, WithQueueSize(3))
		gates := make([]chan struct{}, 4)
		for i := range gates {
			gates[i] = make(chan struct{})
			must(t, p.Submit(func() { <-gates[i] }))
		}
		synctest.Wait()
		p.Tune(1)
		want(t, "a fifth", p.TrySubmit(func() {}), ErrPoolOverload)
		ran := false
		go p.Submit(func() { ran = true })
		synctest.Wait()
		for i := range 3 {
			close(gates[i])
			synctest.Wait()
			want(t, "run", ran, false)
			want(t, "busy", p.Stats().Busy, 3-i)
		}
		want(t, "Waiting", p.Waiting(), 0)
		close(gates[3])
		synctest.Wait()
		want(t, "run", ran, true)
	})
}

// Tune to a higher capacity admits the submitters that have waited longest at once.
func TestTuneUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1)
		release := occupy(t, p, 1)
		var ran atomic.Int32
		gate := make(chan struct{})
		for range 10 {
			go p.Submit(func() { ran.Add(1); <-gate })
		}
		synctest.Wait()
		p.Tune(4)
		synctest.Wait()
		want(t, "Waiting", p.Waiting(), 7)
		want(t, "run", ran.Load(), 3)
		close(gate)
		release()
		synctest.Wait()
		want(t, "run", ran.Load(), 10)
	})
}

func TestTuneIsIgnored(t *testing.T) {
	p := newPool(t, 5)
	for _, size := range []int{0, -1, 5} {
		p.Tune(size)
		want(t, "Cap", p.Cap(), 5)
	}
}

// mostAtOnce runs n tasks, and returns the highest number of them that ran at once.
func mostAtOnce(p *Pool, n int) int {
	var now, most atomic.Int32
	for range n {
		p.Submit(func() {
			at := now.Add(1)
			for m := most.Load(); at > m && !most.CompareAndSwap(m, at); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
		})
	}
	for p.Stats().Busy > 0 {
		time.Sleep(time.Millisecond)
	}
	return int(most.Load())
}

// QueueSize tasks are accepted beyond the capacity, but don't run until others have ended.
func TestQueueSize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 2, WithQueueSize(3), WithNonblocking(true))
		release := occupy(t, p, 5)
		synctest.Wait()
		s := p.Stats()
		want(t, "busy", s.Busy, 2)
		want(t, "queued", s.Queued, 3)
		want(t, "Running", p.Running(), 2)
		want(t, "Free", p.Free(), 0)
		want(t, "one more", p.Submit(func() {}), ErrPoolOverload)
		release()
		synctest.Wait()
		want(t, "done", p.Stats().Done, 5)
	})
}

// The number of workers follows the fill of the queue in steps.
func TestGrowth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 7, WithQueueSize(10), WithGrowth(2, 0.6, 0.2))
		gate := make(chan struct{})
		busy := func(tasks, wanted int) {
			t.Helper()
			for range tasks {
				must(t, p.Submit(func() { <-gate }))
				synctest.Wait()
			}
			want(t, "busy", p.Stats().Busy, wanted)
		}
		busy(8, 2) // the queue has 6
		busy(1, 4) // the queue had 7, and has 5
		busy(1, 4)
		busy(1, 6) // the queue again had 7, and has 5
		busy(2, 7) // a step that the capacity cuts short
		close(gate)
		synctest.Wait()
		want(t, "workers that are kept", p.Stats().Workers, 7)
		gate = make(chan struct{})
		release := occupy(t, p, 1) // the fill is 0.1
		synctest.Wait()
		want(t, "workers a step below", p.Stats().Workers, 5)
		for range 2 {
			must(t, p.Submit(func() { <-gate }))
			synctest.Wait()
		}
		release()
		close(gate)
		synctest.Wait()
		want(t, "workers at last", p.Stats().Workers, 2)
	})
}
