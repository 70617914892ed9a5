// Package otel traces and measures a filo server's requests with OpenTelemetry, following its semantic conventions for HTTP
// (1.43.0).
//
//	go get github.com/filohttp/filo/contrib/otel@latest
//
// The package is a separate module, so that filo doesn't depend on OpenTelemetry.
//
//	r.Use(otel.Middleware(otel.Options{TracerProvider: tracers, MeterProvider: meters, Propagators: propagators}))
//	r.GET("/users/{id}", func(c *filo.Ctx) error {
//		request, _ := http.NewRequestWithContext(c.Context(), "GET", backend, nil)
//		response, err := client.Do(request) // with otelhttp's transport: a child of this request's span
//		...
//	})
//
// Each request gets a server span, in the request's context, so the handler's own calls become children of it. If the client has sent its
// trace, the span is a child of the client's span or links to it: see Options.TrustClients. SpanOf returns the span without the context, to
// add attributes and events. TraceID and LogAttributes connect metrics and logs to the span.
//
// # Cardinality
//
// Names of spans and attributes of metrics have no values that a client could choose. The route is the matched pattern, and the method is a
// known method or "_OTHER". The host, the path and similar values are attributes of spans only.
package otel
