package adaptor

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/filohttp/filo"
)

// requestBody is the body of a request of net/http.
type requestBody struct {
	exchange *exchange
	closed   bool         // guarded by the exchange
	trailer  *http.Header // the request's, for what comes behind a chunked body
}

// errNext is the error of a read while the request belongs to the rest of filo's chain.
var errNext = errors.New("adaptor: the body is next's to read")

// Read reads bytes that have arrived, or waits for some.
func (b *requestBody) Read(p []byte) (int, error) {
	e := b.exchange
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case b.closed || e.ended:
		return 0, http.ErrBodyReadAfterClose
	case e.writer.hijacked:
		return 0, http.ErrHijacked
	case e.running != nil:
		return 0, errNext
	}
	n, err := e.ctx.BodyReader().Read(p)
	switch {
	case err == nil:
	case err == io.EOF:
		b.takeTrailer()
	default:
		err = b.translate(err)
	}
	return n, err
}

// Close makes further reads fail. The server takes care of the rest of the body.
func (b *requestBody) Close() error {
	b.exchange.mu.Lock()
	defer b.exchange.mu.Unlock()
	b.closed = true
	return nil
}

// takeTrailer adds the trailer fields to the request. As in net/http those that weren't announced are left out.
func (b *requestBody) takeTrailer() {
	if b.trailer == nil || *b.trailer == nil {
		return
	}
	trailer := *b.trailer
	for name, value := range b.exchange.ctx.Request.Trailer.All() {
		key := http.CanonicalHeaderKey(string(name))
		if _, ok := trailer[key]; ok {
			trailer[key] = append(trailer[key], string(value))
		}
	}
	b.trailer = nil
}

// translate makes of an error of filo's one that handlers for net/http know as well.
func (b *requestBody) translate(err error) error {
	var problem *filo.HTTPError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, filo.ErrBodyTooLarge):
		limit := b.exchange.ctx.Server().MaxBodyBytes
		if limit == 0 {
			limit = filo.DefaultMaxBodyBytes
		}
		return &bodyError{err, &http.MaxBytesError{Limit: limit}}
	case errors.As(err, &problem) && problem.Status == 408:
		return &bodyError{err, os.ErrDeadlineExceeded}
	}
	return err
}

// bodyError is an error of filo's that is another one as well.
type bodyError struct {
	error
	also error
}

// Unwrap returns both errors.
func (e *bodyError) Unwrap() []error { return []error{e.error, e.also} }
