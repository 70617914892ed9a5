package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/pool"
)

func Example() {
	p, err := pool.NewPool(10)
	if err != nil {
		panic(err)
	}
	var sum atomic.Int64
	for i := range 100 {
		if err := p.Submit(func() { sum.Add(int64(i)) }); err != nil {
			fmt.Println(err)
		}
	}
	if err := p.ReleaseTimeout(time.Minute); err != nil {
		fmt.Println(err)
	}
	fmt.Println(sum.Load())
	// Output: 4950
}

// A pool of one runs its tasks one after another, in order.
func ExamplePool() {
	p, _ := pool.NewPool(1)
	for i := range 3 {
		p.Submit(func() { fmt.Println("task", i) })
	}
	p.ReleaseTimeout(time.Minute)
	// Output:
	// task 0
	// task 1
	// task 2
}

func ExamplePool_Submit_nonblocking() {
	p, _ := pool.NewPool(1, pool.WithNonblocking(true))
	gate := make(chan struct{})
	fmt.Println(p.Submit(func() { <-gate }))
	err := p.Submit(func() {})
	fmt.Println(errors.Is(err, pool.ErrPoolOverload))
	close(gate)
	p.ReleaseTimeout(time.Minute)
	// Output:
	// <nil>
	// true
}

func ExamplePool_SubmitContext() {
	p, _ := pool.NewPool(1)
	gate := make(chan struct{})
	p.Submit(func() { <-gate })
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(p.SubmitContext(ctx, func() { fmt.Println("this is never run") }))
	close(gate)
	p.ReleaseTimeout(time.Minute)
	// Output: context deadline exceeded
}

func ExamplePool_SubmitBatch() {
	p, _ := pool.NewPool(1)
	var tasks []func()
	for i := range 3 {
		tasks = append(tasks, func() { fmt.Println("task", i) })
	}
	n, err := p.SubmitBatch(tasks)
	p.ReleaseTimeout(time.Minute)
	fmt.Println(n, err)
	// Output:
	// task 0
	// task 1
	// task 2
	// 3 <nil>
}

// Tasks of one account run in order, and accounts don't wait for each other.
func ExamplePool_SubmitKeyed() {
	p, _ := pool.NewPool(10)
	balance := map[string]*int{"ann": new(int), "bob": new(int)}
	for i := range 10 {
		for name, b := range balance {
			p.SubmitKeyed(name, func() { *b = *b*2 + i%2 })
		}
	}
	p.ReleaseTimeout(time.Minute)
	fmt.Println(*balance["ann"], *balance["bob"])
	// Output: 341 341
}

func ExampleNewPoolWithFuncGeneric() {
	var sum atomic.Int64
	p, _ := pool.NewPoolWithFuncGeneric(10, func(n int) { sum.Add(int64(n)) })
	for i := range 100 {
		p.Invoke(i)
	}
	p.ReleaseTimeout(time.Minute)
	fmt.Println(sum.Load())
	// Output: 4950
}

func ExampleNewMultiPool() {
	p, _ := pool.NewMultiPool(4, 25, pool.LeastTasks)
	var sum atomic.Int64
	for i := range 100 {
		p.Submit(func() { sum.Add(int64(i)) })
	}
	p.ReleaseTimeout(time.Minute)
	fmt.Println(p.Cap(), sum.Load())
	// Output: 100 4950
}

func ExampleWithPanicHandler() {
	p, _ := pool.NewPool(1, pool.WithPanicHandler(func(value any) { fmt.Println("panic:", value) }))
	p.Submit(func() { panic("out of cheese") })
	p.Submit(func() { fmt.Println("the pool goes on") })
	p.ReleaseTimeout(time.Minute)
	// Unordered output:
	// panic: out of cheese
	// the pool goes on
}

// The pool gets two workers more each time that the queue is more than three quarters full, and two fewer when less than a quarter of it is
// used.
func ExampleWithGrowth() {
	p, _ := pool.NewPool(10, pool.WithQueueSize(8), pool.WithGrowth(2, 0.75, 0.25))
	started, gate := make(chan bool, 9), make(chan bool)
	task := func() { started <- true; <-gate }
	for range 2 {
		p.Submit(task)
		<-started
	}
	for range 7 { // the seventh makes the queue fuller than three quarters
		p.Submit(task)
	}
	<-started
	<-started
	fmt.Println("workers:", p.Stats().Workers)
	close(gate)
	p.ReleaseTimeout(time.Minute)
	fmt.Println("done:", p.Stats().Done)
	// Output:
	// workers: 4
	// done: 9
}

func ExampleAsync() {
	p, _ := pool.NewPool(10)
	defer p.Release()
	ctx := context.Background()
	future, err := pool.Async(ctx, p, func(context.Context) (int, error) { return 6 * 7, nil })
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Wait(ctx))
	// Output: 42 <nil>
}

func ExampleGroup() {
	p, _ := pool.NewPool(10)
	defer p.Release()
	group, _ := pool.NewGroup(context.Background(), p)
	group.SetLimit(2)
	for i := range 5 {
		group.Go(func(ctx context.Context) error {
			if i == 3 {
				return fmt.Errorf("task %d has failed", i)
			}
			return nil
		})
	}
	fmt.Println(group.Wait())
	// Output: task 3 has failed
}

func ExampleMap() {
	p, _ := pool.NewPool(10)
	defer p.Release()
	words := slices.Values([]string{"in", "the", "order", "given"})
	length := func(_ context.Context, word string) (int, error) { return len(word), nil }
	for n, err := range pool.Map(context.Background(), p, 4, words, length) {
		fmt.Println(n, err)
	}
	// Output:
	// 2 <nil>
	// 3 <nil>
	// 5 <nil>
	// 5 <nil>
}

func ExamplePool_Wait() {
	p, _ := pool.NewPool(10)
	p.Submit(func() { fmt.Println("accepted before the release") })
	p.Release()
	fmt.Println(p.ReleaseTimeout(time.Minute) == pool.ErrPoolClosed)
	p.Wait(context.Background())
	p.Reboot()
	fmt.Println(p.IsClosed())
	// Unordered output:
	// true
	// accepted before the release
	// false
}
