package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/row"
)

//go:embed benchmarks.md.tmpl
var benchmarks string

// Write writes BENCHMARKS.md to a folder, and results.txt to its folder bench.
func (r *Report) Write(folder string) error {
	beside := filepath.Join(folder, "bench")
	if err := os.MkdirAll(beside, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(beside, "results.txt"), r.goBench(), 0o644); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := template.Must(template.New("").Parse(benchmarks)).Execute(&out, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "BENCHMARKS.md"), out.Bytes(), 0o644)
}

// Versions returns the peers that were built, with their versions.
func (r *Report) Versions() (peers []*peer.Peer) {
	for _, name := range peer.Names() {
		if p := r.Peers[name]; p != nil {
			peers = append(peers, p)
		}
	}
	return peers
}

// Rows returns the groups' rows, without duplicates.
func (r *Report) Rows() (rows []row.Row) {
	for _, g := range r.Groups {
		if !slices.ContainsFunc(rows, func(known row.Row) bool { return known.ID == g.Row.ID }) {
			rows = append(rows, g.Row)
		}
	}
	return rows
}

// goBench returns each record as a line in Go's benchmark format, which benchstat reads: `benchstat -col /server FILE` compares servers, and
// benchstat with two files compares two machines or days. The number of iterations has no meaning.
func (r *Report) goBench() []byte {
	b := fmt.Appendf(nil, "goos: %s\ngoarch: %s\npkg: github.com/filohttp/filo/bench\ncpu: %s\n",
		runtime.GOOS, runtime.GOARCH, r.Machine.CPU)
	for i := range r.Groups {
		g := &r.Groups[i]
		cell := fmt.Sprintf("BenchmarkServer/kind=%s/row=%s", g.Cell.Kind, g.Cell.Row)
		if g.Cell.Percent > 0 {
			cell += fmt.Sprintf("/load=%d%%", g.Cell.Percent)
		}
		if g.Cell.Pinned {
			cell += "/pinned=1"
		}
		if g.Cell.Procs > 0 {
			cell += fmt.Sprintf("/procs=%d", g.Cell.Procs)
		}
		for _, name := range g.Peers {
			for _, record := range r.Store.Records(r.cell(g, name)) {
				b = fmt.Appendf(b, "%s/server=%s-%d\t1", cell, name, r.Machine.Cores)
				for _, unit := range slices.Sorted(maps.Keys(record.Figures)) {
					b = fmt.Appendf(b, "\t%.6g %s", record.Figures[unit], unit)
				}
				b = append(b, '\n')
			}
		}
	}
	return b
}

// Loss is a figure of a group in which another Go server, Peer, is ahead of filo. Times is the factor by which Peer is better.
type Loss struct {
	Group, Figure, Peer, Home, Theirs, Cause string

	Times float64
}

// ReadCauses reads a file, written by hand, that says why filo isn't first in some rows. Each line is "ROW: CAUSE", with the row's name in the report
// ("db, GOMAXPROCS=1"). ReadCauses skips empty lines and lines that begin with "#". It returns no causes if the file doesn't exist.
func ReadCauses(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	causes := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, cause, found := strings.Cut(line, ":")
		id := name[:strings.IndexAny(name+" ", " ,")]
		if _, err := row.Find(id); !found || err != nil {
			return nil, fmt.Errorf("%s: %q isn't ROW: CAUSE", file, line)
		}
		causes[name] = strings.TrimSpace(cause)
	}
	return causes, nil
}

// leastLead is the smallest ratio that counts as a lead. A smaller ratio may be chance: even two runs of the same program can differ that much.
const leastLead = 1.01

// Losses finds the losses: in CPU time and requests per second at the peak, in CPU time at constant rates, and in p99 at 70 % of the slowest server's
// peak. Two servers are tied unless one of them is ahead in each round, and by leastLead on average. More than half of the rounds must have figures of
// both servers. For p99 only rounds in which the host took little processor time count: see isTail.
func (r *Report) Losses() (losses []Loss) {
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
	for _, g := range r.groups(measure.Rate, nil) {
		losses = append(losses, r.lossesOf(g, openCPU)...)
	}
	for _, g := range r.compared() {
		losses = append(losses, r.lossesOf(g, openP99)...)
	}
	return losses
}

