package prometheus

import (
	"slices"
	"strings"
	"sync"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
)

// MaxClasses is the number of handler classes that a Collector distinguishes; further classes share the label "_OTHER".
const MaxClasses = 1000

const (
	// other is the label of values that are unknown or beyond a limit.
	other = "_OTHER"
	// serverClass is the label of the server's handler, whose class has no name.
	serverClass = "_SERVER"
)

// The descriptions of the metrics for the server's figures. All collectors of the process share them, since their metrics have the same names.
var (
	connections = describe("filo_connections",
		"Open connections: idle ones wait for a request, active ones have one, parked ones were taken over by a handler and wait.",
		"state")
	http2        = describe("filo_http2_connections", "Open connections that speak HTTP/2.")
	streams      = describe("filo_http2_streams", "Requests of HTTP/2 that are open, or whose handlers run.")
	http3        = describe("filo_http3_connections", "Open connections of HTTP/3. They aren't in filo_connections.")
	http3Streams = describe("filo_http3_streams", "Requests of HTTP/3 that are open, or whose handlers run.")
	accepted     = describe("filo_connections_accepted_total", "Connections that were accepted, refused ones included.")
	refused      = describe("filo_connections_refused_total",
		"Connections that were accepted, and answered with 503 or 429 or not at all since a limit was reached.")

	answered = describe("filo_requests_total", "Requests that were answered, by class of status.", "status")
	overload = describe("filo_requests_refused_total",
		"Requests that were refused since Concurrency was reached, or too many bytes of bodies or answers waited.")

	workers = describe("filo_workers",
		"Workers: running ones serve a connection, ready ones wait for one, leading ones lead a loop.", "state")
	spawned = describe("filo_workers_spawned_total", "Workers that were started.")
	retired = describe("filo_workers_retired_total", "Workers that have ended after waiting in vain.")
	carried = describe("filo_requests_carried", "Requests that another server has received (adaptor.ToHTTP), and that are being handled.")
	queued  = describe("filo_requests_queued", "Requests that wait for a place under Concurrency.")
	tasks   = describe("filo_tasks", "Tasks that handlers have left behind, and that run or wait to.")

	handoffs = describe("filo_handoffs_total", "Times that a worker gave its loop to another one because a handler might block.")
	retakes  = describe("filo_retakes_total", "Times that a loop was taken from a worker whose handler took too long.")

	classKind = describe("filo_class_kind",
		"1 for what a class of handlers was found to be (quick, slow, unknown) or said to be (inline, offload).", "class", "kind")
	classMedian = describe("filo_class_median_seconds",
		"About how long a call of a class of handlers takes, the median. Not there while it isn't known.", "class")
	classInline = describe("filo_class_inline_total",
		"About how many calls of a class of handlers were run where their request was read.", "class")
	classHandoffs = describe("filo_class_handoffs_total", "Calls of a class of handlers that gave their loop away.", "class")
	classRetakes  = describe("filo_class_retakes_total",
		"Calls of a class of handlers whose loop was taken away since they took too long.", "class")
)

// descs are the descriptions of all metrics that a Collector sends. It is filled only during the initialization of this package's variables.
var descs []*client.Desc

func describe(name, help string, labels ...string) *client.Desc {
	desc := client.NewDesc(name, help, labels, nil)
	descs = append(descs, desc)
	return desc
}

// sink is where a Collector sends its metrics.
type sink chan<- client.Metric

func (ch sink) gauge(desc *client.Desc, value float64, labels ...string) {
	ch <- client.MustNewConstMetric(desc, client.GaugeValue, value, labels...)
}

func (ch sink) count(desc *client.Desc, value uint64, labels ...string) {
	ch <- client.MustNewConstMetric(desc, client.CounterValue, float64(value), labels...)
}

