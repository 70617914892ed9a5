package prometheus

import (
	"bytes"
	"sort"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/filohttp/filo"
)

// exemplarEvery is the minimum time between two exemplars of a bucket. More of them would cost memory, and one exemplar is as useful as another.
const exemplarEvery = time.Second

// durations is the histogram of a series, and the times at which its buckets got their exemplars.
type durations struct {
	observer client.Observer
	bounds   []float64      // upper bounds of the buckets, in seconds
	last     []atomic.Int64 // for each bucket, the time of its last exemplar as returned by metrics.since; 0 if it had none
}

// observe records the duration of a request that was answered at now, a time as returned by metrics.since. If an exemplar is due, it calls
// labels, which may be nil.
func (d *durations) observe(c *filo.Ctx, took time.Duration, now int64, labels func(*filo.Ctx) client.Labels) {
	seconds := took.Seconds()
	last := &d.last[sort.SearchFloat64s(d.bounds, seconds)]
	if before := last.Load(); labels != nil && (before == 0 || now-before >= int64(exemplarEvery)) {
		if exemplar := exemplarOf(c, labels); len(exemplar) > 0 {
			last.Store(now)
			d.observer.(client.ExemplarObserver).ObserveWithExemplar(seconds, exemplar)
			return
		}
	}
	d.observer.Observe(seconds)
}

// exemplarOf returns the labels of the exemplar for a request, or nil for none. It drops labels that would make client_golang panic.
func exemplarOf(c *filo.Ctx, labelsOf func(*filo.Ctx) client.Labels) client.Labels {
	labels := labelsOf(c)
	size := 0
	for name, value := range labels {
		// Label names must follow the stricter legacy rule, which every exposition format supports.
		if !model.LegacyValidation.IsValidLabelName(name) || value == "" || !utf8.ValidString(value) {
			return nil
		}
		size += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	if size > client.ExemplarMaxRunes {
		return nil
	}
	return labels
}

// ClientTrace can be used as Options.Exemplars by servers whose clients are all services of the same operator. The label "trace_id" contains
// the trace id of the client's traceparent (W3C Trace Context), if that field marks the trace as recorded. Don't use it with other clients,
// since they could point the exemplars anywhere.
func ClientTrace(c *filo.Ctx) client.Labels {
	if id := sampledTrace(c.Request.Header.GetBytes("Traceparent")); id != nil {
		return client.Labels{"trace_id": string(id)}
	}
	return nil
}

// sampledTrace returns the trace id in a traceparent (W3C Trace Context, section 3.2), or nil if the traceparent is malformed or says that
// the trace isn't recorded.
func sampledTrace(value []byte) []byte {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(value) < size || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return nil
	}
	version, trace, parent, flags := value[:2], value[3:35], value[36:52], value[53:55]
	// "ff" is no valid version. Later versions may have further fields after the flags, but version 00 must not.
	if !isHex(version) || string(version) == "ff" || len(value) > size && (string(version) == "00" || value[size] != '-') {
		return nil
	}
	if !isHex(trace) || !isHex(parent) || !isHex(flags) || isZero(trace) || isZero(parent) {
		return nil
	}
	if sampled := strings.IndexByte("13579bdf", flags[1]) >= 0; !sampled { // the lowest bit
		return nil
	}
	return trace
}

// isHex reports whether all of b are hexadecimal digits in lower case, as the standard requires here.
func isHex(b []byte) bool {
	return len(bytes.Trim(b, "0123456789abcdef")) == 0
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "0")) == 0 }
