package otel

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
)

// spanKey is what a request's span is stored under.
type spanKey struct{}

// SpanOf returns the request's span, for attributes and events of its own. Unlike the one in Ctx.Context it costs nothing to
// ask for. Without Middleware it is one that records nothing.
func SpanOf(c *filo.Ctx) trace.Span {
	if span, ok := c.Get(spanKey{}).(trace.Span); ok {
		return span
	}
	return trace.SpanFromContext(context.Background())
}

// TraceID returns the id of the request's trace if that is recorded, in hexadecimal digits, else "": for an exemplar that
// leads to a trace.
func TraceID(c *filo.Ctx) string {
	if span := SpanOf(c).SpanContext(); span.IsSampled() && span.HasTraceID() {
		return span.TraceID().String()
	}
	return ""
}

// LogAttributes appends "trace_id" and "span_id" to a log record's attributes, if the request has a span. Inside of Middleware
// Ctx.Logger has them already. For the access log, LogAttributes can be the Attributes of middleware.AccessLogOptions.
func LogAttributes(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
	span := SpanOf(c).SpanContext()
	if !span.IsValid() {
		return attributes
	}
	return append(attributes, slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
}
