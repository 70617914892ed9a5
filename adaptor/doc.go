// Package adaptor lets handlers and middleware written for net/http run in filo, and filo's handlers in net/http.
//
//	r.GET("/metrics", adaptor.FromHTTP(promhttp.Handler()))
//	r.Use(adaptor.Middleware(chimiddleware.RealIP))
//	http.Handle("/api/", adaptor.ToHTTP(api.Serve))
//
// # Handlers of net/http in filo
//
// FromHTTP gives the handler its own http.Request, which it may keep just as in net/http, and an http.ResponseWriter that
// flushes, hijacks, streams, sends trailers and 1xx answers, and works with http.ResponseController. docs/internals/NETHTTP.md lists the
// differences from net/http's server. The most important are:
//
//   - The server's ErrorHandler answers a panic with 500, as for every handler of filo. http.ErrAbortHandler aborts the
//     connection.
//   - The server (Server.MaxBodyBytes) or Ctx.SetMaxBodyBytes limits the body. The error of a larger body is both filo's error and
//     an *http.MaxBytesError.
//   - Other goroutines may use the request and its body. In HTTP/1.1 only one call at a time waits for the client: a Write waits
//     until a Read in progress is over. This doesn't affect a handler that alternates reads and writes, as after EnableFullDuplex.
//   - The value of http.ServerContextKey is an *http.Server that only shows that the handler runs in a server.
//   - A status over 599 becomes 500. A connection can't be hijacked after a part of the answer was sent. After WriteHeader(101) it can:
//     Hijack sends that head. If the handler returns without hijacking, the connection is closed after the head.
//
// # Handlers of filo in net/http
//
// ToHTTP gives a filo handler an ordinary Ctx, and sends the answer through the http.ResponseWriter, even if that is wrapped.
// Request heads pass through filo's own parser, so ToHTTP refuses the same requests as filo.
//
// A request counts in the filo server like a request on one of the server's own connections: against Concurrency and Queue, with the
// reserves for quick, inline and always handlers, against MaxBufferedBodies, and in Stats. There RequestsCarried is how many such requests
// are being handled. Ctx.Request.Proto is the protocol by which it came. The filo server's Shutdown waits for the requests, and answers
// further ones with 503 and Connection: close. Close ends their contexts; their connections are net/http's. The time-outs and limits of
// connections are net/http's, too: ReadHeaderTimeout, ReadTimeout, WriteTimeout, MinTransferRate, IdleTimeout, IdleGrace, MaxConns,
// MaxConnsPerIP and MaxRequestsPerConn have no effect, and neither have ConnState, ConnContext, TLSConfig, HTTP2 and ProxyProtocol.
// net/http also handles panics.
//
// Ctx.Park and Ctx.ParkStream, and with them package sse and contrib/websocket, work at net/http's price: a goroutine for each connection.
// For ParkStream it is the handler's goroutine, so middleware of net/http around ToHTTP sees the stream's end. Such a connection has
// filo's WriteTimeout instead of net/http's time-outs. The filo server's Shutdown wakes and awaits such connections. net/http's Shutdown
// only waits, so call filo's while it does: register it by http.Server.RegisterOnShutdown. If called earlier, it answers requests with
// 503. Where net/http gives no connection away, as by HTTP/2, Park's error has status 501.
//
// # Middleware of net/http in filo
//
// Middleware runs next, the rest of filo's chain, like ToHTTP, with a Ctx that has the request's path parameters, route and
// values. That Ctx shows the middleware's changes to the request, and a ResponseWriter wrapped by the middleware sees the whole
// answer. This costs about as much as parsing another request, so prefer filo's own middleware where it exists. Middleware that
// doesn't wrap the ResponseWriter, and changes only the context and the fields of the answer, costs less: next then has the same
// Ctx.
//
// Upgrade, Park and ParkStream of next take filo's own connection over. The middleware sees the status by WriteHeader, may still add
// fields there, and then sees a Hijack: its ResponseWriter needs that method or Unwrap. Later bytes bypass the middleware.
//
// Otherwise the Ctx of next ends when next returns, while the values stored in it live on outside: none of them may refer to that
// Ctx. Its limit for bodies is the outer Ctx's, as set by Ctx.SetMaxBodyBytes. The inner Ctx can lower that limit, but not raise it.
package adaptor
