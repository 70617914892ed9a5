package filo

import (
	"sync/atomic"
	"time"
)

const (
	// quickHandler is how long a handler may take to count as quick.
	quickHandler = 10 * time.Microsecond
	// timedCalls is how many calls of a worker go by for each that is timed.
	timedCalls = 64
)

// handlerTiming estimates the median of how long the handler takes: the answers of earlier pipelined requests wait for
// a quick handler, but not for one that may be slow. A mean would be spoilt by one slow call.
type handlerTiming struct {
	median atomic.Int64 // in nanoseconds; 0 while nothing is known
}

// quick reports whether the handler is known to be quick.
func (t *handlerTiming) quick() bool {
	median := t.median.Load()
	return 0 < median && median <= int64(quickHandler)
}

// run calls the handler and times one call in timedCalls.
func (t *handlerTiming) run(c *conn, ctx *Ctx) error {
	w := c.worker
	w.calls++
	if w.calls%timedCalls != 1 {
		return c.server.Handler(ctx)
	}
	start := time.Now()
	err := c.server.Handler(ctx)
	t.add(time.Since(start))
	return err
}

// add moves the estimate a step towards the measured time: up as often as down is where the median lies.
func (t *handlerTiming) add(took time.Duration) {
	median := t.median.Load()
	step := max(median/8, 50)
	switch {
	case median == 0:
		median = max(int64(took), 1)
	case int64(took) > median:
		median += step
	default:
		median = max(median-step, 1)
	}
	t.median.Store(median)
}
