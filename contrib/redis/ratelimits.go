package redisfilo

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/redis/go-redis/v9"
)

// RateLimits returns a ratelimit.Store. Limits with different names count apart; limits with the same name, of several servers or of
// several routes, count together, and should have the same limit, window and Burst. Keys are stored as hashes. The time is that of
// Redis. With Open, a request that can't be counted is admitted.
func (r *Redis) RateLimits(name string, when WhenDown) ratelimit.Store {
	return &rateLimits{r, name, when}
}

type rateLimits struct {
	*Redis
	name string
	when WhenDown
}

// takeRequest is the generic cell rate algorithm, in microseconds: all that is kept of a key is when it has its whole burst again.
// What a sum of fractions is off by, less than one, decides about no request.
var takeRequest = redis.NewScript(`
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[1]) * tonumber(ARGV[2])
local full = math.max(tonumber(redis.call("GET", KEYS[1]) or now), now)
local wait = full + interval - now - burst
if wait > 1 then return {0, 0, math.ceil(full - now), math.ceil(wait)} end
full = full + interval
redis.call("SET", KEYS[1], string.format("%.3f", full), "PX", math.ceil((full - now) / 1000))
return {1, math.max(math.floor((burst - (full - now)) / interval + 0.001), 0), math.ceil(full - now), 0}`)

// returnRequest undoes takeRequest.
var returnRequest = redis.NewScript(`
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local full = tonumber(redis.call("GET", KEYS[1]) or now) - tonumber(ARGV[1])
if full <= now then redis.call("DEL", KEYS[1]) return 1 end
redis.call("SET", KEYS[1], string.format("%.3f", full), "PX", math.ceil((full - now) / 1000))
return 1`)

// redisKey returns where the state of a key is.
func (l *rateLimits) redisKey(key []byte) string {
	sum := sha256.Sum256(key)
	return l.key("rate", l.name+":"+base64.RawURLEncoding.EncodeToString(sum[:16]))
}

// interval returns how many microseconds a request takes up.
func interval(q ratelimit.Quota) float64 { return float64(q.Window.Microseconds()) / float64(q.Limit) }

// Return implements ratelimit.Store.
func (l *rateLimits) Return(c *filo.Ctx, key []byte, quota ratelimit.Quota) error {
	return l.ask(c, l.when, func(ctx context.Context) error {
		return returnRequest.Run(ctx, l.client, []string{l.redisKey(key)}, interval(quota)).Err()
	})
}

// Take implements ratelimit.Store.
func (l *rateLimits) Take(c *filo.Ctx, key []byte, quota ratelimit.Quota) (ratelimit.State, error) {
	var got []int64
	err := l.ask(c, l.when, func(ctx context.Context) (err error) {
		got, err = takeRequest.Run(ctx, l.client, []string{l.redisKey(key)}, interval(quota), quota.Burst).Int64Slice()
		return err
	})
	switch {
	case l.when.open(err):
		return ratelimit.State{Allowed: true, Remaining: quota.Burst}, nil
	case err != nil:
		return ratelimit.State{}, err
	case len(got) != 4:
		return ratelimit.State{}, fmt.Errorf("redisfilo: Redis has answered a request for a limit by %v", got)
	}
	return ratelimit.State{
		Allowed:    got[0] == 1,
		Remaining:  int(got[1]),
		Reset:      time.Duration(got[2]) * time.Microsecond,
		RetryAfter: time.Duration(got[3]) * time.Microsecond,
	}, nil
}
