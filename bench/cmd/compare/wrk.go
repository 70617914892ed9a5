package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// wrkResult is what wrk says of a run without errors.
type wrkResult struct {
	requests  int64
	perSecond float64
	p99       time.Duration
}

// runWrk loads the server at base for d.
func runWrk(ctx context.Context, base string, connections int, d time.Duration, o *options) (wrkResult, error) {
	args := []string{"--latency", "-t", "1", "-c", strconv.Itoa(connections), "-d", fmt.Sprintf("%ds", d/time.Second)}
	if o.header != "" {
		args = append(args, "-H", o.header)
	}
	if script := wrkScript(o); script != "" {
		file, err := os.CreateTemp("", "compare-*.lua")
		if err != nil {
			return wrkResult{}, err
		}
		defer os.Remove(file.Name())
		defer file.Close()
		if _, err := file.WriteString(script); err != nil {
			return wrkResult{}, err
		}
		args = append(args, "-s", file.Name())
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, base+o.path)...).CombinedOutput()
	if err != nil {
		return wrkResult{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(string(out), o.pipeline > 1)
}

// wrkScript returns the script that makes wrk pipeline its requests, or close connections now and then; "" if it does neither.
func wrkScript(o *options) string {
	switch {
	case o.pipeline > 1:
		return fmt.Sprintf("local all\ninit = function() all = string.rep(wrk.format(), %d) end\nrequest = function() return all end\n", o.pipeline)
	case o.perConn > 0:
		return fmt.Sprintf("local n, last, plain = 0\n"+
			"init = function() plain = wrk.format(); wrk.headers['Connection'] = 'close'; last = wrk.format() end\n"+
			"request = function() n = n + 1; if n %% %d == 0 then return last end; return plain end\n", o.perConn)
	}
	return ""
}

// parseWrk reads wrk's report. A report that tells of an error is an error: figures from such a run mean
// nothing, since a failed request is often a quick one.
func parseWrk(report string, pipelined bool) (wrkResult, error) {
	var r wrkResult
	var err error
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Socket errors:"), strings.HasPrefix(line, "Non-2xx or 3xx responses:"):
			return wrkResult{}, errors.New("wrk met errors: " + line)
		case len(fields) == 2 && fields[0] == "99%":
			r.p99, err = time.ParseDuration(fields[1])
		case len(fields) == 2 && fields[0] == "Requests/sec:":
			r.perSecond, err = strconv.ParseFloat(fields[1], 64)
		case len(fields) > 3 && fields[1] == "requests" && fields[2] == "in":
			r.requests, err = strconv.ParseInt(fields[0], 10, 64)
		}
		if err != nil {
			return wrkResult{}, fmt.Errorf("wrk's line %q: %w", line, err)
		}
	}
	// Of pipelined requests wrk's latencies mean little, and it mostly says 0.
	if r.requests == 0 || r.perSecond == 0 || r.p99 == 0 && !pipelined {
		return wrkResult{}, fmt.Errorf("wrk's report lacks requests, Requests/sec or the 99%% line:\n%s", report)
	}
	return r, nil
}
