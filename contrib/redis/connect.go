package redisfilo

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// go-redis sets up a connection, with up to four round trips, within the time limit of the call that needs it, and closes the connection if
// that time runs out. If an answer of Redis takes more than a fourth of Options.Timeout, calls alone could never connect again after all
// connections were lost. So connections are also made in the background, by pings with the time limit ConnectTimeout, and stay in the pool.

const (
	// maxConnecting is the maximum number of simultaneous pings for calls that have found no connection.
	maxConnecting = 256
	// maxSlow is the maximum number of connections being made while Redis is slow.
	maxSlow = 64
	// roundTrips is about how many round trips a new connection takes, including the call that needs it.
	roundTrips = 4
	// maxReaching is the maximum number of connections being made while Redis is down. Each of them occupies a place in the pool, and may
	// never succeed.
	maxReaching = 8
)

// reach makes a connection, and waits until Redis has answered on it or ctx ends. The attempt to connect continues after ctx has ended, and
// the outage ends as soon as Redis answers.
func (r *Redis) reach(ctx context.Context) error {
	reached := make(chan error, 1)
	if !r.connect(maxReaching, reached) {
		return errTooManyFailed
	}
	select {
	case err := <-reached:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mayConnect reports whether a call may make go-redis open a connection, if the call needs one. It reports false while connecting takes
// longer than a call may take. Otherwise each call would open and close a connection in vain, and delay the connections that are made in the
// background.
func (r *Redis) mayConnect() bool {
	if !r.slow.Load() {
		return true
	}
	pool := r.client.PoolStats()
	if pool.IdleConns > 0 {
		return true
	}
	client, known := r.client.(*redis.Client)
	switch {
	case !known: // there are several pools
		r.connect(maxReaching, nil)
	case int(pool.TotalConns)+int(r.connecting.Load()) < client.Options().PoolSize:
		r.connect(maxSlow, nil)
	}
	return false
}

// connectMissing makes a connection for a call that has found none in the pool, unless a connection was already made for this miss.
func (r *Redis) connectMissing() {
	// A pool that is merely too small has no misses: all its connections exist, and calls wait for a free one.
	pool := r.client.PoolStats()
	for {
		seen := r.missed.Load()
		left := pool.Misses - seen
		if int32(left) <= 0 { // both counters may have wrapped around to 0
			return
		}
		if r.missed.CompareAndSwap(seen, pool.Misses-min(left-1, maxConnecting)) {
			break
		}
	}
	// A ping uses a free connection if there is one. So it takes one more ping than there are free connections to make a new one.
	for range pool.IdleConns + 1 {
		if !r.connect(maxConnecting, nil) {
			return
		}
	}
}

// connect starts making a connection, unless limit connections are already being made, and reports whether it has started one. It sends the
// result to reached. If reached is nil, no call waits for the result. In that case connect counts a failure as if a call had failed, unless
// Redis has answered another call since: while calls must not connect, nothing else would show that Redis is down.
func (r *Redis) connect(limit int32, reached chan<- error) bool {
	if r.connecting.Add(1) > limit {
		r.connecting.Add(-1)
		return false
	}
	go func() {
		defer r.connecting.Add(-1)
		began := r.state.now()
		err := r.ready(context.Background())
		switch {
		case reached != nil:
			reached <- err
		case err != nil && !errors.Is(err, redis.ErrClosed) && r.state.answered.Load() <= began:
			r.state.failed(reading, began, r.options.ConnectTimeout+r.options.Timeout, err)
		}
	}()
	return true
}

// ready makes a connection, and fails unless Redis then answers within the time limit of a call: a slower Redis can't be used.
func (r *Redis) ready(ctx context.Context) error {
	if err := r.ping(ctx, r.options.ConnectTimeout); err != nil {
		return err
	}
	began := time.Now()
	err := r.ping(ctx, r.options.Timeout)
	if err == nil {
		r.slow.Store(r.tooSlow(time.Since(began)))
		r.state.heard()
	}
	return err
}

// tooSlow reports whether a call has too little time to make a connection, given the time that Redis takes for an answer.
func (r *Redis) tooSlow(answer time.Duration) bool { return roundTrips*answer > r.options.Timeout }

func (r *Redis) ping(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.client.Ping(ctx).Err()
}
