package lend

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/filohttp/filo/internal/race"
)

// skipUnlessKept skips a test in builds that keep no released buffers.
func skipUnlessKept(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector buffers are overwritten and left to the garbage collector: see TestPutBufferIsOverwritten")
	}
}

// check compares the list's counts with its contents.
func (l *Buffers) check(t *testing.T) {
	t.Helper()
	size := 0
	for class, buffers := range l.classes {
		for _, b := range buffers {
			size += cap(b)
			if cap(b) < 1<<class || cap(b) >= 2<<class || len(b) != 0 {
				t.Errorf("a buffer of length %d and capacity %d is in class %d", len(b), cap(b), class)
			}
		}
	}
	if size != l.size || size > maxKept {
		t.Errorf("%d bytes are kept, the books say %d", size, l.size)
	}
}

// A buffer is reused only for a size that doesn't waste too much of it.
func TestBuffersReuse(t *testing.T) {
	skipUnlessKept(t)
	const mb = 1 << 20
	for _, test := range []struct {
		put, get int
		reused   bool
	}{
		{mb, mb, true}, {mb + 1, mb, true}, {mb, mb + 1, false}, {2*mb - 1, mb, true}, {2 * mb, 2*mb - 1, true}, {2*mb - 1, 2 * mb, false},
		{4*mb - 1, mb, true}, {4 * mb, mb, false}, {10 * mb, 10 * mb, true}, {10 * mb, 9 * mb, true}, {10 * mb, 11 * mb, false},
		{maxKept, maxKept, true}, {maxKept + 1, maxKept + 1, false},
		{mb - 1, mb - 1, false}, {mb, mb - 1, false}, {mb - 1, 10, false},
	} {
		var list Buffers
		buffer := make([]byte, 100, test.put)
		list.Put(buffer)
		list.check(t)
		got := list.Get(test.get)
		list.check(t)
		if len(got) != 0 || cap(got) < test.get {
			t.Errorf("Get(%d) has length %d and capacity %d", test.get, len(got), cap(got))
		}
		if reused := unsafe.SliceData(got) == unsafe.SliceData(buffer); reused != test.reused {
			t.Errorf("%d for %d was reused: %t", test.put, test.get, reused)
		}
		if again := list.Get(test.get); unsafe.SliceData(again) == unsafe.SliceData(got) && cap(got) > 0 {
			t.Errorf("a buffer for %d was given out twice", test.get)
		}
	}
}

// The list's size is bounded: buffers beyond the bound are left to the garbage collector, and a Get makes room for another buffer.
func TestBuffersBound(t *testing.T) {
	skipUnlessKept(t)
	const size = 4 << 20
	var list Buffers
	for range 2 * maxKept / size {
		list.Put(make([]byte, 0, size))
		list.check(t)
	}
	if list.size != maxKept {
		t.Errorf("%d bytes are kept, want %d", list.size, maxKept)
	}
	taken := list.Get(size)
	list.check(t)
	if list.size != maxKept-size {
		t.Errorf("%d bytes are kept after one was taken", list.size)
	}
	list.Put(taken)
	list.check(t)
	if list.size != maxKept {
		t.Errorf("%d bytes are kept after one was given back", list.size)
	}
}

// When several goroutines call Get and Put, no buffer has two owners at the same time.
func TestBuffersConcurrent(t *testing.T) {
	rounds := 300
	if race.Enabled {
		rounds = 20 // overwriting takes its time
	}
	var list Buffers
	var running sync.WaitGroup
	for owner := range 4 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(21, uint64(owner)))
			var held [][]byte
			for range rounds {
				if len(held) > 0 && random.IntN(2) == 0 {
					last := held[len(held)-1]
					held = held[:len(held)-1]
					if last[0] != byte(owner) || last[len(last)-1] != byte(owner) {
						t.Error("a buffer has two owners")
						return
					}
					list.Put(last)
					continue
				}
				if len(held) == 5 {
					continue
				}
				size := 1<<20 + random.IntN(1<<20)
				buffer := list.Get(size)
				if len(buffer) != 0 || cap(buffer) < size {
					t.Errorf("Get(%d) has length %d and capacity %d", size, len(buffer), cap(buffer))
				}
				buffer = buffer[:size]
				buffer[0], buffer[size-1] = byte(owner), byte(owner)
				held = append(held, buffer)
			}
		})
	}
	running.Wait()
	list.check(t)
}

// Builds with the race detector overwrite released buffers: code that still uses one sees other bytes.
func TestPutBufferIsOverwritten(t *testing.T) {
	if !race.Enabled {
		t.Skip("for builds with the race detector")
	}
	var list Buffers
	for _, size := range []int{10, minKept} {
		buffer := make([]byte, size/2, size)
		list.Put(buffer)
		for _, i := range []int{0, size/2 - 1, size - 1} {
			if c := buffer[:size][i]; c != 0xDB {
				t.Errorf("byte %d of %d is %#x", i, size, c)
			}
		}
		if list.size != 0 {
			t.Errorf("%d bytes are kept", list.size)
		}
	}
}
