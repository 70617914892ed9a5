package middleware

import "github.com/filohttp/filo"

// BodyLimitOptions are options of BodyLimit.
type BodyLimitOptions struct {
	// MaxBytes is how large a request body may be. Required.
	MaxBytes int64
}

// errBodyTooLarge is shared: nothing may change it.
var errBodyTooLarge = &filo.HTTPError{Status: 413, Detail: "request body too large", Err: filo.ErrBodyTooLarge}

// BodyLimit gives some routes another limit for bodies than the server's MaxBodyBytes, a larger one for uploads or a smaller
// one elsewhere. A body that is announced as larger is refused at once, before any of it is read, and one that turns out to be
// when it is read: both errors have the status 413.
//
// Its place is outside of all that reads bodies. Of two, the inner one counts, but for bodies that the outer one has refused.
func BodyLimit(options BodyLimitOptions) filo.Middleware {
	check(options.MaxBytes > 0, "BodyLimit: MaxBytes is required")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if c.Request.ContentLength() > options.MaxBytes {
				return errBodyTooLarge
			}
			c.SetMaxBodyBytes(options.MaxBytes)
			return next(c)
		}
	}
}
