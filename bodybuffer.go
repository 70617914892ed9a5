package filo

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	// minLargeBuffer is the smallest buffer that the free list keeps; smaller ones are left to the garbage collector.
	minLargeBuffer = 1 << 20
	// maxKeptLargeBuffers is how many bytes the free list holds at most, for all servers of the process together.
	maxKeptLargeBuffers = 64 << 20
)

// bufferList is a free list of buffers for large bodies, in classes by the power of two that they hold. Unlike a
// sync.Pool it has a bound in bytes, and it isn't emptied by the garbage collector just when uploads make it run.
type bufferList struct {
	mu      sync.Mutex
	classes [bits.UintSize + 1][][]byte // each guarded by mu
	size    int                         // bytes in classes, guarded by mu
}

var largeBuffers bufferList

// get returns an empty buffer of at least the given capacity.
func (l *bufferList) get(size int) []byte {
	if size < minLargeBuffer {
		return make([]byte, 0, size)
	}
	// A buffer in class k holds 2^k bytes or more, and less than twice that. One of the next class up serves as well.
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

// put gives a buffer back. Nobody may use it any more.
func (l *bufferList) put(buffer []byte) {
	if raceEnabled {
		poison(buffer[:cap(buffer)])
		return
	}
	if cap(buffer) < minLargeBuffer {
		return
	}
	class := bits.Len(uint(cap(buffer))) - 1
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+cap(buffer) <= maxKeptLargeBuffers {
		l.classes[class] = append(l.classes[class], buffer[:0])
		l.size += cap(buffer)
	}
}

// poison overwrites memory that was lent to a handler, so that one that kept it notices.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}
