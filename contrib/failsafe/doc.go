// Package failsafe limits how many requests run at once by a limit that adapts itself. github.com/failsafe-go/failsafe-go compares recent
// durations with earlier ones, lowers the limit while requests take longer, and raises it while they don't.
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
// Use it if nobody knows the right limit, or if it changes with other load, such as on a database that others use, too. If you know the
// limit, middleware.ConcurrencyLimit holds it from the first request on, and filo.Server.Concurrency protects the whole server. Set
// Concurrency in any case: a limiter needs some seconds to find its limit.
//
// # Settings
//
// Recommended has the settings that docs/OPERATIONS.md has measured. Its arguments are the lowest, the highest and the first limit. Begin
// with a limit that the resource can surely handle: a limiter that begins too high takes the durations of an overload for normal ones.
//
// With failsafe-go's own windows, of at least a second each, a limiter takes about seven seconds to find a limit. With its own correlation
// window, of 50, the limit falls below the resource's capacity for some seconds of a longer overload, possibly to the lowest limit.
//
// # Priorities
//
// With a PriorityLimiter, requests of low priority are refused first. Its prioritizer needs ScheduleCalibrations:
//
//	prioritizer := adaptivelimiter.NewPrioritizer()
//	stop := prioritizer.ScheduleCalibrations(ctx, time.Second)
//
// Probes and operators' routes need no priority: leave them out of the middleware, and mark them by router.Route.Inline or Always.
//
// # What counts
//
// A request has its permit until its handler returns, panics, or ends its goroutine. Its duration counts, unless one of these is true: the
// handler panics or is timed out, its client leaves, or the handler sends its answer itself, by Ctx.Stream, sse, a WebSocket, or
// Ctx.Hijack. Such answers take as long as their clients want, which says nothing about the server. But such a handler keeps its permit
// while it runs, so put routes with many such handlers outside of the middleware.
package failsafe
