package cache

import (
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/syntax"
)

// directives are what a response says to this cache: by Cache-Control, or by a field that takes its place (RFC 9213).
type directives struct {
	header *filo.Header
	field  string // the latter; empty for Cache-Control
}

// directives returns those of the response. Middleware says by Cache-Control for whom an answer is, and the server that an error isn't to be
// stored, so nothing takes the place of those.
func (m *cache) directives(c *filo.Ctx) directives {
	h := &c.Response.Header
	if c.Status() < 400 && !caching.HasDirective(h, "private") {
		for _, field := range m.TargetedFields {
			if isDictionary(h, field) {
				return directives{h, field}
			}
		}
	}
	return directives{header: h}
}

// isDictionary reports whether a field is there, and is a dictionary with members: "If a targeted field in a given response is empty or a
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

// get returns the argument of a directive, and whether there is the directive. That of a dictionary is a number or nothing, and the last of
// a name counts.
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

// seconds returns the argument of a directive that is a time, and whether there is one.
func (d directives) seconds(name string) (time.Duration, bool) {
	argument, ok := d.get(name)
	if !ok {
		return 0, false
	}
	return caching.Seconds(argument)
}

// expires returns the field Expires, which counts beside Cache-Control alone.
func (d directives) expires() []byte {
	if d.field != "" {
		return nil
	}
	return d.header.GetBytes("Expires")
}

// mustRevalidate reports whether the response says that it is never to be served stale (RFC 9111, section 4.2.4).
func (d directives) mustRevalidate() bool {
	return d.has("must-revalidate") || d.has("proxy-revalidate") || d.has("s-maxage") || d.has("no-cache")
}

// mayAnswerAuthorized is RFC 9111, section 3.5.
func (d directives) mayAnswerAuthorized() bool {
	return d.has("public") || d.has("s-maxage") || d.has("must-revalidate")
}

// mayAnswerCookies reports whether a response says itself who may have it, and for how long.
func (d directives) mayAnswerCookies() bool {
	return d.has("public") || d.has("s-maxage") || d.has("max-age") || d.field == "" && d.header.Has("Expires") || caching.HasToken(d.header, "Vary", "cookie")
}
