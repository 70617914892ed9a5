// Package cache is middleware that stores answers, in memory or in a Store, and reuses them for later requests as RFC 9111 allows.
//
//	r.GET("/prices", prices, cache.New(cache.Options{TTL: time.Minute}))
//
// The documentation of package middleware says where this middleware belongs among others.
package cache

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/byterange"
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
	// Store keeps the answers, and can be shared by several servers. Nil means a store in memory of MaxBytes. If Get fails, the request fails
	// with its error, unless the error wraps ErrUnknown. A failure to store or remove an answer is logged, unless the error wraps
	// filo.ErrBusy. A lookup calls Get once, and once more if the answers vary. If the handler's answer may be stored, the request calls Get
	// up to four more times: three times to look for the mark that a removal of the target's answers leaves for 5 minutes, and once for the
	// names of the fields by which the answers vary. For a QUERY, the lookup and the storing each call Get once more. A request that has
	// waited for another request repeats its lookup.
	Store Store
	// MaxBytes is the memory for all responses together, 64 MB if 0. When it is full, the least recently used responses are removed,
	// beginning with those that were never requested again.
	MaxBytes int
	// MaxBodyBytes is the maximum size of a stored body, 1 MB if 0.
	MaxBodyBytes int
	// TTL is the lifetime of a response that doesn't state a lifetime. If 0, such a response isn't stored. TTL doesn't apply to requests with
	// cookies, because their answers may be personal. Requests with cookies share only answers that declare that they are public, how long
	// they are fresh, or that they vary by Cookie. The cache derives no lifetime from Last-Modified, although RFC 9111, section 4.2.2, allows
	// that: many handlers that set Last-Modified answer for one client.
	TTL time.Duration
	// TargetedFields are the names of response fields that replace Cache-Control and Expires in this cache (RFC 9213), so that a handler can
	// give this cache other directives than its clients' caches, such as "App-Cache-Control: max-age=3600". The cache obeys the first of
	// these fields that an answer has and that is a valid structured field. The field doesn't override the directive private in
	// Cache-Control, with which middleware makes an answer private, nor does it make failures storable. It is also sent to clients. Default
	// none. Even CDN-Cache-Control is obeyed only if it is listed: that field is for caches in front of the server, such as a CDN's, which
	// may store answers that this cache must not store.
	TargetedFields []string
	// IgnoreRequestDirectives ignores the Cache-Control and Pragma fields of requests, so that clients can't use them to put load on the
	// handler. Even if a request asks for a new answer, it gets the stored one, and even if it forbids storing, its answer is stored. For
	// the same reason a request with Range gets the whole stored answer.
	IgnoreRequestDirectives bool
}

