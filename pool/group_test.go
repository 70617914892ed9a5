package pool

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errTest = errors.New("an error of the test")

func TestFuture(t *testing.T) {
	ctx := context.Background()
	p := newPool(t, 2, WithPanicHandler(func(value any) { t.Error("the pool's handler got", value) }))
	for _, test := range []struct {
		what  string
		f     func(context.Context) (int, error)
		value int
		err   error
	}{
		{"value", func(context.Context) (int, error) { return 42, nil }, 42, nil},
		{"error", func(context.Context) (int, error) { return 1, errTest }, 1, errTest},
		{"panic with an error", func(context.Context) (int, error) { panic(errTest) }, 0, errTest},
		{"Goexit", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, 0, ErrGoexit},
	} {
		future, err := Async(ctx, p, test.f)
		must(t, err)
		value, err := future.Wait(ctx)
		want(t, test.what, value, test.value)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: error %v", test.what, err)
		}
	}
	future, err := Async(ctx, p, func(context.Context) (int, error) { faulty(); return 0, nil })
	must(t, err)
	<-future.Done()
	_, err = future.Wait(ctx)
	var panicked *PanicError
	if !errors.As(err, &panicked) || !strings.Contains(string(panicked.Stack), "pool.faulty") {
		t.Error("the error of a panic doesn't show the fault:", err)
	}
	_, err = Async[int](ctx, p, nil)
	want(t, "nil", err, ErrNilTask)
}

func TestFutureContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 1, WithQueueSize(1))
		release := occupy(t, p, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		called := false
		future, err := Async(ctx, p, func(context.Context) (int, error) { called = true; return 0, nil })
		must(t, err)
		_, err = Async(ctx, p, func(context.Context) (int, error) { return 0, nil })
		want(t, "no room until the context's end", err, context.DeadlineExceeded)
		_, err = future.Wait(ctx)
		want(t, "Wait", err, context.DeadlineExceeded)
		release()
		_, err = future.Wait(context.Background())
		want(t, "result", err, context.DeadlineExceeded)
		want(t, "called", called, false)
	})
}

func TestGroup(t *testing.T) {
	p := newPool(t, 10)
	g, ctx := NewGroup(context.Background(), p)
	var sum atomic.Int64
	for i := range 1000 {
		g.Go(func(context.Context) error { sum.Add(int64(i)); return nil })
	}
	must(t, g.Wait())
	want(t, "sum", sum.Load(), 499500)
	want(t, "the context after Wait", ctx.Err(), context.Canceled)
}

// Wait returns the first error, which also cancels the rest: running functions see it, and waiting ones aren't called.
func TestGroupFails(t *testing.T) {
	for _, test := range []struct {
		what string
		f    func(context.Context) error
		err  error
	}{
		{"error", func(context.Context) error { return errTest }, errTest},
		{"panic", func(context.Context) error { panic(errTest) }, errTest},
		{"Goexit", func(context.Context) error { runtime.Goexit(); return nil }, ErrGoexit},
		{"nil", nil, ErrNilTask},
	} {
		t.Run(test.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPool(t, 2)
				g, ctx := NewGroup(context.Background(), p)
				cancelled, called := false, false
				g.Go(func(ctx context.Context) error { <-ctx.Done(); cancelled = true; return ctx.Err() })
				synctest.Wait()
				g.Go(test.f)
				g.Go(func(context.Context) error { <-ctx.Done(); return nil })
				synctest.Wait()
				g.Go(func(context.Context) error { called = true; return nil })
				if err := g.Wait(); !errors.Is(err, test.err) {
					t.Error("got", err)
				}
				want(t, "one that runs is cancelled", cancelled, true)
				want(t, "one that comes later is called", called, false)
				if !errors.Is(context.Cause(ctx), test.err) {
					t.Error("the context's cause is", context.Cause(ctx))
				}
			})
		})
	}
}

func TestGroupOfClosedPool(t *testing.T) {
	p := newPool(t, 1)
	p.Release()
	g, _ := NewGroup(context.Background(), p)
	g.Go(func(context.Context) error { return nil })
	want(t, "Wait", g.Wait(), ErrPoolClosed)
}

func TestGroupLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 100)
		ctx, cancel := context.WithCancel(context.Background())
		g, _ := NewGroup(ctx, p)
		g.SetLimit(3)
		var now, most atomic.Int32
		for range 20 {
			g.Go(func(context.Context) error {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			})
		}
		want(t, "most at once", most.Load(), 3)
		cancel()
		g.Go(func(context.Context) error { return nil })
		want(t, "Wait", g.Wait(), context.Canceled)
	})
}

func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// The results come in the order of the values, whatever the order in which they were ready.
func TestMap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 8)
		var now, most atomic.Int32
		next := 0
		for out, err := range Map(context.Background(), p, 5, count(100), func(_ context.Context, i int) (int, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			switch i % 10 {
			case 3:
				return i, errTest
			case 4:
				panic(errTest)
			}
			return i * i, nil
		}) {
			switch next % 10 {
			case 3, 4:
				want(t, "the error", errors.Is(err, errTest), true)
			default:
				must(t, err)
				want(t, "result", out, next*next)
			}
			next++
		}
		want(t, "results", next, 100)
		want(t, "most at once", most.Load(), 5)
	})
}

// Map yields available results even while the next input value isn't available yet.
func TestMapOfSlowInput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 8)
		slow := func(yield func(int) bool) {
			for i := range 3 {
				if !yield(i) {
					return
				}
				time.Sleep(time.Second)
			}
		}
		start := time.Now()
		var at []time.Duration
		for range Map(context.Background(), p, 8, slow, func(context.Context, int) (int, error) {
			time.Sleep(100 * time.Millisecond)
			return 0, nil
		}) {
			at = append(at, time.Since(start))
		}
		if !slices.Equal(at, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}) {
			t.Error("results at", at)
		}
	})
}

// When the consumer stops early, Map cancels the running calls, and returns only when these have ended.
func TestMapLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, 4)
		var calls atomic.Int32
		for range Map(context.Background(), p, 4, count(100), func(ctx context.Context, i int) (int, error) {
			calls.Add(1)
			defer calls.Add(-1)
			if i > 0 {
				<-ctx.Done()
			}
			return i, nil
		}) {
			break
		}
		want(t, "calls under way", calls.Load(), 0)
	})
}

func TestMapRefused(t *testing.T) {
	p := newPool(t, 4)
	var got []error
	for i, err := range Map(context.Background(), p, 4, count(100), func(_ context.Context, i int) (int, error) {
		if i == 10 {
			p.Release()
		}
		return i, nil
	}) {
		if got = append(got, err); err == nil {
			want(t, "result", i, len(got)-1)
		}
	}
	if n := len(got); n < 12 || n > 30 || got[n-1] != ErrPoolClosed || slices.Contains(got[:n-1], ErrPoolClosed) {
		t.Error("errors:", got)
	}
}
