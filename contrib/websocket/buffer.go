package websocket

import "sync"

// maxKeptBuffer is how large a buffer may have grown to be used again.
const maxKeptBuffer = 64 << 10

// buffer is bytes that are gathered in memory that is used again.
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

// readSize is how much is read at once. What has come on a parked connection is mostly less.
const readSize = 8 << 10

// inputs are buffers to read into.
var inputs = sync.Pool{New: func() any { return new([readSize]byte) }}
