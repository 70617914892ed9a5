package adaptor

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/inside"
)

// requestBody is the body of a request of net/http.
type requestBody struct {
	exchange *exchange
	closed   bool         // guarded by exchange.mu
	trailer  *http.Header // the request's Trailer, to be filled after the body; guarded by exchange.mu
	// duplex reads the body over HTTP/2, even while other goroutines write; it is nil over HTTP/1.1. The field taken says that the first Read
	// has asked for duplex. Both are guarded by exchange.mu.
	duplex hooks.Duplex
	taken  bool
}

// errNext is the error of a read while the request belongs to next, the rest of filo's chain.
var errNext = errors.New("adaptor: the body can't be read while next runs")

// Read reads bytes that have arrived, or waits for some.
func (b *requestBody) Read(p []byte) (int, error) {
	e := b.exchange
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := b.unreadableLocked(); err != nil {
		return 0, err
	}
	if !b.taken {
		b.taken = true
		b.duplex, _ = inside.TakeBody(e.ctx)
	}
	var n int
	var err error
	if b.duplex != nil {
		e.mu.Unlock()
		n, err = b.duplex.Read(p)
		e.mu.Lock()
		if e.ended || b.closed {
			return 0, http.ErrBodyReadAfterClose
		}
	} else {
		n, err = e.ctx.BodyReader().Read(p)
	}
	switch {
	case err == nil:
	case err == io.EOF:
		b.takeTrailerLocked()
	default:
		err = b.translate(err)
	}
	return n, err
}

// unreadableLocked returns why the body can't be read, nil if it can.
func (b *requestBody) unreadableLocked() error {
	e := b.exchange
	switch {
	case b.closed || e.ended:
		return http.ErrBodyReadAfterClose
	case e.writer.hijacked:
		return http.ErrHijacked
	case e.running != nil:
		return errNext
	}
	return nil
}

// Close makes further reads fail, and over HTTP/2 ends a waiting read. The server deals with the unread rest of the body.
func (b *requestBody) Close() error {
	b.exchange.mu.Lock()
	defer b.exchange.mu.Unlock()
	b.closed = true
	if b.duplex != nil && !b.exchange.ended {
		b.duplex.Close()
	}
	return nil
}

// takeTrailerLocked adds the trailer fields to the request. It leaves out fields that weren't announced, as net/http does over HTTP/2.
func (b *requestBody) takeTrailerLocked() {
	if b.trailer == nil || *b.trailer == nil {
		return
	}
	trailer, fields := *b.trailer, b.exchange.ctx.Request.Trailer.All()
	if b.duplex != nil {
		fields = b.duplex.Trailer()
	}
	for name, value := range fields {
		key := http.CanonicalHeaderKey(string(name))
		if _, ok := trailer[key]; ok {
			trailer[key] = append(trailer[key], string(value))
		}
	}
	b.trailer = nil
}

// translate wraps an error of filo so that handlers written for net/http recognize it, too.
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

// bodyError is both an error of filo and an error of net/http or io.
type bodyError struct {
	error
	also error
}

// Unwrap returns both errors.
func (e *bodyError) Unwrap() []error { return []error{e.error, e.also} }
