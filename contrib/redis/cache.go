package redisfilo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/redis/go-redis/v9"
)

// Cache returns a cache.Store. With Open, if the lookup of an answer fails, the request is passed to its handler.
func (r *Redis) Cache(when WhenDown) cache.Store {
	return &answers{r.store("cache", reading, writing), when}
}

type answers struct {
	*store
	when WhenDown
}

// Get implements cache.Store.
func (a *answers) Get(c *filo.Ctx, key string) (value []byte, err error) {
	err = a.ask(c, reading, a.when, func(ctx context.Context) (err error) {
		value, err = a.client.Get(ctx, a.key("cache", key)).Bytes()
		return err
	})
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case a.when.open(err):
		return nil, fmt.Errorf("%w: %w", cache.ErrUnknown, err)
	}
	return value, err
}

// Put implements cache.Store.
func (a *answers) Put(c *filo.Ctx, key string, value []byte, expires time.Time) error {
	return a.call(c.Context(), writing, func(ctx context.Context) error {
		life := time.Duration(milliseconds(expires)) * time.Millisecond
		return a.client.Set(ctx, a.key("cache", key), value, life).Err()
	})
}

// Remove implements cache.Store.
func (a *answers) Remove(c *filo.Ctx, key string) error {
	return a.call(c.Context(), writing, func(ctx context.Context) error { return a.client.Del(ctx, a.key("cache", key)).Err() })
}
