package dashboard

import (
	"cmp"
	"encoding/json"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/filohttp/filo"
)

const (
	// maxRows is how many rows a table has at most: nobody would read more.
	maxRows = 100
	// maxEvent limits an event for the page, in bytes: two tables, whose names may become six times as long in JSON, and the
	// rest.
	maxEvent = 2*maxRows*(6*maxName+256) + 4096
)

// sample holds the values of the charts for one second. Rates are per second, sizes in bytes, durations in microseconds.
type sample struct {
	Number  uint64     `json:"n"` // increases by one with each sample
	Time    int64      `json:"t"` // in milliseconds since 1970
	Answers [6]float64 `json:"answers"`
	// Latency holds the quantiles 0.5, 0.9, 0.99 and 0.999, nil without a request.
	Latency *[4]float64 `json:"latency"`

	ConnsActive   int     `json:"connsActive"`
	ConnsIdle     int     `json:"connsIdle"`
	ConnsParked   int     `json:"connsParked"`
	Streams       int     `json:"streams"` // of HTTP/2
	ConnsHTTP3    int     `json:"http3"`
	StreamsHTTP3  int     `json:"http3Streams"`
	ConnsAccepted float64 `json:"connsAccepted"`
	// Refused counts connections and requests.
	Refused float64 `json:"refused"`

	WorkersRunning int     `json:"workersRunning"`
	WorkersReady   int     `json:"workersReady"`
	WorkersLeading int     `json:"workersLeading"`
	WorkersSpawned float64 `json:"workersSpawned"`
	WorkersRetired float64 `json:"workersRetired"`
	Tasks          int     `json:"tasks"`
	Handoffs       float64 `json:"handoffs"`
	Retakes        float64 `json:"retakes"`

	Goroutines float64 `json:"goroutines"`
	Heap       float64 `json:"heap"`
	Memory     float64 `json:"memory"`
	// Pause is the longest pause of a collection. Wait is the time within which 99 % of goroutines got a processor.
	Pause float64 `json:"pause"`
	Wait  float64 `json:"wait"`

	encoded []byte
}

// row is a line of the table of routes.
type row struct {
	Name   string  `json:"name"`
	Rate   float64 `json:"rate"`
	Errors float64 `json:"errors"`
	// Median and Slow are the quantiles 0.5 and 0.99 of the last second with requests.
	Median float64 `json:"median"`
	Slow   float64 `json:"slow"`
	Total  uint64  `json:"total"`
}

// classRow is a line of the table of classes.
type classRow struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	Median   float64 `json:"median"`
	Inline   float64 `json:"inline"`
	Handoffs float64 `json:"handoffs"`
	Retakes  float64 `json:"retakes"`
	total    uint64
}

// snapshot is the message to the page that is sent each second.
type snapshot struct {
	Sample  *sample    `json:"sample"`
	Routes  []row      `json:"routes"`
	Classes []classRow `json:"classes"`
}

// sampler makes samples. Only one goroutine uses it.
type sampler struct {
	d       *Dashboard
	runtime *runtimeReader
	at      time.Time
	stats   filo.Stats
	classes map[string]filo.ClassStats
	rows    map[*route]row // the last row of each route
	number  uint64
}

// newSampler returns a sampler that has already read the counters once, because samples contain differences between readings.
func newSampler(d *Dashboard, number uint64) *sampler {
	s := &sampler{d: d, runtime: newRuntimeReader(), rows: make(map[*route]row), number: number}
	s.take(time.Now())
	return s
}

// perSecond returns the rate of a counter, 0 if it has decreased.
func perSecond(now, before uint64, seconds float64) float64 {
	if now < before {
		return 0
	}
	return round(float64(now-before) / seconds)
}

// round rounds a figure to the digits that the page can show.
func round(value float64) float64 { return math.Round(value*1000) / 1000 }

func micros(d time.Duration) float64 { return round(float64(d) / float64(time.Microsecond)) }

// take returns the server's current state, and the rates since the last call.
func (s *sampler) take(now time.Time) *snapshot {
	stats := s.d.server.Stats()
	s.runtime.read()
	seconds := max(now.Sub(s.at).Seconds(), 0.001)
	before := s.stats
	s.number++
	one := &sample{
		Number: s.number, Time: now.UnixMilli(),
		ConnsActive: stats.ConnsActive, ConnsIdle: stats.ConnsIdle, ConnsParked: stats.ConnsParked, Streams: stats.Streams,
		ConnsHTTP3: stats.ConnsHTTP3, StreamsHTTP3: stats.StreamsHTTP3,
		ConnsAccepted: perSecond(stats.ConnsAccepted, before.ConnsAccepted, seconds),
		Refused:       perSecond(stats.ConnsRefused+stats.RequestsRefused, before.ConnsRefused+before.RequestsRefused, seconds),

		WorkersRunning: stats.WorkersRunning, WorkersReady: stats.WorkersReady, WorkersLeading: stats.WorkersLeading,
		WorkersSpawned: perSecond(stats.WorkersSpawned, before.WorkersSpawned, seconds),
		WorkersRetired: perSecond(stats.WorkersRetired, before.WorkersRetired, seconds),
		Tasks:          stats.TasksRunning,
		Handoffs:       perSecond(stats.Handoffs, before.Handoffs, seconds),
		Retakes:        perSecond(stats.Retakes, before.Retakes, seconds),
	}
	for class := range one.Answers {
		one.Answers[class] = perSecond(stats.Requests[class], before.Requests[class], seconds)
	}
	s.takeRuntime(one)
	next := &snapshot{Sample: one, Classes: s.takeClasses(stats.Classes, seconds)}
	next.Routes, one.Latency = s.takeRoutes(seconds)
	s.at, s.stats = now, stats
	return next
}

