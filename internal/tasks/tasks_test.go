package tasks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// testPool runs each task on a goroutine, unless it is full.
type testPool struct {
	full     error
	released bool
}

func (p *testPool) TrySubmit(task func()) error {
	if p.full == nil {
		go task()
	}
	return p.full
}

func (p *testPool) Release()                   { p.released = true }
func (p *testPool) Wait(context.Context) error { return nil }

type key struct{}

// Wait waits for tasks, but not for a task that the pool has refused. Afterwards no task is accepted. A pool that the program provides isn't
// released.
func TestTasks(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := new(testPool)
			var tasks Tasks
			if shared {
				tasks.Init(p, nil)
			} else {
				tasks.Init(nil, func() (Pool, error) { return p, nil })
			}
			values := context.WithValue(context.Background(), key{}, 1)
			goOn, ran := make(chan struct{}), make(chan any, 1)
			if err := tasks.Start(values, func(ctx context.Context) {
				<-goOn
				ran <- ctx.Value(key{})
			}); err != nil {
				t.Fatal(err)
			}
			p.full = errors.New("full")
			var full *Full
			if err := tasks.Start(values, nil); !errors.As(err, &full) || full.Err != p.full || tasks.Count() != 1 {
				t.Errorf("a task too many: %v, %d tasks", err, tasks.Count())
			}
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			if err := tasks.Wait(ended); err != context.Canceled {
				t.Errorf("a wait that is given up: %v", err)
			}
			waited := make(chan error, 1)
			go func() { waited <- tasks.Wait(context.Background()) }()
			synctest.Wait()
			close(goOn)
			if err := <-waited; err != nil || <-ran != 1 || p.released == shared {
				t.Errorf("after the tasks: %v, released %t", err, p.released)
			}
			if err := tasks.Start(values, nil); err != ErrOver {
				t.Errorf("a late task: %v", err)
			}
		})
	}
}

// Close ends the contexts of tasks with the given cause.
func TestClose(t *testing.T) {
	p, cause := new(testPool), errors.New("closed")
	var tasks Tasks
	tasks.Init(p, nil)
	began, ended := make(chan struct{}), make(chan error, 1)
	tasks.Start(context.Background(), func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
	})
	<-began
	tasks.Close(cause)
	if err := <-ended; err != cause {
		t.Errorf("the cause is %v", err)
	}
	if err := tasks.Start(context.Background(), nil); err != ErrOver {
		t.Errorf("a late task: %v", err)
	}
}
