package middleware

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// ETagOptions configures ETag.
type ETagOptions struct {
	// Weak makes entity tags weak, for bodies that may differ in some bytes without a difference in meaning.
	Weak bool
	// MaxBytes is the maximum size of a body that gets an entity tag, 4 MB if 0. Hashing takes some milliseconds for each MB.
	MaxBytes int
}

// ETag saves the transfer of answers that the client already has. It gives answers to GET, HEAD and QUERY an entity tag, a hash of the body,
// unless they have one. It answers conditional requests, by the tag and by Last-Modified, with 304 (Not Modified) if the client has the
// current answer, or with 412 (Precondition Failed) if a condition isn't met. The handler runs in any case. Only answers with the status 200
// whose body doesn't stream get an entity tag; Last-Modified, which Ctx.File sets for example, works for streams too.
//
// Put it inside of Compress and of package cache. For methods that change something, the handler must call Precondition itself before the
// change.
func ETag(options ...ETagOptions) filo.Middleware {
	o := setup.One("middleware: ETag", options)
	check(o.MaxBytes >= 0, "ETag: MaxBytes must not be negative")
	o.MaxBytes = cmp.Or(o.MaxBytes, 4<<20)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			if err == nil && caching.ReadsOnly(c) && c.Status() == 200 && !c.Committed() {
				o.tag(c)
				return caching.AnswerCondition(c, c.Response.Header.GetBytes("Last-Modified"))
			}
			return err
		}
	}
}

// tag sets the entity tag of a whole body.
func (o *ETagOptions) tag(c *filo.Ctx) {
	h := &c.Response.Header
	if h.Has("ETag") {
		return
	}
	body, ok := c.Response.WholeBody()
	if !ok || len(body) > o.MaxBytes || len(body) == 0 && string(c.Request.MethodBytes()) == "HEAD" {
		return // the handler may have omitted the body for HEAD
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

// Precondition evaluates a request's If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since for a resource with the given entity
// tag, such as `"v7"` or `W/"v7"`, and time of last modification. It returns 0 if the handler should continue, 304 for a GET, HEAD or QUERY
// whose client has the current resource, and 412 otherwise. Pass the entity tag "" if the resource doesn't exist, and a zero time if its last
// modification isn't known. Precondition follows the order of RFC 9110, section 13.2.2, and ignores If-Range.
func Precondition(c *filo.Ctx, etag string, modified time.Time) (status int) {
	var date []byte
	if !modified.IsZero() {
		date = modified.UTC().AppendFormat(make([]byte, 0, len(syntax.TimeFormat)), syntax.TimeFormat)
	}
	return caching.Precondition(c, etag != "", []byte(etag), date)
}
