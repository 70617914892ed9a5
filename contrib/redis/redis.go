package redisfilo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/redis/go-redis/v9"
)

// ErrDown is wrapped by the errors of stores and brokers while Redis doesn't answer in time, or refuses commands.
var ErrDown = errors.New("redisfilo: Redis is unavailable")

// Options configures New. The zero value is valid.
type Options struct {
	// Prefix is the prefix of all keys. Applications that share a Redis need different prefixes. Default "filo:".
	Prefix string
	// Timeout limits the time of a call, including its attempts and the wait for a connection, 500 ms if 0.
	Timeout time.Duration
	// ConnectTimeout limits the time until a new connection is ready, 5 s if 0. go-redis needs up to four round trips for a new connection. A
	// call waits no longer than Timeout for it; after that, a connection is made in the background, for later calls.
	ConnectTimeout time.Duration
	// Logger receives a record when Redis goes down or comes back, slog.Default() if nil.
	Logger *slog.Logger
}

// WhenDown says what happens to a request whose store can't use Redis.
type WhenDown int

const (
	// Refuse answers the request with 503 (Service Unavailable).
	Refuse WhenDown = iota
	// Open serves the request without the store.
	Open
)

// Redis makes stores and brokers that use one client. Many goroutines may call its methods at once.
type Redis struct {
	client  redis.UniversalClient
	options Options
	state   *state
	check   *store

	connecting atomic.Int32  // connections that are being made in the background
	missed     atomic.Uint32 // the misses of the pool for which a connection was already made
	slow       atomic.Bool   // making a connection takes longer than a call may

	mu     sync.Mutex
	stores []*store // guarded by mu
}

// New returns a Redis. The client must have the option ContextTimeoutEnabled, or New panics: without the option, go-redis would wait longer
// than Options.Timeout. Close the client yourself, after the server and its hubs are closed.
func New(client redis.UniversalClient, options ...Options) *Redis {
	var o Options
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		panic("redisfilo: New takes one Options at most: set all of them in one")
	}
	if o.Timeout < 0 || o.ConnectTimeout < 0 {
		panic("redisfilo: Options.Timeout and ConnectTimeout must not be negative")
	}
	if !keepsDeadlines(client) {
		panic("redisfilo: New needs a client with the option ContextTimeoutEnabled: true, or calls could take longer than Options.Timeout")
	}
	o.Prefix = cmp.Or(o.Prefix, "filo:")
	o.Timeout = cmp.Or(o.Timeout, 500*time.Millisecond)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Redis{client: client, options: o, state: newState(o.Logger)}
	r.check = r.store("check", reading, writing)
	return r
}

// keepsDeadlines reports whether the client respects the deadlines of contexts. It assumes so for unknown kinds of clients.
func keepsDeadlines(client redis.UniversalClient) bool {
	switch client := client.(type) {
	case nil:
		panic("redisfilo: New needs a client")
	case *redis.Client:
		return client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return client.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return client.Options().ContextTimeoutEnabled
	}
	return true
}

// checkRedis writes a key, and reads it.
var checkRedis = redis.NewScript(`
redis.call("SET", KEYS[1], ARGV[1], "PX", 60000)
return redis.call("GET", KEYS[1])`)

// Check returns an error if Redis doesn't answer, or if it can't be written to, for example because it is full. It writes and reads the key
// "check", on only one node of a cluster. Pass it to health.Health.Add as a check.
func (r *Redis) Check(ctx context.Context) error { return r.check.call(ctx, writing, r.proves) }

// proves runs a command that makes Redis write and read.
func (r *Redis) proves(ctx context.Context) error {
	err := checkRedis.Run(ctx, r.client, []string{r.key("check", "")}, "1").Err()
	if err == nil {
		r.state.willing(reading)
		r.state.willing(writing)
	}
	return err
}

// key returns the Redis key for a key of this kind.
func (r *Redis) key(kind, name string) string { return r.options.Prefix + kind + ":" + name }

// try calls f unless Redis is down, and returns the reason for a failure.
func (r *Redis) try(ctx context.Context, a access, f func(ctx context.Context) error) (failure, error) {
	began := r.state.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.Timeout)
	defer cancel()
	if r.state.down() {
		if !r.state.claim(&r.state.retry) {
			return skipped, errTooManyFailed
		}
		if err := r.reach(ctx); err == errTooManyFailed {
			return skipped, err
		} else if err != nil {
			return r.state.failed(a, began, r.options.Timeout, err), err
		}
	}
	if !r.mayConnect() {
		return r.state.failed(a, began, r.options.Timeout, errNoConnection), errNoConnection
	}
	err := f(ctx)
	if err == nil || errors.Is(err, redis.Nil) {
		r.state.succeeded(a)
		if r.slow.Load() && !r.tooSlow(time.Duration(r.state.now()-began)) {
			r.slow.Store(false)
		}
		return none, err
	}
	why := r.state.failed(a, began, r.options.Timeout, err)
	if why == busy {
		r.connectMissing()
	}
	return why, err
}

// verify checks in the background, at most once every retryInterval, whether Redis again executes the commands that it has refused.
func (r *Redis) verify() {
	if !(r.state.up(reading) && r.state.up(writing)) && r.state.claim(&r.state.verify) {
		go r.Check(context.Background())
	}
}

var (
	errTooManyFailed = errors.New("the last calls have failed")
	errNoConnection  = errors.New("none is free, and a new one takes longer than a call may")
)

// unavailable returns the error of a call that has failed.
func unavailable(why failure, err error) error {
	switch why {
	case busy:
		err = fmt.Errorf("no connection was ready in time: %w", err)
	case timeout:
		err = fmt.Errorf("no answer in time: %w", err)
	}
	return &filo.HTTPError{
		Status: 503, Detail: "a service that this request needs is unavailable",
		Err: &outage{err},
	}
}

// outage wraps ErrDown and the error of Redis or of the connection to it. It also wraps filo.ErrBusy, so that the server doesn't log each
// refusal, but its text doesn't mention that error: otherwise an operator would suspect an overload.
type outage struct{ cause error }

// Error implements error.
func (o *outage) Error() string { return fmt.Sprintf("%v: %v", ErrDown, o.cause) }

// Unwrap returns the errors that it wraps.
func (o *outage) Unwrap() []error { return []error{ErrDown, filo.ErrBusy, o.cause} }

// isDown reports whether an error means that Redis can't be used.
func isDown(err error) bool { return errors.Is(err, ErrDown) }

// open reports whether a request goes on despite a store's error.
func (w WhenDown) open(err error) bool { return w == Open && isDown(err) }