// lossesOf returns a Loss with the best of the peers that are ahead of filo in a figure, or none.
func (r *Report) lossesOf(g *plan.Group, f figure) []Loss {
	best := Loss{Times: leastLead}
	for _, p := range r.Versions() {
		times := r.times(g, f, p)
		if times == nil || slices.Min(times) <= 1 {
			continue
		}
		if mean := measure.MiddleMean(times); mean > best.Times {
			ours, _ := r.spread(g, home, f.name)
			theirs, _ := r.spread(g, p.Name, f.name)
			best = Loss{g.Name(), f.title, p.Name, f.text(ours), f.text(theirs), r.Causes[g.Name()], mean}
		}
	}
	if best.Peer == "" {
		return nil
	}
	return []Loss{best}
}

// times returns, for each round, the factor by which a peer is better than filo. It returns nil if the peer isn't another Go server, or if at
// most half of the rounds can be compared.
func (r *Report) times(g *plan.Group, f figure, p *peer.Peer) []float64 {
	if !p.IsGo() || p.Name == home || p.Name == home+"-blocking" {
		return nil
	}
	most := 100.0
	if f.isTail() {
		most = maxStolen
	}
	over, under := home, p.Name
	if f.more {
		over, under = under, over
	}
	times := r.ratios(g, f, over, under, most)
	if len(times) <= g.Rounds/2 {
		return nil
	}
	return times
}

// compared returns the groups whose latencies are compared.
func (r *Report) compared() []*plan.Group {
	return r.groups(measure.Rate, func(g *plan.Group) bool { return g.Cell.Percent == 70 })
}

// Tails reports in how many rows the latencies could be compared.
func (r *Report) Tails() string {
	all, calm := r.compared(), 0
	for _, g := range all {
		if slices.ContainsFunc(r.Versions(), func(p *peer.Peer) bool { return r.times(g, openP99, p) != nil }) {
			calm++
		}
	}
	return fmt.Sprintf("%d of %d", calm, len(all))
}

// Summary returns the result in a few lines: for each of the main figures, the other servers' figures as multiples of filo's, over all rows.
func (r *Report) Summary() []string { return summary(r.Tables()) }

func summary(tables []Table) (lines []string) {
	for _, f := range []figure{cpu, throughput, closedP99, idleMemory} {
		for _, t := range tables {
			if t.Title != f.title {
				continue
			}
			line := "| " + t.Title + " |"
			for _, name := range []string{"fasthttp", "nethttp"} {
				line += " " + overRows(t, name) + " |"
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// overRows returns the median, the smallest and the largest of a column's ratios, and how many rows have a ratio.
func overRows(t Table, name string) string {
	var all []float64
	column := slices.Index(t.Header, name)
	for _, line := range t.Rows {
		if column < 0 {
			return "–"
		}
		if _, ratio, found := strings.Cut(line[column], "×"); found {
			if v, err := strconv.ParseFloat(ratio, 64); err == nil {
				all = append(all, v)
			}
		}
	}
	switch len(all) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf("×%.2f", all[0])
	}
	return fmt.Sprintf("×%.2f [%.2f–%.2f] in %d rows", measure.Median(all), slices.Min(all), slices.Max(all), len(all))
}

// Taken reports how much of the processors' time the machine's host took in the runs.
func (r *Report) Taken() string {
	var all []float64
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, name := range g.Peers {
			for _, record := range r.Store.Records(r.cell(g, name)) {
				if v, ok := record.Figures[measure.Stolen]; ok {
					all = append(all, v)
				}
			}
		}
	}
	if len(all) == 0 {
		return "?"
	}
	share := figure{format: "%.1f"}
	return share.text(measure.Spread{Median: measure.Median(all), Min: slices.Min(all), Max: slices.Max(all)}) + " % of a run"
}