// New returns middleware that stores the answers to GET and QUERY requests, in memory or in a Store. While an answer is fresh, the middleware
// serves it to requests for the same scheme, host (see middleware.Scheme and middleware.Host) and target. In the terms of RFC 9111, it is a
// shared cache. QUERY requests (RFC 10008) must also have the same content, byte by byte, and the same values in the fields whose names begin
// with Content-. The cache reads the content before it looks for an answer. It stores no answer to content of more than 64 KB, or of
// unannounced length. Whether and how long an answer is stored depends on its Cache-Control (s-maxage, max-age, no-store, must-understand,
// no-cache, private, public, must-revalidate), Expires and Vary; usually a Cache-Control of "max-age=…" is enough. The cache doesn't store an
// answer that states no lifetime (but see TTL), sets a cookie, changes a session, was admitted or refused by a middleware.Guard, streams, or
// is partial. It stores an answer to a request with Authorization only if the answer allows that. The only failures it stores are 404, 405,
// 410, 414 and 501, and none that answers a request with preconditions, so that a failure for one client doesn't become everybody's.
//
// An answer of 200 to GET with an ETag or a Last-Modified is kept for an hour after it has expired. The next request then reaches the handler with
// If-None-Match or If-Modified-Since. If the handler answers 304, the stored answer is sent, with the fields of the 304, and is fresh again.
// An answer with no-cache or max-age=0 is stored, too, if it can be validated in this way, and is validated for each request.
//
// The cache serves a stale answer only if that answer allows it. An answer with stale-while-revalidate (RFC 5861) is served stale while one
// request waits for the handler's new answer. An answer with stale-if-error is served stale if the handler fails with an error or the status
// 500, 502, 503 or 504, and to a request that has waited for another request's handler for 5 seconds. Both directives are ignored if the
// answer also has must-revalidate, proxy-revalidate, s-maxage or no-cache, which forbid stale answers. The cache never calls the handler in
// the background: a handler always runs for a request, with the context, credentials and limits of its client.
//
// If an answer varies by Accept, Accept-Charset, Accept-Encoding or Accept-Language, requests that differ only in the white space around
// commas and semicolons get the same answer. Every other field that an answer varies by must be identical.
//
// A request for a single range is answered out of a stored answer of 200; the handler decides about other ranges. The field Cache-Status (RFC
// 9211) of the response says how the request was served, such as "filo; hit; ttl=30" or "filo; fwd=stale; stored".
//
// While the handler runs, further requests for the same answer wait for it, for at most 5 seconds, or until the answer turns out not to be
// storable. A successful request with a method that may change something removes the stored answers for its target. Such a request also removes
// them if its answer was sent before its handler returned, as by a Timeout or in a stream. A GET or QUERY that began before the removal doesn't
// store its answer. Targets are the same if they differ in a default port, a host's case or final dot, the case of percent-encoding's digits, or
// the encoding of letters, digits and "-._~".
//
// Fields set by middleware outside of the cache, such as request ids, aren't stored. Put the cache outside of Compress and ETag, and inside
// of BodyLimit and of everything that decides whether a client may get the answer. New panics if an option is negative.
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
	flights flight.Group[struct{}] // the requests whose answers other requests wait for

	generations generations
}

// place holds the keys under which the answer to a request is stored.
type place struct {
	target []byte // the key of its target; the answers to a target are removed together
	query  *query // nil except for QUERY
	key    []byte // by which the entry or a varyRule is found: the target's key, except for QUERY
	full   []byte // the answer's own key, which equals key unless the answers vary
}

// entry holds one of three things: a response, the names of the fields by which responses to a target vary, or a note that a response isn't
// stored.
type entry struct {
	response *replay.Answer
	stored   time.Time
	age      time.Duration // the response's age when it was stored
	expires  time.Time     // the end of its freshness
	until    time.Time     // the end of its storage
	// whileRevalidated is how long after its expiry the entry may be served while the handler makes a new response. ifError is how long after
	// its expiry the entry may be served if the handler fails (RFC 5861).
	whileRevalidated, ifError time.Duration

	shared  bool // may answer a request with Authorization
	cookies bool // may answer a request with cookies

	vary *varyRule
}

// staleFor reports whether an entry has expired, but less than window ago.
func (e *entry) staleFor(now time.Time, window time.Duration) bool {
	return !now.Before(e.expires) && now.Before(e.expires.Add(window))
}

// lasts reports whether an entry has a response that may still be served, fresh or stale.
func (e *entry) lasts(now time.Time) bool {
	return e.response != nil && now.Before(e.expires.Add(max(e.whileRevalidated, e.ifError)))
}

// varyRule holds the names of the request fields that choose one of several responses. The keys of the responses contain its number, so that
// responses stored under an earlier rule aren't found.
type varyRule struct {
	number uint64
	names  []string
}

const (
	// passTime is how long requests with the same key don't wait for each other after a response that wasn't stored.
	passTime = 10 * time.Second
	// staleTime is how long a stale response is kept if it can be validated.
	staleTime = time.Hour
	// flightTime is the maximum time that a request waits for another request, whose handler may never return.
	flightTime = 5 * time.Second
	// entryCost is about how much memory an entry takes in addition to its response and its key.
	entryCost = 256
)

var errOnlyIfCached = filo.Error(504, "the cache has no stored response")

func newCache(o Options) *cache {
	check(o.MaxBytes >= 0 && o.MaxBodyBytes >= 0 && o.TTL >= 0, "Options.MaxBytes, MaxBodyBytes and TTL must not be negative")
	for _, field := range o.TargetedFields {
		check(syntax.IsToken(field), "Options.TargetedFields must be names of fields")
	}
	o.TargetedFields = slices.Clone(o.TargetedFields)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 1<<20)
	return &cache{Options: o, entries: lru.Map[entry]{Capacity: o.MaxBytes}}
}

