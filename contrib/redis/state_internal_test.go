package redisfilo

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever the moments of outages, the last record of one that is over says so, after a minute at most.
func TestNoticeEnds(t *testing.T) {
	for long := time.Second; long < 2*logInterval; long += time.Second {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			n := notice{log: slog.New(slog.NewTextHandler(&log, nil)), fails: "fails", works: "works"}
			for _, outage := range []time.Duration{long, time.Second, long, time.Second} {
				n.note(errors.New("no"))
				time.Sleep(outage)
				n.over()
				n.over() // each success says so
				time.Sleep(10 * time.Second)
			}
			time.Sleep(logInterval)
			n.over()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if !strings.Contains(lines[len(lines)-1], "works") {
				t.Errorf("with outages of %v the log ends with %s", long, lines[len(lines)-1])
			}
		})
	}
}
