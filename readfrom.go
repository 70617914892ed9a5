package filo

import "io"

// ReadFrom adds what r has to read to the body, for io.Copy and io.CopyN. If the body's length was announced, a file, or an
// io.LimitedReader of one, goes out by sendfile where the connection can.
func (w *StreamWriter) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		file, ok := r.(regularFile)
		if !ok {
			return w.copyFrom(r)
		}
		return w.readFile(file, r, 1<<63-1)
	}
	file, ok := limited.R.(regularFile)
	if !ok {
		return w.copyFrom(r)
	}
	before := limited.N
	n, err := w.readFile(file, r, before)
	limited.N = before - n
	return n, err
}

// copyFrom reads r into a buffer, and writes that.
func (w *StreamWriter) copyFrom(r io.Reader) (int64, error) {
	buffer := copyBuffers.Get().(*[copyBufferSize]byte)
	defer copyBuffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buffer[:])
}

// readFile sends at most size bytes of the file, which is what r reads.
func (w *StreamWriter) readFile(file regularFile, r io.Reader, size int64) (int64, error) {
	if err := w.admit(0); err != nil {
		return 0, err
	}
	if w.length < 0 {
		return w.copyFrom(r)
	}
	if err := w.emitGathered(true); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || w.discard || w.chunked || len(w.layers) > 0 {
		return w.copyFrom(r)
	}
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return w.copyFrom(r)
	}
	size = min(size, info.Size()-at)
	if size > w.length-w.written {
		return 0, ErrContentLength
	}
	if size <= 0 {
		return 0, nil
	}
	before := w.written
	done, err := w.ctx.sendFile(file, before+size)
	if !done && err == nil {
		return w.copyFrom(r)
	}
	return w.written - before, err
}
