//go:build race

package race

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Enabled says whether this is a build with the race detector.
const Enabled = true

// Mutex is a sync.Mutex with a rank. A function whose caller must hold it asserts that.
type Mutex[R Rank] struct {
	sync.Mutex
	other Rank // nil: R; immutable
}

// AssertHeld panics if the mutex is free. It doesn't check who holds the mutex: if another goroutine does, the race detector reports the
// fields that the caller touches.
func (m *Mutex[R]) AssertHeld() {
	if m.Mutex.TryLock() {
		m.Mutex.Unlock()
		panic("filo: a function was called without the lock that its caller must hold")
	}
}

// SetRank gives the mutex a rank other than its type's, before it is used.
func (m *Mutex[R]) SetRank(other Rank) { m.other = other }

func (m *Mutex[R]) rank() Rank {
	if m.other != nil {
		return m.other
	}
	var r R
	return r
}

// Lock is sync.Mutex's. It panics if the goroutine holds a lock of the same rank, or of a later one.
func (m *Mutex[R]) Lock() {
	rank := m.rank()
	if held := take(unsafe.Pointer(m), rank, true); held != nil {
		panic(fmt.Sprintf("filo: a lock of rank %T is taken under one of rank %T", rank, held))
	}
	m.Mutex.Lock()
}

// TryLock is sync.Mutex's. It never waits, so a goroutine may call it whatever it holds.
func (m *Mutex[R]) TryLock() bool {
	if !m.Mutex.TryLock() {
		return false
	}
	take(unsafe.Pointer(m), m.rank(), false)
	return true
}

// Unlock is sync.Mutex's.
func (m *Mutex[R]) Unlock() {
	leave(unsafe.Pointer(m), m.rank())
	m.Mutex.Unlock()
}

// holder has the ranked locks that a goroutine holds, in no order.
type holder struct {
	goroutine atomic.Uintptr // 0: the holder is free
	locks     [8]struct {
		mutex unsafe.Pointer
		rank  Rank
	}
	n int
}

// holders has a holder for each goroutine that holds a lock. A goroutine claims one of the holdersTried holders that follow the place to
// which its address leads.
var holders [1<<14 + holdersTried]holder

const holdersTried = 64

// The functions below are hidden from the race detector. Otherwise it would miss races, because their atomic operations order goroutines
// that aren't ordered in other builds. Only the goroutine that has claimed a holder uses it.

// take records that the goroutine is about to hold a lock. If a lock that the goroutine already holds forbids that, take returns the held
// lock's rank.
//
//go:norace
func take(mutex unsafe.Pointer, rank Rank, ordered bool) (held Rank) {
	g := goroutine()
	if g == 0 || rank == (Unranked{}) {
		return nil
	}
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	h := holderOf(g, true)
	for i := range h.n {
		if ordered && h.locks[i].rank.rank() >= rank.rank() {
			return h.locks[i].rank
		}
	}
	h.locks[h.n].mutex, h.locks[h.n].rank = mutex, rank
	h.n++
	return nil
}

// leave records that the goroutine no longer holds a lock.
//
//go:norace
func leave(mutex unsafe.Pointer, rank Rank) {
	g := goroutine()
	if g == 0 || rank == (Unranked{}) {
		return
	}
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	h := holderOf(g, false)
	for i := 0; h != nil && i < h.n; i++ {
		if h.locks[i].mutex == mutex {
			h.n--
			h.locks[i] = h.locks[h.n]
			h.locks[h.n].mutex, h.locks[h.n].rank = nil, nil
			if h.n == 0 {
				h.goroutine.Store(0)
			}
			return
		}
	}
	panic("filo: a goroutine unlocks what it hasn't locked")
}

// holderOf returns the goroutine's holder. If there is none it claims one, or returns nil.
//
//go:norace
func holderOf(goroutine uintptr, claims bool) *holder {
	some := holders[goroutine>>6%(1<<14):][:holdersTried]
	for i := range some {
		if some[i].goroutine.Load() == goroutine {
			return &some[i]
		}
	}
	for i := range some {
		if claims && some[i].goroutine.CompareAndSwap(0, goroutine) {
			return &some[i]
		}
	}
	if claims {
		panic("filo: too many goroutines hold locks")
	}
	return nil
}
