package pool

import (
	"context"

	"github.com/filohttp/filo/internal/clock"
)

// waiter is a submitter that waits for room, with its task. While the waiter is in a list, the list's lock guards it. The goroutine that
// takes the waiter off the list owns it until that goroutine has sent to ready. From then on the submitter owns it.
type waiter[T any] struct {
	task T
	// bare says that the submitter needs only a place for the task, and queues the task itself.
	bare bool
	// err is why the task was refused.
	err error
	// since is when the wait began, if the wait is measured, otherwise 0.
	since clock.Nanos
	// home is the index of the pool that the MultiPool's strategy has chosen. This waiter counts as one of that pool's waiters.
	home int
	// ready receives a value when the wait ends. Its capacity is 1, so the sender never blocks.
	ready chan struct{}

	listed     bool
	prev, next *waiter[T]
}

// await waits until another goroutine takes the waiter off its list. When ctx is done, the waiter leaves the list itself.
func (w *waiter[T]) await(ctx context.Context, from interface{ leave(*waiter[T]) bool }) {
	if ctx.Done() == nil {
		<-w.ready
		return
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if from.leave(w) {
			w.err = ctx.Err()
		} else {
			<-w.ready // the goroutine that took w off the list has decided the result, and sends to ready
		}
	}
}

// waitList is a list of waiters, the one that has waited longest first. The zero waitList is empty and ready for use.
type waitList[T any] struct {
	first, last *waiter[T]
	n           int
}

func (l *waitList[T]) push(w *waiter[T]) {
	w.listed, w.prev, w.next = true, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
}

// pop removes the waiter that has waited longest, and returns nil if there is none.
func (l *waitList[T]) pop() *waiter[T] {
	w := l.first
	if w != nil {
		l.remove(w)
	}
	return w
}

func (l *waitList[T]) remove(w *waiter[T]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.listed, w.prev, w.next = false, nil, nil
	l.n--
}

// release ends the waits of all waiters in the list, with err.
func (l *waitList[T]) release(err error) {
	for w := l.pop(); w != nil; w = l.pop() {
		w.err = err
		w.ready <- struct{}{}
	}
}
