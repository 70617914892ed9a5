package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// RecoverOptions configures Recover.
type RecoverOptions struct {
	// Logger receives a record of each panic, with its stack. The default is the server's logger.
	Logger *slog.Logger
}

// Recover turns a panic inside it into a *filo.PanicError, logs it once, and lets the server's ErrorHandler turn it into the
// response.
//
// A server survives panics without Recover, and answers with the same 500. But by then the panic has already passed through all middleware
// and stopped each one midway. If Recover is inside of middleware that works on the answer, that middleware finishes its work: the access log
// has a line for the request, and metrics count its 500. So put Recover inside of such middleware, and outside of everything else.
//
// Like the server, Recover turns a panic with filo.ErrAbort into that error, and doesn't log it.
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

// recovered returns the error that stands for a panic, after logging and rendering it, unless it is filo.ErrAbort.
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
	logger.Error("panic in handler", "value", syntax.Excerpt(fmt.Sprint(value), syntax.MaxLogged), "method", syntax.Excerpt(c.Method(), syntax.MaxLoggedMethod),
		"path", syntax.Excerpt(c.Path(), syntax.MaxLogged), "remote", fmt.Sprint(c.RemoteAddr()), "stack", string(err.Stack))
	return c.RenderError(err)
}
