// Package adaptor lets handlers and middleware written for net/http run in filo, and filo's handlers in net/http.
//
//	r.GET("/metrics", adaptor.FromHTTP(promhttp.Handler()))
//	r.Use(adaptor.Middleware(chimiddleware.RealIP))
//	http.Handle("/api/", adaptor.ToHTTP(api.Serve))
//
// # Handlers of net/http in filo
//
// FromHTTP gives a handler an http.Request of its own, which it may keep as it may one of net/http's, and an
// http.ResponseWriter that flushes, hijacks, streams, sends trailers and 1xx answers, and works with
// http.ResponseController. What is different from net/http's server is in docs/NETHTTP.md; most of all:
//
//   - A panic is answered by the server's ErrorHandler with 500, as that of every handler of filo is. http.ErrAbortHandler
//     breaks the connection off.
//   - The body has the limit of the server (Server.MaxBodyBytes) or of Ctx.SetMaxBodyBytes. The error of a body that is over it
//     is both filo's and an *http.MaxBytesError.
//   - The request and its body may be used by other goroutines, but what waits for the client does so alone: a Write
//     waits until a Read that is under way is over. A handler that reads and writes by turns, as one may that has called
//     EnableFullDuplex, isn't concerned.
//   - The value of http.ServerContextKey is an *http.Server that tells handlers that they run in a server, and no more.
//   - A status over 599 becomes 500. A connection can't be hijacked once a part of the answer was sent, but for a 101, whose head
//     Hijack sends; a handler that returns without one has the connection closed behind that head.
//
// # Handlers of filo in net/http
//
// ToHTTP gives a handler of filo a Ctx that is as any other, and sends the answer through the http.ResponseWriter, whatever is
// wrapped around that. Request heads pass through filo's own parser, so what filo refuses is refused there too. The one
// thing that doesn't work is Ctx.Park: use Ctx.Hijack or Ctx.Upgrade.
//
// # Middleware of net/http in filo
//
// Middleware runs next, the rest of filo's chain, as ToHTTP does, with a Ctx that has the request's path parameters, route and
// values: what the middleware has done to the request shows there, and what it wraps around the ResponseWriter sees
// all of the answer. That costs about as much as parsing another request: prefer filo's own middleware where there is one.
// A middleware that wraps nothing, and changes no more than the context and fields of the answer, costs less: next then has
// the same Ctx, and with it Ctx.Park.
//
// A Ctx of next's own is over when next returns, while the values that were stored in it live on outside: none of them may hold
// the Ctx. It has the limit for bodies that was set outside by Ctx.SetMaxBodyBytes, and can make it lower, but not higher.
package adaptor
