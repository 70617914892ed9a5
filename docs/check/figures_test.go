package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	chart                 = "docs/figures.svg"
	figuresBegin, figures = "<!-- figures -->\n", "<!-- end of figures -->\n"
)

// shown are the rows of the README's table, and their places in docs/BENCHMARKS.md. The chart shows the rows of CPU time.
var shown = []struct{ title, section, row, unit string }{
	{"CPU time per request, 64 clients", "### Server CPU time per request, µs", "13 bytes, keep-alive, 64 connections", "µs"},
	{"CPU time per request, 4,096 clients", "### Server CPU time per request, µs", "13 bytes, keep-alive, 4096 connections", "µs"},
	{"CPU time per request, a handler with an SQL query", "### Server CPU time per request, µs", "handler that asks PostgreSQL", "µs"},
	{"p99 at 70&nbsp;% load, 64 clients", "### p50 / p99 / p99.9 in ms at 70 % of the slowest server's peak", "13 bytes, keep-alive, 64 connections", "ms"},
	{"p99 at 70&nbsp;% load, a file of 1 MB", "### p50 / p99 / p99.9 in ms at 70 % of the slowest server's peak", "static file, 1 MB", "ms"},
	{"memory per idle client", "### Memory per idle connection, KB", "9,000 idle connections, then a burst", "KB"},
}

var servers = []string{"filo", "fasthttp", "nethttp"}

// The README's table and its chart are made from docs/BENCHMARKS.md.
func TestFigures(t *testing.T) {
	benchmarks := read(t, "docs/BENCHMARKS.md")
	table := "| | filo | fasthttp | net/http |\n| --- | --: | --: | --: |\n"
	var bars [][]float64
	for _, each := range shown {
		values, err := figuresOf(benchmarks, each.section, each.row)
		if err != nil {
			t.Fatal(err)
		}
		what, on, _ := strings.Cut(each.title, ", ")
		table += fmt.Sprintf("| %s (%s)", what, each.unit)
		if on != "" {
			table += ", " + on
		}
		for _, v := range values {
			table += fmt.Sprintf(" | %.3g", v)
		}
		table += " |\n"
		if each.unit == "µs" {
			bars = append(bars, values)
		}
	}
	is(t, chart, drawChart(bars))
	readme := read(t, "README.md")
	before, rest, begun := strings.Cut(readme, figuresBegin)
	_, after, ended := strings.Cut(rest, figures)
	if !begun || !ended {
		t.Fatalf("README.md has no table between %q and %q", figuresBegin, figures)
	}
	is(t, "README.md", before+figuresBegin+table+figures+after)
}

// figuresOf returns the servers' figures in a row: the medians, or p99 where a cell has percentiles.
func figuresOf(benchmarks, section, row string) (values []float64, err error) {
	_, rest, found := strings.Cut(benchmarks, section+"\n")
	if !found {
		return nil, fmt.Errorf("docs/BENCHMARKS.md has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n### ")
	var header []string
	for line := range strings.Lines(rest) {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if slices.Contains(cells, servers[0]) {
			header = cells
		}
		if len(cells) < 2 || cells[1] != row {
			continue
		}
		for _, server := range servers {
			cell := strings.Fields(strings.ReplaceAll(cells[slices.Index(header, server)], ",", ""))
			if len(cell) > 2 && cell[1] == "/" {
				cell = cell[2:] // p50 / p99 / p99.9
			}
			v, err := strconv.ParseFloat(cell[0], 64)
			if err != nil {
				return nil, fmt.Errorf("docs/BENCHMARKS.md, %q: %w", row, err)
			}
			values = append(values, v)
		}
		return values, nil
	}
	return nil, fmt.Errorf("docs/BENCHMARKS.md has no row %q in %q", row, section)
}

// drawChart draws a group of bars for each row of CPU time.
func drawChart(groups [][]float64) string {
	const left, width, bar, gap, head = 90, 470, 18, 34, 30
	most := 0.0
	for _, group := range groups {
		for _, v := range group {
			most = max(most, v)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 %d" font-family="system-ui, sans-serif" font-size="13">
<style>
text { fill: #1f2328 } .filo { fill: #0969da } .fasthttp { fill: #8c959f } .nethttp { fill: #d0d7de }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .filo { fill: #4493f8 } .fasthttp { fill: #768390 } .nethttp { fill: #444c56 } }
</style>
<text x="0" y="16" font-weight="600">Server CPU time per request, µs (less is better)</text>
`, head+len(groups)*(3*bar+gap))
	for i, group := range groups {
		y := head + i*(3*bar+gap)
		_, title, _ := strings.Cut(shown[i].title, ", ")
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" font-weight=\"600\">%s</text>\n", left, y+14, title)
		for k, v := range group {
			top := y + 20 + k*bar
			name := strings.Replace(servers[k], "nethttp", "net/http", 1)
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left-8, top+13, name)
			fmt.Fprintf(&b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"2\"/>\n", servers[k], left, top, v/most*width, bar-3)
			fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%d\">%.3g</text>\n", left+v/most*width+6, top+13, v)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// README, guide, package comment and examples/hello have the same first program.
func TestFirstProgram(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "README.md"), "```go\n")
	want, _, _ := strings.Cut(rest, "```")
	if strings.Count(want, "\n") > 16 || !strings.Contains(want, "filo.ListenAndServe") {
		t.Errorf("the README's first program isn't a short one with ListenAndServe:\n%s", want)
	}
	_, rest, _ = strings.Cut(read(t, "docs/GUIDE.md"), "```go\n")
	if got, _, _ := strings.Cut(rest, "```"); got != want {
		t.Errorf("the guide's first program is\n%s\nand the README's\n%s", got, want)
	}
	if got := read(t, "examples/hello/main.go"); !strings.HasSuffix(got, "\n"+want) {
		t.Errorf("examples/hello is\n%s\nand the README's first program\n%s", got, want)
	}
	comment := "//\t" + strings.ReplaceAll(strings.TrimSuffix(want, "\n"), "\n", "\n//\t") + "\n"
	if !strings.Contains(read(t, "server.go"), strings.ReplaceAll(comment, "//\t\n", "//\n")) {
		t.Errorf("the package comment doesn't have the README's first program:\n%s", comment)
	}
}
