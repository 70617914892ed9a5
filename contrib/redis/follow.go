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
	connected *atomic.Bool // whether the last read succeeded
}

func newFollower(r *Redis, name string) follower {
	return follower{r.store(name, reading, writing), new(atomic.Bool)}
}

// Err returns nil while a hub gets messages from Redis, and otherwise a 503 that wraps ErrDown and filo.ErrBusy. By
// default new subscribers wait for Redis. To refuse them instead, a handler returns this error before it calls the
// hub's Serve.
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

// follow calls step repeatedly, until ctx ends. After an error it pauses, each time longer.
func (f *follower) follow(ctx context.Context, step func(context.Context, *reader) error, receive func(sse.Delivery)) {
	r := &reader{receive: receive, closed: ctx}
	pause := minPause
	defer f.connected.Store(false)
	failed := false
	for ctx.Err() == nil {
		var err error
		if failed { // the time limit of a step may be too short for making a connection
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

// reader delivers messages to a hub.
type reader struct {
	receive func(sse.Delivery)
	closed  context.Context // the hub's context
	started bool            // the first delivery, which must be a gap, has been made
	live    bool            // the delivery with Live set has been made
	last    uint64          // the number of the last message that the hub has received, or that the last gap says is missing
}

// take delivers the next message. It skips a message that the hub has already received.
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

// gap tells the hub that messages are missing, up to the message with this number.
func (r *reader) gap(number uint64) {
	r.last = number
	r.receive(sse.Delivery{Gap: true, Number: number})
}

// goLive tells the hub that all stored messages have been delivered.
func (r *reader) goLive() {
	r.live = true
	r.receive(sse.Delivery{Live: true})
}
