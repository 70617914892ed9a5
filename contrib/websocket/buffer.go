package websocket

import "sync"

// maxKeptBuffer is the size up to which a buffer is kept for reuse.
const maxKeptBuffer = 64 << 10

// buffer collects bytes in memory that is reused.
type buffer struct{ b []byte }

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	return len(p), nil
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func putBuffer(b *buffer) {
	if cap(b.b) <= maxKeptBuffer {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// readSize is the maximum number of bytes of a read. A parked connection usually has fewer bytes to read.
const readSize = 8 << 10

// inputs are buffers to read into.
var inputs = sync.Pool{New: func() any { return new([readSize]byte) }}
