package middleware

import (
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/caching"
	"github.com/filohttp/filo/internal/setup"
)

// CacheControlOptions configures CacheControl with the directives of RFC 9111, section 5.2.2, RFC 5861 and RFC 8246. Durations
// are in whole seconds; a zero duration omits its directive. The zero value of the options means no-store.
type CacheControlOptions struct {
	// Public lets shared caches store answers that they wouldn't store otherwise, such as answers to requests with Authorization.
	// Private allows only the browser's cache.
	Public, Private bool
	// NoCache makes caches ask the server before each use. NoStore forbids storing. NoTransform forbids changes by
	// intermediaries.
	NoCache, NoStore, NoTransform bool
	// MustRevalidate forbids the use of an answer older than MaxAge when the server can't be reached. ProxyRevalidate does so for shared
	// caches only.
	MustRevalidate, ProxyRevalidate bool
	// Immutable says that the content never changes, so that even a reload needn't ask the server.
	Immutable bool
	// MaxAge is how long an answer stays fresh, SharedMaxAge the same for shared caches. A negative value means 0 seconds.
	MaxAge, SharedMaxAge time.Duration
	// StaleWhileRevalidate is how long a cache may use a stale answer while it asks the server. StaleIfError is how long it may use a stale
	// answer while requests to the server fail.
	StaleWhileRevalidate, StaleIfError time.Duration
}

// CacheControl sets the Cache-Control field of responses; a handler can override it. An error gets no-store instead, since errors rarely last
// as long as content, unless the handler has written the error response itself, with another Cache-Control. From an error that gets no-store,
// CacheControl also removes the fields that some caches obey instead of Cache-Control, such as CDN-Cache-Control.
//
// Put it inside of the middleware of package cache, which obeys the field, and close to the handler.
func CacheControl(options ...CacheControlOptions) filo.Middleware {
	o := setup.One("middleware: CacheControl", options)
	value := o.value()
	field, noStore := prepare("Cache-Control", value), prepare("Cache-Control", "no-store")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.SetField(field)
			err := next(c)
			if (err != nil || c.Status() >= 400) && !c.Committed() && string(c.Response.Header.GetBytes("Cache-Control")) == value {
				caching.DropTargeted(&c.Response.Header)
				c.Response.Header.SetField(noStore)
			}
			return err
		}
	}
}

// value returns the field's value.
func (options *CacheControlOptions) value() string {
	o := options
	check(!o.Public || !o.Private, "CacheControl: set either Public or Private, not both")
	durations := o.MaxAge != 0 || o.SharedMaxAge != 0 || o.StaleWhileRevalidate != 0 || o.StaleIfError != 0
	check(!o.NoStore || !o.Public && !o.Immutable && !durations, "CacheControl: NoStore excludes Public, Immutable and durations")
	check(!o.Private || o.SharedMaxAge == 0 && !o.ProxyRevalidate, "CacheControl: Private excludes SharedMaxAge and ProxyRevalidate")
	check(o.StaleWhileRevalidate >= 0 && o.StaleIfError >= 0, "CacheControl: durations must not be negative")
	var directives []string
	for _, each := range [...]struct {
		name string
		set  bool
	}{
		{"public", o.Public}, {"private", o.Private}, {"no-cache", o.NoCache}, {"no-store", o.NoStore}, {"no-transform", o.NoTransform},
		{"must-revalidate", o.MustRevalidate}, {"proxy-revalidate", o.ProxyRevalidate}, {"immutable", o.Immutable},
	} {
		if each.set {
			directives = append(directives, each.name)
		}
	}
	for _, each := range [...]struct {
		name     string
		duration time.Duration
	}{
		{"max-age", o.MaxAge}, {"s-maxage", o.SharedMaxAge},
		{"stale-while-revalidate", o.StaleWhileRevalidate}, {"stale-if-error", o.StaleIfError},
	} {
		if each.duration != 0 {
			directives = append(directives, each.name+"="+strconv.FormatInt(max(int64(each.duration/time.Second), 0), 10))
		}
	}
	if len(directives) == 0 {
		return "no-store"
	}
	return strings.Join(directives, ", ")
}
