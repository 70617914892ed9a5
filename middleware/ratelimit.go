package middleware

import (
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo"
)

// RateLimitOptions are the options of RateLimit.
type RateLimitOptions struct {
	// Limit is how many requests a key has in each Window. It must be set.
	Limit int
	// Window is the time that Limit is for, a minute if 0. It is whole seconds.
	Window time.Duration
	// Burst is how many requests may come at once; Limit if 0. Beyond those, one more is allowed each Window/Limit: so in no
	// Window there are more than Burst and Limit together.
	Burst int
	// Name is what the header fields call the policy, "default" if empty: visible ASCII without quotes and backslashes.
	Name string
	// Key returns, borrowed, what requests are told apart by, such as an API key; those with an empty one aren't limited.
	// If nil it is the client's address, as ClientIP returns it, and of an IPv6 address its first 64 bits, since a client
	// mostly has as many as it likes of the others.
	Key func(c *filo.Ctx) []byte
	// Store keeps the keys' state, for several servers together. If nil it is a store in memory for MaxKeys keys.
	Store RateLimitStore
	// MaxKeys is how many keys the store in memory knows about at once, 65,536 if 0. It takes 16 bytes for each. When there
	// are more, those that have used the least are forgotten.
	MaxKeys int
	// FailOpen lets requests through when the Store fails, which is logged. Otherwise its error is the request's.
	FailOpen bool
	// HideFields leaves out the RateLimit and RateLimit-Policy fields.
	HideFields bool
}

// RateLimitStore keeps how much of its limit each key has used. Its method is called by many goroutines at once.
type RateLimitStore interface {
	// Take takes one request from what the key, which is borrowed, has left; if that is nothing it takes none. A store that
	// waits for something does so with the request's Context.
	Take(c *filo.Ctx, key []byte, quota RateLimitQuota) (RateLimitState, error)
}

// RateLimitQuota is what a key may use.
type RateLimitQuota struct {
	// Limit requests in each Window, Burst of them at once.
	Limit, Burst int
	Window       time.Duration
}

// RateLimitState is what a request has found of its key.
type RateLimitState struct {
	// Allowed says that the request was within the limit.
	Allowed bool
	// Remaining is how many more may come at once.
	Remaining int
	// Reset is the time until Remaining is the Burst again, if none come.
	Reset time.Duration
	// RetryAfter is the time until one more is allowed, for a request that wasn't.
	RetryAfter time.Duration
}

// RateLimit answers with 429 (Too Many Requests) and Retry-After what a client sends beyond its limit: Burst requests at
// once, and from then on one each Window/Limit. Answers tell what is left in RateLimit and RateLimit-Policy fields
// (draft-ietf-httpapi-ratelimit-headers-10); several RateLimits with their own names may be used for one route.
//
// It belongs in front of everything that is dear, and behind RealIP, if there is a proxy, and AccessLog. It panics without
// a Limit.
func RateLimit(options RateLimitOptions) filo.Middleware {
	limiter := newRateLimiter(options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if err := limiter.admit(c); err != nil {
				return err
			}
			return next(c)
		}
	}
}

type rateLimiter struct {
	RateLimitOptions
	quota   RateLimitQuota
	memory  *rateTable  // the Store, if that is nil
	policy  *filo.Field // RateLimit-Policy
	item    string      // the beginning of that of RateLimit
	refusal *filo.HTTPError
}

