package redisfilo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/redis/go-redis/v9"
)

// RateLimits returns a ratelimit.Store. Limits with different names count separately. Limits with the same name, of several servers or of
// several routes, count together; they should have the same limit, window and Burst. Keys are stored as hashes. Time is measured by Redis's
// clock. With Open, a request that can't be counted is admitted.
func (r *Redis) RateLimits(name string, when WhenDown) ratelimit.Store {
	return &rateLimits{r.store("ratelimits/"+name, writing), name, when}
}

type rateLimits struct {
	*store
	name string
	when WhenDown
}

// A value in Redis begins with the time at which its key has its whole burst again, in microseconds since 1970. The ids of the last calls
// that have changed the value follow, the newest first, each after a space. Thanks to the ids, a call that go-redis repeats because its reply
// was lost counts only once.

// keptIDs is how many ids a value keeps. If more than keptIDs calls change a key before a call is repeated, the repeated call counts twice.
const keptIDs = 8

// idSize is the length of an id, with its space.
const idSize = 9

// takeRequest implements the generic cell rate algorithm, in microseconds. The rounding errors of fractions add up to less than one
// microsecond, so they change no decision.
var takeRequest = redis.NewScript(`
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[1]) * tonumber(ARGV[2])
local kept = redis.call("GET", KEYS[1]) or ""
local full = math.max(tonumber(string.match(kept, "^%S+") or now), now)
local ids = string.match(kept, " .*") or ""
if not string.find(ids, ARGV[3], 1, true) then
	local wait = full + interval - now - burst
	if wait > 1 then return {0, 0, math.ceil(full - now), math.ceil(wait)} end
	full = full + interval
	ids = string.sub(ARGV[3] .. ids, 1, tonumber(ARGV[4]))
	redis.call("SET", KEYS[1], string.format("%.3f", full) .. ids, "PX", math.ceil((full - now) / 1000))
end
return {1, math.max(math.floor((burst - (full - now)) / interval + 0.001), 0), math.ceil(full - now), 0}`)

// returnRequest undoes takeRequest.
var returnRequest = redis.NewScript(`
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local kept = redis.call("GET", KEYS[1]) or ""
local ids = string.match(kept, " .*") or ""
if string.find(ids, ARGV[2], 1, true) then return 1 end
local full = tonumber(string.match(kept, "^%S+") or now) - tonumber(ARGV[1])
if full <= now then redis.call("DEL", KEYS[1]) return 1 end
ids = string.sub(ARGV[2] .. ids, 1, tonumber(ARGV[3]))
redis.call("SET", KEYS[1], string.format("%.3f", full) .. ids, "PX", math.ceil((full - now) / 1000))
return 1`)

// newID returns the id of a call.
func newID() string { return " " + rand.Text()[:idSize-1] }

// redisKey returns the key under which a limit's key is stored.
func (l *rateLimits) redisKey(key []byte) string {
	sum := sha256.Sum256(key)
	return l.key("rate", l.name+":"+base64.RawURLEncoding.EncodeToString(sum[:16]))
}

// interval returns how many microseconds one request uses.
func interval(q ratelimit.Quota) float64 { return float64(q.Window.Microseconds()) / float64(q.Limit) }

// Return implements ratelimit.Store.
func (l *rateLimits) Return(c *filo.Ctx, key []byte, quota ratelimit.Quota) error {
	id := newID()
	return l.ask(c, writing, l.when, func(ctx context.Context) error {
		return returnRequest.Run(ctx, l.client, []string{l.redisKey(key)}, interval(quota), id, keptIDs*idSize).Err()
	})
}

// Take implements ratelimit.Store.
func (l *rateLimits) Take(c *filo.Ctx, key []byte, quota ratelimit.Quota) (ratelimit.State, error) {
	var got []int64
	id := newID()
	err := l.ask(c, writing, l.when, func(ctx context.Context) (err error) {
		got, err = takeRequest.Run(ctx, l.client, []string{l.redisKey(key)}, interval(quota), quota.Burst, id, keptIDs*idSize).Int64Slice()
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
