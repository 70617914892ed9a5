// Package unshared says which answers are for one client alone, whatever their fields say, so that middleware/cache doesn't keep
// them for others.
package unshared

import "github.com/filohttp/filo"

// Session is the session of a request, as far as a cache must know it. What it is saved with, a cookie, may come when the cache has
// seen the answer already.
type Session interface {
	// Unsaved reports whether the session, or one that the request has asked for before, must be saved.
	Unsaved() bool
}

type sessionKey struct{}

// SetSession stores the session that the request has asked for last.
func SetSession(c *filo.Ctx, s Session) { c.Set(sessionKey{}, s) }

// LastSession returns the session that the request has asked for last, nil if it hasn't asked for one.
func LastSession(c *filo.Ctx) Session {
	s, _ := c.Get(sessionKey{}).(Session)
	return s
}

type markKey struct{}

// Mark makes the answer to the request its client's alone, as what decides about each request anew does: what lets somebody in, or
// refuses somebody, does neither for others.
func Mark(c *filo.Ctx) { c.Set(markKey{}, true) }

// Is reports whether the answer to the request, which is complete, is for its client alone.
func Is(c *filo.Ctx) bool {
	if c.Get(markKey{}) != nil {
		return true
	}
	s := LastSession(c)
	return s != nil && s.Unsaved()
}
