// Package otel traces and measures a filo server's requests by OpenTelemetry, with its semantic conventions for HTTP
// (1.43.0).
//
//	go get github.com/filohttp/filo/contrib/otel@latest
//
// It is a module of its own, so that filo doesn't depend on what it needs.
//
//	r.Use(otel.Middleware(otel.Options{TracerProvider: tracers, MeterProvider: meters, Propagators: propagators}))
//	r.GET("/users/{id}", func(c *filo.Ctx) error {
//		request, _ := http.NewRequestWithContext(c.Context(), "GET", backend, nil)
//		response, err := client.Do(request) // with otelhttp's transport: a child of this request's span
//		...
//	})
//
// Each request gets a server span, a child of the client's if that has sent one, which is in the request's context for
// whatever the handler calls. SpanOf has it without the context, to add attributes and events, and TraceID and LogAttributes
// lead to it from metrics and logs.
//
// # Cardinality
//
// Names of spans and attributes of metrics have nothing that a client could choose: the route is the pattern that was found,
// the method one of those that are known or "_OTHER". The host, the path and so on are in attributes of spans alone.
package otel
