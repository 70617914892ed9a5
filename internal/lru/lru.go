// Package lru has a map of bounded size, for caches and for stores in memory.
package lru

import (
	"sync"
	"time"
)

// Map is a map with a Capacity, in the unit of its entries' costs. To make room for a new entry it drops others, in each rank the least recently used
// ones. An expired entry is never returned. The zero value with a Capacity is ready to use.
//
// Each entry has a rank. Ranks protect more valuable entries from a flood of entries that aren't used again.
type Map[V any] struct {
	Capacity int

	mu      sync.Mutex
	entries map[string]*entry[V] // guarded by mu, as are the fields below
	used    int                  // the sum of the costs of all entries
	ranks   [rankCount]rankList[V]
}

// The ranks of entries, from the least valuable to the most valuable.
const (
	Note      = iota // a note that only saves work
	Unused           // entries that were put with this rank and not read since
	Used             // entries that were put as Unused and read since
	Kept             // entries that were put as more valuable than all others
	rankCount        // not a rank
)

// shares says, in sixteenths of the Capacity, how much is reserved for each rank. A rank may use more while there is room. But the ranks that use
// more than their shares are the first to lose entries, the lowest of them before the others.
var shares = [rankCount]int{1, 3, 4, 8}

// rankList lists the entries of a rank in the order of their last use.
type rankList[V any] struct {
	used           int // the sum of the costs of its entries
	newest, oldest *entry[V]
}

type entry[V any] struct {
	key          string
	value        V
	cost, rank   int
	expires      time.Time
	newer, older *entry[V]
}

// Get returns the value kept under key. The bytes of key may be borrowed.
func (l *Map[V]) Get(key []byte, now time.Time) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.live(key, now); e != nil {
		l.unlink(e)
		if e.rank == Unused {
			e.rank = Used
		}
		l.link(e)
		return e.value, true
	}
	return value, false
}

// Put keeps value under key until it expires. A value that costs more than the Capacity isn't kept. A value that replaces another one keeps the rank
// of the replaced value if that is higher.
func (l *Map[V]) Put(key string, rank int, now time.Time, value V, cost int, expires time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(key, rank, now, value, cost, expires)
}

// Update calls f with the value kept under key, and puts f's result if f reports keep. No other goroutine can change the map during the call.
func (l *Map[V]) Update(key string, rank int, now time.Time, f func(old V, ok bool) (value V, cost int, expires time.Time, keep bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var old V
	e := l.live([]byte(key), now)
	if e != nil {
		old = e.value
	}
	if value, cost, expires, keep := f(old, e != nil); keep {
		l.set(key, rank, now, value, cost, expires)
	}
}

// Remove drops the entry of a key, if there is one. The bytes of key may be borrowed.
func (l *Map[V]) Remove(key []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[string(key)]; e != nil {
		l.drop(e)
	}
}

// live returns the entry of a key, or nil if there is none or it has expired. The caller holds mu, as for all methods below.
func (l *Map[V]) live(key []byte, now time.Time) *entry[V] {
	e := l.entries[string(key)]
	if e != nil && !now.Before(e.expires) {
		l.drop(e)
		return nil
	}
	return e
}

func (l *Map[V]) set(key string, rank int, now time.Time, value V, cost int, expires time.Time) {
	if e := l.entries[key]; e != nil {
		rank = max(rank, e.rank)
		l.drop(e)
	}
	if cost > l.Capacity {
		return
	}
	if l.entries == nil {
		l.entries = make(map[string]*entry[V])
	}
	e := &entry[V]{key: key, value: value, cost: cost, rank: rank, expires: expires}
	l.entries[key] = e
	l.used += cost
	l.link(e)
	for l.used > l.Capacity {
		l.drop(l.victim(e, now))
	}
}

// victim returns the entry to drop in order to make room for e: an expired one, or the oldest of the lowest rank that uses more than its share. If no
// entry but e is in such a rank, victim returns the oldest entry of the lowest rank that has any besides e.
func (l *Map[V]) victim(e *entry[V], now time.Time) *entry[V] {
	var over, any *entry[V]
	for rank := range rankCount {
		r := &l.ranks[rank]
		oldest := r.oldest
		if oldest == nil || oldest == e {
			continue
		}
		if !now.Before(oldest.expires) {
			return oldest
		}
		if any == nil {
			any = oldest
		}
		if over == nil && r.used > l.Capacity*shares[rank]/16 {
			over = oldest
		}
	}
	if over != nil {
		return over
	}
	return any
}

func (l *Map[V]) drop(e *entry[V]) {
	delete(l.entries, e.key)
	l.used -= e.cost
	l.unlink(e)
}

// link makes e the newest entry of its rank.
func (l *Map[V]) link(e *entry[V]) {
	r := &l.ranks[e.rank]
	r.used += e.cost
	e.older = r.newest
	if r.newest != nil {
		r.newest.newer = e
	} else {
		r.oldest = e
	}
	r.newest = e
}

func (l *Map[V]) unlink(e *entry[V]) {
	r := &l.ranks[e.rank]
	r.used -= e.cost
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		r.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		r.oldest = e.newer
	}
	e.newer, e.older = nil, nil
}
