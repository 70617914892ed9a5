package report

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/row"
	"github.com/filohttp/filo/bench/internal/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is a plot that was written.
type picture struct{ file, title, command string }

// series is a line of a plot.
type series struct {
	name   string
	points plotter.XYs
	ranges []measure.Spread // of the points, if they have any
}

// chart is a plot of lines.
type chart struct {
	file, title, x, y, command string
	logX, logY                 bool
	ticks                      []plot.Tick // of x; nil for the usual ones
	series                     []series
}

// colours tell the peers apart, for those as well who don't see red and green.
var colours = map[string]color.RGBA{
	"filo": {0, 90, 181, 255}, "filo-blocking": {86, 180, 233, 255}, "fasthttp": {213, 94, 0, 255}, "nethttp": {0, 130, 100, 255},
	"fiber": {204, 121, 167, 255}, "hertz": {150, 110, 0, 255}, "gin": {120, 60, 160, 255}, "echo": {110, 110, 110, 255},
	"nginx": {20, 140, 20, 255}, "haproxy": {170, 40, 40, 255}, "limit": {0, 0, 0, 255},
}

// shapes are those of the points, and reference peers have broken lines.
var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.BoxGlyph{}}

// The size of a plot, and how much of its width the legend has.
const (
	width, height = 20 * vg.Centimeter, 10.5 * vg.Centimeter
	legendWidth   = 3.2 * vg.Centimeter
)

// draw writes the plot to a folder. It is left out if no line has two points.
func (c *chart) draw(folder string) (drawn bool, err error) {
	c.series = slices.DeleteFunc(c.series, func(s series) bool { return len(s.points) < 2 })
	if len(c.series) == 0 {
		return false, nil
	}
	p, legend := c.frame(), plot.NewLegend()
	legend.Top, legend.Left, legend.Padding, legend.ThumbnailWidth = true, true, 4, 22
	legend.TextStyle.Font.Size = 11
	if err := c.addLines(p, &legend); err != nil {
		return false, err
	}
	c.scaleY(p)
	svg := vgsvg.New(width, height)
	canvas := draw.New(svg)
	p.Draw(draw.Crop(canvas, 6, -legendWidth, 6, -8))
	legend.Draw(draw.Crop(canvas, width-legendWidth+12, 0, 0, -34))
	return true, writeTo(filepath.Join(folder, c.file), func(out io.Writer) error {
		_, err := svg.WriteTo(out)
		return err
	})
}

// frame is the plot without lines.
func (c *chart) frame() *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.TextStyle.Font.Size, p.Title.Padding = 13, 8
	for _, style := range []*text.Style{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Size = 11
	}
	p.X.Label.Padding, p.Y.Label.Padding = 4, 6
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	if c.logX {
		p.X.Scale = plot.LogScale{}
	}
	if p.X.Tick.Marker = (thousands{}); c.ticks != nil {
		p.X.Tick.Marker = plot.ConstantTicks(c.ticks)
	}
	return p
}

