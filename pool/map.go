package pool

import (
	"context"
	"iter"
)

// Map submits a call of f to p for each value of in, and yields the results in the order of the values: the values that f
// returned, or a *PanicError if it panicked. At most window calls, or one if window is less than 1, are running or have results
// that were not yielded yet.
//
// Map takes values from in as the consumer asks for results. A failed call doesn't end the sequence. If the consumer stops early,
// Map cancels the context of the running calls, and waits for them. If p refuses a call, Map first yields the results of all
// earlier calls, then the error, and ends.
func Map[In, Out any](
	ctx context.Context, p *Pool, window int, in iter.Seq[In], f func(context.Context, In) (Out, error),
) iter.Seq2[Out, error] {
	window = max(window, 1)
	return func(yield func(Out, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var pending queue[*Future[Out]]
		defer func() {
			cancel()
			for pending.n > 0 {
				<-pending.pop().done
			}
		}()
		next := func() bool {
			future := pending.pop()
			<-future.done
			return yield(future.value, future.err)
		}
		for value := range in {
			future, err := Async(ctx, p, func(ctx context.Context) (Out, error) { return f(ctx, value) })
			if err != nil {
				// The error goes into the queue, so that the results of earlier calls are yielded first.
				future = &Future[Out]{done: make(chan struct{}), err: err}
				close(future.done)
			}
			pending.push(future)
			if err != nil {
				break
			}
			for pending.n == window || pending.n > 0 && pending.first().ready() {
				if !next() {
					return
				}
			}
		}
		for pending.n > 0 {
			if !next() {
				return
			}
		}
	}
}

// ready reports whether there is a result.
func (f *Future[T]) ready() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}
