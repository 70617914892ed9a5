package main

import (
	"context"
	"slices"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxTraces is how many of the last traces are kept, and maxSpans how many spans of each.
	maxTraces = 2000
	maxSpans  = 100
)

// collector stores ended spans by trace, as Jaeger or Tempo would do for a real service. It is an sdktrace.SpanExporter.
type collector struct {
	mu     sync.Mutex
	traces map[trace.TraceID][]sdktrace.ReadOnlySpan
	order  []trace.TraceID // the oldest first
}

func newCollector() *collector {
	return &collector{traces: make(map[trace.TraceID][]sdktrace.ReadOnlySpan)}
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *collector) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range spans {
		id := span.SpanContext().TraceID()
		known, ok := c.traces[id]
		if !ok {
			c.order = append(c.order, id)
		}
		if len(known) < maxSpans {
			c.traces[id] = append(known, span)
		}
	}
	if over := len(c.order) - maxTraces; over > 0 {
		for _, id := range c.order[:over] {
			delete(c.traces, id)
		}
		c.order = slices.Delete(c.order, 0, over)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c *collector) Shutdown(context.Context) error { return nil }

// all returns the traces, the newest first.
func (c *collector) all() [][]sdktrace.ReadOnlySpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	traces := make([][]sdktrace.ReadOnlySpan, 0, len(c.order))
	for _, id := range slices.Backward(c.order) {
		traces = append(traces, slices.Clone(c.traces[id]))
	}
	return traces
}

// find returns the spans of a trace, or none if the trace is unknown or no longer kept.
func (c *collector) find(id trace.TraceID) []sdktrace.ReadOnlySpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.traces[id])
}
