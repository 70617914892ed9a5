package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/gotool"
)

// report holds the results of a suite's tests.
type report struct {
	suite  *suite
	listed []*exception
	runs   []*testRun
	took   time.Duration
}

// testRun is the run of one test function, or of one part that exceptions.md lists, in a separate process.
type testRun struct {
	test    string // the function
	only    *exception
	reached bool // the test has used a server of filo
	passed  int  // the number of passed cases, that is, tests without subtests
	failed  []string
	output  []byte
}

const (
	// listedTime is the maximum time for a test that is expected to fail.
	listedTime = 10 * time.Second
	// graceTime is how much longer than the test's time limit a process may live, to print where the test hangs.
	graceTime = 15 * time.Second
)

// run runs a suite.
func (r *report) run(o *options, dir string) error {
	fmt.Printf("== %s\n", r.suite.name)
	begin := time.Now()
	defer func() { r.took = time.Since(begin) }()
	if r.suite.run != nil {
		return r.suite.run(r, o, dir)
	}
	return r.runGo(o, dir)
}

// runGo builds a suite's tests and runs each in a separate process.
func (r *report) runGo(o *options, dir string) error {
	if err := r.suite.prepare(dir, o); err != nil {
		return err
	}
	wanted, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	selected, err := r.suite.selected(dir)
	if err != nil {
		return err
	}
	var todo []func() *testRun
	for i, p := range r.suite.packages {
		binary := filepath.Join(dir, fmt.Sprintf("foreign%d.test", i))
		args := []string{"test", "-c", "-mod=mod", "-vet=off", "-overlay", o.overlay, "-o", binary}
		if o.race {
			args = append(args, "-race")
		}
		if err := gotool.Command(dir, append(args, "./"+p.dir)...).Run(); err != nil {
			return err
		}
		names, err := exec.Command(binary, "-test.list", "^Test").Output()
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(string(names)) {
			if wanted.MatchString(name) && (selected == nil || slices.Contains(selected, name)) {
				todo = append(todo, r.plan(o, binary, filepath.Join(dir, p.dir), name)...)
			}
		}
	}
	parallel := o.parallel
	if r.suite.waits {
		parallel *= 8
	}
	for range o.count {
		r.runs = append(r.runs, inParallel(parallel, todo)...)
	}
	return nil
}

// plan returns the runs of a test function. The parts that exceptions.md lists run separately, because a part that crashes or hangs would hide
// the results of the other parts.
func (r *report) plan(o *options, binary, dir, name string) (todo []func() *testRun) {
	var apart []string
	whole := false
	for _, e := range r.listed {
		if top, _, _ := strings.Cut(e.test, "/"); top != name {
			continue
		}
		if o.native {
			continue
		}
		e.planned = true
		whole = whole || e.test == name
		if !strings.HasSuffix(e.test, afterwards) {
			apart = append(apart, pattern(e.test))
			todo = append(todo, func() *testRun {
				run := &testRun{test: name, only: e}
				run.start(o, min(o.timeout, listedTime), binary, dir, "-test.run", pattern(e.test))
				return run
			})
		}
	}
	if whole {
		return todo
	}
	return append(todo, func() *testRun {
		run := &testRun{test: name}
		args := []string{"-test.run", pattern(name)}
		if apart != nil {
			args = append(args, "-test.skip", strings.Join(apart, "|"))
		}
		run.start(o, o.timeout, binary, dir, args...)
		return run
	})
}

// repeat runs a suite that can't list its tests beforehand. It runs the suite -count times, and records the results of the wanted tests.
func (r *report) repeat(o *options, wanted *regexp.Regexp, suite func() ([]*testRun, error)) error {
	for range o.count {
		runs, err := suite()
		if err != nil {
			return err
		}
		for _, run := range runs {
			if wanted.MatchString(run.test) {
				r.runs = append(r.runs, run)
			}
		}
	}
	r.planReached(o)
	return nil
}

