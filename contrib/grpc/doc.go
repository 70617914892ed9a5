// Package grpcfilo serves gRPC and gRPC-Web with filo: the services that protoc-gen-go-grpc generates, unchanged, on routes beside others.
// google.golang.org/grpc has the codecs, compressors, metadata and statuses.
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
// Services is a grpc.ServiceRegistrar, so all code that registers a service at a grpc.Server registers it here: health and reflection, too.
// Each method is a route such as "POST /helloworld.Greeter/SayHello", with filo's middleware, limits, metrics and logs.
// docs/GRPC.md says what is the same as in grpc-go's server, and what isn't.
//
// # Errors
//
// The answer to a call always has the HTTP status 200. Code tells middleware how the call has ended:
//
//	middleware.AccessLog(middleware.AccessLogOptions{Attributes: func(c *filo.Ctx, all []slog.Attr) []slog.Attr {
//		if code, ok := grpcfilo.Code(c); ok {
//			all = append(all, slog.String("grpc", code.String()))
//		}
//		return all
//	}})
//
// A handler may return an error of package status, of package context, or a *filo.HTTPError. For an HTTPError, the client gets the gRPC
// code that corresponds to the HTTP status. A panic is INTERNAL, and logged. Set ErrorHandler, so that requests that the server, the router
// or middleware refuses get a gRPC status as well: too many requests at once (Server.Concurrency) are Unavailable, with a time after which
// the client may try again. Other requests get the errors of the handler that you pass, filo.DefaultErrorHandler if it is nil.
//
// # Time
//
// A client's deadline is the context's. Without one, a call may take any time, and its client may be silent: HTTP2Options.PingInterval finds
// clients that have vanished. A client that takes nothing of an answer for WriteTimeout loses its call. Don't use middleware.Timeout or
// Ctx.SetTimeout around methods: their answer is no gRPC status. Shutdown waits for running calls, as GracefulStop does. A stream that
// doesn't end by itself must end when Ctx.ShuttingDown or filo.Server.RegisterOnShutdown says so; when the time for the shutdown is over, the
// contexts of all calls end, and clients get Unavailable.
//
// # gRPC-Web
//
// Browsers call the same routes by gRPC-Web, as binary or as text, by HTTP/2 or HTTP/1.1. Pages of other origins need middleware.CORS. Over
// HTTP/1.1 a method doesn't send while it waits for a message of the client.
//
// # Middleware that changes bodies
//
// middleware.Compress leaves gRPC alone, which compresses messages by itself. A *Services takes no limit of bodies from
// filo.Server.MaxBodyBytes: Options.MaxRecvMsgSize limits each message, also after it is decompressed.
package grpcfilo
