package middleware

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/filohttp/filo"
)

// ETagOptions are the options of ETag.
type ETagOptions struct {
	// Weak makes weak entity tags, for bodies that mean the same when they differ in some bytes.
	Weak bool
	// MaxBytes is how large a body may be to get an entity tag, which takes some milliseconds for each MB; 4 MB if 0.
	MaxBytes int
}

// ETag gives the answers to GET and HEAD an entity tag, made of a hash of the body, unless they have one, and answers
// conditional requests by that and by Last-Modified: with 304 (Not Modified) if the client has the answer already, or with
// 412 (Precondition Failed). The handler runs all the same: what this saves is the transfer. Only answers with the status
// 200, and no bodies that stream, get an entity tag; Last-Modified, as that of Ctx.File, serves for these too.
//
// It belongs inside of Compress and of Cache. For methods that change something a handler asks Precondition itself, before
// it does so.
func ETag(options ETagOptions) filo.Middleware {
	check(options.MaxBytes >= 0, "ETag with negative MaxBytes")
	if options.MaxBytes == 0 {
		options.MaxBytes = 4 << 20
	}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			if err == nil && readsOnly(c) && c.Status() == 200 && !c.Committed() {
				options.tag(c)
				return answerCondition(c)
			}
			return err
		}
	}
}

// readsOnly reports whether the method is GET or HEAD.
func readsOnly(c *filo.Ctx) bool {
	method := c.Request.MethodBytes()
	return string(method) == "GET" || string(method) == "HEAD"
}

// tag sets the entity tag of a whole body.
func (o *ETagOptions) tag(c *filo.Ctx) {
	h := &c.Response.Header
	if h.Has("ETag") {
		return
	}
	body, ok := c.Response.WholeBody()
	if !ok || len(body) > o.MaxBytes || len(body) == 0 && string(c.Request.MethodBytes()) == "HEAD" {
		return // a handler of HEAD may well leave out the body
	}
	sum := sha256.Sum256(body)
	var buffer [32]byte
	value := buffer[:0]
	if o.Weak {
		value = append(value, "W/"...)
	}
	value = append(value, '"')
	value = base64.RawURLEncoding.AppendEncode(value, sum[:16])
	h.SetBytes("ETag", append(value, '"'))
}

// answerCondition turns a response of 200 into what the request's conditions make of it.
func answerCondition(c *filo.Ctx) error {
	h := &c.Response.Header
	switch precondition(c, true, h.GetBytes("ETag"), h.GetBytes("Last-Modified")) {
	case 304:
		notModified(c)
	case 412:
		c.Response.SetBody(nil)
		return errPrecondition
	}
	return nil
}

var errPrecondition = filo.Error(412, "")

// notModified makes the response one of 304. RFC 9110, section 15.4.5: it has the fields that a cache needs, and not the
// rest of what describes a body.
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

// Precondition says what a request's If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since make of it, for a
// resource with the entity tag, such as `"v7"` or `W/"v7"`, that was last modified then: 0 to go on, 304 for a GET or HEAD
// whose client has the resource as it is, 412 otherwise. No resource at all has the entity tag "", and a resource whose
// last modification isn't known has a zero time. The order is that of RFC 9110, section 13.2.2; If-Range isn't looked at.
func Precondition(c *filo.Ctx, etag string, modified time.Time) (status int) {
	var date []byte
	if !modified.IsZero() {
		date = modified.UTC().AppendFormat(make([]byte, 0, len(httpTime)), httpTime)
	}
	return precondition(c, etag != "", []byte(etag), date)
}

// httpTime is IMF-fixdate (RFC 9110, section 5.6.7).
const httpTime = "Mon, 02 Jan 2006 15:04:05 GMT"

// precondition is Precondition for the values of the fields ETag and Last-Modified; nil is none, which a resource that exists
// may well have.
func precondition(c *filo.Ctx, exists bool, etag, modified []byte) (status int) {
	h := &c.Request.Header
	// "A recipient MUST ignore If-Unmodified-Since if the request contains an If-Match header field", and so for the others
	// (RFC 9110, sections 13.1.3 and 13.1.4).
	if h.Has("If-Match") {
		if !matches(h, "If-Match", exists, etag, false) {
			return 412
		}
	} else if since, ok := dateOf(h.GetBytes("If-Unmodified-Since")); ok {
		if last, ok := dateOf(modified); ok && last.After(since) {
			return 412
		}
	}
	if h.Has("If-None-Match") {
		if !matches(h, "If-None-Match", exists, etag, true) {
			return 0
		}
		if readsOnly(c) {
			return 304
		}
		return 412
	}
	if since, ok := dateOf(h.GetBytes("If-Modified-Since")); ok && readsOnly(c) {
		if last, ok := dateOf(modified); ok && !last.After(since) {
			return 304
		}
	}
	return 0
}

// dateOf parses a date. RFC 9110, section 13.1.3: a condition whose date isn't one is ignored.
func dateOf(value []byte) (t time.Time, ok bool) {
	if len(value) == 0 {
		return t, false
	}
	for _, layout := range [...]string{httpTime, time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, string(value)); err == nil {
			return t, true
		}
	}
	return t, false
}

// matches reports whether a list of entity tags has that of a resource that exists. "*" is any resource, also one that has no
// entity tag (RFC 9110, sections 13.1.1 and 13.1.2). By weak comparison W/"a" and "a"
// are the same; by strong comparison W/"a" isn't even the same as itself (RFC 9110, section 8.8.3.2).
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

// opaqueTag takes the mark of a weak entity tag off.
func opaqueTag(etag []byte) (opaque []byte, weak bool) { return bytes.CutPrefix(etag, []byte("W/")) }