func newRateLimiter(options RateLimitOptions) *rateLimiter {
	o := options
	if o.Window == 0 {
		o.Window = time.Minute
	}
	if o.Burst == 0 {
		o.Burst = o.Limit
	}
	if o.Name == "" {
		o.Name = "default"
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 1 << 16
	}
	o.check()
	l := &rateLimiter{
		RateLimitOptions: o,
		quota:            RateLimitQuota{Limit: o.Limit, Burst: o.Burst, Window: o.Window},
		policy:           prepare("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, o.Name, o.Limit, o.Window/time.Second)),
		item:             `"` + o.Name + `";r=`,
		refusal: &filo.HTTPError{
			Status: 429, Detail: "too many requests: see Retry-After",
			Type:       "https://iana.org/assignments/http-problem-types#quota-exceeded",
			Title:      "Request cannot be satisfied as assigned quota has been exceeded",
			Extensions: map[string]any{"violated-policies": []string{o.Name}},
		},
	}
	if o.Store == nil {
		l.memory = newRateTable(o.MaxKeys, l.quota)
	}
	return l
}

// check panics unless the options, with their defaults, make a limit.
func (o *RateLimitOptions) check() {
	check(o.Limit > 0, "RateLimit needs a Limit over 0")
	check(o.Burst >= 0 && o.MaxKeys >= 0, "RateLimit needs a Burst and MaxKeys over 0")
	check(o.Window >= time.Second && o.Window%time.Second == 0, "RateLimit needs a Window of whole seconds")
	interval := o.Window / time.Duration(o.Limit)
	check(interval > 0 && int64(o.Burst) <= math.MaxInt64/4/int64(interval+1),
		"RateLimit with a Limit or Burst out of all proportion to its Window")
	for i := 0; i < len(o.Name); i++ {
		b := o.Name[i]
		check(b > ' ' && b < 0x7F && b != '"' && b != '\\',
			"RateLimit with the Name %q: it must be visible ASCII without quotes and backslashes", o.Name)
	}
}

// admit takes a request from the limit of its key, and returns the refusal if that isn't possible.
func (l *rateLimiter) admit(c *filo.Ctx) error {
	state, limited, err := l.take(c)
	if err != nil {
		if !l.FailOpen {
			return err
		}
		c.Logger().Error("RateLimit lets a request through since its store failed", "error", err)
		return nil
	}
	if !limited {
		return nil
	}
	if !l.HideFields {
		c.Response.Header.AddField(l.policy)
		var buffer [128]byte
		value := append(buffer[:0], l.item...)
		value = strconv.AppendInt(value, int64(max(state.Remaining, 0)), 10)
		value = append(value, ";t="...)
		value = strconv.AppendInt(value, wholeSeconds(state.Reset), 10)
		c.Response.Header.AddBytes("RateLimit", value)
	}
	if state.Allowed {
		return nil
	}
	c.Response.Header.Set("Retry-After", strconv.FormatInt(max(wholeSeconds(state.RetryAfter), 1), 10))
	return l.refusal
}

// take asks the store. Without one of the user's own nothing is allocated.
func (l *rateLimiter) take(c *filo.Ctx) (state RateLimitState, limited bool, err error) {
	var address [16]byte
	var key []byte
	switch {
	case l.Key == nil:
		address = clientNetwork(c)
		if l.memory != nil {
			return l.memory.take(address[:]), true, nil
		}
		key = append([]byte(nil), address[:]...)
	default:
		key = l.Key(c)
	}
	if len(key) == 0 {
		return state, false, nil
	}
	if l.memory != nil {
		return l.memory.take(key), true, nil
	}
	state, err = l.Store.Take(c, key, l.quota)
	return state, true, err
}

// clientNetwork returns the client's address, the last 64 bits of an IPv6 one cleared. Clients without an address, as on a
// Unix socket, have one together.
func clientNetwork(c *filo.Ctx) [16]byte {
	ip := ClientIP(c)
	if !ip.IsValid() {
		return [16]byte{}
	}
	address := ip.As16()
	if !ip.Unmap().Is4() {
		clear(address[8:])
	}
	return address
}

// wholeSeconds rounds up: a client that waits that long has waited long enough.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

const (
	// rateBucket is how many keys share a bucket: two cache lines.
	rateBucket = 8
	rateShards = 64
)

// rateTable is the store in memory. It is the generic cell rate algorithm: all that is kept of a key is the time at which
// it has its whole burst again. A key for which that is past is as good as one that was never seen, and its place is free.
//
// A key is known by its hash, with a seed that nobody knows, and has its place in one bucket. When that is full, the key
// that has used least is forgotten: a flood of new keys takes the places of others like them, not of a client that is
// being limited.
type rateTable struct {
	seed     maphash.Seed
	start    time.Time // times are measured from
	interval int64     // nanoseconds for each request
	burst    int64     // nanoseconds that a burst takes
	mask     uint64    // of the number of buckets in a shard
	shards   [rateShards]rateShard
}

type rateShard struct {
	mu      sync.Mutex
	buckets [][rateBucket]rateEntry // guarded by mu
	_       [32]byte                // no two locks in a cache line
}

type rateEntry struct {
	hash uint64
	full int64 // when the key has its whole burst again, in nanoseconds since start
}

func newRateTable(keys int, quota RateLimitQuota) *rateTable {
	buckets := 1
	for buckets*rateBucket*rateShards < keys {
		buckets *= 2
	}
	interval := int64(quota.Window) / int64(quota.Limit)
	t := &rateTable{
		seed: maphash.MakeSeed(), start: time.Now(), interval: interval, burst: interval * int64(quota.Burst), mask: uint64(buckets - 1),
	}
	for i := range t.shards {
		t.shards[i].buckets = make([][rateBucket]rateEntry, buckets)
	}
	return t
}

func (t *rateTable) take(key []byte) RateLimitState {
	hash := maphash.Bytes(t.seed, key)
	shard := &t.shards[hash%rateShards]
	now := int64(time.Since(t.start))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	entry := findRate(&shard.buckets[hash/rateShards&t.mask], hash)
	full := now
	if entry.hash == hash {
		full = max(full, entry.full)
	}
	if wait := full + t.interval - now - t.burst; wait > 0 {
		return RateLimitState{Reset: time.Duration(full - now), RetryAfter: time.Duration(wait)}
	}
	full += t.interval
	*entry = rateEntry{hash, full}
	return RateLimitState{Allowed: true, Remaining: int((t.burst - (full - now)) / t.interval), Reset: time.Duration(full - now)}
}

// findRate returns the entry of a key, or the one that it gets: that which has used least.
func findRate(bucket *[rateBucket]rateEntry, hash uint64) *rateEntry {
	least := &bucket[0]
	for i := range bucket {
		entry := &bucket[i]
		if entry.hash == hash {
			return entry
		}
		if entry.full < least.full {
			least = entry
		}
	}
	return least
}