func (m *cache) serve(c *filo.Ctx, next filo.Handler) error {
	var buffer [512]byte
	at := place{target: appendKey(buffer[:0], c)}
	if !caching.ReadsOnly(c) {
		return m.change(c, next, string(at.target))
	}
	h := &c.Request.Header
	if h.Has("Upgrade") || !m.IgnoreRequestDirectives && caching.HasDirective(h, "no-store") {
		return next(c)
	}
	switch query, ok, err := readQuery(c); {
	case err != nil:
		return err
	case !ok:
		return next(c)
	default:
		at.query = query
	}
	for try := 0; ; try++ {
		now := time.Now()
		at, old, found, err := m.find(c, at, now)
		if err != nil {
			return err
		}
		if !admits(h, &old) {
			old = entry{}
		}
		wanted := old.response != nil && m.wants(h, &old, now)
		stale := wanted && !now.Before(old.expires)
		if wanted && !stale {
			return m.answer(c, next, &old, now)
		}
		if m.hasRange(c) {
			return next(c)
		}
		if !m.IgnoreRequestDirectives && caching.HasDirective(h, "only-if-cached") {
			return errOnlyIfCached
		}
		// Requests don't wait for a request whose answer may be for its client alone. Nor do they wait if the next answer probably can't be
		// reused: if the entry is a note that the last answer wasn't stored, or an old response without a lifetime.
		waits := !found || stale && try == 0 && old.expires.After(old.stored)
		if !waits || try == 2 || special(c) {
			return m.fetch(c, next, at, old)
		}
		f, first := m.flights.Join(at.full)
		if first {
			defer f.End()
			c.Response.WrapBody(func(*filo.Ctx, io.Writer, int64) io.WriteCloser {
				if !f.Over() { // a streamed answer isn't stored, so other requests needn't wait for its end
					m.pass(f.Key)
					f.End()
				}
				return nil // the body stays unwrapped
			})
			return m.fetch(c, next, at, old)
		}
		if stale && old.staleFor(now, old.whileRevalidated) {
			return m.answer(c, next, &old, now)
		}
		if err := inside.Offload(c); err != nil {
			return err
		}
		ctx := c.Context()
		select {
		case <-f.Done:
		case <-time.After(flightTime):
			if now := time.Now(); stale && old.staleFor(now, old.ifError) {
				return m.answer(c, next, &old, now)
			}
			m.pass(f.Key)
			return m.fetch(c, next, at, old)
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // even if the other request ended at the same time
			return context.Cause(ctx)
		}
	}
}

// change serves a request that may change its target. If it succeeds, the answers to GET and QUERY are removed (RFC 9111, section 4.4). The
// removal happens before the client gets the answer, so the handler answers the client's next request. If the answer was sent
// before the handler returned, they are removed when it returns, since it may have changed the target after its answer.
func (m *cache) change(c *filo.Ctx, next filo.Handler, key string) error {
	if method := c.Method(); method == "OPTIONS" || method == "TRACE" {
		return next(c)
	}
	returned, refused := false, false
	c.Response.WrapBody(func(c *filo.Ctx, _ io.Writer, _ int64) io.WriteCloser {
		if returned {
			return nil // the body stays unwrapped
		}
		if refused = c.Status() >= 400; !refused { // the answer streams
			m.remove(c, key)
		}
		return nil
	})
	defer func() { // deferred, since a handler that panics after its answer has begun may have changed something
		if c.Committed() && !refused {
			m.remove(c, key)
		}
	}()
	err := next(c)
	if returned = true; !c.Committed() && err == nil && c.Status() < 400 {
		m.remove(c, key)
	}
	return err
}

// special reports whether the answer to a request may be unfit for other requests.
func special(c *filo.Ctx) bool {
	if string(c.Request.MethodBytes()) == "HEAD" {
		return true
	}
	h := &c.Request.Header
	return h.Has("Authorization") || h.Has("Range") || conditional(h)
}

