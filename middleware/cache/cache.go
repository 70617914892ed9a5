// Package cache is middleware that stores answers in memory, by RFC 9111, and reuses them for later requests.
//
//	r.GET("/prices", prices, cache.New(cache.Options{TTL: time.Minute}))
//
// Package middleware says where it belongs among other middleware.
package cache

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/flight"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/lru"
	"github.com/filohttp/filo/internal/replay"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/unshared"
	"github.com/filohttp/filo/middleware"
)

var check = setup.Checker("cache")

// Options configures New. The zero value stores only answers that state their own lifetime.
type Options struct {
	// Store keeps the answers, and can be shared by several servers. Nil means a store in memory of MaxBytes. An error of its Get
	// becomes the error of the request; an answer that can't be stored or removed is logged, unless the error wraps filo.ErrBusy.
	// With a Store, a request whose answer may vary asks it twice.
	Store Store
	// MaxBytes is the memory for all responses together, 64 MB if 0. When it is full, the least recently used responses are
	// removed, those that were never requested again first.
	MaxBytes int
	// MaxBodyBytes is the maximum size of a stored body, 1 MB if 0.
	MaxBodyBytes int
	// TTL is the lifetime of a response that doesn't state its own. If 0, such a response isn't stored. TTL doesn't apply to
	// requests with cookies, because their answers may be personal. Requests with cookies share only answers that declare that
	// they are public, how long they are fresh, or that they vary by Cookie.
	TTL time.Duration
	// IgnoreRequestDirectives ignores the Cache-Control and Pragma fields of requests, so that clients can't use them to put load
	// on the handler: the cache answers, and stores answers, even if a request asks for a new answer or for none to be stored.
	// For the same reason a request with Range gets the whole of a stored answer.
	IgnoreRequestDirectives bool
}

// New returns middleware that stores the answers to GET requests, in memory or in a Store. While an answer is fresh, the middleware serves it to
// requests for the same scheme, host (see middleware.Scheme and middleware.Host) and target. It is a shared cache by RFC 9111.
// The answer decides whether and how long it is stored, by Cache-Control (s-maxage, max-age, no-store, no-cache, private, public,
// must-revalidate), Expires and Vary; usually a Cache-Control of "max-age=…" is enough. The cache doesn't store an answer that
// states no lifetime (but see TTL), sets a cookie, changes a session, was admitted or refused by a middleware.Guard, streams or
// is partial. It stores an answer to a request with Authorization only if the answer allows that. Of failures it stores only 404,
// 405, 410, 414 and 501, and none that answers a request with preconditions, so that a failure for one client doesn't become
// everybody's. It never serves stale answers.
//
// While the handler runs, further requests for the same answer wait for it, for at most 5 seconds, or until the answer turns out
// not to be storable. A successful request with a method that may change something removes the stored answer for its target.
//
// Fields set by middleware outside of the cache, such as request ids, aren't stored. Put the cache outside of Compress and ETag,
// and inside of everything that decides whether a client may have the answer at all. New panics if an option is negative.
func New(options ...Options) filo.Middleware {
	m := newCache(setup.One("cache: New", options))
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error { return m.serve(c, next) }
	}
}

type cache struct {
	Options
	entries lru.Map[entry]
	rules   atomic.Uint64          // numbers the varyRules
	flights flight.Group[struct{}] // of requests that others for the same wait for
}

// entry is a response; or the fields that responses to a target vary by; or a note that they aren't kept.
type entry struct {
	response *replay.Answer
	stored   time.Time
	age      time.Duration // that it had when it was stored
	expires  time.Time
	shared   bool // may answer a request with Authorization
	cookies  bool // may answer one with cookies

	vary *varyRule
}

// varyRule is the names of the request fields that choose one of several responses. Its number keeps responses that were
// stored by another rule from being found.
type varyRule struct {
	number uint64
	names  []string
}

const (
	// passTime is how long requests for a target whose response isn't kept don't wait for each other.
	passTime = 10 * time.Second
	// flightTime is how long a request waits for another one at most, whose handler may never end.
	flightTime = 5 * time.Second
	// entryCost is about how much memory an entry takes but for its response and its key.
	entryCost = 256
)

