package filotest

import (
	"log/slog"
	"strings"

	"github.com/filohttp/filo/internal/mwtest"
)

// Quiet drops log records.
var Quiet = slog.New(slog.DiscardHandler)

// Log is where a logger writes its lines.
type Log struct{ mwtest.Log }

// LifeMessages are what every server logs of its life.
var LifeMessages = []string{"serving", "draining", "stopped", "failed"}

// Lines returns the lines with the text. Lines that are only due to the driver under test, and those with LifeMessages, are returned only
// if the text asks for them.
func (l *Log) Lines(containing string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		asked := strings.Contains(containing, DriverVariable) || !strings.Contains(line, DriverVariable)
		for _, message := range LifeMessages {
			asked = asked && (strings.Contains(containing, message) || !strings.Contains(line, "msg="+message+" "))
		}
		if strings.Contains(line, containing) && asked {
			lines = append(lines, line)
		}
	}
	return lines
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
