package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// RecoverOptions are options of Recover.
type RecoverOptions struct {
	// Logger gets a record of each panic, with its stack. The default is the server's.
	Logger *slog.Logger
}

// Recover turns a panic of what is inside it into an error, a *filo.PanicError, logs it once, and lets the server's
// ErrorHandler turn it into the response.
//
// A server survives panics without it: it answers with the same 500. But by then the panic has gone through all middleware,
// none of which ran to its end. With Recover inside of them, the access log has a line for the request, metrics count its
// 500, and whatever was begun is ended. So its place is inside of those, and outside of all the rest.
//
// A panic with filo.ErrAbort means what it means to the server: it becomes that error, and isn't logged.
func Recover(options ...RecoverOptions) filo.Middleware {
	o := setup.One("middleware: Recover", options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) (err error) {
			defer func() {
				if value := recover(); value != nil {
					err = recovered(c, o.Logger, value)
				}
			}()
			return next(c)
		}
	}
}

// recovered returns what a panic means as an error.
func recovered(c *filo.Ctx, logger *slog.Logger, value any) error {
	if err, ok := value.(error); ok && errors.Is(err, filo.ErrAbort) {
		return filo.ErrAbort
	}
	err := &filo.PanicError{Value: value, Stack: debug.Stack()}
	if logger == nil {
		logger = c.Logger()
	} else {
		logger = logger.With("route", c.Route())
	}
	logger.Error("panic in handler", "value", fmt.Sprint(value), "method", c.Method(), "path", c.Path(),
		"remote", fmt.Sprint(c.RemoteAddr()), "stack", string(err.Stack))
	return c.RenderError(err)
}
