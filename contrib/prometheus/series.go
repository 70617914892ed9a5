package prometheus

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
)

// statusLabels are the labels of the classes of status. The first stands for requests without an answer.
var statusLabels = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// pacedLabels say whether a slow client may have caused a long duration. Prometheus treats an empty label as missing.
var pacedLabels = [...]string{"", "client"}

// metrics are the metrics of a Middleware. The series of a request is found by two map lookups without a lock: looking the series up by its
// labels, as client_golang's vectors do, would take longer than the rest of the measurement.
type metrics struct {
	exemplars func(*filo.Ctx) client.Labels
	skip      func(*filo.Ctx) bool
	bounds    []float64 // upper bounds of the buckets of durations
	start     time.Time

	duration                  *client.HistogramVec
	requestSize, responseSize *client.HistogramVec // nil if sizes are left out
	panics, errors            *client.CounterVec
	inFlight                  client.Gauge

	methods      map[string]int // the indexes of methodLabels, except the last one
	methodLabels []string       // the last one stands for other methods

	mu sync.Mutex // held while routes is replaced
	// A new route replaces routes with a copy that has one more entry, up to MaxRoutes.
	routes atomic.Pointer[map[string]*routeMetrics]
	// others is for the routes beyond MaxRoutes.
	others *routeMetrics
}

func newMetrics(o *Options) *metrics {
	o.complete()
	m := &metrics{exemplars: o.Exemplars, skip: o.Skip, bounds: o.Buckets, start: time.Now(), methods: make(map[string]int)}
	for i, method := range o.Methods {
		m.methods[method] = i
		m.methodLabels = append(m.methodLabels, method)
	}
	m.methodLabels = append(m.methodLabels, other)

	durations := client.HistogramOpts{
		Name: "http_request_duration_seconds", Help: "How long handlers took, by method, route and class of status. paced=\"client\" are those that a slow client may have held up.",
		Buckets: o.Buckets,
	}
	if o.NativeHistograms {
		durations.NativeHistogramBucketFactor = 1.1
		durations.NativeHistogramMaxBucketNumber = 160
		durations.NativeHistogramMinResetDuration = time.Hour
	}
	m.duration = client.NewHistogramVec(durations, []string{"method", "route", "status", "paced"})
	labels := []string{"method", "route"}
	m.panics = client.NewCounterVec(client.CounterOpts{
		Name: "http_request_panics_total", Help: "Requests whose handler has panicked, by method and route.",
	}, labels)
	m.errors = client.NewCounterVec(client.CounterOpts{
		Name: "http_request_errors_total",
		Help: "Requests that failed here, by method and route: errors answered with 5xx or not at all, broken answers, panics.",
	}, labels)
	m.inFlight = client.NewGauge(client.GaugeOpts{Name: "http_requests_in_flight", Help: "Handlers that run."})
	collectors := []client.Collector{m.duration, m.panics, m.errors, m.inFlight}
	if len(o.SizeBuckets) > 0 {
		m.requestSize = client.NewHistogramVec(client.HistogramOpts{
			Name: "http_request_size_bytes", Help: "Announced sizes of request bodies, by method and route.", Buckets: o.SizeBuckets,
		}, labels)
		m.responseSize = client.NewHistogramVec(client.HistogramOpts{
			Name: "http_response_size_bytes", Help: "Sizes of response bodies, by method and route.", Buckets: o.SizeBuckets,
		}, labels)
		collectors = append(collectors, m.requestSize, m.responseSize)
	}
	for _, collector := range collectors {
		if err := o.Registerer.Register(collector); err != nil {
			panic("prometheus: Middleware: " + err.Error())
		}
	}
	m.routes.Store(&map[string]*routeMetrics{})
	m.others = newRouteMetrics(other, len(m.methodLabels))
	return m
}

// since returns a time in nanoseconds since metrics.start; it is never 0.
func (m *metrics) since(t time.Time) int64 { return int64(t.Sub(m.start)) + 1 }

func (m *metrics) method(method []byte) int {
	if i, ok := m.methods[string(method)]; ok {
		return i
	}
	return len(m.methods)
}

// route returns the metrics of a route, given the result of Ctx.Route.
func (m *metrics) route(pattern string) *routeMetrics {
	routes := *m.routes.Load()
	if r := routes[pattern]; r != nil {
		return r
	}
	if len(routes) >= MaxRoutes {
		return m.others
	}
	return m.addRoute(pattern)
}

func (m *metrics) addRoute(pattern string) *routeMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	routes := *m.routes.Load()
	if r := routes[pattern]; r != nil {
		return r
	}
	if len(routes) >= MaxRoutes {
		return m.others
	}
	routes = maps.Clone(routes)
	r := newRouteMetrics(routeLabel(pattern), len(m.methodLabels))
	routes[strings.Clone(pattern)] = r
	m.routes.Store(&routes)
	return r
}

// routeLabel returns a pattern such as "GET example.com/users/{id}" without its method, since the method has a separate label.
func routeLabel(pattern string) string {
	if pattern == "" {
		return unmatched
	}
	if method, rest, ok := strings.Cut(pattern, " "); ok && !strings.Contains(method, "/") {
		pattern = strings.TrimLeft(rest, " ")
	}
	return labelValue(pattern)
}

// routeMetrics are the metrics of a route. The metrics of a method are created when the method is first used.
type routeMetrics struct {
	label    string
	byMethod []atomic.Pointer[series]
}

func newRouteMetrics(label string, methods int) *routeMetrics {
	return &routeMetrics{label: label, byMethod: make([]atomic.Pointer[series], methods)}
}

// series are the metrics of a route and a method.
type series struct {
	method, route             string
	requestSize, responseSize client.Observer
	panics, errors            client.Counter
	durations                 [len(pacedLabels)][len(statusLabels)]atomic.Pointer[durations]
}

// series returns the series of a method. If two goroutines create it at once, both get the same metrics.
func (r *routeMetrics) series(m *metrics, method int) *series {
	if s := r.byMethod[method].Load(); s != nil {
		return s
	}
	s := &series{method: m.methodLabels[method], route: r.label}
	s.panics = m.panics.WithLabelValues(s.method, s.route)
	s.errors = m.errors.WithLabelValues(s.method, s.route)
	if m.requestSize != nil {
		s.requestSize = m.requestSize.WithLabelValues(s.method, s.route)
		s.responseSize = m.responseSize.WithLabelValues(s.method, s.route)
	}
	if r.byMethod[method].CompareAndSwap(nil, s) {
		return s
	}
	return r.byMethod[method].Load()
}

// duration returns the histogram of a class of status, and of an index of pacedLabels.
func (s *series) duration(m *metrics, class, paced int) *durations {
	if d := s.durations[paced][class].Load(); d != nil {
		return d
	}
	d := &durations{
		observer: m.duration.WithLabelValues(s.method, s.route, statusLabels[class], pacedLabels[paced]),
		bounds:   m.bounds, last: make([]atomic.Int64, len(m.bounds)+1),
	}
	if s.durations[paced][class].CompareAndSwap(nil, d) {
		return d
	}
	return s.durations[paced][class].Load()
}
