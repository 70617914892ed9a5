// Package http3filo serves HTTP/3 with filo and github.com/quic-go/quic-go: the same handlers, on the same port number, but over UDP.
//
//	go get github.com/filohttp/filo/contrib/http3@latest
//
// The package is a separate module, so that filo doesn't depend on quic-go.
//
//	s := &filo.Server{Handler: http3filo.AltSvc(443)(r.Serve), TLSConfig: store.TLSConfig()}
//	served := make(chan error, 1)
//	go func() { served <- http3filo.ListenAndServe(s, ":443") }()
//	err := s.RunTLS(ctx, ":443", "", "")
//	<-served // the last clients of HTTP/3 have left
//
// Serve takes its certificates only from Server.TLSConfig. GetConfigForClient and the configuration's demands for client certificates work as
// well. AltSvc tells HTTP/1.1 and HTTP/2 clients that the server speaks HTTP/3. docs/HTTP3.md describes when HTTP/3 helps, how it differs, and
// how it works with restarts and load balancers.
//
// # Limits
//
// MaxConns, MaxConnsPerIP, MaxRequestsPerConn, HTTP2.MaxConcurrentStreams, HTTP2.MaxGlitches (requests without a whole answer, one-way streams of
// unknown kinds or without a kind), HTTP2.MaxStreamWindow and MaxConnWindow, MaxBufferedBodies, the limits of heads and bodies and all time-outs
// work as over HTTP/2. Limits of connections apply to HTTP/3 connections separately from TCP connections. Concurrency, Queue and Stats cover the
// requests of all protocols. Stats().ConnsHTTP3 and StreamsHTTP3 are the numbers of open HTTP/3 connections and requests.
//
// While 64 handshakes are running, or from three quarters of MaxConns or half of MaxConnsPerIP on, the server answers new clients with a Retry, by
// which they must validate their addresses. 0-RTT is off, since attackers can replay such requests. WebSockets and Ctx.Hijack need HTTP/1.1 or
// HTTP/2.
//
// # The end
//
// When the server shuts down, it sends GOAWAY to clients, and AltSvc sends "clear". Running requests finish. Requests that arrive later are
// rejected with an error code that allows the client to send them again elsewhere. Then the connections end, and finally Serve returns.
//
// # Versions
//
// The package uses internal packages of filo, so its version and filo's must be the same.
package http3filo
