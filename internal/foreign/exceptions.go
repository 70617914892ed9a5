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

// exception is a test that fails, or a part of one, and why.
type exception struct {
	test    string
	kind    string
	reason  string
	atTimes bool // it passes now and then
	planned bool // it is to be run
	failed  bool
}

// kinds are why a test may fail.
var kinds = []string{"difference", "no counterpart", "fault"}

// readExceptions reads the tables of exceptions.md, by suite. A difference must be one of those that differences tells users of.
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
			return nil, fmt.Errorf("exceptions.md:%d: docs/NETHTTP.md has no difference %q", i+1, difference)
		}
		for name := range strings.SplitSeq(cells[0], ", ") {
			name, atTimes := strings.CutSuffix(name, " (at times)")
			all[suite] = append(all[suite], &exception{test: strings.Trim(name, "`"), kind: kind, reason: cells[2], atTimes: atTimes})
		}
	}
	return all, nil
}

// find returns the exception for a test, or nil.
func (r *report) find(test string) *exception {
	for _, e := range r.listed {
		if e.covers(test) {
			return e
		}
	}
	return nil
}

// judge prints what went otherwise than listed, and reports whether nothing did.
func (r *report) judge() bool {
	ok := true
	for _, run := range r.runs {
		var unlisted []string
		for _, test := range run.failed {
			if e := r.find(test); e != nil {
				e.failed = true
			} else if run.only != nil {
				run.only.failed = true // such as a function that fails by what is below it
			} else if run.reached {
				unlisted = append(unlisted, test)
			}
		}
		if len(unlisted) > 0 {
			ok = false
			fmt.Printf("--- %s: these fail: %s\n%s\n", r.suite.name, strings.Join(unlisted, " "), shorten(run.output))
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

// shorten returns the beginning and the end of an output, without what says that tests begin and pass.
func shorten(output []byte) []byte {
	output = dullLine.ReplaceAll(output, nil)
	const most = 6000
	if len(output) <= most {
		return output
	}
	return slices.Concat(output[:most/2], []byte("\n[...]\n"), output[len(output)-most/2:])
}

// tally is how many test functions of a suite have passed, or failed for each reason.
type tally struct {
	passed, unlisted, without, cases int
	kinds                            map[string]int
}

func (r *report) tally() tally {
	t := tally{kinds: map[string]int{}}
	type result struct {
		reached bool
		worst   int
	}
	results := map[string]*result{}
	for _, run := range r.runs {
		one := results[run.test]
		if one == nil {
			one = &result{worst: -1}
			results[run.test] = one
		}
		if one.reached = one.reached || run.reached; run.reached {
			t.cases += run.passed
		}
		for _, test := range run.failed {
			e := r.find(test)
			if e == nil {
				e = run.only
			}
			if e == nil {
				one.worst = len(kinds)
			} else {
				one.worst = max(one.worst, slices.Index(kinds, e.kind))
			}
		}
	}
	for _, one := range results {
		switch {
		case !one.reached:
			t.without++
		case one.worst < 0:
			t.passed++
		case one.worst == len(kinds):
			t.unlisted++
		default:
			t.kinds[kinds[one.worst]]++
		}
	}
	return t
}

// table prints how many tests of each suite have passed.
func table(reports []*report) {
	fmt.Println("| suite | run | passed | difference | no counterpart | fault | unlisted | cases passed | without a server | time |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range reports {
		t := r.tally()
		run := t.passed + t.unlisted
		for _, n := range t.kinds {
			run += n
		}
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %.0f s |\n", r.suite.name, run, t.passed, t.kinds["difference"],
			t.kinds["no counterpart"], t.kinds["fault"], t.unlisted, t.cases, t.without, r.took.Seconds())
	}
}