// scaleY begins at zero, or at a round number if the scale is logarithmic.
func (c *chart) scaleY(p *plot.Plot) {
	if !c.logY {
		p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0, c.largest()*1.08, thousands{}
		return
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	p.Y.Min, p.Y.Max = round(c.least(), false), round(c.largest(), true)
}

func (c *chart) addLines(p *plot.Plot, legend *plot.Legend) error {
	for i, s := range c.series {
		line, points, err := plotter.NewLinePoints(s.points)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", c.file, s.name, err)
		}
		line.Color, line.Width = colours[s.name], vg.Points(1.8)
		if slices.Contains(references[1:], s.name) {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		points.Color, points.Radius, points.Shape = line.Color, vg.Points(2.6), shapes[i%len(shapes)]
		if len(s.points) > 20 { // a curve
			p.Add(line)
			legend.Add(s.name, line)
			continue
		}
		p.Add(line, points)
		legend.Add(s.name, line, points)
		if s.ranges != nil {
			bars, err := plotter.NewYErrorBars(withRanges{s.points, s.ranges})
			if err != nil {
				return fmt.Errorf("%s: %s: %w", c.file, s.name, err)
			}
			bars.Color = line.Color
			p.Add(bars)
		}
	}
	return nil
}

// withRanges are points with the least and the largest figure.
type withRanges struct {
	plotter.XYs
	ranges []measure.Spread
}

// YError is how far the range reaches below and above.
func (w withRanges) YError(i int) (below, above float64) {
	return w.ranges[i].Median - w.ranges[i].Min, w.ranges[i].Max - w.ranges[i].Median
}

func (c *chart) least() float64 {
	least := math.Inf(1)
	for _, s := range c.series {
		for _, point := range s.points {
			least = min(least, point.Y)
		}
	}
	return least
}

func (c *chart) largest() float64 {
	largest := 0.0
	for _, s := range c.series {
		for _, point := range s.points {
			largest = max(largest, point.Y)
		}
	}
	return largest
}

// round rounds up or down to 1, 2 or 5 times a power of ten.
func round(v float64, up bool) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	steps := []float64{1, 2, 5, 10}
	if up {
		return power * steps[slices.IndexFunc(steps, func(step float64) bool { return v <= power*step*1.000001 })]
	}
	below := 1.0
	for _, step := range steps {
		if v >= power*step*0.999999 {
			below = step
		}
	}
	return power * below
}

// decades has ticks at powers of ten, and at 2 and 5 times those, with lesser ones in between.
type decades struct{}

