package lend

import "sync"

// CopyBuffer is a buffer to copy through: what io.CopyBuffer needs, or what reads bytes that nobody wants.
type CopyBuffer [32 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(CopyBuffer) }}

// NewCopyBuffer returns a buffer with any content.
func NewCopyBuffer() *CopyBuffer { return copyBuffers.Get().(*CopyBuffer) }

// Release gives the buffer back. Nobody may use it any more.
func (b *CopyBuffer) Release() { copyBuffers.Put(b) }
