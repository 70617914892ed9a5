// Package session is middleware that keeps values for a browser from one request to the next, in a store on the server or
// encrypted in a cookie.
//
//	r.Use(session.New(session.Options{Store: new(session.Memory)}))
//
//	func login(c *filo.Ctx) error {
//		s, err := session.Get(c)
//		if err != nil {
//			return err
//		}
//		s.Renew()
//		s.Set("user", "ann")
//		return c.Redirect(303, "/")
//	}
//
// The documentation of package middleware says where this middleware belongs among others.
package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/storelog"
	"github.com/filohttp/filo/internal/unshared"
)

// Options configures New. Either Store or Keys is required.
type Options struct {
	// Store keeps the sessions on the server, and the cookie contains only a random id. Memory is a Store in memory. If Store is
	// nil, the cookie contains the session itself, encrypted with the first of Keys.
	Store Store
	// Keys are for sessions in cookies: secrets of at least 32 bytes, for example from crypto/rand.Read. The first key encrypts; decryption
	// tries all of them. To rotate keys, put a new one in front, and remove the old one when IdleTimeout has passed.
	Keys [][]byte
	// CookieName is "__Host-session" if empty, or "session" if Insecure. Two session middlewares of a server need different
	// names.
	CookieName string
	// Domain sends the cookie to subdomains too. It can't be combined with a name that begins with "__Host-".
	Domain string
	// SameSite is SameSiteLax if zero. The cookie's Path is always "/", and the cookie is always HttpOnly.
	SameSite filo.SameSite
	// Insecure allows the cookie over plain HTTP, for development.
	Insecure bool
	// IdleTimeout is how long an unused session lives, 2 hours if 0. Lifetime is how long a session lives even if it is used, a
	// week if 0.
	IdleTimeout, Lifetime time.Duration
	// MaxBytes is the maximum size of all values of a session together, as JSON, 16 KB if 0. A cookie has room for some 2,900
	// bytes.
	MaxBytes int
}

// Store keeps sessions. Many goroutines call its methods at once. A method that waits for something must use the request's Context. The ids
// are hashes of the cookies' ids, so that somebody who can read the store can't take over a session.
type Store interface {
	// Load returns the record stored under the id, or a record of version 0 if there is none or it has expired.
	Load(c *filo.Ctx, id string) (Record, error)
	// Save stores the record, with its version increased by one, if the stored record of the id has the same version, which is 0
	// if there is none. Otherwise it changes nothing and returns false.
	Save(c *filo.Ctx, id string, record Record) (bool, error)
	// Delete removes the record stored under the id, if there is one.
	Delete(c *filo.Ctx, id string) error
}

// Record is a session as a Store keeps it.
type Record struct {
	// Data has a private format of this package. It is never modified.
	Data []byte
	// Version shows whether another request has changed the session.
	Version uint64
	// Renewed says that the session was renewed, as at a login. A store that runs out of room should remove other sessions first.
	// A store needn't keep this field.
	Renewed bool
	// Expires is when the record expires.
	Expires time.Time
	// Unknown is set only by Load, in a record of version 0, if an error keeps the store from knowing whether there is a record. Then the
	// request is served as if its client had sent no session. Only what would need the record fails with the error, such as Session.Destroy:
	// a logout must not seem to have succeeded.
	Unknown error
}

// New returns middleware that gives requests a session: values that are kept for a browser from one request to the next. Get returns the
// session. A request whose handler doesn't call Get costs nothing. A new session gets a cookie only when a value has been set.
//
// The session is saved when the handler has returned, with or without an error, or before the head of a streamed answer is sent, such as
// an event stream or a WebSocket. Changes after that are saved only in a Store, and only if the client already has the session's id. The
// same holds for changes before a Ctx.Hijack, which sends no head. Changes that can't be saved are logged. Nothing is saved when the
// handler panics. Simultaneous requests of one session each have a copy of the values. Saving merges the keys that each request has set
// and deleted. Once a request has destroyed the session, no other request brings it back, not even one that renews it. A request that comes
// with the session's old id up to five minutes after a Renew has an empty session. It is saved only if the request calls Renew or Destroy, or
// if the renewed session has ended. So a request that was under way during a login doesn't replace the new cookie. (For sessions in cookies,
// the last answer wins.)
//
// Put it inside of RealIP and AccessLog, and in front of everything that uses the session. New panics if neither a Store nor Keys
// are given, or if the options make a cookie that browsers refuse.
func New(options Options) filo.Middleware {
	m := newManager(options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			outer := c.Get(managerKey{})
			c.Set(managerKey{}, m)
			returned := false
			defer func() {
				c.Set(managerKey{}, outer)
				if state := m.opened(c); state != nil && !returned {
					state.over = true
				}
			}()
			err := next(c)
			returned = true
			if state := m.opened(c); state != nil {
				failed := state.save(c)
				if failed != nil && err == nil && !c.Committed() {
					return failed
				}
				storelog.Failure(c, unsavedMessage, failed)
			}
			return err
		}
	}
}