// Ticks returns them.
func (decades) Ticks(least, largest float64) (ticks []plot.Tick) {
	for exponent := math.Floor(math.Log10(least)); math.Pow(10, exponent) <= largest*1.0001; exponent++ {
		for i := 1; i < 10; i++ {
			// Divided where it can be, so that 0.05 is shown, and not 0.05000000000000001.
			tick := plot.Tick{Value: float64(i) * math.Pow(10, exponent)}
			if exponent < 0 {
				tick.Value = float64(i) / math.Pow(10, -exponent)
			}
			if i == 1 || i == 2 || i == 5 {
				tick.Label = fmt.Sprintf("%g", tick.Value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// thousands has the usual ticks, with commas.
type thousands struct{}

// Ticks returns them.
func (thousands) Ticks(least, largest float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, largest)
	for i := range ticks {
		if v := ticks[i].Value; ticks[i].Label != "" && v >= 1000 {
			ticks[i].Label = throughput.number(v)
		}
	}
	return ticks
}

// draw writes all plots to the folder, and returns those that there is something to show in.
func (r *Report) draw(folder string) (pictures []picture, err error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	charts := []chart{r.overConnections(), r.overIdle(), r.overProcs()}
	for _, g := range r.groups(measure.Rate, func(g *plan.Group) bool { return g.Cell.Percent == 70 }) {
		if slices.Contains(row.Quick, g.Row.ID) || g.Row.ID == "blocking-5ms" {
			charts = append(charts, r.overPercentiles(g), r.overLoad(g.Row))
		}
	}
	for i := range charts {
		c := &charts[i]
		drawn, err := c.draw(folder)
		if err != nil {
			return nil, err
		}
		if drawn {
			pictures = append(pictures, picture{c.file, c.title, c.command})
		}
	}
	return pictures, nil
}

// overConnections is CPU time per request over the number of connections.
func (r *Report) overConnections() chart {
	c := chart{file: "cpu-connections.svg", title: "Server CPU time per request over keep-alive connections", x: "connections",
		y: "µs per request", command: "-kinds peak", logX: true}
	for _, name := range peer.Names() {
		s := series{name: name}
		for _, connections := range row.Connections {
			for _, g := range r.groups(measure.Peak, func(g *plan.Group) bool { return isPlain(g) && g.Row.ID == connections.ID }) {
				s.add(r, g, cpu, float64(connections.Count))
			}
		}
		c.series = append(c.series, s)
	}
	for _, connections := range row.Connections {
		c.ticks = append(c.ticks, plot.Tick{Value: float64(connections.Count), Label: throughput.number(float64(connections.Count))})
	}
	return c
}

// add adds a peer's figure in a group, if there is one.
func (s *series) add(r *Report, g *plan.Group, f figure, x float64) {
	if spread, ok := r.spread(g, s.name, f.name); ok {
		s.points = append(s.points, plotter.XY{X: x, Y: spread.Median})
		s.ranges = append(s.ranges, spread)
	}
}

// overIdle is memory over idle connections.
func (r *Report) overIdle() chart {
	c := chart{file: "memory-idle.svg", title: "Memory over idle connections", x: "idle connections", y: "MB of heaps and stacks",
		command: "-rows idle-burst"}
	for _, g := range r.groups(measure.Peak, is(row.Idle)) {
		for _, name := range peer.Names() {
			points := r.medianCurve(g, name)
			for i := range points {
				points[i].Y /= row.MB
			}
			c.series = append(c.series, series{name: name, points: points})
		}
	}
	for _, n := range row.IdleSteps {
		c.ticks = append(c.ticks, plot.Tick{Value: float64(n), Label: throughput.number(float64(n))})
	}
	return c
}

// medianCurve has the median of each point over a cell's records.
func (r *Report) medianCurve(g *plan.Group, name string) (points plotter.XYs) {
	p := r.Peers[name]
	if p == nil || !slices.Contains(g.Peers, name) {
		return nil
	}
	records := r.Store.Records(g.Of(p))
	if len(records) == 0 {
		return nil
	}
	for i, point := range records[0].Curve {
		var values []float64
		for _, record := range records {
			if i < len(record.Curve) {
				values = append(values, record.Curve[i][1])
			}
		}
		points = append(points, plotter.XY{X: point[0], Y: stat.Median(values)})
	}
	return points
}

// overProcs is growth over GOMAXPROCS.
func (r *Report) overProcs() chart {
	c := chart{file: "procs.svg", title: "Requests per second over GOMAXPROCS, keep-alive, 64 connections", x: "GOMAXPROCS",
		y: "requests per second", command: "-rows keepalive-64 -procs 1,2,4"}
	grown := r.groups(measure.Peak, isGrown)
	for _, name := range three {
		s := series{name: name}
		for _, g := range grown {
			s.add(r, g, throughput, float64(g.Cell.Procs))
		}
		c.series = append(c.series, s)
	}
	for _, g := range grown {
		c.ticks = append(c.ticks, plot.Tick{Value: float64(g.Cell.Procs), Label: fmt.Sprint(g.Cell.Procs)})
	}
	return c
}

// overPercentiles is latency over percentiles at a constant rate, which the ticks say as they are usually said.
func (r *Report) overPercentiles(g *plan.Group) chart {
	c := chart{file: "percentiles-" + g.Row.ID + ".svg",
		title: fmt.Sprintf("Latency at %d %% load: %s", g.Cell.Percent, g.Row.Title),
		x:     "percentile", y: "ms", command: "-kinds peak,rate -rows " + g.Row.ID, logY: true}
	for i, label := range []string{"0", "90", "99", "99.9", "99.99"} {
		c.ticks = append(c.ticks, plot.Tick{Value: float64(i), Label: label})
	}
	c.ticks = append(c.ticks, plot.Tick{Value: math.Log10(2), Label: "50"})
	for _, name := range three {
		points := r.medianCurve(g, name)
		for i := range points {
			points[i].X = -math.Log10(1 - min(points[i].X, 99.99)/100)
		}
		c.series = append(c.series, series{name: name, points: points})
	}
	return c
}

// overLoad is p99 over the rate.
func (r *Report) overLoad(of row.Row) chart {
	c := chart{file: "load-" + of.ID + ".svg", title: "p99 over load: " + of.Title, x: "requests per second", y: "p99, ms",
		command: "-kinds peak,rate -rows " + of.ID, logY: true}
	groups := r.groups(measure.Rate, func(g *plan.Group) bool { return g.Row.ID == of.ID })
	for _, name := range three {
		s := series{name: name}
		for _, g := range groups {
			if offered, ok := r.spread(g, name, measure.Offered); ok {
				s.add(r, g, openP99, offered.Median)
			}
		}
		c.series = append(c.series, s)
	}
	return c
}