// conditional reports whether a request has preconditions.
func conditional(h *filo.Header) bool {
	return h.Has("If-None-Match") || h.Has("If-Modified-Since") || h.Has("If-Match") || h.Has("If-Unmodified-Since")
}

// appendKey appends the key of responses: the target URI, as the client has asked for it (RFC 9111, section 2). URIs that are equivalent by
// RFC 9110, section 4.2.3, have the same key. No part of a key contains spaces.
func appendKey(dst []byte, c *filo.Ctx) []byte {
	scheme := asked.Scheme(c)
	dst = append(append(dst, scheme...), ' ')
	dst = append(asked.AppendHost(dst, asked.Host(c), scheme), ' ')
	target := c.Request.TargetBytes()
	if _, _, rest, ok := syntax.SplitAbsoluteTarget(target); ok {
		if target = rest; len(target) == 0 || target[0] != '/' {
			dst = append(dst, '/') // a target without a path has the path "/"
		}
	}
	return shortKey(appendNormal(dst, target))
}

// appendNormal appends a path or query with its percent-encoding normalized (RFC 3986, sections 6.2.2.1 and 6.2.2.2): its digits are in upper
// case, and unreserved characters aren't encoded.
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

// maxKey is the maximum length of a key. A longer key is replaced by its hash.
const maxKey = 128

// shortKey returns key, or a hash if it is long, so that a long target takes no more memory than a short one. A hashed key begins with a zero,
// and no other key does. The hash is written after key, whose own bytes don't change.
func shortKey(key []byte) []byte {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256(key)
	start := len(key)
	return append(append(key, 0), sum[:]...)[start:]
}

// find returns the entry for a request, and the place where it is or would be. The other keys of the place may share memory with the target's
// key.
func (m *cache) find(c *filo.Ctx, at place, now time.Time) (_ place, found entry, ok bool, err error) {
	at.key = at.target
	if at.query != nil {
		rules, ok, err := m.get(c, appendQueries(at.target), now)
		if err != nil {
			return at, found, false, err
		}
		if !ok || rules.vary == nil { // no answer to QUERY is stored, but m.entries may hold a note that one wasn't stored
			at.key = at.query.appendUnruled(at.target)
			at.full = at.key
			found, ok = m.entries.Get(at.key, now)
			return at, found, ok, nil
		}
		at.key = at.query.appendKey(at.target, rules.vary)
	}
	at.full = at.key
	found, ok, err = m.get(c, at.key, now)
	if !ok || found.vary == nil {
		return at, found, ok, err
	}
	at.full = found.vary.appendKey(at.key, &c.Request.Header)
	found, ok, err = m.get(c, at.full, now)
	return at, found, ok, err
}

func (v *varyRule) appendKey(key []byte, h *filo.Header) []byte {
	key = append(key, ' ')
	key = binary.AppendUvarint(key, v.number)
	for _, name := range v.names {
		key = append(appendSelecting(key, h, name), 0)
	}
	return shortKey(key)
}

// admits reports whether an entry may answer a request with these fields, while it is fresh or after it was validated (RFC 9111,
// section 3.5).
func admits(h *filo.Header, entry *entry) bool {
	return (entry.shared || !h.Has("Authorization")) && (entry.cookies || !h.Has("Cookie"))
}

// wants reports whether the request accepts an entry without asking the handler. The entry may still be stale (RFC 9111, section 5.2.1).
func (m *cache) wants(h *filo.Header, entry *entry, now time.Time) bool {
	if m.IgnoreRequestDirectives {
		return true
	}
	if !h.Has("Cache-Control") {
		return !caching.HasToken(h, "Pragma", "no-cache")
	}
	if maxAge, ok := caching.DirectiveSeconds(h, "max-age"); ok && entry.age+now.Sub(entry.stored) > maxAge {
		return false
	}
	if minFresh, ok := caching.DirectiveSeconds(h, "min-fresh"); ok && entry.expires.Sub(now) < minFresh {
		return false
	}
	return !caching.HasDirective(h, "no-cache")
}

