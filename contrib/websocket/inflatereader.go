package websocket

import (
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// inflateReader decompresses a message for Reader. Its fields are guarded by stream.reading.
type inflateReader struct {
	message *messageReader
	flate   io.ReadCloser
	tail    string // the part of inflateTail that hasn't been read yet
	text    utf8Check
	size    int64  // the number of decompressed bytes
	window  []byte // the last of the decompressed bytes
	finals  int
	err     error
}

// inflateReaders are decompressors. Their input is an io.ByteReader, so they never read more than they need.
var inflateReaders = sync.Pool{New: func() any { return flate.NewReader(new(inflateReader)) }}

func newInflateReader(m *messageReader) *inflateReader {
	r := &inflateReader{message: m, tail: inflateTail}
	if c := m.stream.conn; c.deflate.receiveContext {
		r.window = append(r.window, c.contexts.received...)
	}
	r.flate = inflateReaders.Get().(io.ReadCloser)
	r.flate.(flate.Resetter).Reset(inflateSource{r}, r.window)
	return r
}

// Read implements io.Reader.
func (r *inflateReader) Read(p []byte) (int, error) {
	r.message.stream.reading.Lock()
	defer r.message.stream.reading.Unlock()
	return r.readLocked(p)
}

func (r *inflateReader) readLocked(p []byte) (int, error) {
	for r.err == nil && len(p) > 0 {
		n, err := r.flate.Read(p)
		if failed := r.took(p[:n]); failed != nil {
			r.finish(failed)
			return 0, r.err
		}
		switch {
		case err == nil:
		case r.message.failed != nil:
			r.finish(r.message.failed)
		case !errors.Is(err, io.EOF):
			r.finish(errInflate)
		case r.message.atEnd() && r.tail == "":
			r.finish(r.complete())
		default: // a final block before the end of the message
			if r.finals++; r.finals > maxFinals {
				r.finish(errInflate)
			} else {
				r.flate.(flate.Resetter).Reset(inflateSource{r}, r.window)
			}
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// took records decompressed bytes, and checks them.
func (r *inflateReader) took(b []byte) error {
	s := r.message.stream
	r.size += int64(len(b))
	r.window = remember(r.window, b, maxWindow)
	switch limit := s.conn.options.MaxMessageBytes; {
	case limit >= 0 && r.size > limit:
		return errTooBig
	case s.in.kind == Text && !r.text.valid(b):
		return errBadText
	}
	return nil
}

// complete ends the message. It returns io.EOF, or an error if the message ends within a rune.
func (r *inflateReader) complete() error {
	s := r.message.stream
	if !r.text.complete() {
		return errBadText
	}
	if s.conn.deflate.receiveContext {
		s.conn.contexts.received = r.window
	}
	s.endMessage()
	return io.EOF
}

// finish returns the decompressor to the pool.
func (r *inflateReader) finish(err error) {
	if r.err = err; err != io.EOF && r.message.failed == nil {
		r.err = r.message.stream.fail(err)
	}
	inflateReaders.Put(r.flate)
	r.flate = nil
}

// inflateSource is the input of a decompressor: the message, and the tail that its sender has left out.
type inflateSource struct{ r *inflateReader }

// ReadByte implements io.ByteReader.
func (s inflateSource) ReadByte() (byte, error) {
	var b [1]byte
	_, err := s.Read(b[:])
	return b[0], err
}

// Read implements io.Reader.
func (s inflateSource) Read(p []byte) (int, error) {
	n, err := s.r.message.readLocked(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if s.r.tail == "" {
		return 0, io.EOF
	}
	n = copy(p, s.r.tail)
	s.r.tail = s.r.tail[n:]
	return n, nil
}
