package cache

import (
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/syntax"
)

// directives are a response's directives for this cache, from Cache-Control or from a field that replaces Cache-Control (RFC 9213).
type directives struct {
	header *filo.Header
	field  string // the field's name; empty for Cache-Control
}

// terms say how long a response may be kept, and for whom.
type terms struct {
	lifetime                  time.Duration // from when the response was made; 0 if it must always be validated
	whileRevalidated, ifError time.Duration
	shared, cookies           bool
}

// terms returns the response's terms, and whether the response may be stored as the answer to a request with the fields sent. A targeted
// field replaces Cache-Control, except in private answers and failures. There it can only forbid what Cache-Control allows, because
// middleware uses Cache-Control to make an answer private, and to forbid storing an error.
func (m *cache) terms(c *filo.Ctx, sent *filo.Header, now time.Time) (terms, bool) {
	h := &c.Response.Header
	all := directives{header: h}
	own, ok := m.targeted(h)
	switch {
	case !ok:
		return m.termsOf(c, sent, all, now)
	case c.Status() < 400 && !caching.HasDirective(h, "private"):
		return m.termsOf(c, sent, own, now)
	}
	one, may := m.termsOf(c, sent, all, now)
	other, mayToo := m.termsOf(c, sent, own, now)
	return terms{
		min(one.lifetime, other.lifetime), min(one.whileRevalidated, other.whileRevalidated), min(one.ifError, other.ifError),
		one.shared && other.shared, one.cookies && other.cookies,
	}, may && mayToo
}

// termsOf returns the terms that these directives set.
func (m *cache) termsOf(c *filo.Ctx, sent *filo.Header, says directives, now time.Time) (t terms, ok bool) {
	if t.lifetime, ok = m.lifetime(c, sent, says, now); !ok {
		return t, false
	}
	if !says.mustRevalidate() {
		t.whileRevalidated, _ = says.seconds("stale-while-revalidate")
		t.ifError, _ = says.seconds("stale-if-error")
	}
	t.shared, t.cookies = says.mayAnswerAuthorized(), says.mayAnswerCookies()
	return t, !sent.Has("Cookie") || t.cookies
}

// targeted returns the directives of the first of TargetedFields that the response has in a valid form.
func (m *cache) targeted(h *filo.Header) (directives, bool) {
	for _, field := range m.TargetedFields {
		if isDictionary(h, field) {
			return directives{h, field}, true
		}
	}
	return directives{}, false
}

// isDictionary reports whether a field is present, and is a dictionary with members: "If a targeted field in a given response is empty or a
// parsing error is encountered, that field SHOULD be ignored".
func isDictionary(h *filo.Header, field string) bool {
	members := 0
	for value := range h.Values(field) {
		d := syntax.NewDictionary(value)
		for _, _, ok := d.Next(); ok; _, _, ok = d.Next() {
			members++
		}
		if d.Bad() {
			return false
		}
	}
	return members > 0
}

// get returns the argument of a directive, and whether there is such a directive. In a dictionary the argument is a number or nothing, and
// the last of several members with the same name is used.
func (d directives) get(name string) (argument []byte, ok bool) {
	if d.field == "" {
		return caching.Directive(d.header, name)
	}
	for value := range d.header.Values(d.field) {
		members := syntax.NewDictionary(value)
		for key, item, more := members.Next(); more; key, item, more = members.Next() {
			if string(key) == name {
				argument, ok = item, string(item) != "?0"
			}
		}
	}
	return argument, ok
}

func (d directives) has(name string) bool {
	_, ok := d.get(name)
	return ok
}

// seconds returns a directive's argument as a duration, and whether there is a valid one.
func (d directives) seconds(name string) (time.Duration, bool) {
	argument, ok := d.get(name)
	if !ok {
		return 0, false
	}
	return caching.Seconds(argument)
}

// expires returns the field Expires, which a targeted field replaces.
func (d directives) expires() []byte {
	if d.field != "" {
		return nil
	}
	return d.header.GetBytes("Expires")
}

// mustRevalidate reports whether the response forbids serving it stale (RFC 9111, section 4.2.4).
func (d directives) mustRevalidate() bool {
	return d.has("must-revalidate") || d.has("proxy-revalidate") || d.has("s-maxage") || d.has("no-cache")
}

// mayAnswerAuthorized reports whether a response may answer requests with Authorization (RFC 9111, section 3.5).
func (d directives) mayAnswerAuthorized() bool {
	return d.has("public") || d.has("s-maxage") || d.has("must-revalidate")
}

// mayAnswerCookies reports whether a response may answer requests with cookies, because the response itself states who may get it, or for how long.
func (d directives) mayAnswerCookies() bool {
	return d.has("public") || d.has("s-maxage") || d.has("max-age") || d.field == "" && d.header.Has("Expires") || caching.HasToken(d.header, "Vary", "cookie")
}