// hasRange reports whether a request has a Range that the options don't ignore.
func (m *cache) hasRange(c *filo.Ctx) bool {
	return !m.IgnoreRequestDirectives && c.Request.Header.Has("Range")
}

// answer responds with an entry. Depending on the request's conditions and its Range, the response is the complete one, a part of it, a 304
// or a 412. For several ranges, and for a range outside of the content, the handler decides what is sent.
func (m *cache) answer(c *filo.Ctx, next filo.Handler, entry *entry, now time.Time) error {
	var buffer [1]byterange.Range
	var parts []byterange.Range
	if entry.response.Status == 200 && m.hasRange(c) && entry.inRange(c) {
		verdict := byterange.Ignored
		parts, verdict = byterange.Parse(buffer[:0], c.Request.Header.GetBytes("Range"), int64(entry.response.Len()))
		if verdict != byterange.Good || len(parts) > 1 {
			return next(c)
		}
	}
	entry.response.Give(c)
	h := &c.Response.Header
	var digits [64]byte
	age := (entry.age + now.Sub(entry.stored)) / time.Second
	h.SetBytes("Age", strconv.AppendInt(digits[:0], int64(max(age, 0)), 10))
	h.AddBytes("Cache-Status", strconv.AppendInt(append(digits[:0], "filo; hit; ttl="...), int64(entry.expires.Sub(now)/time.Second), 10))
	if entry.response.Status != 200 {
		return nil
	}
	modified := h.GetBytes("Last-Modified")
	if modified == nil && !c.Request.Header.Has("If-Unmodified-Since") {
		// If-Modified-Since is then compared with Date (RFC 9111, section 4.3.2). It must be later than Date, since there may have been
		// another answer in the same second.
		since, _ := caching.Date(c.Request.Header.GetBytes("If-Modified-Since"))
		if made, ok := caching.Date(h.GetBytes("Date")); ok && since.After(made) {
			modified = h.GetBytes("Date")
		}
	}
	if err := caching.AnswerCondition(c, modified); err != nil || c.Status() != 200 || len(parts) == 0 {
		return err
	}
	body, _ := c.Response.WholeBody()
	part := parts[0]
	h.SetBytes("Content-Range", part.AppendContentRange(digits[:0], int64(len(body))))
	c.Response.SetStatus(206)
	c.Response.SetBodyNoCopy(body[part.Begin:][:part.Length])
	return nil
}

// inRange reports whether the request's Range applies to the entry: the request must be a GET or a QUERY, and its If-Range, if there is
// one, must be the entry's strong entity tag or its Last-Modified. The latter counts only if the content can't have changed twice in that
// second (RFC 9110, section 13.1.5).
func (e *entry) inRange(c *filo.Ctx) bool {
	value := c.Request.Header.GetBytes("If-Range")
	switch {
	case string(c.Request.MethodBytes()) == "HEAD":
		return false
	case value == nil:
		return true
	case len(value) > 0 && value[0] == '"':
		return string(value) == e.response.Get("ETag")
	}
	modified, ok := caching.Date([]byte(e.response.Get("Last-Modified")))
	made, hasDate := caching.Date([]byte(e.response.Get("Date")))
	return ok && hasDate && made.Sub(modified) >= time.Second && string(value) == e.response.Get("Last-Modified")
}

// fetch lets the handler make the response, and keeps the response if it may be kept. Otherwise, and after a panic, it keeps a note that the
// response wasn't kept, unless that may be due to the request. The arguments at and old are results of find. If old has a response, the
// handler is asked to validate it. If the handler fails, old's response is served, provided it allows that.
func (m *cache) fetch(c *filo.Ctx, next filo.Handler, at place, old entry) error {
	if string(c.Request.MethodBytes()) == "HEAD" {
		return next(c)
	}
	f, kept, unfit := m.begin(c, string(at.target)), false, special(c)
	defer func() {
		// No note is kept if the target's answers have been removed since the request began, since the next answer may be storable. Nor is one
		// kept for a request whose own fields made its answer unfit for others.
		if !kept && !unfit && !old.lasts(time.Now()) && m.generations.within(f.generation, func() {}) {
			m.pass(string(at.full))
		}
		m.generations.end(f.key, f.generation)
	}()
	outer := replay.Fields(c)
	condition := ""
	if at.query == nil { // many handlers answer 412 to a condition unless the method is GET or HEAD (RFC 9110, section 13.1.2)
		condition = old.validate(&c.Request.Header)
	}
	err := next(c)
	if condition != "" {
		c.Request.Header.Del(condition)
		if err == nil && c.Status() == 304 && !c.Committed() {
			old.response.Refresh(c, outer)
		}
	}
	kept = (err == nil || c.ErrorRendered()) && m.keep(c, f, at.query, outer)
	switch now := time.Now(); {
	case c.Committed():
	case failed(c, err) && old.staleFor(now, old.ifError) && m.wants(f.sent, &old, now) && m.current(c, f):
		replay.Restore(c, outer)
		return m.answer(c, next, &old, now)
	case err == nil:
		c.Response.Header.Add("Cache-Status", status(string(at.key) != string(at.full), &old, now, kept))
	}
	return err
}