var errOnlyIfCached = filo.Error(504, "the cache has no stored response")

func newCache(o Options) *cache {
	check(o.MaxBytes >= 0 && o.MaxBodyBytes >= 0 && o.TTL >= 0, "Options.MaxBytes, MaxBodyBytes and TTL must not be negative")
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 1<<20)
	return &cache{Options: o, entries: lru.Map[entry]{Capacity: o.MaxBytes}}
}

func (m *cache) serve(c *filo.Ctx, next filo.Handler) error {
	var buffer [512]byte
	key := appendKey(buffer[:0], c)
	if !caching.ReadsOnly(c) {
		err := next(c)
		if method := c.Method(); err == nil && c.Status() < 400 && method != "OPTIONS" && method != "TRACE" {
			m.remove(c, key) // RFC 9111, section 4.4
		}
		return err
	}
	h := &c.Request.Header
	if h.Has("Upgrade") || c.Request.ContentLength() != 0 ||
		!m.IgnoreRequestDirectives && (h.Has("Range") || caching.HasDirective(h, "no-store")) {
		return next(c)
	}
	for try := 0; ; try++ {
		entry, full, found, err := m.find(c, key)
		if err != nil {
			return err
		}
		if found && entry.response != nil && m.mayAnswer(c, &entry) {
			return m.answer(c, &entry)
		}
		if caching.HasDirective(h, "only-if-cached") {
			return errOnlyIfCached
		}
		// Others don't wait for the answer to a request that may get one of its own, nor if there is none to be expected.
		if found || try == 2 || special(c) {
			return m.fetch(c, next, key, full)
		}
		f, first := m.flights.Join(full)
		if first {
			defer f.End()
			c.Response.WrapBody(func(*filo.Ctx, io.Writer, int64) io.WriteCloser {
				if !f.Over() { // an answer that begins to stream, for however long, isn't kept
					m.pass(f.Key)
					f.End()
				}
				return nil // it wraps nothing
			})
			return m.fetch(c, next, key, full)
		}
		if err := inside.Offload(c); err != nil {
			return err
		}
		ctx := c.Context()
		select {
		case <-f.Done:
		case <-time.After(flightTime):
			m.pass(f.Key)
			return m.fetch(c, next, key, full)
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // also if the answer came at the same time
			return context.Cause(ctx)
		}
	}
}

// special reports whether the answer to a request is perhaps not one for others.
func special(c *filo.Ctx) bool {
	if string(c.Request.MethodBytes()) != "GET" {
		return true
	}
	h := &c.Request.Header
	return h.Has("Authorization") || h.Has("Range") || conditional(h)
}

// conditional reports whether a request has preconditions.
func conditional(h *filo.Header) bool {
	return h.Has("If-None-Match") || h.Has("If-Modified-Since") || h.Has("If-Match") || h.Has("If-Unmodified-Since")
}

// appendKey appends what a response is found by: the target URI, as the client has asked for it (RFC 9111, section 2).
// None of its parts has spaces.
func appendKey(dst []byte, c *filo.Ctx) []byte {
	dst = append(dst, middleware.Scheme(c)...)
	dst = append(dst, ' ')
	start := len(dst)
	dst = append(dst, middleware.HostBytes(c)...)
	for i := start; i < len(dst); i++ {
		if 'A' <= dst[i] && dst[i] <= 'Z' {
			dst[i] += 'a' - 'A'
		}
	}
	dst = append(dst, ' ')
	return shortKey(append(dst, c.Request.TargetBytes()...))
}

// maxKey is how long a key may be before its hash stands for it.
const maxKey = 128

// shortKey returns key, or what stands for it if it is long, so that a long target takes no more memory than others. That begins
// with a zero, as no key does that isn't hashed. It is appended to key, whose bytes stay as they are.
func shortKey(key []byte) []byte {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256(key)
	start := len(key)
	return append(append(key, 0), sum[:]...)[start:]
}

