// Package middleware has the middleware that most servers need. Each function takes its options as a struct. The zero value of every option is
// safe, and you may omit the struct if no option is required. Each function panics if its options are invalid.
//
//	r := router.New()
//	r.Use(
//		middleware.RequestID(),
//		middleware.AccessLog(),
//		middleware.Recover(),
//	)
//
// # The order
//
// The first middleware given to Use is outermost: it sees the request first and the answer last. Few servers need all of the following, but
// those that you use belong in this order. Middleware on the same line may be swapped. Middleware that stores something has its own package
// below this one: ratelimit, session, idempotency and cache.
//
//	MethodOverride, Rewrite   around the router's Serve, since they change the method and path that it matches
//	RequestID                 everything that logs has the id
//	RealIP                    everything inside sees the client's true address, scheme and host
//	AccessLog                 logs every answer given inside; metrics belong here, too
//	Recover                   a panic becomes a 500 that the middleware outside sees
//	Secure                    all answers have its fields, including errors and redirects
//	HostCheck                 nothing inside sees a made-up host
//	Redirect                  no more work is done for a request that is redirected
//	CORS                      preflights have no credentials, and scripts can read the errors of everything inside
//	ratelimit.New             limits password guessing and expensive work; everything outside is cheap
//	CSRF                      needs neither session nor user
//	BodyLimit                 before anything reads the body
//	Decompress                inside of BodyLimit, which counts bytes as sent; Decompress has its own limit for decoded bodies
//	session.New               saves when the handler has returned, and idempotency.New has kept the answer
//	BasicAuth, KeyAuth, Guard everything inside runs only for admitted users
//	ratelimit.New             once more, by user, with a Key
//	idempotency.New           repeats the whole answer, to the same user, by its Scope
//	cache.New                 its answers are for everyone who is admitted this far
//	Compress                  inside of the cache, so that an answer is compressed once
//	ETag                      inside of Compress: the tag is that of the content, and a 304 needs no compressing
//	CacheControl              inside of the cache, which obeys it
//	Timeout                   an answer from the cache needs no timeout
//	ConcurrencyLimit          directly around the handler; the Timeout covers the time in its queue as well
//
// The middleware of a group or route is inside of the router's, so give middleware that only some routes need to their group or route.
// Middleware that changes a complete answer (Compress, ETag, the cache) finds a handler's error already rendered, since the router renders
// errors innermost: see package router.
//
// # Client address, scheme and host
//
// ClientIP, Scheme and Host use what the connection and the request say and, with RealIP, what trusted proxies say. All
// middleware here that depends on an address, a scheme or a host calls them. Without RealIP, fields such as X-Forwarded-For are
// ignored: any client can send them.
package middleware