// failed reports whether the handler's answer is a failure of the server, which a stale answer may replace (RFC 5861, section 4).
func failed(c *filo.Ctx, err error) bool {
	status := c.Status()
	if err != nil && !c.ErrorRendered() {
		var known *filo.HTTPError
		if errors.Is(err, filo.ErrAbort) || errors.Is(err, filo.ErrClientGone) {
			return false
		}
		if status = 500; errors.As(err, &known) {
			status = known.Status
		}
	}
	return status == 500 || status >= 502 && status <= 504
}

// status returns the Cache-Status of a request that the handler has answered (RFC 9211).
func status(varies bool, old *entry, now time.Time, kept bool) string {
	reason := "uri-miss"
	switch {
	case old.response != nil && now.Before(old.expires):
		reason = "request"
	case old.response != nil:
		reason = "stale"
	case varies:
		reason = "vary-miss"
	}
	if kept {
		reason += "; stored"
	}
	return "filo; fwd=" + reason
}

// validate gives a request a condition, so that the handler answers 304 if the entry's response is still current. It returns the name of
// the condition's field. It does nothing, and returns "", if the request has conditions of its own, or if the response has neither an
// entity tag nor a date of change.
func (e *entry) validate(h *filo.Header) (name string) {
	if e.response == nil || e.response.Status != 200 || conditional(h) {
		return ""
	}
	for _, of := range [...]struct{ validator, condition string }{{"ETag", "If-None-Match"}, {"Last-Modified", "If-Modified-Since"}} {
		if value := e.response.Get(of.validator); value != "" {
			h.Set(of.condition, value)
			return of.condition
		}
	}
	return ""
}

// pass records that the response for a key isn't stored, unless a stored response may still be served.
func (m *cache) pass(key string) {
	now := time.Now()
	m.entries.Update(key, lru.Note, now, func(old entry, ok bool) (entry, int, time.Time, bool) {
		return entry{}, entryCost + len(key), now.Add(passTime), !ok || old.response != nil && !old.lasts(now)
	})
}

