package otel_test

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleMiddleware() {
	spans := tracetest.NewInMemoryExporter() // instead of an exporter that sends the spans to a collector
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	r := router.New()
	r.Use(otel.Middleware(otel.Options{TracerProvider: tracers}))
	r.GET("/users/{id}", func(c *filo.Ctx) error {
		otel.SpanOf(c).SetAttributes(attribute.String("user.id", c.Param("id")))
		_, span := tracers.Tracer("example").Start(c.Context(), "look the user up")
		defer span.End()
		return c.Text(200, "user "+c.Param("id"))
	})

	ln := servertest.NewListener()
	server := &filo.Server{Handler: r.Serve}
	go server.Serve(ln)
	defer server.Shutdown(context.Background())
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext, DisableKeepAlives: true}}
	response, err := client.Get("http://filo.test/users/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	response.Body.Close()

	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name, span.Parent.IsValid())
		for _, each := range span.Attributes {
			switch each.Key {
			case "http.route", "http.response.status_code", "user.id":
				fmt.Printf("  %s: %s\n", each.Key, each.Value.String())
			}
		}
	}
	// Output:
	// internal look the user up true
	// server GET /users/{id} false
	//   user.id: 7
	//   http.route: /users/{id}
	//   http.response.status_code: 200
}
