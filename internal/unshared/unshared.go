// Package unshared marks answers that are for one client only, even if their header fields don't say so. Then middleware/cache doesn't store them.
package unshared

import "github.com/filohttp/filo"

// Session is what a cache must know about a request's session. Sometimes the session's cookie is added to the answer only after the cache has seen
// the answer.
type Session interface {
	// Unsaved reports whether the session, or an earlier session of the same request, must be saved.
	Unsaved() bool
}

type sessionKey struct{}

// SetSession stores the session that the request's handlers have requested last.
func SetSession(c *filo.Ctx, s Session) { c.Set(sessionKey{}, s) }

// LastSession returns the session that the request's handlers have requested last, or nil if they haven't requested any.
func LastSession(c *filo.Ctx) Session {
	s, _ := c.Get(sessionKey{}).(Session)
	return s
}

type markKey struct{}

// Mark marks the answer as being for the request's client only. Middleware that admits or refuses each request calls it, since the decision about one
// client must not apply to others.
func Mark(c *filo.Ctx) { c.Set(markKey{}, true) }

// Is reports whether the answer is for the request's client only. The answer must be complete.
func Is(c *filo.Ctx) bool {
	if c.Get(markKey{}) != nil {
		return true
	}
	s := LastSession(c)
	return s != nil && s.Unsaved()
}
