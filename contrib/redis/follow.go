package redisfilo

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

// follower is the code that both brokers share.
type follower struct {
	*store
	connected *atomic.Bool // the last read has succeeded
}

func newFollower(r *Redis, name string) follower {
	return follower{r.store(name, reading, writing), new(atomic.Bool)}
}

// Err returns nil while a hub gets messages from Redis, and otherwise a 503 that wraps ErrDown, and filo.ErrBusy. A handler that should rather refuse
// subscribers than let them wait for Redis returns it before it calls the hub's Serve.
func (f *follower) Err() error {
	if f.connected.Load() {
		return nil
	}
	return errNotConnected
}

var errNotConnected = &filo.HTTPError{Status: 503, Detail: "there are no messages at the moment", Err: &outage{errors.New("a broker isn't connected")}}

// The pauses between attempts to reach Redis.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// follow calls step again and again, until ctx ends. After an error it waits, longer and longer.
func (f *follower) follow(ctx context.Context, step func(context.Context, *reader) error, receive func(sse.Delivery)) {
	r := &reader{receive: receive, closed: ctx}
	pause := minPause
	defer f.connected.Store(false)
	failed := false
	for ctx.Err() == nil {
		var err error
		if failed { // a step may have less time than a connection needs
			err = f.ready(ctx)
		}
		if err == nil {
			err = step(ctx, r)
		}
		if failed = err != nil; !failed {
			f.state.succeeded(reading)
			f.connected.Store(r.live)
			pause = minPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		f.connected.Store(false)
		f.state.lost(err)
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, maxPause)
	}
}

// reader hands a hub its messages.
type reader struct {
	receive func(sse.Delivery)
	closed  context.Context // the hub's
	started bool            // there was a gap, as there must be first
	live    bool            // there was a delivery that says so
	last    uint64          // message that the hub has got, or knows that it hasn't
}

// take hands on the next message. One that the hub has got already is passed over.
func (r *reader) take(e entry) error {
	if r.closed.Err() != nil {
		return r.closed.Err()
	}
	if e.number <= r.last {
		return nil
	}
	if e.previous != r.last {
		r.gap(max(e.previous, r.last))
	}
	r.last = e.number
	if e.kind == kindMessage {
		r.receive(sse.Delivery{Number: e.number, Topic: e.topic, Message: e.message})
	}
	return nil
}

// gap says that messages are missing, up to the one with a number.
func (r *reader) gap(number uint64) {
	r.last = number
	r.receive(sse.Delivery{Gap: true, Number: number})
}

// goLive says that what was kept has been handed on.
func (r *reader) goLive() {
	r.live = true
	r.receive(sse.Delivery{Live: true})
}
