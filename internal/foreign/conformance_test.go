package main

import (
	"errors"
	"strings"
	"testing"
)

// The suite's output names the failed cases. Its exit status is 0 even if its clients have given up before all cases have run.
func TestReadConformance(t *testing.T) {
	for _, test := range []struct {
		output string
		err    error
		passed int
		failed string
	}{
		{"Total cases: 3\n3 passed, 0 failed\n", nil, 3, ""},
		{"FAILED: Basic/TLS:false/unary:\n\tactual error\nFAILED: Errors/a was expected to fail but did not\n\nTotal cases: 3\n1 passed, 2 failed\n",
			errors.New("exit status 1"), 1, "by/Basic/TLS:false/unary by/Errors/a"},
		{"Total cases: 2\n2 passed, 0 failed\nAnother 7 could not be run due to client timing out or exiting prematurely.\n", nil, 2, "by"},
		{"Total cases: 0\n0 passed, 0 failed\n", nil, 0, "by"},
		{"Total cases: 3\n3 passed, 0 failed\n", errors.New("signal: killed"), 3, "by"},
		{"no server\n", errors.New("exit status 1"), 0, "by"},
	} {
		run := readConformance([]byte(test.output), test.err, "by")
		if failed := strings.Join(run.failed, " "); run.passed != test.passed || failed != test.failed {
			t.Errorf("%q: %d passed, and %q failed", test.output, run.passed, failed)
		}
	}
}

// Some outcomes of cache-tests mean that the test has failed.
func TestCacheOutcomes(t *testing.T) {
	for outcome, failed := range map[string]bool{
		"pass": false, "yes": false, "no": false, "dependency_fail": false,
		"fail": true, "optional_fail": true, "setup_fail": true, "harness_fail": true, "retry": true,
	} {
		run := cacheResult{ID: "a", Outcome: outcome}.run(false)
		if (len(run.failed) > 0) != failed || (run.passed > 0) != (outcome == "pass") {
			t.Errorf("%s: %d passed, and %q failed", outcome, run.passed, run.failed)
		}
	}
}
