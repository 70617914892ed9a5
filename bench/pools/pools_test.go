// Package pools compares filo's goroutine pool with the pools that Go programs use most.
package pools

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/bytedance/gopkg/util/gopool"
	filo "github.com/filohttp/filo/pool"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"github.com/sourcegraph/conc/pool"
	"golang.org/x/sync/errgroup"
)

// A peer creates a pool that runs size tasks at once, with the pool's own defaults otherwise. stop is called when all tasks have ended.
type peer struct {
	name  string
	start func(size int) (submit func(func()), stop func())
}

var peers = []peer{
	{"filo", func(size int) (func(func()), func()) {
		p, err := filo.NewPool(size)
		return checked(p.Submit, err), p.Release
	}},
	{"ants", func(size int) (func(func()), func()) {
		p, err := ants.NewPool(size)
		return checked(p.Submit, err), p.Release
	}},
	{"pond", func(size int) (func(func()), func()) { // its queue is unbounded by default
		p := pond.NewPool(size, pond.WithQueueSize(size))
		return checked(p.Go, nil), p.StopAndWait
	}},
	{"gopool", func(size int) (func(func()), func()) { // its queue is unbounded
		return gopool.NewPool("bench", int32(size), gopool.NewConfig()).Go, func() {}
	}},
	{"conc", func(size int) (func(func()), func()) {
		p := pool.New().WithMaxGoroutines(size)
		return p.Go, p.Wait
	}},
	{"gammazero", func(size int) (func(func()), func()) { // its queue is unbounded
		p := workerpool.New(size)
		return p.Submit, p.StopWait
	}},
	{"errgroup", func(size int) (func(func()), func()) {
		group, _ := errgroup.WithContext(context.Background())
		group.SetLimit(size)
		return func(task func()) { group.Go(func() error { task(); return nil }) }, func() { group.Wait() }
	}},
	{"go", func(size int) (func(func()), func()) { // what a programmer writes without a pool
		places := make(chan struct{}, size)
		return func(task func()) {
			places <- struct{}{}
			go func() {
				task()
				<-places
			}()
		}, func() {}
	}},
}

func checked(submit func(func()) error, err error) func(func()) {
	if err != nil {
		panic(err)
	}
	return func(task func()) {
		if err := submit(task); err != nil {
			panic(err)
		}
	}
}

// kinds are kinds of tasks. Tasks that compute do the same work with all pools, however often they are interrupted.
var kinds = []struct {
	name string
	task func()
}{
	{"empty", func() {}},
	{"compute", func() { _ = spin(10_000) }},
	{"sleep", func() { time.Sleep(time.Millisecond) }},
	{"deep", func() { deep(15) }}, // needs a larger stack than a new goroutine has
}

//go:noinline
func spin(loops int) (x uint32) {
	for range loops {
		x = x*1664525 + 1013904223
	}
	return x
}

//go:noinline
func deep(n int) byte {
	var frame [1000]byte
	frame[n] = byte(n)
	if n == 0 {
		return frame[0]
	}
	return deep(n-1) + frame[n]
}

// drive submits n tasks from several goroutines, and waits until the tasks have ended.
func drive(submit func(func()), n, submitters int, task func()) {
	var submitting, ended sync.WaitGroup
	ended.Add(n)
	counted := func() {
		task()
		ended.Done()
	}
	for s := range submitters {
		submitting.Go(func() {
			for i := s; i < n; i += submitters {
				submit(counted)
			}
		})
	}
	submitting.Wait()
	ended.Wait()
}

// BenchmarkSubmit measures a task from its submission to its end. The most important figure is cpu-ns/op, the processor time of submitters, tasks,
// scheduler and garbage collector. It depends least on other work on the machine.
func BenchmarkSubmit(b *testing.B) {
	for _, kind := range kinds {
		for _, size := range []int{2, 50_000} {
			for _, submitters := range []int{1, 1000} {
				for _, p := range peers {
					b.Run(fmt.Sprintf("%s/cap=%d/submitters=%d/pool=%s", kind.name, size, submitters, p.name), func(b *testing.B) {
						submit, stop := p.start(size)
						defer stop()
						drive(submit, min(b.N, size), submitters, kind.task)
						b.ReportAllocs()
						before := cpuTime()
						b.ResetTimer()
						drive(submit, b.N, submitters, kind.task)
						b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
					})
				}
			}
		}
	}
}

// cpuTime returns the processor time of this process.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// Every pool runs every task once, and doesn't exceed its bound on running tasks.
func TestPeersRunAll(t *testing.T) {
	for _, p := range peers {
		submit, stop := p.start(3)
		var done, running, most atomic.Int64
		drive(submit, 1000, 7, func() {
			now := running.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			done.Add(1)
			running.Add(-1)
		})
		stop()
		// gopool may exceed its bound when several goroutines submit.
		if done.Load() != 1000 || most.Load() > 3 && p.name != "gopool" {
			t.Errorf("%s: %d tasks, %d at once", p.name, done.Load(), most.Load())
		}
	}
}
