package otel

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"

	"github.com/filohttp/filo"
)

// instruments are the metrics. The sets of their attributes are made once, and not for each request.
type instruments struct {
	duration                  metric.Float64Histogram
	active                    metric.Int64UpDownCounter
	requestSize, responseSize metric.Int64Histogram

	methods []string
	// counted has the attributes of active, by method, for http and https.
	counted [][2][]metric.AddOption
}

// sizeBuckets are the bounds of the histograms of sizes, in bytes, for which the conventions recommend none.
var sizeBuckets = metric.WithExplicitBucketBoundaries(
	0, 256, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20)

func newInstruments(meter metric.Meter, methods []string) instruments {
	duration, err := httpconv.NewServerRequestDuration(meter)
	report(err)
	active, err := httpconv.NewServerActiveRequests(meter)
	report(err)
	requestSize, err := httpconv.NewServerRequestBodySize(meter, sizeBuckets)
	report(err)
	responseSize, err := httpconv.NewServerResponseBodySize(meter, sizeBuckets)
	report(err)
	i := instruments{
		duration: duration.Inst(), active: active.Inst(), requestSize: requestSize.Inst(), responseSize: responseSize.Inst(),
		methods: methods,
	}
	for _, method := range methods {
		var options [2][]metric.AddOption
		for j, https := range [...]bool{false, true} {
			set := attribute.NewSet(semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(scheme(https)))
			options[j] = []metric.AddOption{metric.WithAttributeSet(set)}
		}
		i.counted = append(i.counted, options)
	}
	return i
}

// report tells OpenTelemetry's error handler that an instrument couldn't be created as requested. OpenTelemetry has returned a replacement,
// which is used.
func report(err error) {
	if err != nil {
		api.Handle(err)
	}
}

func scheme(https bool) string {
	if https {
		return "https"
	}
	return "http"
}

func (i *instruments) count(ctx context.Context, n int64, x *exchange) {
	scheme := 0
	if x.https {
		scheme = 1
	}
	i.active.Add(ctx, n, i.counted[x.method][scheme]...)
}

func (i *instruments) begin(ctx context.Context, x *exchange) { i.count(ctx, 1, x) }

func (i *instruments) end(ctx context.Context, c *filo.Ctx, r *route, x *exchange) {
	i.count(ctx, -1, x)
	took := time.Since(x.start)
	m := i.measurement(r, setKey{x.method, x.https, protocolVersion(c), x.status, x.result})
	i.duration.Record(ctx, took.Seconds(), m.options...)
	if x.size >= 0 {
		i.requestSize.Record(ctx, x.size, m.options...)
	}
	if size := responseSize(c); size >= 0 && x.status > 0 {
		i.responseSize.Record(ctx, size, m.options...)
	}
}

// responseSize returns the size of the response's body as sent, or -1 if that isn't known yet.
func responseSize(c *filo.Ctx) int64 {
	size := c.BytesWritten()
	switch {
	case string(c.Request.MethodBytes()) == "HEAD":
		return 0
	case c.Hijacked():
		return -1
	case size > 0 || c.Committed():
		return size
	}
	if _, whole := c.Response.WholeBody(); !whole {
		return -1
	}
	return 0
}

// setKey identifies a set of attributes of a route's metrics. Each of its fields has few values.
type setKey struct {
	method  int
	https   bool
	version string
	status  int
	result  result
}

// measurement is a set of attributes as the option that the instruments' methods accept.
type measurement struct{ options []metric.RecordOption }

func (i *instruments) measurement(r *route, key setKey) *measurement {
	if found := (*r.sets.Load())[key]; found != nil {
		return found
	}
	added := &measurement{[]metric.RecordOption{metric.WithAttributeSet(i.set(r, key))}}
	for {
		before := r.sets.Load()
		sets := maps.Clone(*before)
		sets[key] = added
		if r.sets.CompareAndSwap(before, &sets) {
			return added
		}
	}
}

func (i *instruments) set(r *route, key setKey) attribute.Set {
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(i.methods[key.method]),
		semconv.URLScheme(scheme(key.https)),
		semconv.NetworkProtocolVersion(key.version),
	}
	if r.path != "" {
		attributes = append(attributes, semconv.HTTPRoute(r.path))
	}
	if key.status != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(key.status))
	}
	if errorType := errorType(key.result, key.status); errorType != "" {
		attributes = append(attributes, semconv.ErrorTypeKey.String(errorType))
	}
	return attribute.NewSet(attributes...)
}

// protocolVersion returns network.protocol.version, which is "2" for HTTP/2, and "3" for HTTP/3.
func protocolVersion(c *filo.Ctx) string {
	version := strings.TrimPrefix(c.Request.Proto(), "HTTP/")
	if version != "1.0" {
		version = strings.TrimSuffix(version, ".0")
	}
	return version
}

// errorType returns error.type, or "" if there was no error. For a request that was answered with 5xx, it is the status.
func errorType(r result, status int) string {
	switch {
	case r != resultAnswered:
		return errorTypes[r]
	case status >= 500:
		return strconv.Itoa(status)
	}
	return ""
}
