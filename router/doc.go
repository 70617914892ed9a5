// Package router finds the handler for a request by its method, host and path.
//
//	r := router.New()
//	r.Use(logRequests)
//	r.GET("/users/{id:int}", showUser)
//	api := r.Group("/api", authenticate)
//	api.POST("/users", createUser)
//	err := filo.ListenAndServe(":8080", r.Serve)
//
// # Patterns
//
// Patterns are those of net/http.ServeMux, [METHOD ][HOST]/PATH, and mean the same:
//
//   - GET is HEAD's too, other methods are compared as they are; a pattern without one is for all of them.
//   - A host is compared without its port, and without regard to case; a pattern without one is for all of them.
//   - {id} stands for one segment, which is never empty; {path...}, at the end, for all that is left, even nothing; and so
//     does a slash at the end, without a name. {$} matches nothing: "/{$}" is only the path "/".
//   - Segments are decoded one by one. "%2F" doesn't end one, and "%2E%2E" leads nowhere else: it is a value like others.
//     Handlers that make file names of values must expect "/" and ".." in them.
//
// Patterns with empty segments or dots, which can never match, are refused, as is a host with a port. So are those that are
// written as other frameworks have them and would match next to nothing here, such as "/users/:id", "/files/*path",
// "/{id:int64}" and "get /users": the panic says what to write instead. A literal segment that begins with a colon or a star,
// or has a question mark, is written percent-encoded: "/%3Aid". CONNECT, which has no
// path, is matched as if its path were "/", and only by patterns that name it.
//
// # Constraints
//
// {id:int} matches values of a type: int (a decimal number that fits an int64), uint (one that fits a uint64), uuid, or
// alpha (ASCII letters). Anything else behind the colon is a regular expression for all of the value, decoded, such as
// {slug:[a-z-]+}; its braces must be balanced or behind a backslash. What doesn't satisfy a constraint is no match: the
// search goes on, and ends with 404.
//
// # Precedence
//
// The most specific pattern wins, whatever was registered first. At one place a literal is more specific than a constrained
// wildcard, that than an unconstrained one, and that than all that is left. Patterns that match the same requests, or some
// where neither is more specific, conflict: registering the second one panics, and names both with file and line. A pattern
// with a host doesn't conflict with one without, and wins. Two different constraints at one place conflict unless another
// part of the patterns, or their methods, keep them apart.
//
// # Groups and middleware
//
// A group has a prefix, middleware, or both, for its routes and groups. The router's own middleware is outermost, then that
// of groups from the outside in, then the route's. Use may come before or after the routes that it covers, and on a router
// covers what that answers itself: 404, 405, OPTIONS and redirects. The first request builds the chains: from then on
// changes panic.
//
// Mount hands a part of the paths over to another router, or to any handler.
//
// # Where a route runs
//
// On Linux, filo times each route's handler, together with the middleware around it, and runs it right where its requests are read
// while it takes some microseconds, or else on another worker. A route can be told, so that this holds from the first request on:
//
//	r.GET("/livez", probes.Live).Inline()   // answered even when the server is overloaded
//	r.POST("/reports", makeReport).Offload() // always waits, or computes for long
//
// filo.Server.Stats lists the routes by their patterns, with what was told or learned.
//
// # Errors
//
// The error that a handler, or middleware, returns is turned into the response right there (see filo.Ctx.RenderError):
// middleware around finds status, fields and body as they will be sent when next returns, and gets the error as well.
//
// # What the router answers
//
//   - A path without a route gets a 404 error, see NotFound; one with routes for other methods 405 and Allow, see
//     MethodNotAllowed.
//   - HEAD is answered by GET's route, OPTIONS by 204 and Allow where no route is for it. A CORS preflight goes through the
//     middleware of the route that it asks about, and gets the same 204 if none of that answers.
//   - A path without a slash at its end is redirected to the one with it if only that has a route, or a closer one; a path
//     with empty segments, "." or ".." to what it means. The status is 301 for GET and HEAD, and 308, which keeps the method
//     and the body, for others.
//
// Fields of Router, the names of which begin with Disable, turn each of them off.
package router
