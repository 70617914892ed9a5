// Package ratelimit is middleware that limits how many requests a client, or a user, may send.
//
//	r.Use(ratelimit.New(600, time.Minute))
//	r.POST("/login", login, ratelimit.New(5, time.Minute, ratelimit.Options{Name: "logins", Counts: ratelimit.Failures}))
//
// The documentation of package middleware says where this middleware belongs among others.
package ratelimit

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/storelog"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/middleware"
)

// Options configures New.
type Options struct {
	// Burst is how many requests may come at once; 0 means the limit. After a burst, one more request is allowed every window/limit. No
	// window therefore allows more requests than Burst and the limit together.
	Burst int
	// Name is the policy's name in header fields, "default" if empty: visible ASCII without quotes and backslashes.
	Name string
	// Key returns the key by which requests are counted, such as an API key. The result is borrowed. Requests with an empty key aren't
	// limited. Nil means the client's address, as middleware.ClientIP returns it. Only the first 64 bits of an IPv6 address are used, since a
	// client can usually choose the other bits freely.
	Key func(c *filo.Ctx) []byte
	// Counts reports whether a request counts, once its handler has returned err; Failures is such a function. Until its handler has
	// returned, each request counts, so simultaneous requests stay within the limit, too. Nil means that all requests count.
	Counts func(c *filo.Ctx, err error) bool
	// Store keeps the state of the keys, and can be shared by several servers. Nil means a store in memory for MaxKeys keys.
	Store Store
	// MaxKeys is how many keys the store in memory holds at once, 65,536 if 0. Each takes 16 bytes. When there are more keys, those that
	// have used the least of their limit are forgotten.
	MaxKeys int
	// FailOpen admits requests when the Store fails. The error is logged, unless it wraps filo.ErrBusy because the Store has logged it
	// already. Without FailOpen the request fails with the error.
	FailOpen bool
	// HideFields omits the RateLimit and RateLimit-Policy fields.
	HideFields bool
}

// Store records how much of its limit each key has used. Many goroutines call its methods at once.
type Store interface {
	// Take uses up one of the key's remaining requests, if there is one. The key is borrowed. A store that waits for something must use the
	// request's Context.
	Take(c *filo.Ctx, key []byte, quota Quota) (State, error)
	// Return gives back a request that Take has allowed: see Options.Counts.
	Return(c *filo.Ctx, key []byte, quota Quota) error
}

// Failures is for Options.Counts: a request counts if its handler has returned an error, or answered with a status of 400 or more.
func Failures(c *filo.Ctx, err error) bool { return err != nil || c.Status() >= 400 }

// Quota is the limit of a key.
type Quota struct {
	// Limit requests are allowed in each Window, Burst of them at once.
	Limit, Burst int
	Window       time.Duration
}

// State is the state of a key after a request.
type State struct {
	// Allowed reports whether the request was within the limit.
	Allowed bool
	// Remaining is how many more requests may come at once.
	Remaining int
	// Reset is the time until Remaining equals Burst again, if no more requests come.
	Reset time.Duration
	// RetryAfter is the time until one more request is allowed, if this request wasn't.
	RetryAfter time.Duration
}

// New returns middleware that allows limit requests of each key in each window. The window must be whole seconds. As many requests as
// Options.Burst says may come at once; after them, one more is allowed every window/limit. Requests beyond that get 429 (Too Many Requests)
// and Retry-After. Answers report the remaining quota in the fields RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).
// One route may have several limits with different names.
//
// Put it in front of everything expensive, inside of AccessLog and, if there is a proxy, of RealIP. New panics unless limit and
// window are greater than 0.
func New(limit int, window time.Duration, options ...Options) filo.Middleware {
	l := newLimiter(limit, window, setup.One("ratelimit: New", options))
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			var buffer [16]byte
			key := l.key(c, &buffer)
			state, err := l.admit(c, key)
			if err != nil {
				return err
			}
			err = next(c)
			if state.Allowed && l.Counts != nil && !l.Counts(c, err) {
				l.giveBack(c, key, state)
			}
			return err
		}
	}
}

var check = setup.Checker("ratelimit")

type limiter struct {
	Options
	quota   Quota
	memory  *table     // used if Options.Store is nil
	policy  filo.Field // RateLimit-Policy
	item    string     // the beginning of the item in RateLimit
	refusal *filo.HTTPError
}

