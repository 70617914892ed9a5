package openloop

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// Latencies are recorded in nanoseconds, to three digits, and in steps of 64 ns at least.
	lowestLatency  = 100
	highestLatency = int64(120 * time.Second)
	latencyDigits  = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(lowestLatency, highestLatency, latencyDigits)
}

func record(h *hdrhistogram.Histogram, d int64) {
	// It can't fail within these bounds.
	h.RecordValue(min(max(0, d), highestLatency))
}

// window is the measured part of a run. What belongs to it: of an open loop the requests that were to be sent in it, however
// long they took; of a closed loop those that were answered in it.
type window struct {
	from, to int64
	closed   bool
}

func (w *window) has(t int64) bool { return t >= w.from && t < w.to }

func (w *window) counts(intended, now int64) bool {
	if w.closed {
		return w.has(now)
	}
	return w.has(intended)
}

// recorder counts what a loop sees.
type recorder struct {
	window
	latency  []*hdrhistogram.Histogram // of answers as wanted, by group
	others   *hdrhistogram.Histogram   // of answers with another status
	lateness *hdrhistogram.Histogram   // of the generator

	offered   uint64 // arrivals in the window
	completed uint64 // answers that came within the window, whatever the status
	dropped   uint64 // arrivals that found the queue full
	connected uint64 // connections that were opened in the window
	in, out   uint64 // bytes within the window
	errors    [failures]uint64
	outside   uint64 // errors outside the window
	statuses  [600]uint64
}

func newRecorder(w window, groups int) *recorder {
	r := &recorder{window: w, others: newHistogram(), lateness: newHistogram()}
	for range groups {
		r.latency = append(r.latency, newHistogram())
	}
	return r
}

// answered records an answer.
func (r *recorder) answered(request *prepared, status int, differs bool, intended, now int64) {
	if r.has(now) {
		r.completed++
	}
	switch {
	case status != request.want.Status:
		r.failed(FailedStatus, 1, intended, now)
	case differs:
		r.failed(FailedMismatch, 1, intended, now)
	}
	if !r.counts(intended, now) {
		return
	}
	r.statuses[status]++
	switch {
	case status != request.want.Status:
		record(r.others, now-intended)
	case !differs:
		record(r.latency[request.group], now-intended)
	}
}

// failed counts n errors.
func (r *recorder) failed(kind Failure, n int, intended, now int64) {
	if r.counts(intended, now) {
		r.errors[kind] += uint64(n)
	} else {
		r.outside += uint64(n)
	}
}

// add adds another's counts.
func (r *recorder) add(o *recorder) {
	for i, h := range o.latency {
		r.latency[i].Merge(h)
	}
	r.others.Merge(o.others)
	r.lateness.Merge(o.lateness)
	r.offered += o.offered
	r.completed += o.completed
	r.dropped += o.dropped
	r.connected += o.connected
	r.in += o.in
	r.out += o.out
	r.outside += o.outside
	for i, n := range o.errors {
		r.errors[i] += n
	}
	for i, n := range o.statuses {
		r.statuses[i] += n
	}
}
