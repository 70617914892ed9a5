package openloop

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// minAchieved is the part of the rate that an open loop has to reach for a valid run.
const minAchieved = 0.99

// Result is what a run has found. Everything in it is of the measured time only, unless it says otherwise.
type Result struct {
	Mode                  string        `json:"mode"` // "open" or "closed"
	Connections           int           `json:"connections"`
	Idle                  int           `json:"idle_connections,omitempty"`
	Pipeline              int           `json:"pipeline"`
	RequestsPerConnection int           `json:"requests_per_connection,omitempty"`
	Threads               int           `json:"threads"`
	Poisson               bool          `json:"poisson,omitempty"`
	Warmup                time.Duration `json:"warmup_ns"`
	Duration              time.Duration `json:"duration_ns"`

	RateAsked float64 `json:"rate_asked,omitempty"`   // requests per second
	Offered   float64 `json:"rate_offered,omitempty"` // arrivals per second: of a Poisson process they aren't exactly as asked
	Achieved  float64 `json:"rate_achieved"`          // answers per second, whatever their status

	Answers uint64        `json:"answers"`            // as wanted
	Latency *Distribution `json:"latency"`            // of those; nil if there is none, as are the others
	Groups  []Group       `json:"groups,omitempty"`   // the same by name, if there is more than one
	Others  *Distribution `json:"others,omitempty"`   // of answers with another status
	Late    *Distribution `json:"lateness,omitempty"` // of the generator: from when a request was due to when it got to it

	Errors        map[string]uint64 `json:"errors,omitempty"` // by Failure's String
	ErrorsOutside uint64            `json:"errors_outside"`   // outside the measured time
	FirstError    string            `json:"first_error,omitempty"`
	Statuses      map[int]uint64    `json:"statuses,omitempty"`
	Dropped       uint64            `json:"dropped"` // arrivals that found the queue full, and were never sent

	Opened        uint64        `json:"connections_opened"`
	BytesReceived uint64        `json:"bytes_received"` // of TCP's payload
	BytesSent     uint64        `json:"bytes_sent"`
	ClientCPU     time.Duration `json:"client_cpu_ns"` // user and kernel time of this process

	// Invalid says why the figures are no good, if they aren't: the generator was late, or the rate couldn't be kept.
	Invalid []string `json:"invalid,omitempty"`
}

// Group is the answers to the requests of one name.
type Group struct {
	Name    string        `json:"name"`
	Latency *Distribution `json:"latency"`
}

// Distribution is a histogram of times and some points of it.
type Distribution struct {
	Count     int64         `json:"count"`
	Min       time.Duration `json:"min_ns"`
	Mean      time.Duration `json:"mean_ns"`
	P50       time.Duration `json:"p50_ns"`
	P90       time.Duration `json:"p90_ns"`
	P99       time.Duration `json:"p99_ns"`
	P999      time.Duration `json:"p999_ns"`
	Max       time.Duration `json:"max_ns"`
	Histogram string        `json:"histogram"` // HdrHistogram V2, compressed, base64; nanoseconds
}

// newDistribution returns nil if nothing was recorded.
func newDistribution(h *hdrhistogram.Histogram) *Distribution {
	if h.TotalCount() == 0 {
		return nil
	}
	encoded, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(fmt.Sprintf("openloop: a histogram can't be encoded: %v", err)) // it is written to memory
	}
	at := func(percentile float64) time.Duration { return time.Duration(h.ValueAtQuantile(percentile)) }
	return &Distribution{
		Count: h.TotalCount(), Min: time.Duration(h.Min()), Mean: time.Duration(h.Mean()),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: time.Duration(h.Max()),
		Histogram: string(encoded),
	}
}

// Decode returns the histogram.
func (d *Distribution) Decode() (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode([]byte(d.Histogram))
	if err != nil {
		return nil, fmt.Errorf("openloop: histogram: %w", err)
	}
	return h, nil
}

// Failed is how many errors there were, those outside the measured time included.
func (r *Result) Failed() uint64 {
	n := r.ErrorsOutside
	for _, count := range r.Errors {
		n += count
	}
	return n
}

// makeResult makes the result of what all loops have recorded together.
func makeResult(p *plan, r *recorder) *Result {
	o := p.options
	result := &Result{
		Mode: "open", Connections: o.Connections, Idle: o.Idle, Pipeline: o.Pipeline, RequestsPerConnection: o.RequestsPerConnection,
		Threads: o.Threads, Poisson: o.Poisson, Warmup: o.Warmup, Duration: o.Duration, RateAsked: o.Rate,
		Offered: float64(r.offered) / o.Duration.Seconds(), Achieved: float64(r.completed) / o.Duration.Seconds(),
		Others: newDistribution(r.others), Late: newDistribution(r.lateness), ErrorsOutside: r.outside, Dropped: r.dropped,
		Opened: r.connected, BytesReceived: r.in, BytesSent: r.out, Statuses: map[int]uint64{}, Errors: map[string]uint64{},
	}
	all := newHistogram()
	for i, name := range p.groups {
		all.Merge(r.latency[i])
		if len(p.groups) > 1 {
			result.Groups = append(result.Groups, Group{name, newDistribution(r.latency[i])})
		}
	}
	result.Answers, result.Latency = uint64(all.TotalCount()), newDistribution(all)
	for kind, n := range r.errors {
		if n > 0 {
			result.Errors[Failure(kind).String()] = n
		}
	}
	for status, n := range r.statuses {
		if n > 0 && o.WebSocket == nil {
			result.Statuses[status] = n
		}
	}
	if o.Rate == 0 {
		result.Mode = "closed"
		return result
	}
	result.validate(o, r)
	return result
}

// validate finds out whether an open loop did what it should.
func (r *Result) validate(o *Options, counts *recorder) {
	invalid := func(format string, args ...any) { r.Invalid = append(r.Invalid, fmt.Sprintf(format, args...)) }
	if r.Late != nil && r.Late.P99 > o.MaxLateness {
		invalid("the generator was late: %v at the 99th percentile, of %v allowed", r.Late.P99, o.MaxLateness)
	}
	if r.Dropped > 0 {
		invalid("couldn't keep the rate: %d requests were dropped, the queue of %d being full", r.Dropped, o.Queue)
	}
	if counts.offered == 0 {
		invalid("nothing was due in the measured time")
	} else if part := float64(counts.completed) / float64(counts.offered); part < minAchieved {
		invalid("couldn't keep the rate: %.2f %% of the requests were answered in time", 100*part)
	}
}
