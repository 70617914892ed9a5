// Command foreign runs test suites that others have written for net/http's server against filo: Go's own of net/http and
// httputil, and those of WebSocket, RPC and router packages. It copies them into temporary modules, and builds them with
// a net/http whose http.Server calls filo with its Handler, by adaptor.FromHTTP. The tests themselves aren't changed, except where suites.go
// says so.
//
// For HTTP/2 there are two suites. h2spec tests a server by its address. x/net has tests for its server that exchange frames with it: in a
// bubble of synctest by ServeConn, and over sockets. connectrpc/conformance tests gRPC, gRPC-Web and Connect, by package adaptor and
// through package proxy. cache-tests tests middleware/cache: it needs node, and the network once. With Erlang, the tests that the web
// server Cowboy has for the RFCs of HTTP/1.1, HTTP/2 and WebSockets over it are run as well.
//
// Each test has its own process and time limit. exceptions.md lists the tests that fail, and why. The command reports each test that fails
// but isn't listed, and each that is listed but passes, and then fails itself.
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

// options are the command's flags, and where it finds what it needs.
type options struct {
	suite, run, driver, h2spec  string
	race, keep, verbose, native bool
	count, parallel             int
	timeout                     time.Duration

	repository, goroot string // directories
	overlay            string // a file
}

// wants reports whether a suite must run.
func (o *options) wants(s *suite) bool {
	return o.suite == "" || slices.Contains(strings.Split(o.suite, ","), s.name)
}

// environment returns the variables that tell a process of standin which server to use.
func (o *options) environment() []string {
	native := ""
	if o.native {
		native = "1"
	}
	return []string{"FILO_DRIVER=", "FOREIGN_DRIVER=" + o.driver, "FOREIGN_NATIVE=" + native}
}

// inserted returns the path of a file that is inserted into others' code.
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

// errSkipped is the error of a suite that can't run here; it isn't a failure.
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
