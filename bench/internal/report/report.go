// Package report formats the measurements: as text, as docs/BENCHMARKS.md, and in Go's benchmark format.
package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

// Report is the content of a report.
type Report struct {
	Groups  []plan.Group
	Peers   map[string]*peer.Peer // by name; nil for a peer that isn't installed
	Store   *measure.Store
	Machine proc.Machine
	Tools   map[string]string // versions of the other programs used
	Warmup  time.Duration
	Command string // the command line that produced the report
	Time    time.Time
	Causes  map[string]string // why filo isn't first in some rows, by row: see ReadCauses
	Failed  error             // says which measurements failed
}

// home is the peer that the report is about.
const home = "filo"

// figure says how a figure is shown.
type figure struct {
	name, title, format string
	more                bool // a larger figure is better
}

var (
	throughput  = figure{measure.Throughput, "Requests per second", "%.0f", true}
	cpu         = figure{measure.CPU, "Server CPU time per request, µs", "%.2f", false}
	closedP99   = figure{measure.P99, "p99 in the closed loop, ms", "%.2f", false}
	openCPU     = figure{measure.CPU, "Server CPU time per request at a constant rate, µs", "%.2f", false}
	openP99     = figure{measure.P99, "p99 at a constant rate, ms", "%.2f", false}
	answerSize  = figure{measure.AnswerSize, "Bytes per answer", "%.0f", false}
	peakMemory  = figure{measure.PeakMemory, "Peak memory, MB", "%.0f", false}
	objects     = figure{measure.Objects, "Allocations per request", "%.1f", false}
	allocated   = figure{measure.Bytes, "Bytes allocated per request", "%.0f", false}
	calls       = figure{measure.Calls, "System calls per request", "%.2f", false}
	voluntary   = figure{measure.Voluntary, "Voluntary context switches per request", "%.3f", false}
	involuntary = figure{measure.Involuntary, "Involuntary context switches per request", "%.3f", false}
	idleMemory  = figure{measure.IdleMemory, "Memory per idle connection, KB", "%.2f", false}
	burstTime   = figure{measure.BurstTime, "Time until 9,000 idle connections have an answer, ms", "%.0f", false}
	refused     = figure{measure.Refused, "503 per second", "%.0f", false}
	refusedP50  = figure{measure.RefusedP50, "p50 of a 503, ms", "%.3f", false}
	refusedP99  = figure{measure.RefusedP99, "p99 of a 503, ms", "%.3f", false}
)

// maxStolen is the largest share of the processors' time, in percent, that the host may take in a run whose p99 is compared. If the host takes more,
// most of the slowest hundredth of the requests have waited for the host.
const maxStolen = 1

// isTail reports whether the figure is compared only in runs in which the host took at most maxStolen.
func (f figure) isTail() bool { return f == openP99 || f == refusedP99 }

// The peers that appear together in a table.
var (
	three      = []string{"filo-base", "filo", "fasthttp", "nethttp"}
	frameworks = []string{"filo", "filo-blocking", "fiber", "hertz", "gin", "echo"}
	references = []string{"filo", "nginx", "haproxy", "nghttpd", "h2o", "limit"}
)

// cell returns a peer's cell in a group. If the peer isn't in the group, it returns a cell without records.
func (r *Report) cell(g *plan.Group, name string) measure.Cell {
	p := r.Peers[name]
	if p == nil || !slices.Contains(g.Peers, name) {
		return measure.Cell{}
	}
	return g.Of(p)
}

// spread returns a peer's figure in a group.
func (r *Report) spread(g *plan.Group, name, figure string) (measure.Spread, bool) {
	return r.Store.Spread(r.cell(g, name), figure)
}

// groups returns the groups of a kind that pass the filter, if there is one.
func (r *Report) groups(kind measure.Kind, filter func(*plan.Group) bool) (groups []*plan.Group) {
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Cell.Kind == kind && (filter == nil || filter(g)) {
			groups = append(groups, g)
		}
	}
	return groups
}

func isPlain(g *plan.Group) bool  { return !g.Cell.Pinned && g.Cell.Procs == 0 }
func isPinned(g *plan.Group) bool { return g.Cell.Pinned }
func isGrown(g *plan.Group) bool  { return g.Cell.Procs > 0 }
func isIdle(g *plan.Group) bool   { return isPlain(g) && g.Row.Kind == row.Idle }
func isFull(g *plan.Group) bool   { return isPlain(g) && g.Row.Kind == row.Overload }