// managerKey is the key of the *manager in the request's values; it finds the manager of the innermost middleware.
type managerKey struct{}

// opened is the session that a request has opened last, as the type that package unshared stores.
type opened Session

// Unsaved reports whether a session of the request has yet to be saved.
func (o *opened) Unsaved() bool {
	for state := (*Session)(o); state != nil; state = state.before {
		if state.unsaved() {
			return true
		}
	}
	return false
}

// Get returns the session of the request, from the innermost of several session middlewares. Get fails only if the Store fails. Get panics if
// the handler isn't inside the middleware that New returned.
func Get(c *filo.Ctx) (*Session, error) {
	m, ok := c.Get(managerKey{}).(*manager)
	if !ok {
		panic("session: Get was called outside of the middleware of New: put New in front of all that calls Get, also of middleware that authenticates")
	}
	if state := m.opened(c); state != nil {
		return state, nil
	}
	state, err := m.open(c)
	if err == nil {
		state.before = lastOpened(c)
		unshared.SetSession(c, (*opened)(state))
		c.Response.WrapBody(state.beforeHead)
	}
	return state, err
}

// lastOpened returns the session that the request has opened last; its field before links to the one opened before.
func lastOpened(c *filo.Ctx) *Session {
	o, _ := unshared.LastSession(c).(*opened)
	return (*Session)(o)
}

// opened returns the manager's session of the request, or nil if the request hasn't opened it.
func (m *manager) opened(c *filo.Ctx) *Session {
	state := lastOpened(c)
	for state != nil && state.manager != m {
		state = state.before
	}
	return state
}

// Session is the session of a request. Only the goroutine that runs the handler may use it, until the handler returns.
type Session struct {
	manager *manager
	before  *Session // another middleware's session, which the request has opened before this one
	id      string   // as in the cookie; "" without a Store, and for a new session
	record  Record
	content contents
	// changed has the keys that the request has set or deleted; their values in content are no longer the stored ones.
	changed   map[string]bool
	cleared   bool
	renewed   bool // the session gets a new id, and the old one becomes useless
	destroyed bool
	another   bool // replaces the session that the client sent, which is destroyed
	// moved is the key of a session that the request doesn't see, but that Destroy destroys: a renewed session whose old id the client sent,
	// or the session that the Store couldn't load.
	moved   string
	unknown error // Record.Unknown of the session that the client named
	stale   bool  // save the session although nothing was changed
	over    bool  // the handler has panicked: nothing is saved any more
}

// contents is the stored form of a session.
type contents struct {
	Values  map[string]string `json:"v,omitempty"`
	Created int64             `json:"c"` // in seconds since 1970
	Expires int64             `json:"e"`
	Renewed bool              `json:"r,omitempty"`
	// Next is set instead of all other fields when the session was renewed: the key under which the session is stored now.
	// Requests that loaded the session before the renewal find it by Next, and can end it.
	Next string `json:"n,omitempty"`
}

// Get returns the value of a key, or "" if there is none.
func (s *Session) Get(key string) string { return s.content.Values[key] }

// Has reports whether the key has a value.
func (s *Session) Has(key string) bool { _, ok := s.content.Values[key]; return ok }

// Set sets the value of a key. The key and the value must be UTF-8 text.
func (s *Session) Set(key, value string) {
	if s.content.Values == nil {
		s.content.Values = make(map[string]string)
	}
	s.content.Values[key] = value
	s.change(key)
	if s.destroyed { // a new session begins
		s.destroyed, s.another = false, true
	}
}

// Delete removes a key and its value.
func (s *Session) Delete(key string) {
	if s.Has(key) || s.unknown != nil {
		delete(s.content.Values, key)
		s.change(key)
	}
}

// Clear removes all values but keeps the session.
func (s *Session) Clear() {
	s.cleared = true
	clear(s.content.Values)
	clear(s.changed)
}