// find returns the entry for a request, and the key under which it is or would be. That may have been appended to key.
func (m *cache) find(c *filo.Ctx, key []byte) (entry entry, full []byte, ok bool, err error) {
	now := time.Now()
	entry, ok, err = m.get(c, key, now)
	if !ok || entry.vary == nil {
		return entry, key, ok, err
	}
	full = entry.vary.appendKey(key, c)
	entry, ok, err = m.get(c, full, now)
	return entry, full, ok, err
}

func (v *varyRule) appendKey(key []byte, c *filo.Ctx) []byte {
	key = append(key, ' ')
	key = binary.AppendUvarint(key, v.number)
	for _, name := range v.names {
		for value := range c.Request.Header.Values(name) {
			key = append(append(key, 1), value...)
		}
		key = append(key, 0)
	}
	return shortKey(key)
}

// mayAnswer reports whether an entry is an answer that the request would have (RFC 9111, sections 3.5, 4 and 5.2.1).
func (m *cache) mayAnswer(c *filo.Ctx, entry *entry) bool {
	h := &c.Request.Header
	if h.Has("Authorization") && !entry.shared || h.Has("Cookie") && !entry.cookies {
		return false
	}
	if m.IgnoreRequestDirectives {
		return true
	}
	if !h.Has("Cache-Control") {
		return !caching.HasToken(h, "Pragma", "no-cache")
	}
	now := time.Now()
	if maxAge, ok := caching.DirectiveSeconds(h, "max-age"); ok && entry.age+now.Sub(entry.stored) > maxAge {
		return false
	}
	if minFresh, ok := caching.DirectiveSeconds(h, "min-fresh"); ok && entry.expires.Sub(now) < minFresh {
		return false
	}
	return !caching.HasDirective(h, "no-cache")
}

// answer makes an entry the response, or what the request's conditions make of it.
func (m *cache) answer(c *filo.Ctx, entry *entry) error {
	entry.response.Give(c)
	var digits [20]byte
	age := (entry.age + time.Since(entry.stored)) / time.Second
	c.Response.Header.SetBytes("Age", strconv.AppendInt(digits[:0], int64(max(age, 0)), 10))
	if entry.response.Status != 200 {
		return nil
	}
	return caching.AnswerCondition(c)
}

// fetch has the handler make the response, and keeps it if it may be kept. If not, be it because of a panic, that is noted. The
// key is that of the target, and full the one that find has returned.
func (m *cache) fetch(c *filo.Ctx, next filo.Handler, key, full []byte) error {
	key = slices.Clone(key) // what is appended to it is not to change full
	if string(c.Request.MethodBytes()) != "GET" {
		return next(c)
	}
	kept := false
	defer func() {
		if !kept {
			m.pass(string(full))
		}
	}()
	outer := replay.Fields(c)
	err := next(c)
	kept = (err == nil || c.ErrorRendered()) && m.keep(c, key, outer)
	return err
}

// pass notes that the response for a key isn't kept, if there is none.
func (m *cache) pass(key string) {
	now := time.Now()
	m.entries.Update(key, lru.Note, now, func(_ entry, ok bool) (entry, int, time.Time, bool) {
		return entry{}, entryCost + len(key), now.Add(passTime), !ok
	})
}

