package middleware

import "github.com/filohttp/filo"

// BodyLimitOptions are options of BodyLimit.
type BodyLimitOptions struct {
	// MaxBytes is how large a request body may be. Required.
	MaxBytes int64
}

// BodyLimit gives some routes another limit for bodies than the server's MaxBodyBytes, a larger one for uploads or a smaller
// one elsewhere. Reading a larger body is an error with the status 413; if the body is announced as larger, before any of it is
// awaited.
//
// Its place is outside of all that reads bodies. The limit that is set last counts: that of the inner one of two, or that of a
// handler that calls SetMaxBodyBytes.
func BodyLimit(options BodyLimitOptions) filo.Middleware {
	check(options.MaxBytes > 0, "BodyLimit: MaxBytes is required")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.SetMaxBodyBytes(options.MaxBytes)
			return next(c)
		}
	}
}