// Renew gives the session a new id. Call it at every login and change of rights, so that an attacker who has planted an id in the
// browser doesn't share the new session. With a Store, the old id gives no access from then on. For five minutes it can still end
// the session, so that a logout already under way takes effect. A session in a cookie has no id: a copy of the old cookie stays
// valid, with its old values, until it expires.
func (s *Session) Renew() { s.renewed = true }

// Destroy ends the session. It removes the values and the cookie, and for five minutes the Store holds a marker without values in place of
// the record. Values set afterwards belong to a new session. A session in a cookie can't be revoked: a copy of the cookie stays valid until
// it expires. If the head of the answer was sent before, the browser keeps its cookie; this is logged as an error.
func (s *Session) Destroy() {
	s.Clear()
	s.content.Created, s.content.Renewed = time.Now().Unix(), false
	s.destroyed, s.renewed = true, false
}

// New reports whether the client has sent no valid session.
func (s *Session) New() bool { return s.record.Version == 0 }

func (s *Session) change(key string) {
	if s.changed == nil {
		s.changed = make(map[string]bool)
	}
	s.changed[key] = true
}

type manager struct {
	Options
	sealer *sealer // for sessions in cookies; nil with a Store
	cookie filo.Cookie
}

var check = setup.Checker("session")

var errTooLarge = errors.New("session: the values exceed MaxBytes or the size of a cookie")

func newManager(o Options) *manager {
	check((o.Store == nil) != (len(o.Keys) == 0), "New needs either a Store or Keys")
	check(o.IdleTimeout >= 0 && o.Lifetime >= 0 && o.MaxBytes >= 0, "Options.IdleTimeout, Lifetime and MaxBytes must not be negative")
	if memory, ok := o.Store.(*Memory); ok {
		check(memory.MaxBytes >= 0, "Memory.MaxBytes must not be negative")
	}
	if o.CookieName == "" {
		o.CookieName = "__Host-session"
		if o.Insecure {
			o.CookieName = "session"
		}
	}
	o.SameSite = cmp.Or(o.SameSite, filo.SameSiteLax)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 2*time.Hour)
	o.Lifetime = cmp.Or(o.Lifetime, 7*24*time.Hour)
	o.MaxBytes = cmp.Or(o.MaxBytes, 16<<10)
	m := &manager{Options: o, cookie: filo.Cookie{
		Name: o.CookieName, Value: "x", Path: "/", Domain: o.Domain, Secure: !o.Insecure, HttpOnly: true, SameSite: o.SameSite,
	}}
	if err := m.cookie.Valid(); err != nil {
		panic(fmt.Sprintf("session: the options of New make an invalid cookie: %v", err))
	}
	if o.Store == nil {
		m.sealer = newSealer(o.Keys, o.CookieName)
	}
	return m
}

// open loads the session of a request. A cookie with an unknown id or with invalid content is treated as missing.
func (m *manager) open(c *filo.Ctx) (*Session, error) {
	s := &Session{manager: m}
	now := time.Now()
	s.content.Created = now.Unix()
	// An answer that depends on the session is for this client alone.
	c.Response.Header.Add("Vary", "Cookie")
	value := c.Request.Cookie(m.CookieName)
	if value == "" {
		return s, nil
	}
	if m.sealer != nil {
		data, current, ok := m.sealer.open(value)
		s.stale = ok && !current
		if ok {
			s.record = Record{Data: data, Version: 1}
		}
	} else {
		record, err := m.Store.Load(c, storedID(value))
		if err != nil {
			return nil, fmt.Errorf("loading a session: %w", err)
		}
		s.record, s.id = record, value
	}
	if !s.read(now) {
		s.moved = contentOf(s.record).Next
		if s.unknown = s.record.Unknown; s.unknown != nil {
			s.moved = storedID(s.id)
		}
		s.id, s.record, s.stale = "", Record{}, false
		s.content = contents{Created: now.Unix()}
	}
	return s, nil
}

// read copies the content from the record, if the record is alive.
func (s *Session) read(now time.Time) bool {
	content := contentOf(s.record)
	if content.Expires <= now.Unix() {
		return false
	}
	s.content = content
	// A session that is used but not changed is saved when a tenth of IdleTimeout has passed, so that it doesn't expire.
	if left := time.Unix(content.Expires, 0).Sub(now); left < s.manager.IdleTimeout*9/10 && s.expires(now).Unix() > content.Expires {
		s.stale = true
	}
	return true
}

