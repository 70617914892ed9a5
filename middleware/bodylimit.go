package middleware

import "github.com/filohttp/filo"

// BodyLimitOptions configures BodyLimit.
type BodyLimitOptions struct {
	// MaxBytes is the maximum size of a request body. Required.
	MaxBytes int64
}

// BodyLimit replaces the server's MaxBodyBytes for some routes: a larger limit for uploads, or a smaller one elsewhere. Reading a
// larger body fails with the status 413. If the announced length exceeds the limit, reading fails without waiting for the body.
//
// Put it outside of everything that reads bodies. The limit that is set last applies: the inner one of two BodyLimits, or the limit that a
// handler sets by SetMaxBodyBytes.
func BodyLimit(options BodyLimitOptions) filo.Middleware {
	check(options.MaxBytes > 0, "BodyLimit: MaxBytes is required")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.SetMaxBodyBytes(options.MaxBytes)
			return next(c)
		}
	}
}
