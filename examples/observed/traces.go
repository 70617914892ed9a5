package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
)

// maxListed is how many traces the page lists.
const maxListed = 40

// tracesPage holds the values of views/traces.html.
type tracesPage struct {
	Order  string // newest, slowest or failed
	Traces []summary
	Chosen *waterfall
	Gone   bool // the requested trace is unknown, or no longer kept
}

// summary is a row of the list of traces.
type summary struct {
	ID, Name, Took string
	Ago            string
	Spans          int
	Failed, Chosen bool
	took           time.Duration
}

// waterfall is a diagram of a trace: a row for each span, below the row of its parent.
type waterfall struct {
	summary
	Rows  []row
	Ticks []tick
	Log   []string
}

type row struct {
	Name, Kind, Took string
	Depth            int
	Left, Width      string // of the bar, in percent
	Failed           bool
	Reason           string
	Attributes       []attributeRow
}

type attributeRow struct{ Key, Value string }

// tick is a mark on the time scale.
type tick struct{ Left, Label string }

func (a *app) showTraces(c *filo.Ctx) error {
	page := tracesPage{Order: cmp.Or(c.Query("order"), "newest")}
	now := time.Now()
	for _, spans := range a.traces.all() {
		if s := summarize(spans, now); complete(spans) && (page.Order != "failed" || s.Failed) {
			page.Traces = append(page.Traces, s)
		}
	}
	if page.Order == "slowest" {
		slices.SortStableFunc(page.Traces, func(a, b summary) int { return cmp.Compare(b.took, a.took) })
	}
	page.Traces = page.Traces[:min(len(page.Traces), maxListed)]
	id := c.Param("id")
	if id == "" && len(page.Traces) > 0 {
		id = page.Traces[0].ID
	}
	if id != "" {
		parsed, err := trace.TraceIDFromHex(id)
		spans := a.traces.find(parsed)
		if page.Gone = err != nil || len(spans) == 0; !page.Gone {
			page.Chosen = a.draw(spans, now)
		}
		for i := range page.Traces {
			page.Traces[i].Chosen = page.Traces[i].ID == id
		}
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	if page.Gone {
		return c.Render(404, "traces.html", page)
	}
	return c.Render(200, "traces.html", page)
}

// complete reports whether all spans of this process have arrived. A span arrives when it ends, and its parent ends later. So a trace is complete if
// the parent of every span has arrived, or is in another process.
func complete(spans []sdktrace.ReadOnlySpan) bool {
	return !slices.ContainsFunc(spans, func(span sdktrace.ReadOnlySpan) bool {
		parent := span.Parent()
		return parent.IsValid() && !parent.IsRemote() && !slices.ContainsFunc(spans, func(other sdktrace.ReadOnlySpan) bool {
			return other.SpanContext().SpanID() == parent.SpanID()
		})
	})
}

// summarize describes a trace of at least one span.
func summarize(spans []sdktrace.ReadOnlySpan, now time.Time) summary {
	begin, end := extent(spans)
	s := summary{ID: spans[0].SpanContext().TraceID().String(), Spans: len(spans), took: end.Sub(begin), Took: short(end.Sub(begin))}
	s.Ago = "just now"
	if ago := now.Sub(end).Round(time.Second); ago > 0 {
		s.Ago = ago.String() + " ago"
	}
	for _, span := range spans {
		s.Failed = s.Failed || span.Status().Code == codes.Error
	}
	s.Name = order(spans)[0].span.Name()
	return s
}

// extent returns when the earliest span began and when the latest one ended.
func extent(spans []sdktrace.ReadOnlySpan) (begin, end time.Time) {
	begin, end = spans[0].StartTime(), spans[0].EndTime()
	for _, span := range spans {
		if span.StartTime().Before(begin) {
			begin = span.StartTime()
		}
		if span.EndTime().After(end) {
			end = span.EndTime()
		}
	}
	return begin, end
}

// placed is a span and its depth: how many spans enclose it.
type placed struct {
	span  sdktrace.ReadOnlySpan
	depth int
}

// order returns the spans, each after its parent, and siblings in the order in which they began. Spans whose parent is unknown have depth 0.
func order(spans []sdktrace.ReadOnlySpan) []placed {
	known := make(map[trace.SpanID]bool)
	for _, span := range spans {
		known[span.SpanContext().SpanID()] = true
	}
	children := make(map[trace.SpanID][]sdktrace.ReadOnlySpan) // the outermost spans are under the zero SpanID
	for _, span := range spans {
		parent := span.Parent().SpanID()
		if !known[parent] {
			parent = trace.SpanID{}
		}
		children[parent] = append(children[parent], span)
	}
	var sorted []placed
	var visit func(parent trace.SpanID, depth int)
	visit = func(parent trace.SpanID, depth int) {
		slices.SortFunc(children[parent], func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
		for _, span := range children[parent] {
			sorted = append(sorted, placed{span, depth})
			visit(span.SpanContext().SpanID(), depth+1)
		}
	}
	visit(trace.SpanID{}, 0)
	return sorted
}

// draw draws a trace.
func (a *app) draw(spans []sdktrace.ReadOnlySpan, now time.Time) *waterfall {
	w := &waterfall{summary: summarize(spans, now)}
	begin, _ := extent(spans)
	whole := float64(max(w.took, time.Microsecond))
	for _, p := range order(spans) {
		span := p.span
		took := span.EndTime().Sub(span.StartTime())
		r := row{
			Name: span.Name(), Kind: span.SpanKind().String(), Took: short(took), Depth: min(p.depth, 8),
			Left:   percent(float64(span.StartTime().Sub(begin)) / whole),
			Width:  percent(max(float64(took)/whole, 0.004)),
			Failed: span.Status().Code == codes.Error, Reason: span.Status().Description,
		}
		for _, each := range span.Attributes() {
			r.Attributes = append(r.Attributes, attributeRow{string(each.Key), each.Value.String()})
		}
		w.Rows = append(w.Rows, r)
	}
	for i := range 4 {
		part := float64(i) / 4
		w.Ticks = append(w.Ticks, tick{percent(part), short(time.Duration(part * whole))})
	}
	for _, line := range a.log.with(w.ID) {
		w.Log = append(w.Log, indent(line))
	}
	return w
}

// indent formats a line of the log so that it is easy to read.
func indent(line string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(line), "", "  "); err != nil {
		return line
	}
	return b.String()
}

func percent(part float64) string { return fmt.Sprintf("%.2f%%", 100*part) }

// short formats a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1000)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
