package pool

import (
	"bytes"
	"fmt"
	"log"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

func faulty() { panic("faulty's own panic") }

// The panic handler receives the original value, while the stack still shows where the panic began. By then the task isn't counted any
// more, and its place is free.
func TestPanicHandler(t *testing.T) {
	type report struct {
		value   any
		stack   string
		running int
		err     error
	}
	reports := make(chan report, 1)
	var p *Pool
	p = newPool(t, 1, WithNonblocking(true), WithPanicHandler(func(value any) {
		reports <- report{value, string(debug.Stack()), p.Running(), p.Submit(func() {})}
	}))
	must(t, p.Submit(faulty))
	got := <-reports
	want(t, "value", got.value, "faulty's own panic")
	want(t, "Running in the handler", got.running, 0)
	want(t, "Submit in the handler", got.err, nil)
	if !strings.Contains(got.stack, "pool.faulty") {
		t.Error("the stack doesn't show the fault:\n", got.stack)
	}
	drain(t, p)
	s := p.Stats()
	want(t, "panicked", s.Panicked, 1)
	want(t, "done", s.Done, 1)
}

func TestPanicIsLogged(t *testing.T) {
	var out bytes.Buffer
	p := newPool(t, 1, WithLogger(log.New(&out, "", 0)))
	must(t, p.Submit(faulty))
	drain(t, p)
	if text := out.String(); !strings.Contains(text, "faulty's own panic") || !strings.Contains(text, "pool.faulty") {
		t.Error("logged:", text)
	}
}

// A pool with the capacity 1 continues after ten panics, while submitters wait.
func TestPanicsDontStall(t *testing.T) {
	for _, fault := range []struct {
		what string
		f    func()
	}{{"panic", faulty}, {"Goexit", runtime.Goexit}} {
		t.Run(fault.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPool(t, 1, WithPanicHandler(func(any) {}))
				release := occupy(t, p, 1)
				ran := 0
				for range 10 {
					go p.Submit(fault.f)
					go p.Submit(func() { ran++ })
				}
				synctest.Wait()
				want(t, "Waiting", p.Waiting(), 20)
				release()
				synctest.Wait()
				drain(t, p)
				want(t, "tasks run", ran, 10)
				want(t, "panicked", p.Stats().Panicked, 10)
			})
		})
	}
}

// A release that waits also waits for panic handlers, even for a handler that calls runtime.Goexit.
func TestReleaseWaitsForPanicHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		handled := false
		p := newPool(t, 1, WithPanicHandler(func(any) {
			time.Sleep(time.Second)
			handled = true
			runtime.Goexit()
		}))
		must(t, p.Submit(faulty))
		synctest.Wait() // the handler runs
		drain(t, p)
		want(t, "handled", handled, true)
	})
}

// If one worker keeps up with the tasks, the pool starts no second worker.
func TestOneSearchingWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 100)
		for range 1000 {
			must(t, p.Submit(func() {}))
			synctest.Wait()
		}
		want(t, "spawned", p.Stats().Spawned, 1)
	})
}

// If tasks wait for each other, each of them runs on its own worker.
func TestTasksThatMeet(t *testing.T) {
	const n = 200
	p := newPool(t, n)
	var here atomic.Int32
	met := make(chan struct{})
	for range n {
		must(t, p.Submit(func() {
			if here.Add(1) == n {
				close(met)
			}
			<-met
		}))
	}
	<-met
}

// The worker that was parked last is the first to be used.
func TestLastParkedFirstUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 3)
		gates := make([]chan struct{}, 3)
		ids := make([]string, 3)
		for i := range gates {
			gates[i] = make(chan struct{})
			must(t, p.Submit(func() { ids[i] = goroutineID(); <-gates[i] }))
			synctest.Wait()
		}
		for _, i := range []int{1, 0, 2} { // so they are parked in this order
			close(gates[i])
			synctest.Wait()
		}
		for _, i := range []int{2, 0, 1} {
			var id string
			gate := make(chan struct{})
			must(t, p.Submit(func() { id = goroutineID(); <-gate }))
			synctest.Wait()
			want(t, "goroutine", id, ids[i])
			defer close(gate)
		}
	})
}

func goroutineID() string {
	var n int
	fmt.Sscanf(string(debug.Stack()), "goroutine %d ", &n)
	return fmt.Sprint(n)
}

// If yields take long, workers yield less often. When yields become short again, workers yield more often again.
func TestTurnsAdapt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1)
		round := func(took time.Duration) int {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.yieldedAt = clock.Nanotime()
			time.Sleep(took)
			p.adaptLocked()
			return p.turns
		}
		want(t, "after a quick one", round(0), minTurns)
		want(t, "after a slow one", round(10*time.Millisecond), 4*minTurns)
		for range 20 {
			round(10 * time.Millisecond)
		}
		want(t, "after many slow ones", round(10*time.Millisecond), maxTurns)
		for range 20 {
			round(0)
		}
		want(t, "after many quick ones", round(0), minTurns)
		p.longTasks = true
		for range 20 {
			round(0)
		}
		want(t, "after many quick ones with long tasks", round(0), 1)
		want(t, "after a slow one with long tasks", round(10*time.Millisecond), 4)
		p.longTasks = false
		want(t, "with short tasks again", round(0), minTurns)
	})
}

// When tasks become long, the workers notice that. They then yield for each submitter that they admit, so that the submitter needn't wait
// for the end of a task. They also notice when tasks become short again.
func TestLongTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 2)
		for _, task := range []struct {
			took time.Duration
			want int
		}{{longTask, 1}, {longTask / 2, minTurns}, {time.Second, 1}} {
			for range 40 * timedYields { // there are two workers, and each times only one of timedYields yields
				must(t, p.Submit(func() { time.Sleep(task.took) }))
			}
			synctest.Wait()
			p.mu.Lock()
			want(t, fmt.Sprintf("turns for tasks of %v", task.took), p.turns, task.want)
			p.mu.Unlock()
			time.Sleep(time.Minute)
		}
	})
}
