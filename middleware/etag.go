package middleware

import (
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/setup"
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
// It belongs inside of Compress and of package cache. For methods that change something a handler asks Precondition itself, before
// it does so.
func ETag(options ...ETagOptions) filo.Middleware {
	o := setup.One("middleware: ETag", options)
	check(o.MaxBytes >= 0, "ETag with negative MaxBytes")
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 20
	}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			if err == nil && caching.ReadsOnly(c) && c.Status() == 200 && !c.Committed() {
				o.tag(c)
				return caching.AnswerCondition(c)
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

// Precondition says what a request's If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since make of it, for a
// resource with the entity tag, such as `"v7"` or `W/"v7"`, that was last modified then: 0 to go on, 304 for a GET or HEAD
// whose client has the resource as it is, 412 otherwise. No resource at all has the entity tag "", and a resource whose
// last modification isn't known has a zero time. The order is that of RFC 9110, section 13.2.2; If-Range isn't looked at.
func Precondition(c *filo.Ctx, etag string, modified time.Time) (status int) {
	var date []byte
	if !modified.IsZero() {
		date = modified.UTC().AppendFormat(make([]byte, 0, len(caching.TimeFormat)), caching.TimeFormat)
	}
	return caching.Precondition(c, etag != "", []byte(etag), date)
}