// planReached marks the exceptions whose tests have run. It replaces plan for a suite that can't list its tests beforehand.
func (r *report) planReached(o *options) {
	for _, e := range r.listed {
		e.planned = !o.native && slices.ContainsFunc(r.runs, func(run *testRun) bool { return e.covers(run.test) })
	}
}

// pattern returns the value of -test.run for a listed name, in which * matches any part of a test's name.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, ".*") + "$"
	}
	return strings.Join(parts, "/")
}

// covers reports whether the exception names the test, or a test above it in the tree of subtests.
func (e *exception) covers(test string) bool {
	names, parts := strings.Split(e.test, "/"), strings.Split(test, "/")
	if len(parts) < len(names) {
		return false
	}
	for i, name := range names {
		if !regexp.MustCompile(pattern(name)).MatchString(parts[i]) {
			return false
		}
	}
	return true
}

// inParallel calls the functions, n at a time, and returns their results in order.
func inParallel[T any](n int, all []func() T) []T {
	results := make([]T, len(all))
	running := make(chan struct{}, n)
	var wait sync.WaitGroup
	for i, f := range all {
		running <- struct{}{}
		wait.Go(func() {
			results[i] = f()
			<-running
		})
	}
	wait.Wait()
	return results
}

// start runs a test binary, and records the results.
func (run *testRun) start(o *options, timeout time.Duration, binary, dir string, args ...string) {
	mark, err := os.MkdirTemp("", "reached")
	if err != nil {
		run.failed, run.output = []string{run.test}, []byte(err.Error())
		return
	}
	defer os.RemoveAll(mark)
	ctx, cancel := context.WithTimeout(context.Background(), timeout+graceTime)
	defer cancel()
	args = append(args, "-test.v=test2json", "-test.timeout", timeout.String())
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	// The last value of a variable wins, so CI is empty. Some suites build and run more tests on the machines of their own CI.
	cmd.Env = slices.Concat(os.Environ(), o.environment(), []string{"CI=", "FOREIGN_REACHED=" + filepath.Join(mark, "reached"), "TMPDIR=" + mark})
	if run.only != nil {
		cmd.Env = append(cmd.Env, "FOREIGN_LISTED=1")
	}
	cmd.WaitDelay = time.Second
	begin := time.Now()
	run.output, err = cmd.CombinedOutput()
	_, notReached := os.Stat(filepath.Join(mark, "reached"))
	run.reached = notReached == nil || o.native
	run.take(err)
	if o.verbose {
		fmt.Printf("%s: %d passed, failed %v, reached %v, %.1f s\n", args[1], run.passed, run.failed, run.reached, time.Since(begin).Seconds())
	}
}

var (
	beganLine = regexp.MustCompile(`(?m)^\x16=== RUN\s+(\S+)$`)
	endedLine = regexp.MustCompile(`(?m)\x16--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// afterwards is the suffix that names the checks at the end of a process whose tests have passed, such as the check for leaked goroutines.
const afterwards = "/afterwards"

// take parses a process's output, and records which cases have passed or failed. A case that hasn't ended has failed.
func (run *testRun) take(err error) {
	results := map[string]string{}
	for _, match := range beganLine.FindAllSubmatch(run.output, -1) {
		results[string(match[1])] = "FAIL"
	}
	for _, match := range endedLine.FindAllSubmatch(run.output, -1) {
		results[string(match[2])] = string(match[1])
	}
	for name, result := range results {
		below := false
		for other, its := range results {
			// A failed test with subtests counts as a case if none of its subtests has failed.
			below = below || strings.HasPrefix(other, name+"/") && (result != "FAIL" || its == "FAIL")
		}
		switch {
		case below:
		case result == "FAIL":
			run.failed = append(run.failed, name)
		case result == "PASS":
			run.passed++
		}
	}
	if err != nil && len(run.failed) == 0 {
		run.failed = []string{run.test + afterwards}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			run.output = append(run.output, err.Error()...)
		}
	}
	slices.Sort(run.failed)
}