// keep stores the response, if it may.
func (m *cache) keep(c *filo.Ctx, key []byte, outer []replay.Field) bool {
	now := time.Now()
	entry := entry{stored: now}
	lifetime, ok := m.lifetime(c, now)
	if !ok {
		return false
	}
	body, ok := c.Response.WholeBody()
	if !ok || len(body) > m.MaxBodyBytes {
		return false
	}
	if unshared.Is(c) {
		return false // a guard inside, or a session's cookie, which comes when all of this has returned
	}
	h := &c.Response.Header
	if age, ok := caching.Seconds(h.GetBytes("Age")); ok {
		entry.age = age
	}
	if lifetime <= entry.age {
		return false
	}
	entry.shared, entry.cookies = mayAnswerAuthorized(h), mayAnswerCookies(h)
	if c.Request.Header.Has("Cookie") && !entry.cookies {
		return false
	}
	entry.expires = now.Add(lifetime - entry.age)
	if entry.response, ok = replay.Record(c, outer); !ok {
		return false
	}
	if !h.Has("Date") {
		entry.response.AddField("Date", now.UTC().Format(caching.TimeFormat))
	}
	names := varyNames(h)
	if c.ErrorRendered() {
		names = append(names, "accept", "content-type") // by which the form of errors is chosen
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if m.Store != nil {
		if len(names) > 0 {
			rule, ok := m.sharedRule(c, string(key), names, now, entry.expires)
			if !ok {
				return false
			}
			key = rule.appendKey(key, c)
		}
		m.entries.Remove(key) // the note of an earlier answer, which wasn't kept
		return m.share(c, string(key), entry)
	}
	if len(names) > 0 {
		key = m.rule(string(key), names, entry.expires).appendKey(key, c)
	}
	m.entries.Put(string(key), lru.Unused, now, entry, entryCost+len(key)+entry.response.Size(), entry.expires)
	return true
}

// rule returns the rule by which a target's responses are told apart, which is a new one if they varied by other fields.
func (m *cache) rule(key string, names []string, expires time.Time) (rule *varyRule) {
	m.entries.Update(key, lru.Unused, time.Now(), func(old entry, ok bool) (entry, int, time.Time, bool) {
		if ok && old.vary != nil && slices.Equal(old.vary.names, names) {
			rule = old.vary
			if old.expires.After(expires) {
				return old, 0, old.expires, false
			}
		} else {
			rule = &varyRule{number: m.rules.Add(1), names: names}
		}
		return entry{vary: rule, expires: expires}, entryCost + len(key) + 32*len(names), expires, true
	})
	return rule
}

// lifetime returns how long the response is fresh from when it was made, and whether it may be kept at all (RFC 9111,
// sections 3 and 4.2.1).
func (m *cache) lifetime(c *filo.Ctx, now time.Time) (time.Duration, bool) {
	h, status := &c.Response.Header, c.Status()
	switch {
	case status >= 400 && !keptByDefault(status):
		return 0, false // it may well be the fault of this request alone, whatever the handler has said before
	case status >= 300 && conditional(&c.Request.Header):
		return 0, false // perhaps a precondition was answered
	case status == 206, status == 304, h.Has("Content-Range"), h.Has("Set-Cookie"), caching.HasToken(h, "Vary", "*"):
		return 0, false
	case caching.HasDirective(h, "no-store"), caching.HasDirective(h, "private"), caching.HasDirective(h, "no-cache"):
		return 0, false
	case c.Request.Header.Has("Authorization") && !mayAnswerAuthorized(h):
		return 0, false
	}
	for _, name := range [...]string{"s-maxage", "max-age"} {
		if caching.HasDirective(h, name) {
			lifetime, ok := caching.DirectiveSeconds(h, name)
			return lifetime, ok
		}
	}
	if value := h.GetBytes("Expires"); value != nil {
		expires, ok := caching.Date(value)
		made, hasDate := caching.Date(h.GetBytes("Date"))
		if !hasDate {
			made = now
		}
		return expires.Sub(made), ok
	}
	return m.TTL, m.TTL > 0 && keptByDefault(status)
}

// mayAnswerAuthorized is RFC 9111, section 3.5.
func mayAnswerAuthorized(h *filo.Header) bool {
	return caching.HasDirective(h, "public") || caching.HasDirective(h, "s-maxage") || caching.HasDirective(h, "must-revalidate")
}

// mayAnswerCookies reports whether a response says itself who may have it, and for how long.
func mayAnswerCookies(h *filo.Header) bool {
	return caching.HasDirective(h, "public") || caching.HasDirective(h, "s-maxage") || caching.HasDirective(h, "max-age") || h.Has("Expires") ||
		caching.HasToken(h, "Vary", "cookie")
}

// keptByDefault reports whether responses with a status may be kept that don't say for how long (RFC 9110, section 15.1).
func keptByDefault(status int) bool {
	switch status {
	case 200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501:
		return true
	}
	return false
}

// varyNames returns the names in Vary, in lower case, sorted, each of them once.
func varyNames(h *filo.Header) []string {
	var names []string
	for list := range h.Values("Vary") {
		for name := range bytes.SplitSeq(list, []byte{','}) {
			if name = bytes.TrimSpace(name); len(name) > 0 {
				names = append(names, strings.ToLower(string(name)))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
