// Package storelog logs the errors of the stores that middleware uses.
package storelog

import (
	"errors"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// Failure logs a Store's error that can't become the request's error. It doesn't log an error that wraps filo.ErrBusy: a Store that returns such an
// error logs its outages itself, once and not for each request.
func Failure(c *filo.Ctx, message string, err error) {
	if err != nil && !errors.Is(err, filo.ErrBusy) {
		c.Logger().Error(message, "error", syntax.LoggedError(err))
	}
}
