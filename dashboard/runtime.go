package dashboard

import (
	"math"
	"runtime/metrics"
)

// runtimeNames are the metrics of runtime/metrics that the page shows. A metric that the version of Go lacks
// counts as 0.
var runtimeNames = [...]string{
	metricGoroutines: "/sched/goroutines:goroutines",
	metricHeap:       "/memory/classes/heap/objects:bytes",
	metricTotal:      "/memory/classes/total:bytes",
	metricReleased:   "/memory/classes/heap/released:bytes",
	metricPauses:     "/sched/pauses/total/gc:seconds",
	metricWaits:      "/sched/latencies:seconds",
}

const (
	metricGoroutines = iota
	metricHeap
	metricTotal
	metricReleased
	metricPauses
	metricWaits
)

// runtimeReader reads the metrics in runtimeNames. Only the sampler uses it.
type runtimeReader struct {
	samples [len(runtimeNames)]metrics.Sample
	// pauses and waits are the histograms' counts at the last reading.
	pauses, waits []uint64
}

func newRuntimeReader() *runtimeReader {
	r := new(runtimeReader)
	for i, name := range runtimeNames {
		r.samples[i].Name = name
	}
	return r
}

func (r *runtimeReader) read() { metrics.Read(r.samples[:]) }

func (r *runtimeReader) number(metric int) float64 {
	switch value := r.samples[metric].Value; value.Kind() {
	case metrics.KindUint64:
		return float64(value.Uint64())
	case metrics.KindFloat64:
		return value.Float64()
	}
	return 0
}

// quantile returns, in seconds, the value that the given fraction of the values since the last call doesn't exceed, or 0 if there were no
// values.
func (r *runtimeReader) quantile(metric int, before *[]uint64, part float64) float64 {
	value := r.samples[metric].Value
	if value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := value.Float64Histogram()
	last := *before
	*before = append([]uint64(nil), h.Counts...)
	if len(last) != len(h.Counts) {
		return 0
	}
	total := uint64(0)
	for i := range last {
		total += h.Counts[i] - last[i]
	}
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(math.Ceil(part*float64(total))))
	for i := range last {
		if n := h.Counts[i] - last[i]; n < rank {
			rank -= n
			continue
		}
		if bound := h.Buckets[i+1]; !math.IsInf(bound, 0) {
			return bound
		}
		return h.Buckets[i]
	}
	return 0
}
