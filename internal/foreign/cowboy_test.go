package main

import "testing"

// A line of the results has a test's name, a tab, and the result, which may itself contain tabs.
func TestReadCowboy(t *testing.T) {
	runs := readCowboy([]byte("rfc7230/http/reject_response\tok\nrfc7540/tls/alpn\t{{badmatch,<<\"a\tb\">>},[]}\nrfc8441/none/init_per_group\t{skipped,why}\n"), false)
	if len(runs) != 3 {
		t.Fatalf("%d tests", len(runs))
	}
	if run := runs[0]; run.test != "rfc7230/http/reject_response" || run.passed != 1 || run.failed != nil {
		t.Errorf("the first is %+v", run)
	}
	for _, run := range runs[1:] {
		if run.passed != 0 || len(run.failed) != 1 || run.failed[0] != run.test {
			t.Errorf("one that went wrong is %+v", run)
		}
	}
	if got, want := string(runs[1].output), "rfc7540/tls/alpn\t{{badmatch,<<\"a\tb\">>},[]}\n"; got != want {
		t.Errorf("the output %q", got)
	}
}