// isEncoded reports whether the answers may have different lengths, because each server encodes them itself.
func isEncoded(g *plan.Group) bool {
	return isPlain(g) && slices.Contains(g.Row.Varies, "Content-Length")
}

// Table is a table in text or Markdown, with the flags that measure it.
type Table struct {
	Title, Command string

	Header []string
	Rows   [][]string
}

// of returns the table of a figure. It has a column for each of the named peers that has the figure. It has a row for each group for which a
// column other than the first has the figure. If there is only one column, all groups have rows.
func (r *Report) of(f figure, names []string, groups []*plan.Group, command string) Table {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.ContainsFunc(groups, func(g *plan.Group) bool {
			_, ok := r.spread(g, name, f.name)
			return ok
		})
	})
	t := Table{Title: f.title, Command: command, Header: append([]string{""}, names...)}
	for _, g := range groups {
		line, found := []string{label(g)}, len(names) == 1
		for i, name := range names {
			s, ok := r.spread(g, name, f.name)
			text := "–"
			if ok {
				text = f.text(s)
			}
			if ok && i > 0 {
				text, found = text+r.ratio(g, f, name, names[0]), true
			}
			line = append(line, text)
		}
		if found {
			t.Rows = append(t.Rows, line)
		}
	}
	return t
}

// label returns the name of a table's row.
func label(g *plan.Group) string {
	name := g.Row.Title
	if g.Cell.Procs > 0 {
		name += fmt.Sprintf(", GOMAXPROCS=%d", g.Cell.Procs)
	}
	if g.Cell.Percent > 0 {
		name += fmt.Sprintf(", at %d %%", g.Cell.Percent)
	}
	return name
}

// ratio divides a peer's figure by another peer's. It returns "" if the divisor is missing or is shown as 0. It computes one ratio for each round,
// since the runs of a round were made one after the other: if the machine becomes slower or faster between rounds, that affects both peers.
func (r *Report) ratio(g *plan.Group, f figure, name, to string) string {
	base, ok := r.spread(g, to, f.name)
	if shown, err := strconv.ParseFloat(fmt.Sprintf(f.format, base.Median), 64); !ok || err != nil || shown == 0 {
		return ""
	}
	ratios := r.ratios(g, f, name, to, 100)
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf(" ×%.2f", measure.MiddleMean(ratios))
}

// ratios divides a peer's figure by another peer's, for each round that has both. It skips runs in which the host took too much of the processors'
// time: more than a maximum (most), in percent.
func (r *Report) ratios(g *plan.Group, f figure, name, to string, most float64) (ratios []float64) {
	bases := map[int]float64{}
	for _, record := range r.Store.Records(r.cell(g, to)) {
		if record.Figures[measure.Stolen] <= most {
			bases[record.Round] = record.Figures[f.name]
		}
	}
	for _, record := range r.Store.Records(r.cell(g, name)) {
		figure, has := record.Figures[f.name]
		if base := bases[record.Round]; has && base > 0 && record.Figures[measure.Stolen] <= most {
			ratios = append(ratios, figure/base)
		}
	}
	return ratios
}

// text formats the median and the range.
func (f figure) text(s measure.Spread) string {
	text := f.number(s.Median)
	if s.Min != s.Max {
		text += " [" + f.number(s.Min) + "–" + f.number(s.Max) + "]"
	}
	return text
}

// number formats a number with commas between groups of three digits.
func (f figure) number(v float64) string {
	return message.NewPrinter(language.English).Sprintf(f.format, v)
}

