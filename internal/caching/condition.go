// Package caching implements the rules of RFC 9110 and RFC 9111 for answers that a client or a cache already has: conditions of requests,
// and Cache-Control.
package caching

import (
	"bytes"
	"time"
	"unicode"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// ReadsOnly reports whether the method is GET, HEAD or QUERY.
func ReadsOnly(c *filo.Ctx) bool { return syntax.Retrieves(c.Request.MethodBytes()) }

// AnswerCondition replaces a 200 response with the one that the request's conditions require. modified is the date of the last change, and may be
// nil.
func AnswerCondition(c *filo.Ctx, modified []byte) error {
	switch Precondition(c, true, c.Response.Header.GetBytes("ETag"), modified) {
	case 304:
		notModified(c)
	case 412:
		c.Response.SetBody(nil)
		return errPrecondition
	}
	return nil
}

var errPrecondition = filo.Error(412, "")

// notModified turns the response into a 304. As RFC 9110, section 15.4.5, requires, it keeps the fields that a cache needs, and drops the other
// fields that describe a body.
func notModified(c *filo.Ctx) {
	h := &c.Response.Header
	c.Response.SetStatus(304)
	c.Response.SetBody(nil)
	for _, name := range [...]string{"Content-Type", "Content-Length", "Content-Encoding", "Content-Range"} {
		h.Del(name)
	}
	if h.Has("ETag") {
		h.Del("Last-Modified")
	}
}

// Precondition is middleware.Precondition for the values of the fields ETag and Last-Modified. nil means that the field is missing; a
// resource that exists may lack either.
func Precondition(c *filo.Ctx, exists bool, etag, modified []byte) (status int) {
	h := &c.Request.Header
	// "A recipient MUST ignore If-Unmodified-Since if the request contains an If-Match header field", and If-Modified-Since if it contains
	// If-None-Match (RFC 9110, sections 13.1.3 and 13.1.4).
	if h.Has("If-Match") {
		if !matches(h, "If-Match", exists, etag, false) {
			return 412
		}
	} else if since, ok := Date(h.GetBytes("If-Unmodified-Since")); ok {
		if last, ok := Date(modified); ok && last.After(since) {
			return 412
		}
	}
	if h.Has("If-None-Match") {
		if !matches(h, "If-None-Match", exists, etag, true) {
			return 0
		}
		if ReadsOnly(c) {
			return 304
		}
		return 412
	}
	if since, ok := Date(h.GetBytes("If-Modified-Since")); ok && ReadsOnly(c) {
		if last, ok := Date(modified); ok && !last.After(since) {
			return 304
		}
	}
	return 0
}

// Date parses a date in one of the forms of RFC 9110, section 5.6.7. A date that differs from them, for example by a second space or an
// hour of one digit, is invalid, although time.Parse accepts it. A wrong day of the week doesn't matter.
func Date(value []byte) (t time.Time, ok bool) {
	if len(value) == 0 {
		return t, false
	}
	for _, layout := range [...]string{syntax.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if t, err := time.Parse(layout, string(value)); err == nil {
			var buffer [40]byte
			return t, syntax.EqualFold(afterDay(value), afterDay(t.AppendFormat(buffer[:0], layout)))
		}
	}
	return t, false
}

// afterDay returns what follows the name of the day in a date.
func afterDay(date []byte) []byte { return bytes.TrimLeftFunc(date, unicode.IsLetter) }

// matches reports whether a list of entity tags contains the tag of a resource that exists. "*" matches any resource, even one without an
// entity tag (RFC 9110, sections 13.1.1 and 13.1.2). By weak comparison W/"a" and "a" are the same; by strong comparison W/"a" isn't even
// the same as itself (RFC 9110, section 8.8.3.2).
func matches(h *filo.Header, name string, exists bool, etag []byte, weak bool) bool {
	if !exists {
		return false
	}
	opaque, isWeak := opaqueTag(etag)
	for list := range h.Values(name) {
		for list = bytes.TrimLeft(list, " \t,"); len(list) > 0; list = bytes.TrimLeft(list, " \t,") {
			if list[0] == '*' {
				return true
			}
			candidate, candidateWeak := opaqueTag(list)
			end := -1
			if len(candidate) > 0 && candidate[0] == '"' {
				end = bytes.IndexByte(candidate[1:], '"')
			}
			if end < 0 {
				break // not an entity tag
			}
			if bytes.Equal(candidate[:end+2], opaque) && (weak || !isWeak && !candidateWeak) {
				return true
			}
			list = candidate[end+2:]
		}
	}
	return false
}

// opaqueTag removes the prefix of a weak entity tag.
func opaqueTag(etag []byte) (opaque []byte, weak bool) { return bytes.CutPrefix(etag, []byte("W/")) }
