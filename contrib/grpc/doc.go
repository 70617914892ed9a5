// Package grpcfilo serves gRPC and gRPC-Web with filo: unchanged services that protoc-gen-go-grpc has generated, on the same router as other
// routes. It uses the codecs, compressors, metadata and statuses of google.golang.org/grpc.
//
//	go get github.com/filohttp/filo/contrib/grpc@latest
//
// The package is a separate module, so that filo doesn't depend on google.golang.org/grpc.
//
//	g := grpcfilo.New()
//	pb.RegisterGreeterServer(g, &greeter{})
//
//	r := router.New()
//	r.GET("/", home)
//	g.Mount(r)
//	server := &filo.Server{Handler: r.Serve, ErrorHandler: grpcfilo.ErrorHandler(nil)}
//	server.HTTP2.Unencrypted = true // if clients connect without TLS
//
// Services is a grpc.ServiceRegistrar, so code that registers a service with a grpc.Server can register it with a *Services instead, including
// health checks and reflection. Each method is a route such as "POST /helloworld.Greeter/SayHello", with filo's middleware, limits, metrics
// and logs. docs/GRPC.md lists the differences from grpc-go's server.
//
// # Errors
//
// The response to a call always has the HTTP status 200. Middleware gets the gRPC code with which the call has ended from Code:
//
//	middleware.AccessLog(middleware.AccessLogOptions{Attributes: func(c *filo.Ctx, all []slog.Attr) []slog.Attr {
//		if code, ok := grpcfilo.Code(c); ok {
//			all = append(all, slog.String("grpc", code.String()))
//		}
//		return all
//	}})
//
// A handler may return an error of package status, of package context, or a *filo.HTTPError. For an HTTPError, the client gets the gRPC
// code that corresponds to the HTTP status. A panic is logged, and the client gets INTERNAL. Set Server.ErrorHandler to this package's
// ErrorHandler, so that calls that the server, the router or middleware refuses get a gRPC status as well. For example, a call beyond
// Server.Concurrency gets UNAVAILABLE, with a time after which the client may try again. ErrorHandler passes the errors of other requests to
// its argument, or to filo.DefaultErrorHandler if that is nil.
//
// # Time
//
// The context's deadline is the one that the client requests. A call without a deadline may take any time, and its client may be silent between
// messages: HTTP2Options.PingInterval finds clients that have vanished. Within a message, the client may take Server.ReadTimeout for each
// 32 KB. If a client reads nothing of a response for WriteTimeout, the call is aborted.
// Don't use middleware.Timeout or Ctx.SetTimeout for methods, since they don't respond with a gRPC status. Shutdown waits for running calls, as
// GracefulStop does. A stream that doesn't end by itself must end when Ctx.ShuttingDown or filo.Server.RegisterOnShutdown signals the shutdown.
// When the time for the shutdown has passed, the contexts of all calls end, and clients get UNAVAILABLE.
//
// # gRPC-Web
//
// Browsers call the same routes with gRPC-Web, in its binary or its text format, over HTTP/2 or HTTP/1.1. Pages of other origins need
// middleware.CORS. Over HTTP/1.1 and HTTP/3, and in the text format, a method can't send or return while it waits for a message from the
// client, and the client of a bidirectional method may be silent for Server.ReadTimeout at most. The same applies to calls that another server,
// such as net/http's, has received.
//
// # Middleware that changes bodies
//
// middleware.Compress doesn't compress responses to calls, since gRPC compresses each message by itself. filo.Server.MaxBodyBytes doesn't
// apply to calls: Options.MaxRecvMsgSize limits each message, before and after it is decompressed.
//
// # Memory
//
// filo.Server.MaxBufferedBodies counts the requests of methods without a client stream. It doesn't count the messages of client streams. Each
// running call may hold one message of MaxRecvMsgSize, and twice that while a compressed message is decompressed. By default a client with 128
// streams on a connection may hold 512 MB. If clients aren't trusted, lower MaxRecvMsgSize or filo.Server.HTTP2.MaxConcurrentStreams;
// filo.Server.Concurrency bounds the running calls of all clients.
package grpcfilo
