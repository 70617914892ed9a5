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

// Mutex is a sync.Mutex with a rank. A function whose caller must hold the mutex calls AssertHeld.
type Mutex[R Rank] struct {
	sync.Mutex
	other Rank // nil: R; immutable
}

// AssertHeld panics if the mutex is free. It doesn't check which goroutine holds the mutex: if it is another one, the race detector reports the
// guarded fields that the caller accesses.
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

// Lock locks the mutex. It panics if the goroutine already holds a lock of the same or a later rank.
func (m *Mutex[R]) Lock() {
	rank := m.rank()
	if held := take(unsafe.Pointer(m), rank, true); held != nil {
		panic(fmt.Sprintf("filo: a lock of rank %T is taken under one of rank %T", rank, held))
	}
	m.Mutex.Lock()
}

// TryLock tries to lock the mutex. It never waits, so a goroutine may call it whatever locks it holds.
func (m *Mutex[R]) TryLock() bool {
	if !m.Mutex.TryLock() {
		return false
	}
	take(unsafe.Pointer(m), m.rank(), false)
	return true
}

// Unlock unlocks the mutex.
func (m *Mutex[R]) Unlock() {
	leave(unsafe.Pointer(m), m.rank())
	m.Mutex.Unlock()
}

// holder lists the ranked locks that a goroutine holds, in no particular order.
type holder struct {
	goroutine atomic.Uintptr // 0: the holder is free
	locks     [8]struct {
		mutex unsafe.Pointer
		rank  Rank
	}
	n int
}

// holders has a holder for each goroutine that holds a lock. A goroutine's address determines a range of holdersTried holders. The goroutine claims a
// free one in this range.
var holders [1<<14 + holdersTried]holder

const holdersTried = 64

// The functions below are hidden from the race detector. Otherwise it would miss races, because their atomic operations synchronise goroutines that
// aren't synchronised in other builds. Only the goroutine that has claimed a holder accesses its other fields.

// take records that the goroutine is about to hold a lock. If the goroutine already holds a lock under which it may not take this one, take returns
// the rank of the held lock.
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

// holderOf returns the goroutine's holder. If there is none, it claims one if claims is set, and otherwise returns nil.
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
