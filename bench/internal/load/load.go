// Package load puts load on servers and measures the latencies of their answers. wrk runs the closed loops, in which each connection sends its next
// request when the answer has arrived. Open, a small load generator, does what wrk and h2load can't do:
//
//   - A constant rate. A latency is measured from the moment at which the request was due, so a server's stalls show (no coordinated
//     omission). wrk has only closed loops. h2load has --rps, but it measures from the moment at which it sent a request, and every ten
//     milliseconds it sends all requests that have become due, at once. Example: h2load sent 5,000 requests, at 1,000 per second, to a
//     server that stalled for 300 ms in each second. According to h2load's log, only 60 of them took more than 10 ms.
//   - WebSockets, which neither wrk nor h2load supports.
package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/filohttp/filo/bench/internal/row"
)

// Job describes the load for a server.
type Job struct {
	Base string   // where the server listens, as in "http://127.0.0.1:8080"
	Row  *row.Row // the requests, and the number of connections
	// Rate is how many requests per second Open sends; 0 means a closed loop.
	Rate     float64
	Refusals bool // 503 is a valid answer, too
	Warmup   time.Duration
	Duration time.Duration // whole seconds for Wrk
	// MaxLateness is how late Open itself may be, at the 99th percentile.
	MaxLateness time.Duration
	CPUs        []int // the processors to which the generator is bound; empty: all
	// Window is called when the measured time begins, and when it ends.
	Window func(begin bool) error
}

// Result is the result of a successful run.
type Result struct {
	Answers float64 // answers with status 200 in Seconds
	Refused float64 // answers with status 503 in Seconds
	Seconds float64 // between the calls to Window
	Size    float64 // average size of an answer with its head, in bytes; 0 if the generator doesn't report it
	Late    float64 // how late Open itself was, at the 99th percentile, in ms

	Latency, RefusedLatency Percentiles
}

// Percentiles are latencies, in ms.
type Percentiles struct{ P50, P99, P999 float64 }

func percentiles(h *hdrhistogram.Histogram) Percentiles {
	at := func(percentile float64) float64 {
		return float64(h.ValueAtQuantile(percentile)) / float64(time.Millisecond)
	}
	return Percentiles{at(50), at(99), at(99.9)}
}
