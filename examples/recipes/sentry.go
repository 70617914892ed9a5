package recipes

import (
	"errors"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/router"
	sentryhttp "github.com/getsentry/sentry-go/http"

	"github.com/getsentry/sentry-go"
)

// Sentry reports panics and failures to Sentry. Call sentry.Init first, and sentry.Flush when Server.Run has returned. Any agent with net/http
// middleware, such as New Relic, Elastic APM or Datadog, can be used in the same way, with adaptor.Middleware.
//
// Sentry's own middleware creates a hub for each request and reports panics. It can't see errors that handlers return, so a second
// middleware reports the errors that become a 5xx.
func Sentry(r *router.Router) {
	agent := sentryhttp.New(sentryhttp.Options{Repanic: true, Timeout: 2 * time.Second})
	r.Use(adaptor.Middleware(agent.Handle), reportFailures)
}

func reportFailures(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		err := next(c)
		var known *filo.HTTPError
		if err == nil || errors.Is(err, filo.ErrAbort) || errors.As(err, &known) && known.Status < 500 {
			return err
		}
		if hub := sentry.GetHubFromContext(c.Context()); hub != nil {
			hub.Scope().SetTag("route", c.Route())
			hub.CaptureException(err)
		}
		return err
	}
}
