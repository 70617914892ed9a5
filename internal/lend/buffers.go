package lend

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/filohttp/filo/internal/race"
)

const (
	// minKept is the capacity of the smallest buffer that a list keeps. Smaller buffers are left to the garbage collector.
	minKept = 1 << 20
	// maxKept is the maximum number of bytes that a list holds.
	maxKept = 64 << 20
)

// Buffers is a free list of large buffers, in classes by their capacity, rounded down to a power of two. Unlike a sync.Pool it has a limit, 64 MB,
// and the garbage collector doesn't empty it during uploads, when it runs often.
type Buffers struct {
	mu      sync.Mutex
	classes [bits.UintSize + 1][][]byte // each guarded by mu
	size    int                         // bytes in classes, guarded by mu
}

// Get returns an empty buffer of at least the given capacity.
func (l *Buffers) Get(size int) []byte {
	if size < minKept {
		return make([]byte, 0, size)
	}
	// A buffer in class k has a capacity of 2^k bytes or more, and less than twice that. A buffer of class k+1 is acceptable, too.
	class := bits.Len(uint(size)) - 1
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := class; k <= class+1; k++ {
		for i := len(l.classes[k]) - 1; i >= 0; i-- {
			if buffer := l.classes[k][i]; cap(buffer) >= size {
				l.classes[k] = slices.Delete(l.classes[k], i, i+1)
				l.size -= cap(buffer)
				return buffer
			}
		}
	}
	return make([]byte, 0, size)
}

// Put returns a buffer to the list. The caller must not use the buffer afterwards.
func (l *Buffers) Put(buffer []byte) {
	Poison(buffer[:cap(buffer)])
	if race.Enabled || cap(buffer) < minKept {
		return
	}
	class := bits.Len(uint(cap(buffer))) - 1
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+cap(buffer) <= maxKept {
		l.classes[class] = append(l.classes[class], buffer[:0])
		l.size += cap(buffer)
	}
}
