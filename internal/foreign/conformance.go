package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/filohttp/filo/internal/gotool"
)

const (
	conformance        = "connectrpc.com/conformance"
	conformanceVersion = "v1.0.7"
	// conformanceTime is the maximum time for all its cases together.
	conformanceTime = 5 * time.Minute
)

// conformancePatches replace net/http's server in the suite's server program with filo's. Its server for QUIC remains, unused.
var conformancePatches = []patch{
	{"internal/app/referenceserver/server.go", "return &stdHTTPServer{svr: h1Server, lis: lis}, nil", "return newFilo(h1Server, lis)"},
	{"internal/app/referenceserver/server.go", "return &stdHTTPServer{svr: h2Server, lis: lis}, nil", "return newFilo(h2Server, lis)"},
}

// grpcPatches replace grpc-go's server in the suite's other server program with contrib/grpc.
var grpcPatches = []patch{
	{"internal/app/grpcserver/server.go", "server, err := createServer(req.MessageReceiveLimit)", "_, err := createServer(req.MessageReceiveLimit)"},
	{"internal/app/grpcserver/server.go", "return runGRPCWebServer(ctx, server, listener, trace)", "return serveFilo(ctx, req.MessageReceiveLimit, listener)"},
	{"internal/app/grpcserver/server.go", "return runGRPCServer(ctx, server, listener, trace)", "return serveFilo(ctx, req.MessageReceiveLimit, listener)"},
}

// runConformance builds the suite's server program with filo instead of net/http. The suite's clients call it directly, and then through
// filo's proxy. Each case is a test, whose name begins with direct or proxy.
func (r *report) runConformance(o *options, dir string) error {
	return r.conformance(o, dir, "./cmd/referenceserver", "conformance.yaml.txt", "direct", "proxy")
}

// runConformanceGRPC makes the suite's clients of gRPC and gRPC-Web call its service, which contrib/grpc serves.
func (r *report) runConformanceGRPC(o *options, dir string) error {
	return r.conformance(o, dir, "./cmd/grpcserver", "conformance_grpc.yaml.txt", "direct")
}

// conformance builds a server program of the suite, and runs the cases that the configuration selects, once for each element of ways: "direct"
// or "proxy".
func (r *report) conformance(o *options, dir, command, config string, ways ...string) error {
	s := *r.suite
	if o.native {
		s.files, s.patches = nil, nil
	}
	if err := s.prepare(dir, o); err != nil {
		return err
	}
	runner, server := filepath.Join(dir, "foreign-runner"), filepath.Join(dir, "foreign-server")
	build := []string{"build", "-mod=mod", "-o"}
	if err := gotool.Command(dir, append(build, runner, "./cmd/connectconformance")...).Run(); err != nil {
		return err
	}
	if o.race {
		build = slices.Insert(build, 1, "-race")
	}
	if err := gotool.Command(dir, append(build, server, command)...).Run(); err != nil {
		return err
	}
	for range o.count {
		for _, by := range ways {
			r.runs = append(r.runs, conformanceRun(o, config, by, runner, server))
		}
	}
	for _, e := range r.listed {
		e.planned = !o.native
	}
	return nil
}

// conformanceRun runs all cases once.
func conformanceRun(o *options, config, by, runner, server string) *testRun {
	ctx, cancel := context.WithTimeout(context.Background(), conformanceTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, runner, "--conf", o.inserted(config), "--mode", "server", "--", server)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), o.environment()...), time.Second
	if by == "proxy" {
		cmd.Env = append(cmd.Env, "FOREIGN_PROXY=1")
	}
	output, err := cmd.CombinedOutput()
	if o.verbose {
		fmt.Printf("%s\n", output)
	}
	return readConformance(output, err, by)
}

var (
	conformanceFailed = regexp.MustCompile(`(?m)^FAILED: (\S.*?)(?::| was expected to fail but did not)$`)
	conformanceTotal  = regexp.MustCompile(`(?m)^Total cases: \d+\n(\d+) passed, \d+ failed\.?$`)
	conformanceMissed = regexp.MustCompile(`(?m)^Another \d+ could not be run`)
)

// readConformance parses the output for failed cases. A run that doesn't report its end, or that omits a case, counts as a failed test.
func readConformance(output []byte, err error, by string) *testRun {
	run := &testRun{test: by, reached: true, output: output}
	for _, match := range conformanceFailed.FindAllSubmatch(output, -1) {
		run.failed = append(run.failed, by+"/"+string(match[1]))
	}
	if total := conformanceTotal.FindSubmatch(output); total != nil {
		run.passed, _ = strconv.Atoi(string(total[1]))
	}
	if len(run.failed) == 0 && (err != nil || run.passed == 0 || conformanceMissed.Match(output)) {
		run.failed, run.output = []string{by}, fmt.Appendf(output, "\n%v\n", err)
	}
	return run
}
