package filo

import (
	"io"

	"github.com/filohttp/filo/internal/lend"
)

// ReadFrom adds the content of r to the body, for io.Copy and io.CopyN. If the body's length was announced, a file, an
// io.SectionReader of a file, or an io.LimitedReader of either is sent by sendfile where the connection allows it.
func (w *StreamWriter) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return w.readFile(r, r, 1<<63-1)
	}
	before := limited.N
	n, err := w.readFile(limited.R, r, before)
	limited.N = before - n
	return n, err
}

// copyFrom reads r into a buffer, and writes that.
func (w *StreamWriter) copyFrom(r io.Reader) (int64, error) {
	buffer := lend.NewCopyBuffer()
	defer buffer.Release()
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buffer[:])
}

// readFile sends at most size bytes of what may be a file, or a part of one, and is what r reads.
func (w *StreamWriter) readFile(file, r io.Reader, size int64) (int64, error) {
	part, ok := filePartOf(file)
	if !ok {
		return w.copyFrom(r)
	}
	if err := w.admit(0); err != nil {
		return 0, err
	}
	if w.length < 0 {
		return w.copyFrom(r)
	}
	if err := w.emitGathered(true); err != nil {
		return 0, err
	}
	available, ok := part.regularSize()
	if !ok || w.discard || len(w.layers) > 0 {
		return w.copyFrom(r)
	}
	size = min(size, available)
	if size > w.length-w.written {
		return 0, ErrContentLength
	}
	if size <= 0 {
		return 0, nil
	}
	before := w.written
	done, err := w.ctx.sendFile(part, size)
	if !done && err == nil {
		return w.copyFrom(r)
	}
	sent := w.written - before
	if _, seekErr := part.reader.Seek(part.at+sent, io.SeekStart); err == nil {
		err = seekErr
	}
	return sent, err
}
