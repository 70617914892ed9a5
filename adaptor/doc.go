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
//   - Other goroutines may use the request and its body. In HTTP/1.1 only one call at a time can wait for the client: a Write
//     blocks until a Read in progress has returned. This doesn't affect a handler that alternates reads and writes, as after
//     EnableFullDuplex.
//   - The value of http.ServerContextKey is an *http.Server that only shows that the handler runs in a server.
//   - A status over 599 becomes 500. A connection can't be hijacked after a part of the answer was sent. After WriteHeader(101) it can:
//     Hijack sends that head. If the handler returns without hijacking, the connection is closed after the head.
//
// # Handlers of filo in net/http
//
// ToHTTP gives a filo handler an ordinary Ctx, and sends the answer through the http.ResponseWriter, even if middleware has
// wrapped it. Request heads pass through filo's own parser, so ToHTTP refuses the same requests as filo.
//
// A request counts in the filo server like a request on one of the server's own connections: against Concurrency and Queue, with the
// reserves for quick, inline and always handlers, against MaxBufferedBodies, and in Stats. In Stats, RequestsCarried is the number of such
// requests in progress. Ctx.Request.Proto is the protocol between net/http's server and the client. The filo server's Shutdown waits for
// the requests in progress, and answers further ones with 503 and Connection: close. The filo server's Close ends the contexts of the
// requests, but doesn't close their connections, which belong to net/http. The time-outs and limits of connections are net/http's, too:
// ReadHeaderTimeout, ReadTimeout, WriteTimeout, MinTransferRate, IdleTimeout, IdleGrace, MaxConns, MaxConnsPerIP and MaxRequestsPerConn
// have no effect, and neither have ConnState, ConnContext, TLSConfig, HTTP2 and ProxyProtocol. net/http also handles panics.
//
// Ctx.Park and Ctx.ParkStream work, and with them package sse and contrib/websocket, but as in net/http each connection costs a goroutine.
// ParkStream uses the handler's goroutine, so middleware of net/http around ToHTTP returns only when the stream has ended. Such a connection
// has filo's WriteTimeout instead of net/http's time-outs. The filo server's Shutdown wakes and awaits such connections. net/http's Shutdown
// only waits, so filo's Shutdown must run at the same time: register it with http.Server.RegisterOnShutdown. If filo's Shutdown is called
// earlier, further requests get 503. Where net/http doesn't support hijacking, as over HTTP/2, Park returns an error with the status 501.
//
// # Middleware of net/http in filo
//
// Middleware runs next, the rest of filo's chain, as ToHTTP runs a handler: with another Ctx, which has the request's path
// parameters, route and values. That Ctx shows the middleware's changes to the request, and a ResponseWriter wrapped by the
// middleware sees the whole answer. This costs about as much as parsing another request, so prefer filo's own middleware where it
// exists. Middleware that doesn't wrap the ResponseWriter, and changes only the context and the fields of the answer, costs less:
// next then runs with the same Ctx.
//
// If next calls Upgrade, Park or ParkStream, it takes over filo's own connection. First WriteHeader of the middleware's
// ResponseWriter is called with the status, and may still add fields. Then its Hijack is called: the ResponseWriter needs that
// method or Unwrap. Later bytes bypass the middleware.
//
// In all other cases the Ctx of next ends when next returns. The values stored in it are passed to the outer Ctx, so none of them
// may refer to the Ctx of next. Its limit for bodies is the outer Ctx's, as set by Ctx.SetMaxBodyBytes. The inner Ctx can lower that
// limit, but not raise it.
package adaptor
