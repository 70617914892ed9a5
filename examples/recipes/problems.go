package recipes

import (
	"context"
	"errors"

	"github.com/filohttp/filo"
)

// ErrNotFound is the error of the service's storage layer for a missing row. That layer doesn't depend on HTTP.
var ErrNotFound = errors.New("not found")

// Problems answers every error of an API with application/problem+json (RFC 9457): those of handlers, of the router (404, 405),
// and the 503 for a request that is refused because of overload. A client that prefers text still gets text. Problems isn't called for malformed
// requests, which the server answers with a line of text.
//
//	server.ErrorHandler = recipes.Problems
func Problems(c *filo.Ctx, err error) {
	var known *filo.HTTPError
	switch {
	case errors.As(err, &known): // The error has a status.
	case errors.Is(err, ErrNotFound):
		err = &filo.HTTPError{Status: 404, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		err = &filo.HTTPError{Status: 504, Detail: "a service that this one needs took too long", Err: err}
	}
	filo.ProblemErrorHandler(c, err)
}
