package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// backend simulates a database or another service: its calls take time, and have spans.
type backend struct{ tracer trace.Tracer }

func (b *backend) query(ctx context.Context, name string, takes time.Duration) error {
	ctx, span := b.tracer.Start(ctx, name)
	defer span.End()
	err := b.wait(ctx, takes)
	record(span, err)
	return err
}

// fail records a query whose answer is an error.
func (b *backend) fail(ctx context.Context, name string, err error) error {
	_, span := b.tracer.Start(ctx, name)
	defer span.End()
	record(span, err)
	return err
}

func record(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}

// ping returns an error if the backend doesn't answer.
func (b *backend) ping(ctx context.Context) error { return b.wait(ctx, time.Millisecond) }

func (b *backend) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
