package middleware

import (
	"sync"
	"time"
)

// lru is a map with a bound, in whatever unit its entries' costs are given: to make room for a new entry it drops those that
// were not used for longest. An entry is gone when it has expired. The zero value with a capacity is ready to use.
type lru[V any] struct {
	capacity int

	mu      sync.Mutex
	entries map[string]*lruEntry[V] // guarded by mu
	used    int                     // the costs of entries together, guarded by mu
	// newest and oldest are the ends of the list of entries by their last use. Guarded by mu, as what they lead to.
	newest, oldest *lruEntry[V]
}

type lruEntry[V any] struct {
	key          string
	value        V
	cost         int
	expires      time.Time
	newer, older *lruEntry[V]
}

// get returns what is kept under key. The bytes of key may be borrowed.
func (l *lru[V]) get(key []byte, now time.Time) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.live(key, now); e != nil {
		l.unlink(e)
		l.link(e)
		return e.value, true
	}
	return value, false
}

// peek is get that doesn't count as a use: if that is all there is, what was kept first is dropped first.
func (l *lru[V]) peek(key string, now time.Time) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.live([]byte(key), now); e != nil {
		return e.value, true
	}
	return value, false
}

// put keeps value under key until it expires. What costs more than the capacity isn't kept.
func (l *lru[V]) put(key string, value V, cost int, expires time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(key, value, cost, expires)
}

// update calls f with what is kept under key, and keeps what that returns if it says so. Nobody else changes it meanwhile.
func (l *lru[V]) update(key string, now time.Time, f func(old V, ok bool) (value V, cost int, expires time.Time, keep bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var old V
	e := l.live([]byte(key), now)
	if e != nil {
		old = e.value
	}
	if value, cost, expires, keep := f(old, e != nil); keep {
		l.set(key, value, cost, expires)
	}
}

func (l *lru[V]) remove(key []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[string(key)]; e != nil {
		l.drop(e)
	}
}

// live returns the entry of a key, nil if there is none that hasn't expired. mu is held, as for all below.
func (l *lru[V]) live(key []byte, now time.Time) *lruEntry[V] {
	e := l.entries[string(key)]
	if e != nil && !now.Before(e.expires) {
		l.drop(e)
		return nil
	}
	return e
}

func (l *lru[V]) set(key string, value V, cost int, expires time.Time) {
	if e := l.entries[key]; e != nil {
		l.drop(e)
	}
	if cost > l.capacity {
		return
	}
	for l.used+cost > l.capacity {
		l.drop(l.oldest)
	}
	if l.entries == nil {
		l.entries = make(map[string]*lruEntry[V])
	}
	e := &lruEntry[V]{key: key, value: value, cost: cost, expires: expires}
	l.entries[key] = e
	l.used += cost
	l.link(e)
}

func (l *lru[V]) drop(e *lruEntry[V]) {
	delete(l.entries, e.key)
	l.used -= e.cost
	l.unlink(e)
}

func (l *lru[V]) link(e *lruEntry[V]) {
	e.older = l.newest
	if l.newest != nil {
		l.newest.newer = e
	} else {
		l.oldest = e
	}
	l.newest = e
}

func (l *lru[V]) unlink(e *lruEntry[V]) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		l.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		l.oldest = e.newer
	}
	e.newer, e.older = nil, nil
}
