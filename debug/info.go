package debug

import (
	"cmp"
	"encoding/json"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/filohttp/filo"
)

// statsCache keeps the server's counters for a second: gathering them visits every connection.
type statsCache struct {
	mu   sync.Mutex
	at   time.Time // when the counters were gathered; guarded by mu
	json []byte    // never changed; guarded by mu
}

const statsAge = time.Second

func (s *statsCache) get(server *filo.Server) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json != nil && time.Since(s.at) < statsAge {
		return s.json, nil
	}
	b, err := json.MarshalIndent(server.Stats(), "", "  ")
	if err != nil {
		return nil, err
	}
	s.at, s.json = time.Now(), append(b, '\n')
	return s.json, nil
}

const jsonType = "application/json"

// serveStats answers with filo.Stats of Options.Server.
func (h *handler) serveStats(c *filo.Ctx) error {
	b, err := h.stats.get(cmp.Or(h.server, c.Server()))
	if err != nil {
		return err
	}
	return c.BytesNoCopy(200, jsonType, b)
}

// histogram is a histogram of runtime/metrics, without its empty buckets.
type histogram struct {
	Count   uint64   `json:"count"`
	Buckets []bucket `json:"buckets"`
}

// bucket counts the values that are at least From and less than To; nil means no bound.
type bucket struct {
	From  *float64 `json:"from"`
	To    *float64 `json:"to"`
	Count uint64   `json:"count"`
}

// serveMetrics answers with all metrics of the runtime.
func serveMetrics(c *filo.Ctx) error {
	descriptions := metrics.All()
	samples := make([]metrics.Sample, len(descriptions))
	for i, description := range descriptions {
		samples[i].Name = description.Name
	}
	metrics.Read(samples)
	values := make(map[string]any, len(samples))
	for _, s := range samples {
		switch s.Value.Kind() {
		case metrics.KindUint64:
			values[s.Name] = s.Value.Uint64()
		case metrics.KindFloat64:
			values[s.Name] = s.Value.Float64()
		case metrics.KindFloat64Histogram:
			values[s.Name] = newHistogram(s.Value.Float64Histogram())
		}
	}
	return answerJSON(c, values)
}

// answerJSON answers with a value as indented JSON.
func answerJSON(c *filo.Ctx, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return c.BytesNoCopy(200, jsonType, append(b, '\n'))
}

func newHistogram(from *metrics.Float64Histogram) histogram {
	h := histogram{Buckets: []bucket{}}
	bound := func(value float64) *float64 {
		if math.IsInf(value, 0) {
			return nil
		}
		return &value
	}
	for i, count := range from.Counts {
		if count > 0 {
			h.Count += count
			h.Buckets = append(h.Buckets, bucket{bound(from.Buckets[i]), bound(from.Buckets[i+1]), count})
		}
	}
	return h
}

// serveBuild answers with the module versions and settings of the build.
func serveBuild(c *filo.Ctx) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return filo.Error(404, "the program was built without module support")
	}
	return c.Text(200, info.String())
}
