package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

var cacheTests = source{"https://github.com/http-tests/cache-tests", "b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba"}

// cacheTestsTime is the maximum time for all tests together.
const cacheTestsTime = 3 * time.Minute

// runCacheTests runs cache-tests, a suite for HTTP caches written for Node, against middleware/cache in front of the suite's own server. A
// test that only shows how a cache behaves has no result. Nor does a test that depends on a failed test.
func (r *report) runCacheTests(o *options, dir string) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("%w: there is no node here", errSkipped)
	}
	suite, err := cacheTests.fetch()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for range o.count {
		runs, err := cacheTestsRun(o, node, suite, filepath.Join(dir, "cacheserver"))
		if err != nil {
			return err
		}
		r.runs = append(r.runs, runs...)
	}
	r.planReached(o)
	return nil
}

// cacheTestsRun runs the tests once.
func cacheTestsRun(o *options, node, suite, program string) (runs []*testRun, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), cacheTestsTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--no-warnings", o.inserted("cachetests.mjs"), suite, o.run)
	cmd.Stderr, cmd.WaitDelay = os.Stderr, time.Second
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		cmd.Wait()
	}()
	lines := bufio.NewReader(output)
	var origin, port int
	if _, err := fmt.Fscanln(lines, &origin); err != nil {
		return nil, fmt.Errorf("the suite's server: %w", err)
	}
	stop, err := startServer(o, "cacheserver", program, []string{fmt.Sprint("http://127.0.0.1:", origin)}, &port)
	if err != nil {
		return nil, fmt.Errorf("cacheserver: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Fprintln(input, port)
	var results []cacheResult
	if err := json.NewDecoder(lines).Decode(&results); err != nil {
		return nil, fmt.Errorf("the suite's results: %w", err)
	}
	for _, result := range results {
		runs = append(runs, result.run(o.verbose))
	}
	return runs, nil
}

// cacheResult is the suite's result of a test.
type cacheResult struct{ ID, Outcome, Message string }

func (c cacheResult) run(verbose bool) *testRun {
	if verbose {
		fmt.Printf("%s: %s %s\n", c.ID, c.Outcome, c.Message)
	}
	run := &testRun{test: c.ID, reached: true}
	switch c.Outcome {
	case "pass":
		run.passed = 1
	case "yes", "no", "dependency_fail": // no verdict
	default:
		run.failed, run.output = []string{c.ID}, []byte(c.Outcome+": "+c.Message+"\n")
	}
	return run
}
