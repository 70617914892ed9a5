// Package http3filo serves HTTP/3 with filo, by github.com/quic-go/quic-go: the same handlers on the same port, by UDP.
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
// Serve takes the certificates from Server.TLSConfig alone, with GetConfigForClient and the client certificates that it demands. AltSvc tells
// clients of HTTP/1.1 and HTTP/2 that there is HTTP/3. docs/HTTP3.md says when it helps, what is different, and how restarts
// and balancers go with it.
//
// # Limits
//
// MaxConns, MaxConnsPerIP, MaxRequestsPerConn, HTTP2.MaxConcurrentStreams, HTTP2.MaxGlitches (requests without a whole answer, one-way streams
// of unknown kinds), HTTP2.MaxStreamWindow and MaxConnWindow, MaxBufferedBodies, the limits of heads and bodies and all time-outs hold as over
// HTTP/2. The connections of both protocols are counted apart. Concurrency, Queue and Stats have the requests of all protocols.
// Stats().ConnsHTTP3 and StreamsHTTP3 are how many connections and requests of HTTP/3 are open.
//
// Beyond 64 handshakes, at three quarters of MaxConns, and at half of MaxConnsPerIP, a new client must first show by a Retry that its address
// is its own. 0-RTT is off, since an attacker can send its requests again. WebSockets and Ctx.Hijack need HTTP/1.1 or HTTP/2.
//
// # The end
//
// When the server shuts down, clients get GOAWAY, and AltSvc says "clear". Running requests finish. Requests that were on their way are
// rejected in a way that lets the client send them again. Then the connections end, and at last Serve returns.
//
// # Versions
//
// The package uses internal packages of filo, so its version and filo's must be the same.
package http3filo
