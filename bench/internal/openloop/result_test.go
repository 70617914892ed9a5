package openloop

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// recorded makes a result of a second at 1000 requests per second.
func recorded(change func(r *recorder)) *Result {
	o, err := Options{Address: "a:1", Rate: 1000, Duration: time.Second, Queue: 7, Requests: []Request{{}}}.withDefaults()
	if err != nil {
		panic(err)
	}
	p, err := newPlan(o)
	if err != nil {
		panic(err)
	}
	r := newRecorder(window{0, 1e9, false}, 1)
	r.offered = 1000
	for i := range int64(1000) {
		record(r.lateness, 10_000)
		r.answered(p.prepared[0], 200, false, i*1e6, i*1e6+(i+1)*1000)
	}
	change(r)
	return makeResult(p, r)
}

// A run is valid unless the generator was late or the rate wasn't kept, whatever the answers' latencies are.
func TestValidity(t *testing.T) {
	for _, c := range []struct {
		rule   string
		change func(r *recorder)
		want   []string
	}{
		{"all is well", func(*recorder) {}, nil},
		{"slow answers", func(r *recorder) { r.latency[0].RecordValues(int64(time.Second), 500) }, nil},
		{"one late request in a thousand", func(r *recorder) { record(r.lateness, 1e9) }, nil},
		{"two in a hundred late", func(r *recorder) { r.lateness.RecordValues(2e6, 21) }, []string{"generator was late: 2."}},
		{"99.1 % in time", func(r *recorder) { r.completed = 991 }, nil},
		{"98.9 % in time", func(r *recorder) { r.completed = 989 }, []string{"98.90 %"}},
		{"one dropped", func(r *recorder) { r.dropped = 1 }, []string{"1 requests were dropped, the queue of 7"}},
		{"nothing due", func(r *recorder) { r.offered = 0 }, []string{"nothing was due"}},
	} {
		r := recorded(c.change)
		text := strings.Join(r.Invalid, "; ")
		if len(r.Invalid) != len(c.want) {
			t.Errorf("%s: invalid since %q, want %d reasons", c.rule, text, len(c.want))
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", c.rule, text, want)
			}
		}
	}
}

// The percentiles are those of what was recorded, and the encoded histogram has all of it.
func TestDistribution(t *testing.T) {
	r := recorded(func(*recorder) {})
	near := func(got, want time.Duration) bool { return got >= want && got <= want+want/500+100 }
	d := r.Latency
	if d.Count != 1000 || !near(d.P50, 500*time.Microsecond) || !near(d.P90, 900*time.Microsecond) ||
		!near(d.P99, 990*time.Microsecond) ||
		!near(d.P999, 999*time.Microsecond) || !near(d.Max, time.Millisecond) || d.Min > time.Microsecond {
		t.Errorf("of 1 to 1000 µs: %+v", d)
	}
	h, err := d.Decode()
	if err != nil || h.TotalCount() != 1000 || time.Duration(h.ValueAtQuantile(90)) != d.P90 {
		t.Errorf("decoded: %v, %v", h, err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Result
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	if again.Latency == nil || *again.Latency != *r.Latency || again.Achieved != r.Achieved || again.Statuses[200] != 1000 {
		t.Errorf("%s is read as %+v", b, again)
	}
	if _, err := (&Distribution{Histogram: "x"}).Decode(); err == nil {
		t.Error("nonsense is decoded")
	}
}

// What is outside the window is counted nowhere but among the errors outside.
func TestWindow(t *testing.T) {
	request := &prepared{want: Want{Status: 200}}
	for _, c := range []struct {
		closed        bool
		intended, now int64
		counts        bool
	}{
		{false, 9, 15, false}, {false, 10, 15, true}, {false, 19, 99, true}, {false, 20, 25, false},
		{true, 5, 9, false}, {true, 5, 10, true}, {true, 15, 19, true}, {true, 15, 20, false},
	} {
		r := newRecorder(window{10, 20, c.closed}, 1)
		r.answered(request, 200, false, c.intended, c.now)
		r.answered(request, 404, false, c.intended, c.now)
		r.answered(request, 200, true, c.intended, c.now)
		r.failed(FailedReset, 2, c.intended, c.now)
		in := int64(0)
		if c.counts {
			in = 1
		}
		if r.latency[0].TotalCount() != in || r.others.TotalCount() != in || r.errors[FailedStatus] != uint64(in) ||
			r.errors[FailedMismatch] != uint64(in) ||
			r.errors[FailedReset] != uint64(2*in) || r.outside != uint64(4-4*in) || r.statuses[404] != uint64(in) {
			t.Errorf("%+v: %d, %d, %v, %d outside", c, r.latency[0].TotalCount(), r.others.TotalCount(), r.errors, r.outside)
		}
	}
}

func TestTable(t *testing.T) {
	r := recorded(func(r *recorder) {
		r.answered(&prepared{want: Want{Status: 200}}, 503, false, 5, 6)
		r.failed(FailedReset, 2, 5, 6)
		r.failed(FailedReset, 3, -5, 6)
		r.dropped = 4
	})
	r.FirstError = "the first"
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"latency 1000 1.0 500.", "other status 1", "generator late 1000",
		"1000.0 requests/s asked for",
		"errors: reset 2 status 1, outside the measured time 3; the first: the first", "1000 × 200 1 × 503", "INVALID: couldn't keep the rate: 4 requests"} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("%q isn't in\n%s", want, b.String())
		}
	}
}
