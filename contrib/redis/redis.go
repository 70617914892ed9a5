package redisfilo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/filohttp/filo"
	"github.com/redis/go-redis/v9"
)

// ErrDown is wrapped by the errors of stores and brokers while Redis doesn't answer, or refuses to do what it is asked.
var ErrDown = errors.New("redisfilo: Redis doesn't answer")

// Options configures New. The zero value is valid.
type Options struct {
	// Prefix is what all keys begin with. Applications that share a Redis need different ones. "filo:" if empty.
	Prefix string
	// Timeout is how long a call may take, with its attempts, 500 ms if 0.
	Timeout time.Duration
	// Logger gets a record when Redis is down or back, slog.Default() if nil.
	Logger *slog.Logger
}

// WhenDown says what becomes of a request whose store doesn't answer.
type WhenDown int

const (
	// Refuse answers it with 503 (Service Unavailable).
	Refuse WhenDown = iota
	// Open serves it without the store.
	Open
)

// Redis makes stores and brokers that use one client. Many goroutines may call its methods at once.
type Redis struct {
	client  redis.UniversalClient
	options Options
	outage  outage
}

// New returns a Redis. The client must have the option ContextTimeoutEnabled, without which go-redis would wait longer than
// Options.Timeout; New panics otherwise. The caller closes the client, when the server and its hubs are closed.
func New(client redis.UniversalClient, options ...Options) *Redis {
	var o Options
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		panic("redisfilo: New takes one Options at most: set all of them in one")
	}
	if o.Timeout < 0 {
		panic("redisfilo: Options.Timeout must not be negative")
	}
	if !keepsDeadlines(client) {
		panic("redisfilo: New needs a client with the option ContextTimeoutEnabled: true, or calls could take longer than Options.Timeout")
	}
	o.Prefix = cmp.Or(o.Prefix, "filo:")
	o.Timeout = cmp.Or(o.Timeout, 500*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Redis{client: client, options: o, outage: outage{log: o.Logger}}
}

// keepsDeadlines reports whether the client heeds the deadlines of contexts. Of kinds of clients that aren't known it believes so.
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

// Check returns an error if Redis doesn't answer. It is a check for health.Health.Add.
func (r *Redis) Check(ctx context.Context) error {
	return r.call(ctx, func(ctx context.Context) error { return r.client.Ping(ctx).Err() })
}

// key returns the key of something of a kind.
func (r *Redis) key(kind, name string) string { return r.options.Prefix + kind + ":" + name }

// call calls f, which asks Redis for something, unless that is known to be down. An error wraps ErrDown, and is a 503.
//
// A client that leaves doesn't end the call, which takes little time: an answer that its client must be able to get later is kept
// although the client has gone, and a logout is done.
func (r *Redis) call(ctx context.Context, f func(ctx context.Context) error) error {
	if !r.outage.admit(time.Now()) {
		return r.down(errTooManyFailed)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.Timeout)
	defer cancel()
	err := f(ctx)
	if err == nil || errors.Is(err, redis.Nil) {
		r.outage.succeeded()
		return err
	}
	// A reply that is an error, such as one of a full Redis or of a key that isn't what it should be, is about this call alone.
	var reply redis.Error
	r.outage.failed(time.Now(), errors.As(err, &reply))
	return r.down(err)
}

// ask is call for a request, which goes on only if the call succeeds, or if it may do so without. A refusal says when to come back.
func (r *Redis) ask(c *filo.Ctx, when WhenDown, f func(ctx context.Context) error) error {
	err := r.call(c.Context(), f)
	if errors.Is(err, ErrDown) && when == Refuse {
		c.Response.Header.Set("Retry-After", "1")
	}
	return err
}

var errTooManyFailed = errors.New("the last calls have failed")

// down notes that a call has failed, and returns its error.
func (r *Redis) down(err error) error {
	if err != errTooManyFailed {
		r.outage.note(time.Now(), err)
	} else {
		r.outage.count()
	}
	return &filo.HTTPError{
		Status: 503, Detail: "a service that this request needs doesn't answer",
		Err: fmt.Errorf("%w: %w: %w", ErrDown, filo.ErrBusy, err),
	}
}

// open reports whether a request goes on in spite of a store's error.
func (w WhenDown) open(err error) bool { return w == Open && errors.Is(err, ErrDown) }
