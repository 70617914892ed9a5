// Package race holds the checks that only builds with the race detector make.
package race

import "sync"

// Mutex is a sync.Mutex. A function whose caller must hold it asserts that.
type Mutex struct{ sync.Mutex }

// AssertHeld panics if the mutex is free, in builds with the race detector. In others it costs nothing. It doesn't check who holds the
// mutex: if another goroutine does, the race detector reports the fields that the caller touches.
func (m *Mutex) AssertHeld() {
	if Enabled && m.TryLock() {
		m.Unlock()
		panic("filo: a function was called without the lock that its caller must hold")
	}
}
