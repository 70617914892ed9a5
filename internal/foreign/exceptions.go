package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed exceptions.md
var exceptionsText string

// exception is a test, or a part of a test, that may fail, with the reason.
type exception struct {
	test    string
	kind    string
	reason  string
	atTimes bool // the test sometimes passes
	planned bool // this run includes the test
	failed  bool
}

// kinds are the kinds of reasons for which a test may fail.
var kinds = []string{"difference", "policy", "no counterpart", "fault"}

// readExceptions reads the tables of exceptions.md, by suite. The argument differences is the page that describes filo's differences to users:
// every difference must be listed there.
func readExceptions(differences string) (map[string][]*exception, error) {
	all := map[string][]*exception{}
	suite := ""
	for i, line := range strings.Split(exceptionsText, "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			suite = name
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if !strings.HasPrefix(line, "|") || cells[0] == "test" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		if len(cells) != 3 || suite == "" || cells[2] == "" {
			return nil, fmt.Errorf("exceptions.md:%d isn't a test, a kind and a reason, below the name of a suite", i+1)
		}
		kind, difference, _ := strings.Cut(cells[1], ": ")
		if !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("exceptions.md:%d: the kind is none of %q", i+1, kinds)
		}
		if kind == "difference" && !strings.Contains(differences, "\n| **"+difference+"** |") {
			return nil, fmt.Errorf("exceptions.md:%d: docs/internals/NETHTTP.md has no difference %q", i+1, difference)
		}
		for name := range strings.SplitSeq(cells[0], ", ") {
			name, atTimes := strings.CutSuffix(name, " (at times)")
			all[suite] = append(all[suite], &exception{test: strings.Trim(name, "`"), kind: kind, reason: cells[2], atTimes: atTimes})
		}
	}
	return all, nil
}

// exception returns the exception for a test that has failed in a run, or nil.
func (r *report) exception(run *testRun, test string) *exception {
	for _, e := range r.listed {
		if e.covers(test) {
			return e
		}
	}
	return run.only // the failed test may be the test function above the listed part
}

// judge prints the results that differ from the list of exceptions, and reports whether all results agree with it.
func (r *report) judge() bool {
	ok := true
	for _, run := range r.runs {
		var unlisted []string
		for _, test := range run.failed {
			if e := r.exception(run, test); e != nil {
				e.failed = true
			} else if run.reached {
				unlisted = append(unlisted, test)
			}
		}
		if len(unlisted) > 0 {
			ok = false
			// The names come last, because readers of a long log often see only its end.
			fmt.Printf("%s\n--- %s: these fail: %s\n", shorten(run.output), r.suite.name, strings.Join(unlisted, " "))
		}
	}
	for _, e := range r.listed {
		if e.planned && !e.failed && !e.atTimes {
			ok = false
			fmt.Printf("--- %s: %s doesn't fail, though exceptions.md lists it\n", r.suite.name, e.test)
		}
	}
	return ok
}

var dullLine = regexp.MustCompile(`(?m)^\x16?(===|--- PASS|--- SKIP).*\n`)

// shorten returns the beginning and the end of an output, without the lines that say that tests begin and pass.
func shorten(output []byte) []byte {
	output = dullLine.ReplaceAll(output, nil)
	const most = 6000
	if len(output) <= most {
		return output
	}
	return slices.Concat(output[:most/2], []byte("\n[...]\n"), output[len(output)-most/2:])
}

// tally counts the test functions of a suite that reached a server, by the worst result of each. It also returns the other counts that table
// prints.
func (r *report) tally() map[string]int {
	outcomes := slices.Concat([]string{"passed"}, kinds, []string{"unlisted"})
	reached, worst := map[string]bool{}, map[string]int{} // both keyed by test function
	counts := map[string]int{}
	for _, run := range r.runs {
		if run.reached {
			counts["cases passed"] += run.passed
		}
		reached[run.test] = reached[run.test] || run.reached
		for _, test := range run.failed {
			outcome := "unlisted"
			if e := r.exception(run, test); e != nil {
				outcome = e.kind
			}
			worst[run.test] = max(worst[run.test], slices.Index(outcomes, outcome))
		}
	}
	for test, reached := range reached {
		if !reached {
			counts["without a server"]++
			continue
		}
		counts["run"]++
		counts[outcomes[worst[test]]]++
	}
	return counts
}

// table prints how many tests of each suite have passed.
func table(reports []*report) {
	columns := []string{"run", "passed", "difference", "policy", "no counterpart", "fault", "unlisted", "cases passed", "without a server"}
	fmt.Printf("| suite | %s | time |\n", strings.Join(columns, " | "))
	fmt.Println(strings.Repeat("| --- ", len(columns)+2) + "|")
	for _, r := range reports {
		fmt.Printf("| %s |", r.suite.name)
		counts := r.tally()
		for _, column := range columns {
			fmt.Printf(" %d |", counts[column])
		}
		fmt.Printf(" %.0f s |\n", r.took.Seconds())
	}
}
