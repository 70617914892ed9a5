package pool

import (
	"sync"
	"sync/atomic"
)

// lobby is where submitters wait if all pools of a MultiPool are full, for whichever has room first.
type lobby[T any] struct {
	n atomic.Int64 // how many wait; stored with mu held

	mu      sync.Mutex // may be locked with a pool's held, but not the other way round
	waiters waitList[T]
	byHome  []int // how many of them count with each pool
	closed  bool
}

// enter adds a waiter.
func (l *lobby[T]) enter(w *waiter[T], most int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrPoolClosed
	case most > 0 && l.waiters.n >= most:
		return ErrPoolOverload
	}
	l.waiters.push(w)
	l.byHome[w.home]++
	l.n.Store(int64(l.waiters.n))
	return nil
}

// leave takes a waiter out that gives up. It reports false if another has taken it out already.
func (l *lobby[T]) leave(w *waiter[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.listed {
		return false
	}
	l.removeLocked(w)
	return true
}

// pop takes out the one that has waited longest, nil if there is none.
func (l *lobby[T]) pop() *waiter[T] {
	if l.n.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters.first
	if w != nil {
		l.removeLocked(w)
	}
	return w
}

func (l *lobby[T]) removeLocked(w *waiter[T]) {
	l.waiters.remove(w)
	l.byHome[w.home]--
	l.n.Store(int64(l.waiters.n))
}

// waitingWith returns how many wait that count with the pool of that index.
func (l *lobby[T]) waitingWith(home int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byHome[home]
}

// close sends all away, and who comes.
func (l *lobby[T]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	clear(l.byHome)
	l.n.Store(0)
	l.waiters.release(ErrPoolClosed)
}

func (l *lobby[T]) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}
