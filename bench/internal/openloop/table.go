package openloop

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes the result for people to read. Times are in microseconds.
func (r *Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...any) {
		for _, cell := range cells {
			fmt.Fprintf(t, "%v\t", cell)
		}
		fmt.Fprintln(t)
	}
	row("µs", "count", "min", "mean", "p50", "p90", "p99", "p99.9", "max")
	distribution := func(name string, d *Distribution) {
		if d != nil {
			row(name, d.Count, micros(d.Min), micros(d.Mean), micros(d.P50), micros(d.P90), micros(d.P99), micros(d.P999),
				micros(d.Max))
		}
	}
	distribution("latency", r.Latency)
	for _, group := range r.Groups {
		distribution(group.Name, group.Latency)
	}
	distribution("other status", r.Others)
	distribution("generator late", r.Late)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, r.summary())
	return err
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }

// summary is the lines below the table.
func (r *Result) summary() string {
	var b strings.Builder
	if r.Mode == "open" {
		fmt.Fprintf(&b, "%.1f requests/s asked for, %.1f offered, ", r.RateAsked, r.Offered)
	}
	fmt.Fprintf(&b, "%.1f answers/s over %d connections in %v after %v of warm-up\n", r.Achieved, r.Connections, r.Duration,
		r.Warmup)
	seconds := r.Duration.Seconds()
	fmt.Fprintf(&b, "received %.2f MB/s, sent %.2f MB/s, opened %d connections, client CPU %.1f %%",
		float64(r.BytesReceived)/seconds/1e6, float64(r.BytesSent)/seconds/1e6, r.Opened, 100*r.ClientCPU.Seconds()/seconds)
	if answers := r.Achieved * seconds; answers > 0 {
		fmt.Fprintf(&b, " (%.2f µs per answer)", r.ClientCPU.Seconds()*1e6/answers)
	}
	b.WriteByte('\n')
	if r.Failed() > 0 {
		b.WriteString("errors:")
		for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
			fmt.Fprintf(&b, " %s %d", kind, r.Errors[kind])
		}
		if r.ErrorsOutside > 0 {
			fmt.Fprintf(&b, ", outside the measured time %d", r.ErrorsOutside)
		}
		if r.FirstError != "" {
			fmt.Fprintf(&b, "; the first: %s", r.FirstError)
		}
		b.WriteByte('\n')
	}
	if len(r.Statuses) > 1 || r.Others != nil {
		b.WriteString("statuses:")
		for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
			fmt.Fprintf(&b, " %d × %d", r.Statuses[status], status)
		}
		b.WriteByte('\n')
	}
	for _, reason := range r.Invalid {
		fmt.Fprintf(&b, "INVALID: %s\n", reason)
	}
	return b.String()
}
