package middleware

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/refusals"
	"github.com/filohttp/filo/internal/syntax"
)

// ConcurrencyLimitOptions configures ConcurrencyLimit.
type ConcurrencyLimitOptions struct {
	// Limit is the maximum number of requests that are admitted at the same time. Required.
	Limit int
	// Queue is how many further requests may wait until an admitted request ends; 0 means none.
	Queue int
	// MaxWait is the maximum time that a request waits, a second if 0. The request that has waited longest is admitted first. But if it has
	// waited for nearly MaxWait, the newest request is admitted first, because its client is the least likely to have given up.
	MaxWait time.Duration
	// RetryAfter is the time after which refused clients should try again, in whole seconds; a second if 0.
	RetryAfter time.Duration
}

// ConcurrencyLimit protects a scarce resource, such as a slow database, by a limit on simultaneous requests. It answers requests beyond the
// limit with 503 (Service Unavailable) and Retry-After. All routes with one ConcurrencyLimit share its limit. The server doesn't log each
// refusal (filo.ErrBusy): it logs the first one at once, and then, while refusals continue, their number every ten seconds.
//
// Put it directly in front of the resource that it protects. ConcurrencyLimit panics without a Limit.
func ConcurrencyLimit(options ConcurrencyLimitOptions) filo.Middleware {
	limiter := newConcurrencyLimiter(options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			place, err := limiter.enter(c)
			if err != nil {
				return err
			}
			defer place.Leave()
			return next(c)
		}
	}
}

type concurrencyLimiter struct {
	places     admit.Admission
	limit      int
	retryAfter string
	refused    refusals.Log
}

// These errors are shared by all requests: nothing may change them.
var (
	errConcurrency = &filo.HTTPError{Status: 503, Detail: "too many requests at once: see Retry-After", Err: &admit.Refusal{Cause: filo.ErrBusy}}
	errLeftQueue   = &filo.HTTPError{Status: 503, Err: &admit.Refusal{Cause: filo.ErrClientGone}}
)

func newConcurrencyLimiter(o ConcurrencyLimitOptions) *concurrencyLimiter {
	o.MaxWait = cmp.Or(o.MaxWait, time.Second)
	o.RetryAfter = cmp.Or(o.RetryAfter, time.Second)
	check(o.Limit > 0, "ConcurrencyLimit needs a positive Limit")
	check(o.Queue >= 0 && o.MaxWait >= 0 && o.RetryAfter >= 0, "ConcurrencyLimit: Queue, MaxWait and RetryAfter must not be negative")
	l := &concurrencyLimiter{limit: o.Limit, retryAfter: strconv.FormatInt(syntax.Seconds(o.RetryAfter), 10)}
	begin := time.Now()
	l.places.Init(admit.Config{
		Concurrency: o.Limit, Queue: o.Queue, MaxWait: o.MaxWait, Now: func() clock.Time { return clock.Time(time.Since(begin)) },
	})
	return l
}

// enter acquires one of the limiter's places for the request, or returns the error with which the request is refused.
func (l *concurrencyLimiter) enter(c *filo.Ctx) (admit.Place, error) {
	if place := l.places.NewPlace(); place.Enter(admit.Ordinary.Only()) {
		return place, nil
	}
	return l.await(c)
}

// await waits in the queue for a place.
func (l *concurrencyLimiter) await(c *filo.Ctx) (place admit.Place, err error) {
	if place = l.places.NewPlace(); !l.places.JoinQueue() {
		return place, l.refuse(c)
	}
	defer l.places.LeaveQueue()
	if err := inside.Offload(c); err != nil {
		return place, err
	}
	ctx := c.Context()
	if l.places.AwaitPlace(func() bool { return place.Enter(admit.Ordinary.Only()) }, ctx.Done(), time.Time{}) && ctx.Err() == nil {
		return place, nil
	}
	place.Leave() // the place may have been granted just after the wait ended
	if errors.Is(context.Cause(ctx), filo.ErrClientGone) {
		return place, errLeftQueue
	}
	return place, l.refuse(c)
}

func (l *concurrencyLimiter) refuse(c *filo.Ctx) error {
	c.Response.Header.Set("Retry-After", l.retryAfter)
	l.refused.Note(c, "ConcurrencyLimit refuses requests", "limit", l.limit)
	return errConcurrency
}
