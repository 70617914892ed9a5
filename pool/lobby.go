package pool

import (
	"sync"
	"sync/atomic"
)

// lobby holds the submitters that wait while all pools of a MultiPool are full. The first pool with room admits them.
type lobby[T any] struct {
	n atomic.Int64 // the number of waiters; stored with mu held

	mu      sync.Mutex // may be locked while a pool's mu is held, but not the other way round
	waiters waitList[T]
	byHome  []int // for each pool, the number of waiters whose home it is
	closed  bool
}

// enter adds a waiter. It returns an error if the lobby is closed, or already has the maximum number of waiters; if that
// number, most, is 0, there is no limit.
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

// leave removes a waiter that gives up. It returns false if another goroutine has already removed it.
func (l *lobby[T]) leave(w *waiter[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.listed {
		return false
	}
	l.removeLocked(w)
	return true
}

// pop removes the waiter that has waited longest, and returns nil if there is none.
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

// waitingWith returns the number of waiters whose home is the pool with that index.
func (l *lobby[T]) waitingWith(home int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byHome[home]
}

// close refuses all present and later waiters with ErrPoolClosed.
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
