package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestCollectorForgets(t *testing.T) {
	c := newCollector()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(c)).Tracer("test")
	var first, last trace.TraceID
	for i := range maxTraces + 10 {
		_, span := tracer.Start(context.Background(), fmt.Sprint(i))
		span.End()
		if last = span.SpanContext().TraceID(); i == 0 {
			first = last
		}
	}
	if all := c.all(); len(all) != maxTraces || len(c.traces) != maxTraces || all[0][0].SpanContext().TraceID() != last {
		t.Errorf("%d traces are kept, and the first isn't the newest", len(all))
	}
	if len(c.find(first)) != 0 || len(c.find(last)) != 1 {
		t.Error("it is the oldest ones that are forgotten")
	}
	ctx, _ := tracer.Start(context.Background(), "large")
	for range maxSpans + 10 {
		_, span := tracer.Start(ctx, "child")
		span.End()
	}
	if n := len(c.find(trace.SpanContextFromContext(ctx).TraceID())); n != maxSpans {
		t.Errorf("%d spans of a trace are kept", n)
	}
}

// Spans come after their parents, in the order in which they began. Spans whose parent is unknown have depth 0.
func TestOrder(t *testing.T) {
	c := newCollector()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(c)).Tracer("test")
	elsewhere := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true})
	ctx, root := tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), elsewhere), "root")
	inner, first := tracer.Start(ctx, "first")
	_, deep := tracer.Start(inner, "deep")
	_, second := tracer.Start(ctx, "second")
	for _, span := range []trace.Span{second, deep, first, root} {
		span.End()
	}
	var got []string
	for _, p := range order(c.find(trace.TraceID{1})) {
		got = append(got, fmt.Sprint(p.depth, " ", p.span.Name()))
	}
	if got, want := strings.Join(got, ", "), "0 root, 1 first, 2 deep, 1 second"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
