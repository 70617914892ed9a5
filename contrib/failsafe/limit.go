package failsafe

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"

	"github.com/filohttp/filo"
)

// Recommended returns a builder of a limiter with the limits lowest, highest and first. Its settings suit an overload of twice the capacity
// that lasts some minutes at most. The limiter adjusts its limit in windows of 200 ms, if a window has at least 50 requests. The durations of
// about 300 windows are its baseline: if a resource becomes three times as slow permanently, the limit is back at its old value after 70 s.
// Up to twice as many requests may wait as may run at once. Recommended panics unless lowest <= first <= highest.
func Recommended(lowest, highest, first uint) adaptivelimiter.Builder[any] {
	return adaptivelimiter.NewBuilder[any]().WithLimits(lowest, highest, first).WithRecentWindow(200*time.Millisecond, time.Second, 50).
		WithBaselineWindow(300).WithQueueing(1, 2).
		// A correlation window of 5 turns correlations off, since failsafe-go needs at least ten windows for them. They do harm under a steady
		// overload. Throughput then varies little, while durations still correlate with the limit, because of the time in which the limiter was
		// searching for the right limit. So failsafe-go would lower a correct limit, which increases the correlation, and would continue until
		// only a third of the resource's capacity is used.
		WithCorrelationWindow(5)
}

// Figures returns a source for Figures of github.com/filohttp/filo/contrib/prometheus: the limit, and how many requests run and wait. The name
// becomes the label "limit", which distinguishes several limiters.
func Figures(name string, limiter adaptivelimiter.Metrics) FigureSource {
	return FigureSource{name, limiter}
}

// FigureSource provides the figures of a limiter.
type FigureSource struct {
	name    string
	limiter adaptivelimiter.Metrics
}

// Figures calls yield with each figure. The labels are alternating names and values.
func (f FigureSource) Figures(yield func(name, help string, counts bool, value float64, labels ...string)) {
	for _, each := range []struct {
		name, help string
		value      int
	}{
		{"filo_adaptive_limit", "How many requests an adaptive limit lets run at once.", f.limiter.Limit()},
		{"filo_adaptive_limit_running", "Requests that run under an adaptive limit.", f.limiter.Inflight()},
		{"filo_adaptive_limit_waiting", "Requests that wait for an adaptive limit.", f.limiter.Queued()},
	} {
		yield(each.name, each.help, false, float64(each.value), "limit", f.name)
	}
}

// AdaptiveLimitOptions configures AdaptiveLimit. Set either Limiter alone, or both PriorityLimiter and Priority.
type AdaptiveLimitOptions struct {
	// Limiter limits the requests. It may be shared with other code.
	Limiter adaptivelimiter.AdaptiveLimiter[any]
	// PriorityLimiter limits the requests by their priority.
	PriorityLimiter adaptivelimiter.PriorityLimiter[any]
	// Priority returns the priority of a request. It must be quick. Don't let it read a priority that clients set: each could claim the highest.
	Priority func(c *filo.Ctx) priority.Priority
	// MaxWait is the maximum time that a request waits for a permit. Default 0: the request doesn't wait. The limiter's WithQueueing sets how
	// many requests may wait; without WithQueueing, any number may. The limiter's WithMaxWaitTime has no effect here.
	MaxWait time.Duration
	// RetryAfter is the time after which refused clients should try again, in whole seconds; a second if 0.
	RetryAfter time.Duration
}

func must(ok bool, message string) {
	if !ok {
		panic("failsafe: " + message)
	}
}

