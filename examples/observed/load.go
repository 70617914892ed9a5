package main

import (
	"context"
	"expvar"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

const (
	// clients is the maximum number of requests of the load in flight.
	clients = 16
	// wave is the period in which the load rises and falls, between half and one and a half times its rate.
	wave = 20 * time.Second
	// tracesPerSecond is about how many of the load's requests are traced in a second.
	tracesPerSecond = 8
	// patience is how long a request of the load may take.
	patience = 5 * time.Second
)

var (
	sent   = expvar.NewInt("load_sent")
	failed = expvar.NewInt("load_failed")
)

// load sends requests at a rate. Each request carries a trace, to which the server's spans are added.
type load struct {
	base    string
	host    string // the host in its requests
	rate    float64
	limiter *rate.Limiter
	client  *http.Client
	tracer  trace.Tracer
}

// startLoad sends requests until ctx is done or stop is called. stop waits for the answers to the last requests.
func startLoad(ctx context.Context, base, host string, perSecond float64, spans sdktrace.SpanProcessor) (stop func()) {
	if perSecond == 0 {
		return func() {}
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(tracesPerSecond/perSecond)))
	l := &load{
		base: base, host: host, rate: perSecond,
		limiter: rate.NewLimiter(rate.Limit(perSecond), 1+int(perSecond/100)),
		client:  &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: clients}},
		tracer:  tracers.Tracer("load"),
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { l.swell(ctx) })
	for range clients {
		running.Go(func() { l.run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
		l.client.CloseIdleConnections()
	}
}

// swell makes the rate rise and fall until ctx ends.
func (l *load) swell(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for began := time.Now(); ; {
		select {
		case now := <-ticker.C:
			phase := 2 * math.Pi * float64(now.Sub(began)) / float64(wave)
			l.limiter.SetLimit(rate.Limit(l.rate * (1 + math.Sin(phase)/2)))
		case <-ctx.Done():
			return
		}
	}
}

func (l *load) run(ctx context.Context) {
	for l.limiter.Wait(ctx) == nil {
		name, path := pick()
		sent.Add(1)
		if err := l.get(ctx, name, path); err != nil && ctx.Err() == nil {
			failed.Add(1)
		}
	}
}

// pick chooses a random route. Most requests are quick ones.
func pick() (name, path string) {
	switch n := rand.IntN(100); {
	case n < 70:
		return "get quick", "/quick"
	case n < 88:
		return "get user", fmt.Sprintf("/users/%d", rand.IntN(100_000))
	case n < 97:
		return "get order", fmt.Sprintf("/orders/%d", rand.IntN(100_000))
	}
	return "get export", "/export"
}

func (l *load) get(ctx context.Context, name, path string) (err error) {
	ctx, span := l.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	defer func() {
		record(span, err)
		span.End()
	}()
	request, err := http.NewRequestWithContext(ctx, "GET", l.base+path, nil)
	if err != nil {
		return err
	}
	request.Host = l.host
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	response, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
	if response.StatusCode >= 500 {
		span.SetStatus(codes.Error, response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
