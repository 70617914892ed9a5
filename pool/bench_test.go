package pool

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// BenchmarkSubmit measures the cost of a task, from its submission to its end, for several kinds of tasks.
func BenchmarkSubmit(b *testing.B) {
	for _, kind := range []struct {
		name string
		task func()
	}{
		{"empty", func() {}},
		{"deep", func() { deep(100) }},
		{"sleep", func() { time.Sleep(time.Millisecond) }},
	} {
		for _, size := range []int{2, 50000} {
			for _, submitters := range []int{1, 1000} {
				b.Run(fmt.Sprintf("%s/cap=%d/submitters=%d", kind.name, size, submitters), func(b *testing.B) {
					p := newPool(b, size)
					b.ReportAllocs()
					var group sync.WaitGroup
					for s := range submitters {
						group.Go(func() {
							for i := s; i < b.N; i += submitters {
								p.Submit(kind.task)
							}
						})
					}
					group.Wait()
					drain(b, p)
				})
			}
		}
	}
}

//go:noinline
func deep(n int) byte {
	var frame [128]byte
	frame[n] = byte(n)
	if n == 0 {
		return frame[0]
	}
	return deep(n-1) + frame[n]
}

func BenchmarkSubmitBatch(b *testing.B) {
	p := newPool(b, 1000)
	b.ReportAllocs()
	tasks := make([]func(), 100)
	for i := range tasks {
		tasks[i] = func() {}
	}
	for n := 0; n < b.N; n += len(tasks) {
		p.SubmitBatch(tasks)
	}
	drain(b, p)
}

func BenchmarkSubmitKeyed(b *testing.B) {
	p := newPool(b, 1000)
	b.ReportAllocs()
	keys := []any{"a", "b", "c", "d"}
	for i := range b.N {
		p.SubmitKeyed(keys[i%len(keys)], func() {})
	}
	drain(b, p)
}

func BenchmarkInvoke(b *testing.B) {
	p, err := NewPoolWithFuncGeneric(1000, func(int) {})
	must(b, err)
	b.ReportAllocs()
	for i := range b.N {
		p.Invoke(i)
	}
	drain(b, p)
}

func BenchmarkMultiPool(b *testing.B) {
	for _, strategy := range []LoadBalancingStrategy{RoundRobin, LeastTasks} {
		b.Run(fmt.Sprint(strategy), func(b *testing.B) {
			p, err := NewMultiPool(4, 250, strategy)
			must(b, err)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p.Submit(func() {})
				}
			})
			drain(b, p)
		})
	}
}

func BenchmarkMap(b *testing.B) {
	p := newPool(b, 100)
	b.ReportAllocs()
	for range Map(context.Background(), p, 100, count(b.N), func(_ context.Context, i int) (int, error) { return i, nil }) {
	}
	drain(b, p)
}

func BenchmarkQueue(b *testing.B) {
	var q queue[func()]
	task := func() {}
	b.ReportAllocs()
	for range b.N {
		for range 8 {
			q.push(task)
		}
		for range 8 {
			q.pop()
		}
	}
}
