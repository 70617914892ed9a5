package lend

import (
	"errors"
	"io"
	"sync"
)

// CopyBuffer is a buffer for io.CopyBuffer, or for reading bytes that are discarded.
type CopyBuffer [32 << 10]byte

var (
	copyBuffers  = sync.Pool{New: func() any { return new(CopyBuffer) }}
	largeBuffers = sync.Pool{New: func() any { return new([2 * len(CopyBuffer{})]byte) }}
)

// NewCopyBuffer returns a buffer with arbitrary content.
func NewCopyBuffer() *CopyBuffer { return copyBuffers.Get().(*CopyBuffer) }

// Release gives the buffer back. The caller must not use it any more.
func (b *CopyBuffer) Release() { copyBuffers.Put(b) }

var errWriteCount = errors.New("filo: a writer has returned an impossible count")

// Copy is io.Copy without the methods that w and r may have for it. A reader that fills the buffer most likely has more to give, so it gets
// one of twice the size: a fast client is read with fewer calls, and a slow one holds no more memory.
func Copy(w io.Writer, r io.Reader) (written int64, err error) {
	first := NewCopyBuffer()
	defer first.Release()
	for buffer := first[:]; ; {
		n, err := r.Read(buffer)
		if n > 0 {
			m, writeErr := w.Write(buffer[:n])
			if m < 0 || m > n {
				return written, errWriteCount
			}
			written += int64(m)
			switch {
			case writeErr != nil:
				return written, writeErr
			case m < n:
				return written, io.ErrShortWrite
			}
		}
		switch {
		case err == io.EOF:
			return written, nil
		case err != nil:
			return written, err
		}
		if n == len(buffer) && n == len(first) {
			large := largeBuffers.Get().(*[2 * len(CopyBuffer{})]byte)
			defer largeBuffers.Put(large)
			buffer = large[:]
		}
	}
}
