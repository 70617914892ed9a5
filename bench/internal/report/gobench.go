package report

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/filohttp/filo/bench/internal/plan"
)

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
