package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/filohttp/filo"
)

// clientBody is the body of a request for an upstream. It remembers the error of a failed Read, since a transport's error doesn't show
// whether the client or the upstream has failed.
type clientBody struct {
	io.ReadCloser
	mu     sync.Mutex
	closed bool  // guarded by mu
	ended  bool  // all of it has been read; guarded by mu
	err    error // guarded by mu
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == io.EOF:
		b.ended = true
	case !b.closed: // after Close, an error is caused by the transport itself
		b.err = err
	}
	return n, err
}

// Close implements io.Closer.
func (b *clientBody) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

// clientsOr returns the error of reading the client's body if that is why the attempt to send r failed, otherwise err.
func clientsOr(r *http.Request, err error) error {
	b, ok := r.Body.(*clientBody)
	if !ok {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var known *filo.HTTPError
	switch {
	case b.err == nil && !b.ended && errors.Is(context.Cause(r.Context()), filo.ErrClientGone):
		// A failed read ends the context, and thereby the attempt, perhaps before Read has stored the error in b.err.
	case b.err == nil:
		return err
	case errors.As(b.err, &known):
		return known
	}
	return &filo.HTTPError{Status: 400, Detail: "the connection ended inside the request", Err: b.err}
}
