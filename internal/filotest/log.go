package filotest

import (
	"log/slog"
	"strings"
	"sync"
)

// Quiet drops log records.
var Quiet = slog.New(slog.DiscardHandler)

// Log is where a logger writes its lines.
type Log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write takes a line.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// LifeMessages are what every server logs of its life.
var LifeMessages = []string{"serving", "draining", "stopped", "failed"}

// Lines returns the lines with the text. What is only said because of the driver that is under test must be asked for, and so must
// LifeMessages.
func (l *Log) Lines(containing string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
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
