package filotest

import (
	"log/slog"
	"strings"

	"github.com/filohttp/filo/internal/mwtest"
)

// Quiet drops log records.
var Quiet = slog.New(slog.DiscardHandler)

// Log collects the lines of a logger.
type Log struct{ mwtest.Log }

// LifeMessages are the messages that every server logs when it starts and ends.
var LifeMessages = []string{"serving", "draining", "stopped", "failed"}

// Lines returns the lines that contain the text. It omits lines about DriverVariable, which the server logs only because of the driver under
// test, and lines with LifeMessages, unless the text contains these words.
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