func (s *sampler) takeRuntime(one *sample) {
	r := s.runtime
	one.Goroutines = r.number(metricGoroutines)
	one.Heap = r.number(metricHeap)
	one.Memory = r.number(metricTotal) - r.number(metricReleased)
	one.Pause = round(r.quantile(metricPauses, &r.pauses, 1) * 1e6)
	one.Wait = round(r.quantile(metricWaits, &r.waits, 0.99) * 1e6)
}

// takeRoutes returns the rows of the routes, the busiest first, and the latencies of all their requests.
func (s *sampler) takeRoutes(seconds float64) ([]row, *[4]float64) {
	var all counts
	rows := []row{}
	add := func(route *route) {
		since := route.since()
		last, total := s.rows[route], since.counts.total()
		for bucket, n := range since.counts {
			all[bucket] += n
		}
		one := row{Name: route.name, Rate: round(float64(total) / seconds), Errors: round(float64(since.errors) / seconds)}
		one.Median, one.Slow, one.Total = last.Median, last.Slow, route.sampled.counts.total()
		if total > 0 {
			one.Median = micros(since.counts.quantile(0.5, total))
			one.Slow = micros(since.counts.quantile(0.99, total))
		}
		s.rows[route] = one
		if one.Total > 0 {
			rows = append(rows, one)
		}
	}
	for _, route := range *s.d.recorder.routes.Load() {
		if !route.own.Load() {
			add(route)
		}
	}
	add(s.d.recorder.other)
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	total := all.total()
	if total == 0 {
		return rows[:min(len(rows), maxRows)], nil
	}
	var latency [4]float64
	for i, part := range [...]float64{0.5, 0.9, 0.99, 0.999} {
		latency[i] = micros(all.quantile(part, total))
	}
	return rows[:min(len(rows), maxRows)], &latency
}

// takeClasses returns the rows of the classes, the busiest first. Classes with the same name, as of two routers, share a row. The
// dashboard's own classes are left out unless they were called since the last sample, because a class of the program may have the
// same name.
func (s *sampler) takeClasses(classes []filo.ClassStats, seconds float64) []classRow {
	known := make(map[string]filo.ClassStats, len(classes))
	for _, class := range classes {
		sum, found := known[class.Name]
		if found && calls(sum) > calls(class) {
			sum, class = class, sum // the row shows the kind and the median of the class that is called more often
		}
		class.Inline += sum.Inline
		class.Handoffs += sum.Handoffs
		class.Retakes += sum.Retakes
		known[class.Name] = class
	}
	rows := []classRow{}
	for name, class := range known {
		if calls(class) == 0 && class.Median == 0 {
			continue
		}
		before := s.classes[name]
		if s.d.own[name] && calls(class) == calls(before) {
			continue
		}
		one := classRow{
			Name: name[:min(len(name), maxName)], Kind: class.Kind, Median: micros(class.Median),
			Inline: perSecond(class.Inline, before.Inline, seconds), Handoffs: perSecond(class.Handoffs, before.Handoffs, seconds),
			Retakes: perSecond(class.Retakes, before.Retakes, seconds), total: calls(class),
		}
		if name == "" {
			one.Name = "the server's handler"
		}
		rows = append(rows, one)
	}
	s.classes = known
	slices.SortFunc(rows, func(a, b classRow) int {
		return cmp.Or(cmp.Compare(b.Inline+b.Handoffs, a.Inline+a.Handoffs), cmp.Compare(b.total, a.total), cmp.Compare(a.Name, b.Name))
	})
	return rows[:min(len(rows), maxRows)]
}

// calls returns the approximate number of a class's calls.
func calls(class filo.ClassStats) uint64 { return class.Inline + class.Handoffs + class.Retakes }

// about holds the facts about the server that don't change.
type about struct {
	Title      string `json:"title"`
	Go         string `json:"go"`
	System     string `json:"system"`
	Processors int    `json:"processors"`
	Started    int64  `json:"started"` // in milliseconds since 1970
	History    int64  `json:"history"` // in milliseconds
}

func (d *Dashboard) about() about {
	return about{
		Title: d.options.Title, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Processors: runtime.GOMAXPROCS(0), Started: processStart.UnixMilli(), History: d.options.History.Milliseconds(),
	}
}

var processStart = time.Now()

// encode renders a sample once, for all pages that will get it. Encoding can't fail, since JSON can represent each field of a
// sample.
func (s *sample) encode() {
	b, err := json.Marshal(s)
	if err != nil {
		panic("dashboard: " + err.Error())
	}
	s.encoded = b
}
