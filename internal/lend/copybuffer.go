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

// Release returns the buffer to the pool. The caller must not use the buffer afterwards.
func (b *CopyBuffer) Release() { copyBuffers.Put(b) }

var errWriteCount = errors.New("filo: a writer has returned an impossible count")

// Copy is io.Copy, but uses neither w's ReadFrom nor r's WriteTo. When a Read fills the buffer, more data is most likely available, so Copy goes on
// with a buffer of twice the size. So reading from a fast client takes fewer calls, and a slow client never occupies the larger buffer.
func Copy(w io.Writer, r io.Reader) (written int64, err error) {
	small := NewCopyBuffer()
	var large *[2 * len(CopyBuffer{})]byte
	defer func() {
		if large != nil {
			largeBuffers.Put(large)
		} else {
			small.Release()
		}
	}()
	for buffer := small[:]; ; {
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
		if large == nil && n == len(buffer) {
			small.Release()
			large = largeBuffers.Get().(*[2 * len(CopyBuffer{})]byte)
			buffer = large[:]
		}
	}
}
