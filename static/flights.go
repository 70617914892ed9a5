package static

import (
	"errors"
	"sync"
)

// flights has those who want the same entry at once wait for the first of them. The zero value is ready to use.
type flights struct {
	mu      sync.Mutex
	flights map[string]*flight // guarded by mu
}

// flight is one load that is under way.
type flight struct {
	done  chan struct{} // closed at the end, after which the others don't change
	entry *entry
	err   error
}

// errLoadPanicked is what the others get when a load has panicked.
var errLoadPanicked = errors.New("static: a panic while the file was read")

func (f *flights) do(name string, load func() (*entry, error)) (*entry, error) {
	f.mu.Lock()
	if other := f.flights[name]; other != nil {
		f.mu.Unlock()
		<-other.done
		return other.entry, other.err
	}
	if f.flights == nil {
		f.flights = make(map[string]*flight)
	}
	own := &flight{done: make(chan struct{}), err: errLoadPanicked}
	f.flights[name] = own
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.flights, name)
		f.mu.Unlock()
		close(own.done)
	}()
	own.entry, own.err = load()
	return own.entry, own.err
}
