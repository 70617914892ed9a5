// Package flight lets goroutines that want the same result at the same time wait for the first one that works on it.
package flight

import (
	"strings"
	"sync"
)

// Group holds the flights in progress, by key. The zero value is ready for use.
type Group[V any] struct {
	mu      sync.Mutex
	flights map[string]*Flight[V] // guarded by mu
}

// Flight is the work of one goroutine, for which others wait.
type Flight[V any] struct {
	Key string
	// Until Done is closed, only the goroutine that has begun the flight may access Value. Afterwards Value doesn't change.
	Value V
	// End closes Done.
	Done chan struct{}

	group *Group[V]
	over  bool // guarded by the group's mu
}

// Join returns the flight for a key. If none is in progress, Join begins one, and first is true. Then the caller must call End.
func (g *Group[V]) Join(key []byte) (f *Flight[V], first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[string(key)]; f != nil {
		return f, false
	}
	if g.flights == nil {
		g.flights = make(map[string]*Flight[V])
	}
	f = &Flight[V]{Key: string(key), Done: make(chan struct{}), group: g}
	g.flights[f.Key] = f
	return f, true
}

// Over reports whether the flight has ended.
func (f *Flight[V]) Over() bool {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return f.over
}

// End closes Done. The next caller of Join begins another flight. A second call does nothing. Only the goroutine that has begun the
// flight may call End.
func (f *Flight[V]) End() {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	f.end()
}

func (f *Flight[V]) end() {
	if f.over {
		return
	}
	f.over = true
	delete(f.group.flights, f.Key)
	close(f.Done)
}

// EndOf ends the flights for a key, and for keys that begin with prefix, because their results are no longer wanted. It may end flights that other
// goroutines began. So the group's flights must not use Value, which only those goroutines may access.
func (g *Group[V]) EndOf(key, prefix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for each, f := range g.flights {
		if each == key || strings.HasPrefix(each, prefix) {
			f.end()
		}
	}
}
