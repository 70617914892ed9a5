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
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/flight"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/lru"
	"github.com/filohttp/filo/internal/replay"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/internal/unshared"
)

var check = setup.Checker("cache")

// Options configures New. The zero value stores only answers that state their own lifetime.
type Options struct {
	// Store keeps the answers, and can be shared by several servers. Nil means a store in memory of MaxBytes. An error of its Get
	// becomes the error of the request; an answer that can't be stored or removed is logged, unless the error wraps filo.ErrBusy.
	// With a Store, a request whose answer may vary asks it twice, and one that is answered by the handler up to three times more: whether
	// the target's answers were removed meanwhile, which a Store remembers for 5 minutes.
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
// not to be storable. A successful request with a method that may change something removes the stored answer for its target, and
// what a GET then still makes that began before isn't stored. Targets are the same if they differ in a default port, a host's case or
// final dot, the case of percent-encoding's digits, or the encoding of letters, digits and "-._~".
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

	generations generations
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
		return m.change(c, next, string(key))
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

// change serves a request that may change its target. If it succeeds, the answers to GET are removed (RFC 9111, section 4.4): before its
// client learns that, so that what the client asks next is answered anew.
func (m *cache) change(c *filo.Ctx, next filo.Handler, key string) error {
	if method := c.Method(); method == "OPTIONS" || method == "TRACE" {
		return next(c)
	}
	returned := false
	c.Response.WrapBody(func(c *filo.Ctx, _ io.Writer, _ int64) io.WriteCloser {
		if !returned && c.Status() < 400 { // the answer streams
			m.remove(c, key)
		}
		return nil // it wraps nothing
	})
	err := next(c)
	returned = true
	if err == nil && c.Status() < 400 {
		m.remove(c, key)
	}
	return err
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

// appendKey appends what a response is found by: the target URI, as the client has asked for it (RFC 9111, section 2). All that are
// the same by RFC 9110, section 4.2.3, have one key. None of its parts has spaces.
func appendKey(dst []byte, c *filo.Ctx) []byte {
	scheme := asked.Scheme(c)
	dst = append(append(dst, scheme...), ' ')
	dst = append(asked.AppendHost(dst, asked.Host(c), scheme), ' ')
	target := c.Request.TargetBytes()
	if _, _, rest, ok := syntax.SplitAbsoluteTarget(target); ok {
		if target = rest; len(target) == 0 || target[0] != '/' {
			dst = append(dst, '/') // a target without a path has this one
		}
	}
	return shortKey(appendNormal(dst, target))
}

// appendNormal appends a path or query with its percent-encoding normalized (RFC 3986, sections 6.2.2.1 and 6.2.2.2): digits are in
// upper case, and what is never reserved isn't encoded.
func appendNormal(dst, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		c, ok := byte(0), false
		if text[i] == '%' {
			c, ok = syntax.PercentEscape(text[i:])
		}
		switch {
		case !ok:
			dst = append(dst, text[i])
			continue
		case syntax.IsLetter(c), '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			dst = append(dst, c)
		default:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
		i += 2
	}
	return dst
}

const upperHex = "0123456789ABCDEF"

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
	f, kept := m.begin(c, string(key)), false
	defer func() {
		// Of what was removed meanwhile, nothing is known any more.
		if !kept && m.generations.within(f.generation, func() {}) {
			m.pass(string(full))
		}
		m.generations.end(f.key, f.generation)
	}()
	outer := replay.Fields(c)
	err := next(c)
	kept = (err == nil || c.ErrorRendered()) && m.keep(c, f, key, outer)
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
func (m *cache) keep(c *filo.Ctx, f *fetching, key []byte, outer []replay.Field) bool {
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
	if age, ok := caching.Age(h); ok {
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
		return m.keepShared(c, f, key, names, entry)
	}
	return m.generations.within(f.generation, func() {
		if len(names) > 0 {
			key = m.rule(string(key), names, entry.expires).appendKey(key, c)
		}
		m.entries.Put(string(key), lru.Unused, now, entry, entryCost+len(key)+entry.response.Size(), entry.expires)
	})
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