// Tables returns all tables that have rows, in the order in which they are shown.
func (r *Report) Tables() []Table {
	closed := r.groups(measure.Peak, func(g *plan.Group) bool { return isPlain(g) && g.Row.Kind != row.Idle })
	idle, overload := r.groups(measure.Peak, isIdle), r.groups(measure.Peak, isFull)
	pinned, grown := r.groups(measure.Peak, isPinned), r.groups(measure.Peak, isGrown)
	const peak = "-kinds peak"
	tables := []Table{
		r.of(throughput, three, closed, peak), r.of(cpu, three, closed, peak), r.of(closedP99, three, closed, peak),
	}
	for _, percent := range plan.Percents {
		at := r.groups(measure.Rate, func(g *plan.Group) bool { return g.Cell.Percent == percent })
		tables = append(tables, r.percentiles(at, percent))
	}
	rates := r.groups(measure.Rate, nil)
	tables = append(tables, r.of(openCPU, three, rates, "-kinds peak,rate"),
		r.beside(throughput, frameworks, closed, "frameworks"), r.beside(cpu, frameworks, closed, "frameworks"),
		r.beside(throughput, references, closed, "references"), r.beside(cpu, references, closed, "references"),
		r.of(idleMemory, peer.Names(), idle, "-rows idle-burst"), r.of(burstTime, peer.Names(), idle, "-rows idle-burst"),
		r.of(answerSize, three, r.groups(measure.Peak, isEncoded), peak),
		r.of(peakMemory, three, closed, peak), r.of(objects, three, closed, peak), r.of(allocated, three, closed, peak),
		r.of(calls, three, r.groups(measure.Syscalls, nil), "-kinds syscalls"), r.of(voluntary, three, closed, peak), r.of(involuntary, three, closed, peak),
		titled(r.of(refused, three, overload, "-rows overload"), "overload"),
		titled(r.of(refusedP50, three, overload, "-rows overload"), "overload"),
		titled(r.of(refusedP99, three, overload, "-rows overload"), "overload"),
		titled(r.of(throughput, three, pinned, "-pinned"), "a processor each for server and generator"),
		titled(r.of(cpu, three, pinned, "-pinned"), "a processor each for server and generator"),
		titled(r.of(throughput, three, grown, "-procs 1,2,4"), "growth"), titled(r.of(cpu, three, grown, "-procs 1,2,4"), "growth"),
	)
	return slices.DeleteFunc(tables, func(t Table) bool { return len(t.Rows) == 0 })
}

// beside returns a table that compares filo with peers that the main tables don't show.
func (r *Report) beside(f figure, names []string, groups []*plan.Group, of string) Table {
	t := titled(r.of(f, names, groups, "-kinds peak -rows ROW -peers "+strings.Join(names, ",")), of)
	if len(t.Header) < 3 {
		t.Rows = nil
	}
	return t
}

func titled(t Table, of string) Table {
	t.Title += ": " + of
	return t
}

// percentiles returns a table with three percentiles in each cell.
func (r *Report) percentiles(groups []*plan.Group, percent int) Table {
	names := slices.DeleteFunc(slices.Clone(three), func(name string) bool { return r.Peers[name] == nil })
	t := Table{
		Title:   fmt.Sprintf("p50 / p99 / p99.9 in ms at %d %% of the slowest server's peak", percent),
		Command: "-kinds peak,rate", Header: append([]string{"", "requests/s"}, names...),
	}
	for _, g := range groups {
		line, kept := []string{g.Row.Title, "–"}, false
		for _, name := range names {
			text := "not kept"
			if p50, ok := r.spread(g, name, measure.P50); ok {
				p99, _ := r.spread(g, name, measure.P99)
				p999, _ := r.spread(g, name, measure.P999)
				offered, _ := r.spread(g, name, measure.Offered)
				text = fmt.Sprintf("%.2f / %.2f / %.2f", p50.Median, p99.Median, p999.Median)
				line[1], kept = throughput.number(offered.Median), true
			}
			line = append(line, text)
		}
		if kept {
			t.Rows = append(t.Rows, line)
		}
	}
	return t
}

// Print writes the tables as text.
func (r *Report) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, t := range r.Tables() {
		fmt.Fprintf(w, "%s\n", t.Title)
		fmt.Fprintln(w, strings.Join(t.Header, "\t"))
		for _, line := range t.Rows {
			fmt.Fprintln(w, strings.Join(line, "\t"))
		}
		fmt.Fprintln(w)
		w.Flush()
	}
	for _, l := range r.Losses() {
		fmt.Fprintf(out, "not first: %s, %s: %s has %s, filo %s (%.2f times)\n", l.Group, l.Figure, l.Peer, l.Theirs, l.Home, l.Times)
	}
}
