package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// cowboyTime is the maximum time for all tests together. Many tests wait to check that something doesn't arrive.
const cowboyTime = 10 * time.Minute

// cowboySources are the repositories of Cowboy's author that contain the suites and their libraries.
var cowboySources = []source{
	{"https://github.com/ninenines/cowboy", "5c8535f409aa2fd49deb355e8ee43d5c06eb1c90"},
	{"https://github.com/ninenines/cowlib", "ae75c4dd7bdeb45eeab92e373549398a12cecf3b"},
	{"https://github.com/ninenines/gun", "4b8ed819632d62a804d5d69aa15495d5c97ff489"},
}

var cowboySuites = []string{"rfc7230_SUITE", "rfc7231_SUITE", "rfc7540_SUITE", "rfc8441_SUITE"}

// runCowboy runs the RFC tests of Cowboy, a web server in Erlang, with the program cowboyserver instead of Cowboy. The modules in
// inserted/cowboy replace the parts of Cowboy that the tests call. A test has a name such as rfc7230/http/reject_response: suite, group and
// test.
func (r *report) runCowboy(o *options, dir string) error {
	wanted, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	// The Erlang code catches the error, since otherwise Erlang writes a crash dump into the current directory.
	if exec.Command("erl", "-noshell", "-eval", "try ct:module_info() of _ -> halt(0) catch _:_ -> halt(1) end.").Run() != nil {
		return fmt.Errorf("%w: there is no Erlang with Common Test here (Debian's erlang-common-test)", errSkipped)
	}
	var at []string // the directories of cowboySources
	for _, s := range cowboySources {
		fetched, err := s.fetch()
		if err != nil {
			return err
		}
		at = append(at, fetched)
	}
	ebin := filepath.Join(dir, "ebin")
	if err := os.MkdirAll(ebin, 0o755); err != nil {
		return err
	}
	if err := compileCowboy(o, ebin, at[0], at[1], at[2]); err != nil {
		return err
	}
	server := filepath.Join(dir, "cowboyserver")
	if err := buildServer(o, "contrib/websocket", "./internal/cowboyserver", server); err != nil {
		return err
	}
	return r.repeat(o, wanted, func() ([]*testRun, error) { return cowboyRun(o, dir, ebin, server) })
}

// compileCowboy compiles the suites, their client gun, its library cowlib, and the modules that replace Cowboy.
func compileCowboy(o *options, ebin, cowboy, cowlib, gun string) error {
	tests := []string{filepath.Join(cowboy, "test/cowboy_test.erl"), filepath.Join(cowboy, "test/ws_SUITE.erl")} // the suites call functions of these
	for _, suite := range cowboySuites {
		tests = append(tests, filepath.Join(cowboy, "test", suite+".erl"))
	}
	// Erlang includes the libraries' files by a path that begins with the library's name.
	libraries := filepath.Join(filepath.Dir(ebin), "libraries")
	if err := os.Mkdir(libraries, 0o755); err != nil {
		return err
	}
	for name, directory := range map[string]string{"cowlib": cowlib, "gun": gun} {
		if err := os.Symlink(directory, filepath.Join(libraries, name)); err != nil {
			return err
		}
		description, err := os.ReadFile(filepath.Join(directory, "ebin", name+".app"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(ebin, name+".app"), description, 0o644); err != nil {
			return err
		}
	}
	for _, patterns := range [][]string{
		{o.inserted("cowboy/*.erl")}, {filepath.Join(cowlib, "src/*.erl")}, {filepath.Join(gun, "src/*.erl")}, tests,
	} {
		args := []string{"-o", ebin, "-pa", ebin, "-I", libraries, "-I", filepath.Join(cowlib, "include"), "-I", filepath.Join(gun, "include")}
		for _, pattern := range patterns {
			files, err := filepath.Glob(pattern)
			if err != nil {
				return err
			}
			args = append(args, files...)
		}
		// Warnings are off, since the compiler warns of each behaviour that isn't compiled yet.
		if output, err := exec.Command("erlc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("erlc: %w\n%s", err, output)
		}
	}
	return nil
}

// cowboyRun runs the suites once.
func cowboyRun(o *options, dir, ebin, server string) ([]*testRun, error) {
	logs, results := filepath.Join(dir, "logs"), filepath.Join(dir, "results")
	if err := os.RemoveAll(logs); err != nil {
		return nil, err
	}
	if err := os.Mkdir(logs, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cowboyTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "erl", "-noshell", "-pa", ebin, "-s", "foreign_results", "run")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = slices.Concat(os.Environ(), o.environment(), []string{
		"FOREIGN_SERVER=" + server, "FOREIGN_EBIN=" + ebin, "FOREIGN_LOGS=" + logs, "FOREIGN_RESULTS=" + results,
		"FOREIGN_SUITES=" + strings.Join(cowboySuites, " "),
	})
	output, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, shorten(output))
	}
	text, err := os.ReadFile(results)
	if err != nil {
		return nil, err
	}
	runs := readCowboy(text, o.verbose)
	if len(runs) == 0 {
		return nil, fmt.Errorf("no test was run\n%s", shorten(output))
	}
	return runs, nil
}

// readCowboy parses the suites' results, and returns the tests.
func readCowboy(text []byte, verbose bool) (runs []*testRun) {
	for line := range bytes.Lines(text) {
		if verbose {
			fmt.Printf("%s", line)
		}
		name, result, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"))
		run := &testRun{test: string(name), reached: true}
		if string(result) == "ok" {
			run.passed = 1
		} else {
			run.failed, run.output = []string{run.test}, line
		}
		runs = append(runs, run)
	}
	return runs
}