// Collector returns a collector of the figures of server.Stats, of the requests of server.Running, and of the clients of server.Clients. It
// may be registered before the server begins to serve.
//
// The class of the server's handler, which applies until a router finds a route, has the label "_SERVER". The class of requests
// without a route has the label "no route". Classes with the same name are added up.
func Collector(server *filo.Server) client.Collector {
	if server == nil {
		panic("prometheus: Collector without a server")
	}
	return &collector{server: server, known: make(map[string]bool)}
}

type collector struct {
	server *filo.Server

	mu sync.Mutex
	// known are the classes that have separate labels. A class never loses its label, so that no counter decreases. Guarded by mu.
	known map[string]bool
}

// Describe implements prometheus.Collector.
func (k *collector) Describe(ch chan<- *client.Desc) {
	for _, desc := range descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (k *collector) Collect(ch chan<- client.Metric) {
	stats := k.server.Stats()
	out := sink(ch)
	gauge := func(desc *client.Desc, value int, labels ...string) { out.gauge(desc, float64(value), labels...) }
	gauge(connections, stats.ConnsIdle, "idle")
	gauge(connections, stats.ConnsActive, "active")
	gauge(connections, stats.ConnsParked, "parked")
	gauge(http2, stats.ConnsHTTP2)
	gauge(streams, stats.Streams)
	gauge(http3, stats.ConnsHTTP3)
	gauge(http3Streams, stats.StreamsHTTP3)
	out.count(accepted, stats.ConnsAccepted)
	out.count(refused, stats.ConnsRefused)
	for class := 1; class < len(stats.Requests); class++ {
		out.count(answered, stats.Requests[class], statusLabels[class])
	}
	out.count(overload, stats.RequestsRefused)
	gauge(workers, stats.WorkersRunning, "running")
	gauge(workers, stats.WorkersReady, "ready")
	gauge(workers, stats.WorkersLeading, "leading")
	out.count(spawned, stats.WorkersSpawned)
	out.count(retired, stats.WorkersRetired)
	gauge(carried, stats.RequestsCarried)
	gauge(queued, stats.RequestsQueued)
	gauge(tasks, stats.TasksRunning)
	out.count(handoffs, stats.Handoffs)
	out.count(retakes, stats.Retakes)
	collectLimits(out, &stats)
	k.collectRunning(out)
	k.collectClients(out)

	for _, class := range k.classes(stats.Classes) {
		if class.Kind != "" {
			gauge(classKind, 1, class.Name, class.Kind)
		}
		if class.Median > 0 {
			out.gauge(classMedian, class.Median.Seconds(), class.Name)
		}
		out.count(classInline, class.Inline, class.Name)
		out.count(classHandoffs, class.Handoffs, class.Name)
		out.count(classRetakes, class.Retakes, class.Name)
	}
}

// classes returns one entry for each label. If several classes share an entry, the entry has the sums of their counts, and the kind and the
// median of the slowest of these classes. The entry of classes beyond the limit has no kind and no median.
func (k *collector) classes(stats []filo.ClassStats) []filo.ClassStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	merged := make([]filo.ClassStats, 0, len(stats))
	for i, class := range stats {
		if class.Name = k.label(i, class.Name); class.Name == other {
			class.Kind, class.Median = "", 0
		}
		at := slices.IndexFunc(merged, func(m filo.ClassStats) bool { return m.Name == class.Name })
		if at < 0 {
			merged = append(merged, class)
			continue
		}
		m := &merged[at]
		m.Inline += class.Inline
		m.Handoffs += class.Handoffs
		m.Retakes += class.Retakes
		if class.Median > m.Median {
			m.Kind, m.Median = class.Kind, class.Median
		}
	}
	return merged
}

// label returns the label of the class with this index; index 0 is the server's class.
func (k *collector) label(index int, name string) string {
	if index == 0 {
		return serverClass
	}
	name = labelValue(name)
	if !k.known[name] {
		if len(k.known) >= MaxClasses {
			return other
		}
		k.known[name] = true
	}
	return name
}

// labelValue makes a text valid as a label's value: a value that isn't UTF-8 would make the whole scrape fail.
func labelValue(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
