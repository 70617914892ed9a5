package middleware

import (
	"time"

	"github.com/filohttp/filo"
)

// TimeoutOptions configures Timeout.
type TimeoutOptions struct {
	// Timeout is the maximum time for the handler. Required.
	Timeout time.Duration
	// Error is the client's answer after the timeout, a 503 if nil. Don't change the error after calling Timeout.
	Error *filo.HTTPError
}

// Timeout limits the time of the handler, by Ctx.SetTimeout. When the time has elapsed, the request's context is done, and the client gets a
// 503 (Service Unavailable) with Connection: close, unless an answer has begun. The handler isn't stopped: it keeps its Ctx until it returns,
// and if it continues to stream, writing fails with filo.ErrHandlerTimeout. So handlers should watch their context.
//
// The 503 keeps the response fields that were set before Timeout ran, such as those of CORS. In a route of package router it also keeps the
// fields that middleware inside of Timeout has set: see Ctx.SetTimeout.
//
// Put it in front of handlers that wait for other services, and inside of AccessLog. An inner Timeout replaces the limit of an outer one.
// Timeout panics without a TimeoutOptions.Timeout.
func Timeout(options TimeoutOptions) filo.Middleware {
	check(options.Timeout > 0, "Timeout: TimeoutOptions.Timeout must be positive")
	check(options.Error == nil || options.Error.Status >= 400 && options.Error.Status <= 599,
		"Timeout: the status of Error must be 400 to 599")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.SetTimeout(options.Timeout, options.Error)
			return next(c)
		}
	}
}