// AdaptiveLimit runs as many requests at once as the limiter permits. It answers all other requests with 503 (Service Unavailable) and
// Retry-After. Their error wraps filo.ErrBusy, so the server doesn't log each of them. AdaptiveLimit logs the first refusal at once, and
// then, while refusals continue, their number every ten seconds. All routes with one limiter share its limit. AdaptiveLimit panics if the
// options are wrong.
func AdaptiveLimit(options AdaptiveLimitOptions) filo.Middleware {
	must((options.Limiter == nil) != (options.PriorityLimiter == nil), "AdaptiveLimit needs a Limiter or a PriorityLimiter, and not both")
	must((options.PriorityLimiter == nil) == (options.Priority == nil), "AdaptiveLimit: Priority and PriorityLimiter go together")
	must(options.MaxWait >= 0 && options.RetryAfter >= 0, "AdaptiveLimit: MaxWait and RetryAfter must not be negative")
	seconds := (cmp.Or(options.RetryAfter, time.Second) + time.Second - 1) / time.Second
	l := &limiter{AdaptiveLimitOptions: options, retryAfter: strconv.FormatInt(int64(seconds), 10)}
	l.metrics = options.Limiter
	if options.Limiter == nil {
		l.metrics = options.PriorityLimiter
	}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return l.run(c, next) }
	}
}

type limiter struct {
	AdaptiveLimitOptions
	metrics    adaptivelimiter.Metrics
	retryAfter string
	refused    atomic.Int64 // requests refused since the last record of refusals
	logged     atomic.Int64 // the time of the last record of refusals, in nanoseconds since 1970
}

// logEvery is the minimum time between two records of refusals.
const logEvery = 10 * time.Second

// offload makes the rest of the handler run as a filo.Offload handler does, so that waiting doesn't block the loop that has read the request.
var offload = filo.Offload(func(*filo.Ctx) error { return nil })

// These errors are shared by all requests: nothing may change them. errLeft has a status since a 503 says that the handler hasn't run.
var (
	errLimit = &filo.HTTPError{Status: 503, Detail: "too many requests at once: see Retry-After", Err: filo.ErrBusy}
	errLeft  = &filo.HTTPError{Status: 503, Err: filo.ErrClientGone}
)

func (l *limiter) run(c *filo.Ctx, next filo.Handler) (err error) {
	permit, err := l.acquire(c)
	if err != nil {
		return err
	}
	returned := false
	defer func() { // runs even when the handler panics or ends its goroutine
		// A duration that depends on the client doesn't count: the handler has sent its answer itself, has taken over the connection, or was
		// timed out.
		if returned && !errors.Is(err, filo.ErrClientGone) && !c.Committed() {
			permit.Record()
		} else {
			permit.Drop()
		}
	}()
	err = next(c)
	returned = true
	return err
}

// acquire returns a permit, or the error with which the request is refused.
func (l *limiter) acquire(c *filo.Ctx) (adaptivelimiter.Permit, error) {
	if l.Limiter != nil {
		if permit, ok := l.Limiter.TryAcquirePermit(); ok {
			return permit, nil
		}
		if l.MaxWait == 0 {
			return nil, l.refuse(c)
		}
	}
	ctx := context.Background()
	if l.MaxWait > 0 && l.metrics.Inflight() >= l.metrics.Limit() { // the request will probably wait, which must not happen on a loop
		if err := offload(c); err != nil {
			return nil, err
		}
		ctx = c.Context()
	}
	var permit adaptivelimiter.Permit
	var err error
	if l.Limiter != nil {
		permit, err = l.Limiter.AcquirePermitWithMaxWait(ctx, l.MaxWait)
	} else {
		permit, err = l.PriorityLimiter.AcquirePermitWithMaxWait(priority.ContextWithPriority(ctx, l.Priority(c)), l.MaxWait)
	}
	if err == nil && ctx.Err() == nil {
		return permit, nil
	}
	if err == nil {
		permit.Drop() // the permit was granted just after the wait had ended
	}
	if errors.Is(context.Cause(ctx), filo.ErrClientGone) {
		return nil, errLeft
	}
	return nil, l.refuse(c)
}

func (l *limiter) refuse(c *filo.Ctx) error {
	c.Response.Header.Set("Retry-After", l.retryAfter)
	l.refused.Add(1)
	now, last := time.Now().UnixNano(), l.logged.Load()
	if now-last >= int64(logEvery) && l.logged.CompareAndSwap(last, now) {
		c.Logger().Warn("AdaptiveLimit refuses requests", "refused", l.refused.Swap(0), "limit", l.metrics.Limit())
	}
	return errLimit
}
