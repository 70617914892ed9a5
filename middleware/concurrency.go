package middleware

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/refusals"
	"github.com/filohttp/filo/internal/syntax"
)

// ConcurrencyLimitOptions configures ConcurrencyLimit.
type ConcurrencyLimitOptions struct {
	// Limit is the maximum number of requests inside at once. Required.
	Limit int
	// Queue is how many further requests may wait for one of those to end; 0 means none.
	Queue int
	// MaxWait is the maximum time that a request waits, a second if 0.
	MaxWait time.Duration
	// RetryAfter is the time after which refused clients should try again, in whole seconds; a second if 0.
	RetryAfter time.Duration
}

// ConcurrencyLimit protects a scarce resource, such as a slow database, by a limit on simultaneous requests. It answers requests
// beyond the limit with 503 (Service Unavailable) and Retry-After. All routes with one ConcurrencyLimit share its limit. The
// server doesn't log each refusal (filo.ErrBusy): it writes one record at once, and then, while refusals continue, one with their
// number every ten seconds.
//
// Put it directly in front of the resource that it protects. It panics without a Limit.
func ConcurrencyLimit(options ConcurrencyLimitOptions) filo.Middleware {
	limiter := newConcurrencyLimiter(options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if err := limiter.enter(c); err != nil {
				return err
			}
			defer limiter.leave()
			return next(c)
		}
	}
}

type concurrencyLimiter struct {
	places     chan struct{} // a place is taken by sending; those who wait for one get it in the order in which they came
	waiting    atomic.Int64
	maxWaiting int64
	maxWait    time.Duration
	retryAfter string
	refused    refusals.Log
}

// errConcurrency is shared: nothing may change it.
var errConcurrency = &filo.HTTPError{Status: 503, Detail: "too many requests at once: see Retry-After", Err: filo.ErrBusy}

func newConcurrencyLimiter(o ConcurrencyLimitOptions) *concurrencyLimiter {
	o.MaxWait = cmp.Or(o.MaxWait, time.Second)
	o.RetryAfter = cmp.Or(o.RetryAfter, time.Second)
	check(o.Limit > 0, "ConcurrencyLimit needs a positive Limit")
	check(o.Queue >= 0 && o.MaxWait >= 0 && o.RetryAfter >= 0, "ConcurrencyLimit: Queue, MaxWait and RetryAfter must not be negative")
	return &concurrencyLimiter{
		places: make(chan struct{}, o.Limit), maxWaiting: int64(o.Queue), maxWait: o.MaxWait,
		retryAfter: strconv.FormatInt(syntax.Seconds(o.RetryAfter), 10),
	}
}

// enter takes a place, or returns the refusal.
func (l *concurrencyLimiter) enter(c *filo.Ctx) error {
	select {
	case l.places <- struct{}{}:
		return nil
	default:
	}
	if l.waiting.Add(1) > l.maxWaiting {
		l.waiting.Add(-1)
		return l.refuse(c)
	}
	defer l.waiting.Add(-1)
	if err := inside.Offload(c); err != nil {
		return err
	}
	timer := time.NewTimer(l.maxWait)
	defer timer.Stop()
	ctx := c.Context()
	select {
	case l.places <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		l.leave() // the place came when nobody wanted the answer any more
	case <-timer.C:
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); errors.Is(cause, filo.ErrClientGone) {
		return cause
	}
	return l.refuse(c)
}

func (l *concurrencyLimiter) refuse(c *filo.Ctx) error {
	c.Response.Header.Set("Retry-After", l.retryAfter)
	l.refused.Note(c, "ConcurrencyLimit refuses requests", "limit", cap(l.places))
	return errConcurrency
}

func (l *concurrencyLimiter) leave() { <-l.places }
