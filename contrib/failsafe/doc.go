// Package failsafe limits how many requests run at once, by a limit that adapts itself to the load. github.com/failsafe-go/failsafe-go
// compares recent durations with earlier ones, lowers the limit while requests take longer, and raises it while they don't.
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
// the whole server. Set Concurrency in any case: a limiter needs some seconds to find its limit.
//
// # Settings
//
// Recommended has the settings for which docs/OPERATIONS.md reports measurements. Its arguments are the lowest, the highest and the first
// limit. Begin with a limit that the resource can surely handle: a limiter that begins too high mistakes the durations of an overload for
// normal durations.
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
// Probes and operators' routes need no priority: leave them out of the middleware, and mark them by router.Route.Inline or Always.
//
// # What counts
//
// A request holds its permit until its handler returns, panics, or ends its goroutine. The limiter takes the duration of a request into
// account unless the handler panics, is timed out or sends its answer itself, by Ctx.Stream, sse, a WebSocket or Ctx.Hijack, or the client
// leaves. An answer that the handler sends itself takes as long as its client wants, which says nothing about the server. But such a handler
// holds its permit while it runs, so put routes with many such handlers outside of the middleware.
package failsafe