func newLimiter(limit int, window time.Duration, o Options) *limiter {
	o.Burst = cmp.Or(o.Burst, limit)
	o.Name = cmp.Or(o.Name, "default")
	o.MaxKeys = cmp.Or(o.MaxKeys, 1<<16)
	quota := Quota{Limit: limit, Burst: o.Burst, Window: window}
	o.check(quota)
	l := &limiter{
		Options: o,
		quota:   quota,
		policy:  filo.NewField("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, o.Name, limit, window/time.Second)),
		item:    `"` + o.Name + `";r=`,
		refusal: &filo.HTTPError{
			Status: 429, Detail: "too many requests: see Retry-After",
			Type:       "https://iana.org/assignments/http-problem-types#quota-exceeded",
			Title:      "Request cannot be satisfied as assigned quota has been exceeded",
			Extensions: map[string]any{"violated-policies": []string{o.Name}},
		},
	}
	if o.Store == nil {
		l.memory = newTable(o.MaxKeys, l.quota)
	}
	return l
}

// check panics if the quota or the options, whose defaults are set already, are invalid.
func (o *Options) check(q Quota) {
	check(q.Limit > 0, "New needs a positive limit")
	check(q.Window >= time.Second && q.Window%time.Second == 0, "New needs a window of whole seconds, such as time.Minute")
	check(o.Burst >= 0 && o.MaxKeys >= 0, "Options.Burst and MaxKeys must not be negative")
	interval := q.Window / time.Duration(q.Limit)
	check(interval > 0 && int64(o.Burst) <= math.MaxInt64/4/int64(interval+1),
		"New: the limit or Burst is too large for its window")
	for i := 0; i < len(o.Name); i++ {
		b := o.Name[i]
		check(b > ' ' && b < 0x7F && b != '"' && b != '\\',
			"Options.Name is %q, and must be visible ASCII without quotes and backslashes", o.Name)
	}
}

// admit counts a request against the limit of its key, and returns an error if the request is refused. The state is zero if nothing was
// counted, because the key is empty or the store failed.
func (l *limiter) admit(c *filo.Ctx, key []byte) (State, error) {
	if len(key) == 0 {
		return State{}, nil
	}
	state, err := l.take(c, key)
	if err != nil {
		if !l.FailOpen {
			return State{}, err
		}
		storelog.Failure(c, "ratelimit: the Store failed, so the request was admitted", err)
		return State{}, nil
	}
	if !l.HideFields {
		c.Response.Header.AddField(&l.policy)
		var buffer [128]byte
		c.Response.Header.AddBytes("RateLimit", l.appendState(buffer[:0], state))
	}
	if state.Allowed {
		return state, nil
	}
	c.Response.Header.Set("Retry-After", strconv.FormatInt(max(syntax.Seconds(state.RetryAfter), 1), 10))
	return State{}, l.refusal
}

// appendState appends the value of the field RateLimit.
func (l *limiter) appendState(to []byte, state State) []byte {
	to = append(to, l.item...)
	to = strconv.AppendInt(to, int64(max(state.Remaining, 0)), 10)
	to = append(to, ";t="...)
	return strconv.AppendInt(to, syntax.Seconds(state.Reset), 10)
}

// key returns the key of a request. A key that is an address is stored in buffer.
func (l *limiter) key(c *filo.Ctx, buffer *[16]byte) []byte {
	switch {
	case l.Key == nil:
		*buffer = clientNetwork(c)
		return buffer[:]
	case l.Counts != nil:
		return bytes.Clone(l.Key(c)) // giveBack needs the key after the handler has returned
	}
	return l.Key(c)
}

// take asks the store. It allocates nothing unless the user has set a Store.
func (l *limiter) take(c *filo.Ctx, key []byte) (State, error) {
	if l.memory != nil {
		return l.memory.take(key), nil
	}
	return l.Store.Take(c, bytes.Clone(key), l.quota)
}

// giveBack undoes take, which returned state. If the store's Return fails, the request stays counted.
func (l *limiter) giveBack(c *filo.Ctx, key []byte, state State) {
	if l.memory != nil {
		l.memory.giveBack(key)
	} else if err := l.Store.Return(c, bytes.Clone(key), l.quota); err != nil {
		storelog.Failure(c, "ratelimit: the Store failed, so a request that doesn't count was counted", err)
		return
	}
	if l.HideFields || c.Committed() {
		return
	}
	added := l.appendState(nil, state)
	state.Remaining = min(state.Remaining+1, l.quota.Burst)
	state.Reset = max(state.Reset-l.quota.Window/time.Duration(l.quota.Limit), 0)
	replace(c, added, l.appendState(nil, state))
}

// replace replaces a value that the method admit has added to the field RateLimit. Other limits, and upstreams, have added the other values.
func replace(c *filo.Ctx, added, value []byte) {
	var values [][]byte
	for each := range c.Response.Header.Values("RateLimit") {
		if added != nil && bytes.Equal(each, added) {
			added, each = nil, value
		}
		values = append(values, bytes.Clone(each))
	}
	c.Response.Header.Del("RateLimit")
	for _, value := range values {
		c.Response.Header.AddBytes("RateLimit", value)
	}
}

// clientNetwork returns the client's address, with the last 64 bits of an IPv6 address cleared. Clients without an address, as on a Unix
// socket, share an address of zeros.
func clientNetwork(c *filo.Ctx) [16]byte {
	ip := middleware.ClientIP(c)
	if !ip.IsValid() {
		return [16]byte{}
	}
	address := ip.As16()
	if !ip.Unmap().Is4() {
		clear(address[8:])
	}
	return address
}

const (
	// bucketSize is how many keys share a bucket: two cache lines.
	bucketSize = 8
	shardCount = 64
)

// table is the store in memory. It implements the generic cell rate algorithm: for each key, it keeps only the time at which the whole burst
// is available again. Once that time has passed, the key is treated as never seen, and its entry is free.
//
// A key is identified by its hash, with a secret seed, and its entry can be in only one bucket. When the bucket is full, the key that has
// used the least of its limit is forgotten. So new keys in a flood displace each other, and not a client that is being limited.
type table struct {
	seed     maphash.Seed
	start    time.Time // the times in entries are relative to start
	interval int64     // nanoseconds for each request
	burst    int64     // nanoseconds for a burst
	mask     uint64    // the number of buckets in a shard, minus 1
	shards   [shardCount]shard
}

type shard struct {
	mu      sync.Mutex
	buckets [][bucketSize]entry // guarded by mu
	_       [32]byte            // so that no two locks share a cache line
}

type entry struct {
	hash uint64
	full int64 // when the key has its whole burst again, in nanoseconds since start
}

func newTable(keys int, quota Quota) *table {
	buckets := 1
	for buckets*bucketSize*shardCount < keys {
		buckets *= 2
	}
	interval := int64(quota.Window) / int64(quota.Limit)
	t := &table{
		seed: maphash.MakeSeed(), start: time.Now(), interval: interval, burst: interval * int64(quota.Burst), mask: uint64(buckets - 1),
	}
	for i := range t.shards {
		t.shards[i].buckets = make([][bucketSize]entry, buckets)
	}
	return t
}

func (t *table) take(key []byte) State {
	hash := maphash.Bytes(t.seed, key)
	shard := &t.shards[hash%shardCount]
	now := int64(time.Since(t.start))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := find(&shard.buckets[hash/shardCount&t.mask], hash)
	full := now
	if e.hash == hash {
		full = max(full, e.full)
	}
	if wait := full + t.interval - now - t.burst; wait > 0 {
		return State{Reset: time.Duration(full - now), RetryAfter: time.Duration(wait)}
	}
	full += t.interval
	*e = entry{hash, full}
	return State{Allowed: true, Remaining: int((t.burst - (full - now)) / t.interval), Reset: time.Duration(full - now)}
}

// giveBack undoes the counting of a request by the method take.
func (t *table) giveBack(key []byte) {
	hash := maphash.Bytes(t.seed, key)
	shard := &t.shards[hash%shardCount]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := find(&shard.buckets[hash/shardCount&t.mask], hash); e.hash == hash {
		e.full -= t.interval
	}
}

// find returns the entry of a key. If the key has none, find returns the entry of the key that has used the least of its limit, for reuse.
func find(bucket *[bucketSize]entry, hash uint64) *entry {
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
