package humafilo

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/filohttp/filo"
)

// requestBody reads the request's body, and stores the error with which reading fails.
type requestBody struct {
	reader io.Reader
	err    *filo.HTTPError
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	b.note(err)
	return n, err
}

func (b *requestBody) note(err error) {
	var httpError *filo.HTTPError
	if err != nil && errors.As(err, &httpError) {
		b.err = httpError
	}
}

// maxWhole is the maximum length in bytes of a response that isn't streamed.
const maxWhole = 64 << 10

// responseBody is the writer of an operation's response. It implements http.Flusher, and the methods that http.ResponseController and
// huma's package sse look for.
type responseBody struct {
	c *filo.Ctx
	// stream is nil while all written bytes are still in memory.
	stream *filo.StreamWriter
}

func (b *responseBody) Write(p []byte) (int, error) {
	if b.stream == nil {
		if b.c.BytesWritten()+int64(len(p)) <= maxWhole {
			return b.c.Response.Write(p)
		}
		if err := b.begin(); err != nil {
			return 0, err
		}
	}
	return b.stream.Write(p)
}

// begin switches to streaming. First it sends the bytes that were written so far.
func (b *responseBody) begin() error {
	whole, _ := b.c.Response.WholeBody()
	before := bytes.Clone(whole) // Stream drops the body
	b.stream = b.c.Stream()
	_, err := b.stream.Write(before)
	return err
}

// Flush sends the written bytes.
func (b *responseBody) Flush() { _ = b.FlushError() }

// FlushError is Flush, but returns an error if the client has left or doesn't read.
func (b *responseBody) FlushError() error {
	if b.stream == nil {
		if err := b.begin(); err != nil {
			return err
		}
	}
	return b.stream.Flush()
}

// SetWriteDeadline sets the time by which the client must have read the written bytes.
func (b *responseBody) SetWriteDeadline(deadline time.Time) error {
	return b.c.SetWriteDeadline(deadline)
}