// keep stores the response if that is allowed, and reports whether it has done so.
func (m *cache) keep(c *filo.Ctx, f *fetching, q *query, outer []replay.Field) bool {
	now := time.Now()
	entry := entry{stored: now}
	by, ok := m.terms(c, f.sent, now)
	if !ok {
		return false
	}
	body, ok := c.Response.WholeBody()
	if !ok || len(body) > m.MaxBodyBytes {
		return false
	}
	if unshared.Is(c) {
		return false // a middleware.Guard inside of the cache has answered, or a session will set its cookie after the cache has returned
	}
	h := &c.Response.Header
	if age, ok := caching.Age(h); ok {
		entry.age = age
	}
	fresh, validated := max(by.lifetime-entry.age, 0), q == nil && c.Status() == 200 && (h.Has("ETag") || h.Has("Last-Modified"))
	if fresh == 0 && !validated {
		return false
	}
	entry.shared, entry.cookies, entry.whileRevalidated, entry.ifError = by.shared, by.cookies, by.whileRevalidated, by.ifError
	entry.expires = now.Add(fresh)
	stale := max(entry.whileRevalidated, entry.ifError)
	if validated {
		stale = max(stale, staleTime)
	}
	entry.until = entry.expires.Add(stale)
	if entry.response, ok = replay.Record(c, outer); !ok {
		return false
	}
	if !h.Has("Date") {
		entry.response.AddField("Date", now.UTC().Format(syntax.TimeFormat))
	}
	names := varyNames(h)
	if c.ErrorRendered() {
		names = append(names, "accept", "content-type") // errors are rendered in a format that depends on these fields
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if m.Store != nil {
		return m.keepShared(c, f, q, names, entry)
	}
	return m.generations.within(f.generation, func() {
		key, _ := m.ruled(c, f, q, names, &entry)
		m.entries.Put(string(key), lru.Unused, now, entry, entryCost+len(key)+entry.response.Size(), entry.until)
	})
}

// ruled returns the key under which an entry will be stored, by the rules of its target. It creates missing rules, and reports false if the
// Store fails.
func (m *cache) ruled(c *filo.Ctx, f *fetching, q *query, names []string, e *entry) (key []byte, ok bool) {
	key, ok = []byte(f.key), true
	var rule *varyRule
	if q != nil {
		if rule, ok = m.rule(c, string(appendQueries(key)), queries, e); !ok {
			return nil, false
		}
		key = q.appendKey(key, rule)
	}
	if len(names) > 0 {
		if rule, ok = m.rule(c, string(key), names, e); !ok {
			return nil, false
		}
		key = rule.appendKey(key, f.sent)
	}
	return key, true
}

// rule returns the rule that distinguishes the responses stored for a key, and keeps it at least as long as the entry. It creates a new rule
// if the responses varied by other fields before.
func (m *cache) rule(c *filo.Ctx, key string, names []string, e *entry) (rule *varyRule, ok bool) {
	if m.Store != nil {
		return m.sharedRule(c, key, names, e.stored, e.until)
	}
	until := e.until
	m.entries.Update(key, lru.Unused, time.Now(), func(old entry, ok bool) (entry, int, time.Time, bool) {
		if ok && old.vary != nil && slices.Equal(old.vary.names, names) {
			rule = old.vary
			if old.until.After(until) {
				return old, 0, old.until, false
			}
		} else {
			rule = &varyRule{number: m.rules.Add(1), names: names}
		}
		return entry{vary: rule, until: until}, entryCost + len(key) + 32*len(names), until, true
	})
	return rule, true
}

// lifetime returns how long the response is fresh, from the time when it was made, or 0 if it must always be validated. It also reports
// whether the response may be stored (RFC 9111, sections 3 and 4.2.1).
func (m *cache) lifetime(c *filo.Ctx, sent *filo.Header, says directives, now time.Time) (time.Duration, bool) {
	h, status := &c.Response.Header, c.Status()
	switch {
	case status >= 400 && !keptByDefault(status):
		return 0, false // other clients' requests may succeed, whatever lifetime the handler had set
	case status >= 300 && conditional(sent):
		return 0, false // the response may be the answer to a precondition
	case status == 206, status == 304, h.Has("Content-Range"), h.Has("Set-Cookie"), caching.HasToken(h, "Vary", "*"):
		return 0, false
	case says.has("private"):
		return 0, false
	case says.has("must-understand"): // it takes precedence over no-store (RFC 9111, section 5.2.2.3)
		if !keptByDefault(status) {
			return 0, false
		}
	case says.has("no-store"):
		return 0, false
	}
	switch {
	case sent.Has("Authorization") && !says.mayAnswerAuthorized():
		return 0, false
	case says.has("no-cache"):
		return 0, true
	}
	for _, name := range [...]string{"s-maxage", "max-age"} {
		if says.has(name) {
			lifetime, ok := says.seconds(name)
			return lifetime, ok
		}
	}
	if value := says.expires(); value != nil {
		expires, ok := caching.Date(value)
		made, hasDate := caching.Date(h.GetBytes("Date"))
		if !hasDate {
			made = now
		}
		return expires.Sub(made), ok
	}
	return m.TTL, m.TTL > 0 && keptByDefault(status)
}

// keptByDefault reports whether responses with a status may be stored if they state no lifetime (RFC 9110, section 15.1).
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
