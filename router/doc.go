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
// Patterns have the syntax and meaning of net/http.ServeMux, [METHOD ][HOST]/PATH:
//
//   - GET also matches HEAD; every other method matches itself exactly. A pattern without a method matches every method.
//   - The host is compared without its port and without regard to case. A pattern without a host matches every host. Unlike ServeMux,
//     the router also accepts "*.example.com/". The star matches exactly one label: shop.example.com matches, example.com and
//     a.b.example.com don't.
//   - {id} matches one segment, which is never empty. {path...}, at the end, matches the rest of the path, even if it is empty. A
//     trailing slash also matches the rest of the path, but doesn't name it. {$} matches the end of the path: "/{$}" matches only
//     the path "/".
//   - Segments are decoded one by one. "%2F" doesn't end a segment, and "%2E%2E" doesn't lead to a parent directory: both are part
//     of the value. Handlers that turn values into file names must expect "/" and ".." in them.
//
// The router refuses patterns with empty or dot segments, which can never match, and hosts with a port. It also refuses the
// syntax of other frameworks, such as "/users/:id", "/files/*path", "/{id:int64}" and "get /users", which would match next to
// nothing here: the panic says what to write instead. Write a literal segment that begins with a colon or a star, or contains a
// question mark, percent-encoded: "/%3Aid". A CONNECT request has no path: it is matched as if its path were "/", and only by patterns that
// name CONNECT.
//
// # Constraints
//
// {id:int} matches only values of the named type: int (a decimal number that fits an int64), uint (one that fits a uint64), uuid,
// or alpha (ASCII letters). Any other text after the colon is a regular expression that must match the whole decoded value, such
// as {slug:[a-z-]+}. Braces in it must be balanced or escaped with a backslash. A value that violates a constraint is no match:
// the search continues with other routes, and ends with 404 if none matches.
//
// # Precedence
//
// The most specific pattern wins, whatever the order of registration. At each position a literal beats a constrained wildcard,
// which beats an unconstrained wildcard, which beats a wildcard for the rest of the path. Two patterns conflict if they match the
// same requests, or if they share some requests and neither is more specific. Registering the second one panics; the message
// names both with file and line. A pattern with a full host wins over one with a star, which wins over one without a host, so
// such patterns never conflict. Two patterns with different constraints at the same position conflict, unless they differ in
// their methods or another part.
//
// # Groups and middleware
//
// A group gives its routes and inner groups a common prefix, middleware, or both. The router's middleware is outermost, then come
// the groups' from the outside in, then the route's. Use may be called before or after the routes that it covers. On a router,
// Use also covers the router's own answers: 404, 405, OPTIONS and redirects. The first request builds the chains: later changes
// panic.
//
// Mount passes all requests below a path prefix to another router, or to any handler.
//
// # Where a route runs
//
// On Linux, filo times each route's handler, together with its middleware. A route that takes some microseconds runs directly in
// the event loop that reads its requests; a slower one runs on another worker. Inline and Offload fix the choice from the first
// request:
//
//	r.GET("/livez", probes.Live).Inline()    // answered even when the server is overloaded
//	r.GET("/metrics", metrics).Always()      // so is this, which takes longer
//	r.POST("/reports", makeReport).Offload() // always waits, or computes for long
//
// filo.Server.Stats lists the routes by pattern, each with the choice that was fixed or learned.
//
// # Errors
//
// The router turns the error of a handler or middleware into the response at once (see filo.Ctx.RenderError). When next returns,
// the surrounding middleware finds status, fields and body as they will be sent, and also gets the error.
//
// # What the router answers
//
//   - A path without a route gets a 404 error, see NotFound. A path whose routes are for other methods gets 405 and Allow, see
//     MethodNotAllowed.
//   - A route for QUERY refuses a request without a Content-Type: see Route.AcceptQuery.
//   - A route for GET also answers HEAD. OPTIONS gets 204 and Allow where no route handles it. A CORS preflight passes through
//     the middleware of the route that it asks about, and gets 204 if that middleware doesn't answer. So does one whose path also has
//     a route for every method, if that route is less specific.
//   - A path without a trailing slash is redirected to the same path with one, if only the path with the slash has a route, or if
//     its route is more specific. A path with empty segments, "." or ".." is redirected to its clean form. The status is 301 for
//     GET and HEAD, and 308, which keeps the method and the body, for other methods.
//
// The fields of Router whose names begin with Disable turn off the redirects, the answers to OPTIONS, and 405.
package router
