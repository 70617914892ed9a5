// Package failsafe limits how many requests run at once by a limit that adapts itself: github.com/failsafe-go/failsafe-go compares recent
// durations with those of before, lowers the limit while requests take longer, and raises it while they don't.
//
//	go get github.com/filohttp/filo/contrib/failsafe@latest
//
// The package is a separate module, so that filo doesn't depend on failsafe-go.
//
//	limiter := adaptivelimiter.NewBuilder[any]().WithLimits(4, 1_000, 10).WithBaselineWindow(100).WithQueueing(1, 2).Build()
//	api.Use(failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter, MaxWait: 100 * time.Millisecond}))
//
// # When
//
// Use it where nobody knows the right limit, or where it changes with the load of something else, such as a database that others use,
// too. If you know the limit, middleware.ConcurrencyLimit holds it from the first request on, and filo.Server.Concurrency protects the
// whole server. Set Concurrency in any case: a limiter needs some seconds to find its limit.
//
// # Settings
//
// Begin with a limit that the resource can surely do, the third of WithLimits, and have the limiter remember for longer than an overload
// takes what durations are ordinary: WithBaselineWindow counts windows, of a second each by default (WithRecentWindow). A limiter that
// begins too high, or forgets, takes the durations of an overload for ordinary ones. In a long overload failsafe-go's limiter may go
// below what the resource can do: the first of WithLimits is where it stops.
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
// A request has its permit until its handler returns, panics, or ends its goroutine. Its duration counts, unless the handler panics or is
// timed out, its client leaves, or it sends its answer itself: by Ctx.Stream, sse, a WebSocket, or Ctx.Hijack. Such answers take as long
// as their clients want, which says nothing about the server. But a handler that stays keeps its permit, so put routes with many such
// handlers outside of the middleware.
package failsafe
