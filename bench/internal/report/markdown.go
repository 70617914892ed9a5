package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/row"
)

// Write writes BENCHMARKS.md to a folder, and results.txt to its folder bench.
func (r *Report) Write(folder string) error {
	beside := filepath.Join(folder, "bench")
	if err := os.MkdirAll(beside, 0o755); err != nil {
		return err
	}
	if err := writeTo(filepath.Join(beside, "results.txt"), r.writeGoBench); err != nil {
		return err
	}
	return writeTo(filepath.Join(folder, "BENCHMARKS.md"), r.markdown)
}

func writeTo(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// run is the command of a table, from the module's folder.
func run(args string) string { return "go run ./cmd/compare " + args }

func (r *Report) markdown(out io.Writer) error {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	fmt.Fprintf(&b, "Written by `cd bench && %s` on %s. [bench/README.md](../bench/README.md) says how everything is\n"+
		"measured, and what can't be compared. Figures are medians over interleaved runs in fresh processes after %v of warm-up; in\n"+
		"brackets are the least and the largest, and behind × is the ratio to the first column, the median of those of the rounds.\n"+
		"Server and load generator share the machine as they fall, unless it says otherwise. Commands are for the folder `bench/`.\n\n", r.Command, r.Time.UTC().Format("2 January 2006"), r.Warmup)
	r.machine(&b)
	r.losing(&b)
	if r.Failed != nil {
		fmt.Fprintf(&b, "## What couldn't be measured\n\n```\n%v\n```\n\n", r.Failed)
	}
	b.WriteString("## Tables\n\n")
	for _, t := range r.tables() {
		t.markdown(&b)
	}
	r.rows(&b)
	b.WriteString("## For benchstat\n\n[bench/results.txt](bench/results.txt) has every run in Go's benchmark format:\n" +
		"`benchstat -col /server -filter \".unit:cpu-µs/request\" docs/bench/results.txt`.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func (r *Report) machine(b *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(b, "## Machine and versions\n\n| | |\n| --- | --- |\n"+
		"| processor | %s, %d in use |\n| memory | %s |\n| Linux | %s |\n| Go | %s |\n", m.CPU, m.Cores, m.Memory, m.Kernel, m.Go)
	for _, name := range peer.Names() {
		if p := r.Peers[name]; p != nil {
			fmt.Fprintf(b, "| %s | %s |\n", name, p.Version)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Tools)) {
		fmt.Fprintf(b, "| %s | %s |\n", name, r.Tools[name])
	}
	b.WriteString("\n")
}

// losing names every place where filo isn't first.
func (r *Report) losing(b *strings.Builder) {
	b.WriteString("## Where filo isn't first\n\n")
	losses := r.losses()
	fmt.Fprintf(b, "Of the Go servers, in CPU time per request, requests per second, and p99 at 70 %% of the slowest server's peak;\n"+
		"for idle connections also in memory and time, for overload in p99 of a 503. Two are tied if the ranges of their runs\n"+
		"overlap.\n\n")
	if len(losses) == 0 {
		b.WriteString("There is no such place.\n\n")
		return
	}
	b.WriteString("| row | figure | filo | first | times | cause |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, l := range losses {
		fmt.Fprintf(b, "| %s | %s | %s | %s: %s | %.2f | %s |\n", l.group.Name(), l.figure.title, l.figure.text(l.home), l.peer,
			l.figure.text(l.theirs), l.times, l.cause)
	}
	b.WriteString("\n")
}

func (t *table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "### %s\n\n`%s`\n\n", t.title, run(t.command))
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(t.header, " | "), strings.Repeat(" --- |", len(t.header)))
	for _, line := range t.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(line, " | "))
	}
	b.WriteString("\n")
}

// rows explains them, each with the command that measures it alone.
func (r *Report) rows(b *strings.Builder) {
	b.WriteString("## Rows\n\n| row | command | what it is |\n| --- | --- | --- |\n")
	seen := map[string]bool{}
	for i := range r.Groups {
		g := &r.Groups[i]
		if seen[g.Row.ID] {
			continue
		}
		seen[g.Row.ID] = true
		fmt.Fprintf(b, "| %s | `%s` | %s |\n", g.Row.Title, run("-rows "+g.Row.ID), about(g))
	}
	b.WriteString("\n")
}

func about(g *plan.Group) string {
	text := fmt.Sprintf("%d connections.", g.Row.Connections)
	if g.Row.About != "" {
		text += " " + g.Row.About
	}
	return text
}

