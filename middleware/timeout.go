package middleware

import (
	"time"

	"github.com/filohttp/filo"
)

// TimeoutOptions are the options of Timeout.
type TimeoutOptions struct {
	// Timeout is how long the handler may take. It must be set.
	Timeout time.Duration
	// Error is what the client gets then, a 503 if nil. It must not be changed.
	Error *filo.HTTPError
}

// Timeout gives the handler inside a time, by Ctx.SetTimeout: after it the request's context is done, and the client gets
// a 503 (Service Unavailable) with Connection: close, unless an answer has begun. The handler isn't ended by that, and goes on
// having its Ctx until it returns; what it streams then fails with filo.ErrHandlerTimeout. So it should look at its context.
//
// It belongs in front of handlers that wait for something else, inside of AccessLog. A Timeout inside of another one replaces
// that. It panics without a Timeout.
func Timeout(options TimeoutOptions) filo.Middleware {
	check(options.Timeout > 0, "Timeout: TimeoutOptions.Timeout must be over 0")
	check(options.Error == nil || options.Error.Status >= 400 && options.Error.Status <= 599,
		"Timeout: the status of Error must be 400 to 599")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.SetTimeout(options.Timeout, options.Error)
			return next(c)
		}
	}
}
