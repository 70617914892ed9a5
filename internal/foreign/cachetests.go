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

const (
	cacheTests       = "https://github.com/http-tests/cache-tests"
	cacheTestsCommit = "b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba"
	// cacheTestsTime is how long all of the tests may take, fetchTime how long it may take to get them.
	cacheTestsTime = 3 * time.Minute
	fetchTime      = time.Minute
)

// runCacheTests runs the tests for HTTP caches, which are written for Node, against middleware/cache in front of the suite's own server. A
// test that only tells how a cache behaves has no verdict, nor has one that depends on a test that fails.
func (r *report) runCacheTests(o *options, dir string) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("%w: there is no node here", errSkipped)
	}
	suite, err := fetchCacheTests()
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

// fetchCacheTests returns the directory of the suite, which is fetched once and kept in the user's cache. Nobody's tests need the network of
// another company: where that isn't there, the suite is skipped, also by CI.
func fetchCacheTests() (string, error) {
	kept, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	kept = filepath.Join(kept, "filo-foreign")
	suite := filepath.Join(kept, "cache-tests-"+cacheTestsCommit)
	if _, err := os.Stat(suite); err == nil {
		return suite, nil
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(kept, "fetching")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	for _, args := range [][]string{
		{"init", "-q"},
		{"fetch", "-q", "--depth", "1", cacheTests, cacheTestsCommit},
		{"-c", "advice.detachedHead=false", "checkout", "-q", cacheTestsCommit},
	} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		// A hook of git's, which may have called this, has variables that lead to its own repository.
		own := filepath.Join(dir, ".git")
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_DIR="+own, "GIT_WORK_TREE="+dir, "GIT_INDEX_FILE="+filepath.Join(own, "index"))
		if output, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: git %s: %w\n%s", errSkipped, args[0], err, output)
		}
	}
	if err := os.Rename(dir, suite); err != nil {
		if _, there := os.Stat(suite); there != nil { // another process was as quick
			return "", err
		}
	}
	return suite, nil
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

// cacheResult is what the suite says of a test.
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
