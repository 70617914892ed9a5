package load

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/proc"
)

// H2load runs a closed loop over HTTP/2: h2load with one thread. h2load checks the status of each answer, and reports no percentiles.
func H2load(ctx context.Context, j *Job) (*Result, error) {
	if j.Warmup > 0 {
		warm, cancel := context.WithTimeout(ctx, j.Warmup)
		j.h2load(warm, time.Hour) // the context's end kills it
		cancel()
	}
	if err := j.Window(true); err != nil {
		return nil, err
	}
	begun := time.Now()
	out, err := j.h2load(ctx, j.Duration)
	took := time.Since(begun)
	if err := errors.Join(err, j.Window(false)); err != nil {
		return nil, err
	}
	return readH2load(out, took)
}

func (j *Job) h2load(ctx context.Context, d time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, "h2load", "-t", "1", "-c", strconv.Itoa(j.Row.Connections), "-m", strconv.Itoa(j.Row.Streams),
		"-D", fmt.Sprintf("%.0f", d.Seconds()), j.Base+j.Row.Requests[0].Target)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := proc.Start(cmd, j.CPUs); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("h2load: %w: %s", err, out.String())
	}
	return out.String(), nil
}

// readH2load reads h2load's report. A report of failed requests is an error.
func readH2load(out string, took time.Duration) (*Result, error) {
	var total, started, done, succeeded, failed, errored, timeout, good float64
	_, requests, _ := strings.Cut(out, "\nrequests: ")
	_, codes, _ := strings.Cut(out, "\nstatus codes: ")
	_, err := fmt.Sscanf(requests, "%f total, %f started, %f done, %f succeeded, %f failed, %f errored, %f timeout",
		&total, &started, &done, &succeeded, &failed, &errored, &timeout)
	_, also := fmt.Sscanf(codes, "%f 2xx", &good)
	if err := errors.Join(err, also); err != nil {
		return nil, fmt.Errorf("h2load says only %q: %w", out, err)
	}
	if failed+errored+timeout > 0 || good == 0 || succeeded != done {
		return nil, fmt.Errorf("h2load had %.0f answers, of which %.0f were good, and %.0f errors", done, succeeded, failed+errored+timeout)
	}
	return &Result{Answers: good, Seconds: took.Seconds()}, nil
}
