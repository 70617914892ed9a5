package load

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Wrk is what wrk says of a run without errors.
type Wrk struct {
	Requests  int64
	PerSecond float64
	P99       time.Duration
}

// RunWrk loads what is at the URL by wrk with one thread, as a check of the generator here. d is in whole seconds.
func RunWrk(ctx context.Context, url string, connections int, d time.Duration) (Wrk, error) {
	out, err := exec.CommandContext(ctx, "wrk", "--latency", "-t", "1", "-c", strconv.Itoa(connections),
		"-d", fmt.Sprintf("%ds", d/time.Second), url).CombinedOutput()
	if err != nil {
		return Wrk{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(string(out))
}

// parseWrk reads wrk's report. A report that tells of an error is an error: figures from such a run mean nothing, since a
// failed request is often a quick one.
func parseWrk(report string) (Wrk, error) {
	var r Wrk
	var err error
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Socket errors:"), strings.HasPrefix(line, "Non-2xx or 3xx responses:"):
			return Wrk{}, errors.New("wrk met errors: " + line)
		case len(fields) == 2 && fields[0] == "99%":
			r.P99, err = time.ParseDuration(fields[1])
		case len(fields) == 2 && fields[0] == "Requests/sec:":
			r.PerSecond, err = strconv.ParseFloat(fields[1], 64)
		case len(fields) > 3 && fields[1] == "requests" && fields[2] == "in":
			r.Requests, err = strconv.ParseInt(fields[0], 10, 64)
		}
		if err != nil {
			return Wrk{}, fmt.Errorf("wrk's line %q: %w", line, err)
		}
	}
	if r.Requests == 0 || r.PerSecond == 0 || r.P99 == 0 {
		return Wrk{}, fmt.Errorf("wrk's report lacks requests, Requests/sec or the 99%% line:\n%s", report)
	}
	return r, nil
}
