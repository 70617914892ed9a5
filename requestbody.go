package filo

import (
	"io"
	"runtime/debug"
)

// replacedBody is what SetBodyReader has put in the place of a request's body.
type replacedBody struct {
	ctx      *Ctx
	reader   io.Reader
	before   *replacedBody // in whose place it is; nil for the body that the client sends
	received int64
	err      error // what every further read returns

	wholeBody // whole is in a buffer of its own
}

// SetBodyReader replaces the request body by the content of reader, for Body, BodyReader, Form and the other methods. Usually
// reader decodes what an earlier BodyReader returned. It returns io.EOF at the end; any other error becomes an error of the
// body.
//
// The body is read from reader on demand. At the end of the request reader is closed if it is an io.Closer. The body limit
// applies both to the bytes from reader and to the bytes that the client sends. Bytes of the client's that reader leaves unread
// are skipped, as for any request. ContentLength then returns -1; the caller adjusts the header fields. Call SetBodyReader
// before the body is asked for: Form and MultipartForm keep returning a result that they have returned before.
func (r *Request) SetBodyReader(reader io.Reader) {
	r.ctx.check()
	if reader == nil {
		panic("filo: SetBodyReader with a nil reader")
	}
	r.changed = true
	r.replaced = &replacedBody{ctx: r.ctx, reader: reader, before: r.replaced}
}

// Read implements io.Reader.
func (b *replacedBody) Read(p []byte) (int, error) {
	b.ctx.check()
	if b.wholeRead {
		return b.readFromWhole(p)
	}
	if b.formRead {
		return 0, errFormRead
	}
	return b.read(p)
}

func (b *replacedBody) read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.reader.Read(p)
	b.received += int64(n)
	if limit := b.ctx.Request.body.limit; limit >= 0 && b.received > limit {
		n, err = 0, errTooLarge
	}
	b.err = err
	return n, err
}

// readWhole returns the whole body. Nothing announces its length, so the buffer grows with it.
func (b *replacedBody) readWhole() ([]byte, error) {
	if b.wholeRead {
		return b.whole, b.wholeErr
	}
	if b.formRead {
		return nil, errFormRead
	}
	buffer := b.ctx.exchange.worker.takeBuffer()
	var err error
	for err == nil {
		if len(buffer) == cap(buffer) {
			buffer = growBody(buffer, 2*cap(buffer))
		}
		var n int
		n, err = b.read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
	}
	b.wholeRead = true
	if err != io.EOF {
		b.ctx.exchange.worker.releaseBuffer(buffer)
		b.wholeErr = err
		return nil, err
	}
	b.whole = buffer
	return buffer, nil
}

// end lets go of what the body, and those in whose place it is, have held.
func (b *replacedBody) end() {
	for ; b != nil; b = b.before {
		b.close()
		if b.whole != nil {
			b.ctx.exchange.worker.releaseBuffer(b.whole)
			b.whole = nil
		}
	}
}

// close closes the reader. It is the user's code, and what it does wrong mustn't go further.
func (b *replacedBody) close() {
	closer, ok := b.reader.(io.Closer)
	if !ok {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			logPanic(b.ctx.Logger(), "panic in a body reader's Close", value, debug.Stack())
		}
	}()
	closer.Close()
}
