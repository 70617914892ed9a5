// Package failsafe limits how many requests run at once, by a limit that adapts itself to the load. The limiters come from
// github.com/failsafe-go/failsafe-go. They compare the durations of recent and earlier requests, lower the limit while requests take longer
// than before, and raise it otherwise.
//
//	go get github.com/filohttp/filo/contrib/failsafe@latest
//
// The package is a separate module, so that filo doesn't depend on failsafe-go.
//
//	limiter := failsafe.Recommended(4, 1_000, 10).Build()
//	api.Use(failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter, MaxWait: 50 * time.Millisecond}))
//	registry.MustRegister(prometheus.Figures(failsafe.Figures("database", limiter))) // of github.com/filohttp/filo/contrib/prometheus
//
// # When
//
// Use it if nobody knows the right limit, or if the right limit changes with other load, such as that of other users of a database. If you
// know the limit, use middleware.ConcurrencyLimit, which enforces it from the first request on, or filo.Server.Concurrency, which protects
// the whole server. Set Concurrency in any case: it protects the server during the seconds that a limiter needs to find its limit.
//
// # Settings
//
// Recommended has the settings for which docs/OPERATIONS.md reports measurements. Its arguments are the lowest, the highest and the first
// limit. Choose a first limit that the resource can surely handle: with a higher one, the limiter would take the durations under overload
// for normal ones.
//
// With failsafe-go's default windows, of at least a second each, a limiter takes about seven seconds to find a limit. With its default
// correlation window of 50, a longer overload makes the limit fall below the resource's capacity for some seconds, possibly to the lowest
// limit.
//
// # Priorities
//
// With a PriorityLimiter, requests of low priority are refused first. Its prioritizer works only if ScheduleCalibrations is called:
//
//	prioritizer := adaptivelimiter.NewPrioritizer()
//	stop := prioritizer.ScheduleCalibrations(ctx, time.Second)
//
// Probes and operators' routes need no priority: register them without the middleware, and mark them by router.Route.Inline or Always.
//
// # What counts
//
// A request holds its permit until its handler returns, panics, or ends its goroutine. The limiter ignores a request's duration if the
// handler panics or is timed out, if the client leaves, or if the handler sends its answer itself, by Ctx.Stream, sse, a WebSocket or
// Ctx.Hijack. The client determines how long such an answer takes, so its duration says nothing about the server. But the handler holds its
// permit all that time, so register routes with many such requests without the middleware.
package failsafe
