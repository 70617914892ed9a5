package load

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/alike"
	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

//go:embed wrk.lua
var script []byte

// report is the output of wrk's script. Micros has the duration of the run and three percentiles, in microseconds.
type report struct {
	Answers, Bytes, Errors float64
	Micros                 [4]float64
}

// Wrk runs a closed loop: wrk with one thread, after a warm-up by another wrk. wrk checks the status of each answer. The number of bytes
// shows whether all bodies have the right length; alike.Fetch has compared the answers themselves. CPU time in the window includes opening the
// connections. If a row closes connections, wrk counts the requests of all connections together: every n-th of them closes its connection. For a slow
// answer wrk also adds the latencies of the requests that the connection would have sent during the wait. For pipelined requests wrk's latencies are
// wrong, so the result has none.
func Wrk(ctx context.Context, j *Job) (*Result, error) {
	folder, err := os.MkdirTemp("", "filo-wrk")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	_, host, _ := strings.Cut(j.Base, "://")
	var file bytes.Buffer
	for _, piece := range pieces(j.Row, host) {
		fmt.Fprintf(&file, "%d\n%s", len(piece), piece)
	}
	data, program := filepath.Join(folder, "requests"), filepath.Join(folder, "script.lua")
	err = errors.Join(os.WriteFile(data, file.Bytes(), 0o600), os.WriteFile(program, script, 0o600))
	if err != nil {
		return nil, err
	}
	answers, err := alike.Fetch(j.Base, j.Row)
	if err != nil {
		return nil, err
	}
	if j.Warmup > 0 {
		warm, cancel := context.WithTimeout(ctx, j.Warmup)
		j.wrk(warm, data, program, time.Hour) // the context's end kills it
		cancel()
	}
	if err := j.Window(true); err != nil {
		return nil, err
	}
	out, err := j.wrk(ctx, data, program, j.Duration)
	if err := errors.Join(err, j.Window(false)); err != nil {
		return nil, err
	}
	result, err := read(out, answers[0].Size, float64(j.Row.Connections*max(j.Row.Pipeline, 1)))
	if err == nil && j.Row.Pipeline > 1 {
		result.Latency = Percentiles{}
	}
	return result, err
}

func (j *Job) wrk(ctx context.Context, data, program string, d time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(j.Row.Connections), "-d", fmt.Sprintf("%.0fs", d.Seconds()),
		"--timeout", "10s", "-s", program, j.Base)
	cmd.Env = append(os.Environ(), "FILO_REQUESTS="+data)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := proc.Start(cmd, j.CPUs); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("wrk: %w: %s", err, out.String())
	}
	return out.String(), nil
}

// pieces returns the byte sequences that wrk sends, one after the other: single requests, or groups of pipelined ones.
func pieces(r *row.Row, host string) (all [][]byte) {
	if len(r.Requests) > 1 { // rows with several requests never close connections
		for i := range r.Requests {
			all = append(all, r.Requests[i].Raw(host, false))
		}
		return all
	}
	for i := range max(r.PerConnection, 1) {
		raw := r.Requests[0].Raw(host, i == r.PerConnection-1)
		all = append(all, bytes.Repeat(raw, max(r.Pipeline, 1)))
	}
	return all
}

// read reads wrk's report. It fails if the report has errors: figures from such a run mean nothing, since a failed request is often a quick one. It
// also fails if the number of bytes doesn't fit the number of answers, each of size bytes, plus parts of up to inFlight unfinished answers.
func read(out string, size, inFlight float64) (*Result, error) {
	var r report
	_, line, found := strings.Cut(out, "\n{")
	if !found {
		return nil, fmt.Errorf("wrk says only %q", out)
	}
	if err := json.Unmarshal([]byte("{"+line), &r); err != nil {
		return nil, fmt.Errorf("wrk's report %q: %w", line, err)
	}
	switch {
	case r.Errors > 0 || r.Answers == 0:
		return nil, fmt.Errorf("wrk met %.0f errors, and had %.0f answers", r.Errors, r.Answers)
	case r.Bytes < 0.95*r.Answers*size || r.Bytes > 1.2*(r.Answers+inFlight)*size: // answers with Connection: close have another size
		return nil, fmt.Errorf("%.0f answers of %.0f bytes each had %.0f bytes", r.Answers, size, r.Bytes)
	}
	m := r.Micros
	return &Result{Answers: r.Answers, Seconds: m[0] / 1e6, Size: r.Bytes / r.Answers, Latency: Percentiles{m[1] / 1e3, m[2] / 1e3, m[3] / 1e3}}, nil
}
