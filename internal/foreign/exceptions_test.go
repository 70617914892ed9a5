package main

import (
	"os"
	"strings"
	"testing"
)

// Each exception has a reason, and is listed for an existing suite. A difference is also listed in NETHTTP.md, for users.
func TestExceptions(t *testing.T) {
	differences, err := os.ReadFile("../../docs/internals/NETHTTP.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readExceptions(string(differences))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		delete(all, s.name)
	}
	for name := range all {
		t.Errorf("exceptions.md has a suite %q, and there is none", name)
	}
	if _, err := readExceptions(strings.ReplaceAll(string(differences), "**panics**", "")); err == nil {
		t.Error("a difference that users aren't told of is accepted")
	}
}

// take finds in the output of a process which of its cases have passed.
func TestTake(t *testing.T) {
	run := &testRun{test: "TestA", output: []byte("\x16=== RUN   TestA\n\x16=== RUN   TestA/x\nwords\x16--- PASS: TestA/x (0.00s)\n" +
		"\x16=== RUN   TestA/y\n\x16=== RUN   TestA/y/z\npanic: no\n")}
	run.take(nil)
	if run.passed != 1 || strings.Join(run.failed, " ") != "TestA/y/z" {
		t.Errorf("%d passed, and %q failed", run.passed, run.failed)
	}
}

// A listed name covers the subtests of the named test, and * matches any part of a name.
func TestCovers(t *testing.T) {
	for _, test := range []struct {
		listed, name string
		want         bool
	}{
		{"TestA", "TestA", true},
		{"TestA", "TestA/x", true},
		{"TestA", "TestAB", false},
		{"TestA/x", "TestA", false},
		{"TestA/*/b*", "TestA/x/bidi", true},
		{"TestA/*/b*", "TestA/x/unary", false},
		{"TestA/a+b", "TestA/a+b/c", true},
	} {
		if got := (&exception{test: test.listed}).covers(test.name); got != test.want {
			t.Errorf("%s covers %s: %v", test.listed, test.name, got)
		}
	}
}
