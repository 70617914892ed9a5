// Command foreign runs other projects' test suites against filo. Most are written for net/http's server: Go's tests of net/http and httputil,
// and those of WebSocket, RPC and router packages. The command copies them into temporary modules, and builds them with a net/http whose
// http.Server serves its Handler with filo, through adaptor.FromHTTP. The tests themselves aren't changed, except where suites.go says so.
//
// There are two suites for HTTP/2. h2spec tests the server at an address. The tests of x/net's HTTP/2 server exchange frames with a server:
// through ServeConn in a synctest bubble, and over sockets. connectrpc/conformance tests gRPC, gRPC-Web and Connect, served through package
// adaptor, and behind package proxy. cache-tests tests middleware/cache: it needs Node, and the network for the first run. If Erlang is
// installed, the command also runs the web server Cowboy's tests for the RFCs of HTTP/1.1, HTTP/2 and WebSockets over HTTP/2.
//
// Each test function has its own process and time limit. exceptions.md lists the tests that may fail, and why. The command fails if a test
// fails that isn't listed, or if a listed test passes.
//
//	go run ./internal/foreign [-suite name] [-run regexp] [-race] [-driver blocking] [-count n] [-v]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/gotool"
)

// options holds the values of the command's flags, and the paths that it uses.
type options struct {
	suite, run, driver, h2spec  string
	race, keep, verbose, native bool
	count, parallel             int
	timeout                     time.Duration

	repository, goroot string // directories
	overlay            string // a file
}

// wants reports whether the flag -suite selects the suite.
func (o *options) wants(s *suite) bool {
	return o.suite == "" || slices.Contains(strings.Split(o.suite, ","), s.name)
}

// environment returns the environment variables that select the server in a process with package standin.
func (o *options) environment() []string {
	native := ""
	if o.native {
		native = "1"
	}
	return []string{"FILO_DRIVER=", "FOREIGN_DRIVER=" + o.driver, "FOREIGN_NATIVE=" + native}
}

// inserted returns the path of a file to insert into another project's code.
func (o *options) inserted(name string) string {
	return filepath.Join(o.repository, "internal/foreign/inserted", name)
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "", "the suites that are run, with commas between; all if empty")
	flag.StringVar(&o.run, "run", ".", "which tests are run")
	flag.StringVar(&o.driver, "driver", "", "the driver: blocking, or empty for the default")
	flag.StringVar(&o.h2spec, "h2spec", "", "the program that the suite of that name runs; built of the module if empty")
	flag.BoolVar(&o.race, "race", false, "build with the race detector")
	flag.BoolVar(&o.keep, "keep", false, "keep the temporary modules and print where they are")
	flag.BoolVar(&o.verbose, "v", false, "print every test's result")
	flag.BoolVar(&o.native, "native", false, "let net/http serve, to see what fails by itself")
	flag.IntVar(&o.count, "count", 1, "how often the tests are run")
	flag.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "how many tests are run at once")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "how long a test may take")
	flag.Parse()
	ok, err := foreign(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// errSkipped is the error of a suite that can't run on this machine. It doesn't make the command fail.
var errSkipped = errors.New("not here")

// foreign runs the suites, and reports whether all results agree with exceptions.md.
func foreign(o *options) (ok bool, err error) {
	if o.repository, err = gotool.Repository(); err != nil {
		return false, err
	}
	if o.goroot, err = gotool.Output(".", "env", "GOROOT"); err != nil {
		return false, err
	}
	differences, err := os.ReadFile(filepath.Join(o.repository, "docs/internals/NETHTTP.md"))
	if err != nil {
		return false, err
	}
	list, err := readExceptions(string(differences))
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "foreign")
	if err != nil {
		return false, err
	}
	if o.keep {
		fmt.Println("foreign: the modules are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	if o.overlay, err = writeOverlay(dir, o); err != nil {
		return false, err
	}
	var reports []*report
	ok = true
	for i := range suites {
		s := &suites[i]
		if !o.wants(s) {
			continue
		}
		r := &report{suite: s, listed: list[s.name]}
		if err := r.run(o, filepath.Join(dir, fmt.Sprint("suite", i))); err != nil {
			if !errors.Is(err, gotool.ErrNoDownload) && !errors.Is(err, errSkipped) {
				return false, fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Printf("== %s: skipped: %v\n", s.name, err)
			continue
		}
		ok = r.judge() && ok
		reports = append(reports, r)
	}
	table(reports)
	return ok, nil
}
