package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/row"
)

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
