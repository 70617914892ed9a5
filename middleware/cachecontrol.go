package middleware

import (
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// CacheControlOptions are options of CacheControl: the directives of RFC 9111, section 5.2.2, RFC 5861 and RFC 8246. Durations
// are in whole seconds; zero leaves them out. The zero value is no-store.
type CacheControlOptions struct {
	// Public lets shared caches keep what they wouldn't otherwise, such as answers to requests with Authorization; Private keeps
	// it to the browser's.
	Public, Private bool
	// NoCache has caches ask the server before each use, NoStore keep nothing. NoTransform forbids changes on the way.
	NoCache, NoStore, NoTransform bool
	// MustRevalidate forbids to use what is older than MaxAge when the server can't be asked, ProxyRevalidate so for shared caches.
	MustRevalidate, ProxyRevalidate bool
	// Immutable says that the content never changes, so that even a reload needn't ask.
	Immutable bool
	// MaxAge is for how long an answer is fresh, SharedMaxAge that for shared caches. Negative is 0 seconds.
	MaxAge, SharedMaxAge time.Duration
	// StaleWhileRevalidate is for how long an older answer may be used while the cache asks, and StaleIfError while asking fails.
	StaleWhileRevalidate, StaleIfError time.Duration
}

// CacheControl sets the Cache-Control field of responses, for a handler to set otherwise. Errors, which are mostly over before
// such a time is, get no-store instead, unless the handler has written the error itself, with another value.
//
// Its place is inside of package cache, which goes by the field, near the handler.
func CacheControl(options ...CacheControlOptions) filo.Middleware {
	o := setup.One("middleware: CacheControl", options)
	value := o.value()
	field, noStore := prepare("Cache-Control", value), prepare("Cache-Control", "no-store")
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.SetField(field)
			err := next(c)
			if (err != nil || c.Status() >= 400) && !c.Committed() && string(c.Response.Header.GetBytes("Cache-Control")) == value {
				c.Response.Header.SetField(noStore)
			}
			return err
		}
	}
}

// value returns the field's value.
func (options *CacheControlOptions) value() string {
	o := options
	check(!o.Public || !o.Private, "CacheControl: both Public and Private")
	durations := o.MaxAge != 0 || o.SharedMaxAge != 0 || o.StaleWhileRevalidate != 0 || o.StaleIfError != 0
	check(!o.NoStore || !o.Public && !o.Immutable && !durations, "CacheControl: NoStore, and something about what is stored")
	check(!o.Private || o.SharedMaxAge == 0 && !o.ProxyRevalidate, "CacheControl: Private, and something for shared caches")
	check(o.StaleWhileRevalidate >= 0 && o.StaleIfError >= 0, "CacheControl: a negative duration")
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
