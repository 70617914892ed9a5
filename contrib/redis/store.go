package redisfilo

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
)

// store gives access to one kind of data, and counts its calls.
type store struct {
	*Redis
	name string
	uses []access

	calls   atomic.Uint64
	running atomic.Int64
	took    atomic.Int64 // nanoseconds
	errors  [failures]atomic.Uint64
}

// maxStores is the maximum number of stores with separate figures. A limit is needed because a program may use any number of names, for example
// one channel for each chat.
const maxStores = 100

// store returns the store with this name; all callers that use the name share its figures. Stores beyond the limit share one set of
// figures.
func (r *Redis) store(name string, uses ...access) *store {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for _, s := range r.stores {
			if s.name == name {
				return s
			}
		}
		if len(r.stores) < maxStores || name == "other" {
			break
		}
		name, uses = "other", []access{reading, writing}
	}
	s := &store{Redis: r, name: name, uses: uses}
	r.stores = append(r.stores, s)
	return s
}

// call calls f, which uses Redis, unless Redis is known to be down. If Redis can't be used, the error wraps ErrDown and has the status 503.
//
// The call continues when the client has left, since it takes little time. So an answer is stored for a client that will repeat its request,
// and a logout takes effect.
func (s *store) call(ctx context.Context, a access, f func(ctx context.Context) error) error {
	began := time.Now()
	s.running.Add(1)
	why, err := s.try(ctx, a, f)
	s.running.Add(-1)
	s.calls.Add(1)
	s.took.Add(int64(time.Since(began)))
	if s != s.check && !s.state.down() { // while Redis is down, other calls probe it
		s.verify()
	}
	if why == none {
		return err
	}
	s.errors[why].Add(1)
	return unavailable(why, err)
}

// ask is call for a request that continues only if the call succeeds, or if the argument when is Open. If when is Refuse, the 503 gets a
// Retry-After.
func (s *store) ask(c *filo.Ctx, a access, when WhenDown, f func(ctx context.Context) error) error {
	err := s.call(c.Context(), a, f)
	if isDown(err) && when == Refuse {
		c.Response.Header.Set("Retry-After", "1")
	}
	return err
}

// Figures calls yield with each figure of the stores and brokers in use, and of the pool of connections. A Redis is therefore a source for
// Figures of contrib/prometheus. The labels of a figure are alternating names and values.
//
// The stores are "sessions", "cache", "idempotency", "ratelimits/" and the name of the limits, "stream/" or "channel/" and the name of the
// broker, and "check". The first 100 stores have separate figures; all others share the figures of "other". For each store and each kind of
// access, filo_redis_up is 1 while Redis executes the commands, and 0 otherwise. The kinds of access are separate since a full Redis still reads.
// While any filo_redis_up is 0, Figures starts a Check, whose result Figures shows when it is called next.
func (r *Redis) Figures(yield func(name, help string, counts bool, value float64, labels ...string)) {
	r.verify()
	r.mu.Lock()
	stores := slices.Clone(r.stores)
	r.mu.Unlock()
	for _, s := range stores {
		s.figures(yield)
	}
	pool := r.client.PoolStats()
	const help = "Connections of the pool to Redis."
	yield("filo_redis_connections", help, false, float64(pool.IdleConns), "state", "idle")
	yield("filo_redis_connections", help, false, float64(pool.TotalConns)-float64(pool.IdleConns), "state", "used")
}

func (s *store) figures(yield func(name, help string, counts bool, value float64, labels ...string)) {
	for _, a := range s.uses {
		up := 0.0
		if s.state.up(a) {
			up = 1
		}
		yield("filo_redis_up", "1 while Redis does what a store asks of it, otherwise 0.", false, up, "store", s.name, "access", accessNames[a])
	}
	yield("filo_redis_calls_total", "Calls of Redis, failed ones included.", true, float64(s.calls.Load()), "store", s.name)
	for why := none + 1; why < failures; why++ {
		yield("filo_redis_errors_total", "Calls of Redis that have failed.", true, float64(s.errors[why].Load()), "store", s.name, "kind", failureNames[why])
	}
	took := time.Duration(s.took.Load()).Seconds()
	yield("filo_redis_call_seconds_total", "Time that calls of Redis have taken.", true, took, "store", s.name)
	yield("filo_redis_calls_running", "Calls that wait for Redis.", false, float64(s.running.Load()), "store", s.name)
}
