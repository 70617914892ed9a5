// Package load loads servers and times their answers. wrk runs the closed loops, in which each connection sends its next request when it
// has the answer. Open, a small generator, does what wrk and h2load can't do:
//
//   - A constant rate, with latencies that count from when a request was due, so that a server which stalls is seen to stall (no
//     coordinated omission). wrk has closed loops only. h2load has --rps, but counts from when it sent a request, and sends all of
//     the last ten milliseconds at once: of 5,000 requests at 1,000 per second to a server that stalled for 300 ms in each second,
//     its log had 60 that took more than 10 ms.
//   - WebSockets, which neither has.
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
	CPUs        []int // the processors that the generator is bound to, none for all
	// Window is called when the measured time begins, and when it ends.
	Window func(begin bool) error
}

// Result is the result of a run without an error.
type Result struct {
	Answers float64 // of status 200 in Seconds
	Refused float64 // of status 503 in Seconds
	Seconds float64 // between the calls to Window
	Size    float64 // of an answer with its head, in bytes, on average; 0 if the generator doesn't say
	Late    float64 // p99 of the lateness of Open itself, in ms

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
