package pool

import (
	"context"
	"iter"
)

// Map has p call f for each value of in, and yields the results in the order of the values: what f has returned, or a
// *PanicError for its panic. Up to window calls (at least 1) are under way or have results that were not yielded yet.
//
// The values are taken from in as the results are asked for. A call that fails doesn't end the sequence: the consumer
// may, and calls under way see their context cancelled then, and are waited for. If p refuses a call, the error is
// yielded after the results before it, and is the last.
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
				// The results before it come first.
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
