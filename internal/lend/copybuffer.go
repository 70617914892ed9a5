package lend

import "sync"

// CopyBuffer is a buffer for io.CopyBuffer, or for reading bytes that are discarded.
type CopyBuffer [32 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(CopyBuffer) }}

// NewCopyBuffer returns a buffer with arbitrary content.
func NewCopyBuffer() *CopyBuffer { return copyBuffers.Get().(*CopyBuffer) }

// Release gives the buffer back. The caller must not use it any more.
func (b *CopyBuffer) Release() { copyBuffers.Put(b) }
