package race

import (
	"sync"
	"testing"
	"unsafe"
)

func TestAssertHeld(t *testing.T) {
	panics := func(m *Mutex[OfLeaf]) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		m.AssertHeld()
		return
	}
	var m Mutex[OfLeaf]
	if got := panics(&m); got != Enabled {
		t.Errorf("with a free mutex it panics: %v; want %v", got, Enabled)
	}
	m.Lock()
	if panics(&m) {
		t.Error("it panics though the mutex is held")
	}
	m.Unlock()
	if got := panics(&m); got != Enabled {
		t.Errorf("with a mutex that is free again it panics: %v; want %v", got, Enabled)
	}
	if !m.TryLock() {
		t.Error("the assertion has left the mutex locked")
	}
	m.Unlock()
}

// "Mutex is a sync.Mutex".
func TestMutexSize(t *testing.T) {
	if Enabled {
		t.Skip("it has a rank here")
	}
	if got, want := unsafe.Sizeof(Mutex[OfLeaf]{}), unsafe.Sizeof(sync.Mutex{}); got != want {
		t.Errorf("a Mutex has %d bytes; a sync.Mutex has %d", got, want)
	}
}
