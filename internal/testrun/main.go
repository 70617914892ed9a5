// Command testrun runs the tests of several modules and shows progress. It prints a line for each package, at least one line every 15
// seconds, and the whole output of each failed test. At the end, it lists the skipped tests with their reasons.
//
// Most tests spend most of their time waiting. So testrun tests two modules at the same time, and runs twice as many packages and parallel
// tests as the go command would choose.
//
//	go run ./internal/testrun [-name name] module... -- [arguments of go test]
//
// Each line contains the name, which distinguishes several concurrent runs.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	patience = 15 * time.Second
	atOnce   = 2 // modules
)

// An event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// A run is the state of all tests so far.
type run struct {
	name           string // followed by a space; empty for none
	out            io.Writer
	mu             sync.Mutex // guards the fields below; held while a line is handled
	begin, printed time.Time
	modules        map[string]bool     // the modules that are being tested
	running        map[string]*running // the packages whose tests are running
	skipped        map[string][]string // tests, by reason
	passed, failed int                 // failed also counts a package that fails without a failed test
}

// running is a package whose tests run.
type running struct {
	output map[string][]byte // by test, for tests that have neither passed nor been skipped; "" is the package's own output
	latest string            // the test that began last
	failed bool
}

func main() {
	r := newRun(os.Stdout)
	flag.StringVar(&r.name, "name", "", "stands in each line about the run")
	flag.Parse()
	if r.name != "" {
		r.name += " "
	}
	modules, arguments := flag.Args(), []string(nil)
	if i := slices.Index(modules, "--"); i >= 0 {
		modules, arguments = modules[:i], modules[i+1:]
	}
	r.testAll(modules, arguments)
	r.printSummary()
	if r.failed > 0 {
		os.Exit(1)
	}
}

func newRun(out io.Writer) *run {
	return &run{
		out: out, begin: time.Now(), printed: time.Now(),
		modules: map[string]bool{}, running: map[string]*running{}, skipped: map[string][]string{},
	}
}

// testAll runs the tests of the modules. If it hasn't printed a line for a while, it prints which tests are running.
func (r *run) testAll(modules, arguments []string) {
	places, ended := make(chan struct{}, atOnce), make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup
		defer all.Wait()
		for _, module := range modules {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				r.test(module, arguments)
			})
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			r.mu.Lock()
			if time.Since(r.printed) >= patience {
				r.printProgress()
			}
			r.mu.Unlock()
		}
	}
}

// test runs the tests of the module in a directory.
func (r *run) test(module string, arguments []string) {
	more := strconv.Itoa(2 * runtime.GOMAXPROCS(0))
	command := exec.Command("go", append([]string{"test", "-json", "-p", more, "-parallel", more}, arguments...)...)
	command.Dir, command.Stderr = module, os.Stderr
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.modules[module] = true
	defer delete(r.modules, module)
	failed := false
	if err == nil {
		r.mu.Unlock()
		failed = r.read(output)
		err = command.Wait()
		r.mu.Lock()
	}
	if err != nil && !failed { // the command has failed, although no test has
		r.failed++
		r.printf("fail   %s%s: go test: %v\n", r.name, module, err)
	}
}

// read handles the output of `go test -json`, and reports whether a test or package has failed.
func (r *run) read(output io.Reader) (failed bool) {
	in := bufio.NewReader(output)
	for line, err := in.ReadBytes('\n'); err == nil; line, err = in.ReadBytes('\n') {
		r.mu.Lock()
		before := r.failed
		r.take(line)
		failed = failed || r.failed > before
		r.mu.Unlock()
	}
	return failed
}

// take handles one line of `go test -json`.
func (r *run) take(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		e = event{Action: "build-output", Output: string(line)}
	}
	e.Package = strings.TrimPrefix(e.Package, "github.com/filohttp/")
	p := r.running[e.Package]
	ends := e.Action == "pass" || e.Action == "skip" || e.Action == "fail"
	switch {
	case e.Action == "build-output":
		r.printf("%s", e.Output)
	case e.Action == "start":
		r.running[e.Package] = &running{output: map[string][]byte{}}
	case p == nil: // an event of the build
	case e.Action == "run":
		p.latest = e.Test
	case e.Action == "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output...)
	case ends && e.Test == "":
		r.endPackage(p, e)
	case ends:
		r.endTest(p, e)
	}
}

// reason matches the text that a test has logged. It isn't anchored, because other output without a newline may precede the file name.
var reason = regexp.MustCompile(`\w+\.go:\d+: (.*)`)

func (r *run) endTest(p *running, e event) {
	switch e.Action {
	case "fail":
		r.failed++
		p.failed = true
		return
	case "skip":
		why := "no reason given"
		if said := reason.FindAllSubmatch(p.output[e.Test], -1); said != nil {
			why = string(said[len(said)-1][1])
		}
		r.skipped[why] = append(r.skipped[why], e.Package+" "+e.Test)
	case "pass":
		r.passed++
	}
	delete(p.output, e.Test)
}

func (r *run) endPackage(p *running, e event) {
	delete(r.running, e.Package)
	if e.Action == "fail" {
		var output []byte // collected for a single write, so that output of concurrent packages can't come in between
		for _, test := range slices.Sorted(maps.Keys(p.output)) {
			output = append(output, p.output[test]...)
		}
		r.printf("%s", output)
		if !p.failed {
			r.failed++
		}
	}
	if e.Action == "fail" || p.latest != "" {
		r.printf("%-6s %-32s %6.1f s\n", e.Action, r.name+e.Package, e.Elapsed)
	}
}

func (r *run) printf(format string, a ...any) {
	r.printed = time.Now()
	fmt.Fprintf(r.out, format, a...)
}

func (r *run) printProgress() {
	what := ""
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		what += ", " + name + " " + r.running[name].latest
	}
	if what == "" {
		what = ", building the tests of module " + strings.Join(slices.Sorted(maps.Keys(r.modules)), ", ")
	}
	r.printf("%s%4.0f s, %d tests passed%s\n", r.name, time.Since(r.begin).Seconds(), r.passed, what)
}

func (r *run) printSummary() {
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[why]
		r.printf("%sskipped: %s (%d in all): %s\n", r.name, tests[0], len(tests), why)
	}
	r.printf("%s%d tests passed, %d failed, in %.0f s\n", r.name, r.passed, r.failed, time.Since(r.begin).Seconds())
}
