// Package race has what only builds with the race detector check.
package race

import "sync"

// Mutex is a sync.Mutex that functions whose caller must hold it can ask about.
type Mutex struct{ sync.Mutex }

// AssertHeld panics if the mutex is free, in builds with the race detector. In others it costs nothing. It doesn't look who holds the
// mutex: if that is another goroutine, the race detector reports what this one touches.
func (m *Mutex) AssertHeld() {
	if Enabled && m.TryLock() {
		m.Unlock()
		panic("filo: a function was called without the lock that its caller must hold")
	}
}
