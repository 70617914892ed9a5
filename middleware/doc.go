// Package middleware has the middleware that most servers need. Each is a function of its options. They may be left out where
// their zero value, which is safe, lacks nothing that must be said; wrong options panic when the middleware is made.
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
// The first middleware of Use is outermost: it sees a request first, and its answer last. Few servers need all of them, but
// those that one needs belong in this order. What is in a line may be swapped. Those that keep something are packages of their own,
// below this one: ratelimit, session, idempotency and cache.
//
//	MethodOverride, Rewrite   around the router's Serve, since they change what it looks at
//	RequestID                 everything that logs has the id
//	RealIP                    everything that asks for the client's address, scheme or host gets the true ones
//	AccessLog                 logs all that follows, whoever answers; metrics belong here, too
//	Recover                   a panic becomes a 500 that those outside see, and inside nobody needs to know of it
//	Secure                    all answers have its fields, errors and redirects as well
//	HostCheck                 nothing inside meets a made-up host
//	Redirect                  nothing else is done for a request that comes again elsewhere
//	CORS                      preflights come without credentials, and scripts can read the errors of all that follows
//	ratelimit.New             guessing passwords and all that is dear is limited; before it, everything is cheap
//	CSRF                      needs neither session nor user
//	BodyLimit                 before anything reads the body
//	Decompress                inside of BodyLimit, which counts what is sent; it has a limit of its own for what becomes of that
//	session.New
//	BasicAuth, KeyAuth, Guard inside nothing runs for whom it isn't
//	ratelimit.New             once more, by user, with a Key
//	idempotency.New           what it repeats is the user's, by its Scope, and the whole answer
//	cache.New                 what it keeps is for all who have got as far as this
//	Compress                  inside of the cache, so that an answer is compressed once
//	ETag                      inside of Compress: the tag is that of the content, and a 304 needs no compressing
//	CacheControl              inside of the cache, which goes by it
//	Timeout                   an answer from the cache isn't waited for
//	ConcurrencyLimit          right around the handler; the Timeout holds for waiting in line as well
//
// A middleware of a group or of a route is inside of the router's, so what only some routes need goes there. Middleware that
// changes an answer when it is complete (Compress, ETag, the cache) finds an error of a handler rendered already, since the
// router does that innermost: see package router.
//
// # What requests can be made to say
//
// ClientIP, Scheme and Host return what the connection and the request say, and only with RealIP what trusted proxies say.
// Everything here that goes by an address, a scheme or a host asks them. Fields such as X-Forwarded-For mean nothing
// otherwise: any client can send them.
package middleware
