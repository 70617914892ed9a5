package report

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
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