// writeGoBench writes each record as a line of Go's benchmark format, which benchstat reads: `benchstat -col /server FILE`
// puts servers beside each other, and two files two machines or days.
func (r *Report) writeGoBench(out io.Writer) error {
	_, err := fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/filohttp/filo/bench\ncpu: %s\n",
		runtime.GOOS, runtime.GOARCH, r.Machine.CPU)
	if err != nil {
		return err
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, name := range g.Peers {
			p := r.Peers[name]
			if p == nil {
				continue
			}
			for _, record := range r.Store.Records(g.Of(p)) {
				if _, err := fmt.Fprintln(out, benchLine(g, name, r.Machine.Cores, record.Figures)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// benchLine is one run, of which the iterations mean nothing.
func benchLine(g *plan.Group, server string, cores int, figures map[string]float64) string {
	name := fmt.Sprintf("BenchmarkServer/kind=%s/row=%s", g.Cell.Kind, g.Cell.Row)
	if g.Cell.Percent > 0 {
		name += fmt.Sprintf("/load=%d%%", g.Cell.Percent)
	}
	if g.Cell.Pinned {
		name += "/pinned=1"
	}
	if g.Cell.Procs > 0 {
		name += fmt.Sprintf("/procs=%d", g.Cell.Procs)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s/server=%s-%d\t1", name, server, cores)
	for _, unit := range slices.Sorted(maps.Keys(figures)) {
		fmt.Fprintf(&b, "\t%.6g %s", figures[unit], unit)
	}
	return b.String()
}

// loss is a place where filo isn't first of the Go servers, nor tied with the first.
type loss struct {
	group        *plan.Group
	figure       figure
	peer         string
	home, theirs measure.Spread
	times        float64 // how many times as good they are
	cause        string
}

// ReadCauses reads why filo isn't first in some rows, which people write down: a line for each, "ROW: CAUSE". Empty lines and
// those that begin with "#" are skipped, and a file that doesn't exist has none.
func ReadCauses(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	causes := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		id, cause, found := strings.Cut(line, ":")
		if _, err := row.Find(id); !found || err != nil {
			return nil, fmt.Errorf("%s: %q isn't ROW: CAUSE", file, line)
		}
		causes[id] = strings.TrimSpace(cause)
	}
	return causes, nil
}

func (l *loss) plain() string {
	return fmt.Sprintf("%s, %s: %s has %s, filo %s (%.2f times)", l.group.Name(), l.figure.title, l.peer,
		l.figure.text(l.theirs), l.figure.text(l.home), l.times)
}

// losses finds them: in CPU time and requests per second at the peak, and in p99 at 70 % of the slowest server's peak. Two are
// tied if the ranges of their figures overlap.
func (r *Report) losses() (losses []loss) {
	for _, g := range r.groups(measure.Peak, nil) {
		figures := []figure{cpu, throughput}
		switch g.Row.Kind {
		case row.Idle:
			figures = []figure{cpu, burstTime, idleMemory}
		case row.Overload:
			figures = []figure{cpu, throughput, refusedP99}
		}
		for _, f := range figures {
			losses = append(losses, r.lossesOf(g, f)...)
		}
	}
	for _, g := range r.groups(measure.Rate, func(g *plan.Group) bool { return g.Cell.Percent == 70 }) {
		losses = append(losses, r.lossesOf(g, openP99)...)
	}
	return losses
}

// lossesOf has the best of those who are ahead in a figure.
func (r *Report) lossesOf(g *plan.Group, f figure) []loss {
	ours, ok := r.spread(g, home, f.name)
	if !ok {
		return nil
	}
	best := loss{times: 1}
	for _, name := range peer.Names() {
		p := r.Peers[name]
		if p == nil || !p.IsGo() || name == home || name == home+"-blocking" {
			continue
		}
		theirs, ok := r.spread(g, name, f.name)
		if !ok {
			continue
		}
		times, ahead := ours.Median/theirs.Median, theirs.Max < ours.Min
		if f.more {
			times, ahead = 1/times, theirs.Min > ours.Max
		}
		if ahead && times > best.times {
			best = loss{group: g, figure: f, peer: name, home: ours, theirs: theirs, times: times, cause: r.Causes[g.Row.ID]}
		}
	}
	if best.group == nil {
		return nil
	}
	return []loss{best}
}
