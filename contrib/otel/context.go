package otel

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
)

// spanKey is the key of a request's span.
type spanKey struct{}

// SpanOf returns the request's span, to add attributes and events. SpanOf is cheap, whereas Ctx.Context creates a context. Without
// Middleware, it returns a span that records nothing.
func SpanOf(c *filo.Ctx) trace.Span {
	if span, ok := c.Get(spanKey{}).(trace.Span); ok {
		return span
	}
	return trace.SpanFromContext(context.Background())
}

// TraceID returns the id of the request's trace in hexadecimal digits, for an exemplar that links to the trace. It is "" if the
// trace isn't recorded.
func TraceID(c *filo.Ctx) string {
	if span := SpanOf(c).SpanContext(); span.IsSampled() && span.HasTraceID() {
		return span.TraceID().String()
	}
	return ""
}

// LogAttributes appends "trace_id" and "span_id" to the attributes of a log record, if the request has a span. It can be used as Attributes
// of middleware.AccessLogOptions. Within Middleware, the logger of Ctx.Logger has both attributes already.
func LogAttributes(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
	span := SpanOf(c).SpanContext()
	if !span.IsValid() {
		return attributes
	}
	return append(attributes, slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
}
