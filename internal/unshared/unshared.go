// Package unshared marks answers that are for one client alone, whatever their fields say, so that middleware/cache doesn't keep them for
// others.
package unshared

import "github.com/filohttp/filo"

// Session is the part of a request's session that a cache must know. The cookie that saves it may be set when the cache has already seen
// the answer.
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

// Mark marks the answer to the request as its client's alone. Middleware that decides about each request calls it: an admission or a
// refusal of one client doesn't hold for others.
func Mark(c *filo.Ctx) { c.Set(markKey{}, true) }

// Is reports whether the complete answer to the request is for its client alone.
func Is(c *filo.Ctx) bool {
	if c.Get(markKey{}) != nil {
		return true
	}
	s := LastSession(c)
	return s != nil && s.Unsaved()
}