// expires returns the time until which the session lives if it isn't used again.
func (s *Session) expires(now time.Time) time.Time {
	end := time.Unix(s.content.Created, 0).Add(s.manager.Lifetime)
	if idle := now.Add(s.manager.IdleTimeout); idle.Before(end) {
		return idle
	}
	return end
}

// beforeHead saves the session before a streamed answer begins, or the connection is parked or upgraded. It returns nil, since it doesn't wrap
// the body.
func (s *Session) beforeHead(c *filo.Ctx, _ io.Writer, _ int64) io.WriteCloser {
	storelog.Failure(c, unsavedMessage, s.save(c))
	return nil
}

// unsavedMessage is logged with an error of the method save that comes too late to become the request's error.
const unsavedMessage = "saving a session failed"

// unsaved reports whether save has anything to do.
func (s *Session) unsaved() bool {
	switch {
	case s.over:
		return false
	case s.destroyed:
		return s.record.Version > 0 || s.moved != ""
	}
	return s.altered() || s.stale
}

// altered reports whether a session that isn't destroyed has changes, other than of its expiry.
func (s *Session) altered() bool {
	return len(s.changed) > 0 || s.record.Version > 0 && (s.renewed || s.cleared) || s.unknown != nil && s.cleared
}

// save writes the request's changes to the store, and sets the cookie if the cookie must change. The session doesn't store a Ctx, so the
// caller passes one: an adaptor may have run the handler with another Ctx that has ended by now.
func (s *Session) save(c *filo.Ctx) (err error) {
	altered := s.altered()
	needsCookie := s.manager.sealer != nil || !s.destroyed && (s.id == "" || s.renewed || s.another)
	switch {
	case !s.unsaved():
		return nil
	case needsCookie && c.Committed():
		return fmt.Errorf("setting a session's cookie: %w", filo.ErrHeadSent)
	case s.destroyed:
		return s.remove(c)
	case s.manager.sealer != nil:
		err = s.saveCookie(c, time.Now())
	default:
		err = s.saveStore(c, time.Now())
	}
	clear(s.changed)
	s.cleared, s.renewed, s.another, s.stale = false, false, false, false
	if !altered { // the answer doesn't depend on how long the session lives
		storelog.Failure(c, "renewing the expiry of a session failed", err)
		return nil
	}
	return err
}

func (s *Session) remove(c *filo.Ctx) error {
	if s.manager.Store != nil {
		if err := s.end(c, time.Now()); err != nil {
			return err // the client keeps its cookie, so that it can try again
		}
	}
	cookie := s.manager.cookie
	cookie.Value, cookie.MaxAge = "", -1
	err := s.setCookie(c, &cookie)
	s.record, s.id, s.destroyed, s.another, s.cleared = Record{}, "", false, false, false
	s.content = contents{Created: time.Now().Unix()}
	return err
}

// encode returns the content in the form in which it is stored.
func (s *Session) encode(now time.Time) (data []byte, expires time.Time, err error) {
	expires = s.expires(now)
	s.content.Expires = expires.Unix()
	data, err = json.Marshal(s.content)
	if err == nil && len(data) > s.manager.MaxBytes {
		err = errTooLarge
	}
	return data, expires, err
}

func (s *Session) saveCookie(c *filo.Ctx, now time.Time) error {
	data, expires, err := s.encode(now)
	if err != nil {
		return err
	}
	s.record.Version = 1
	return s.setCookieValue(c, s.manager.sealer.seal(data), expires, now)
}

func (s *Session) setCookieValue(c *filo.Ctx, value string, expires, now time.Time) error {
	cookie := s.manager.cookie
	cookie.Value = value
	cookie.MaxAge = max(int(expires.Sub(now)/time.Second), 1)
	return s.setCookie(c, &cookie)
}

// setCookie adds the cookie to the response, and keeps that response out of shared caches.
func (s *Session) setCookie(c *filo.Ctx, cookie *filo.Cookie) error {
	if c.Committed() {
		return nil // the client has the id; without the new cookie, it merely doesn't learn that the session lives longer or has ended
	}
	if cookie.Valid() != nil {
		return errTooLarge
	}
	h := &c.Response.Header
	caching.DropTargeted(h) // otherwise the cache of a CDN would obey these fields instead of Cache-Control
	if !caching.HasDirective(h, "private") && !caching.HasDirective(h, "no-store") {
		h.Add("Cache-Control", "private") // the most restrictive of conflicting directives counts (RFC 9111, section 4.2.1)
	}
	return c.Response.SetCookie(cookie)
}

// storedID returns the id under which a session is stored.
func storedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
