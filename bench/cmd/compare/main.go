// Command compare measures filo and other servers, each in a separate process: requests per second, CPU time per request, latencies
// at constant rates, memory, allocations and system calls.
//
//	go run ./cmd/compare -size quick      # three servers in five rows: five minutes
//	go run ./cmd/compare                  # these in every row, other servers in four rows: about 55 minutes; writes the report
//	go run ./cmd/compare -size http2      # HTTP/2, also of net/http, nghttpd, h2o and nginx: about 15 minutes
//	go run ./cmd/compare -size all        # everything: hours. After an interruption, the same command continues
//	go run ./cmd/compare -base main       # the current filo, and filo at a revision
//
// README.md describes the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
	"github.com/filohttp/filo/bench/internal/postgres"
	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	groups, err := plan.Make(o.size, o.choice)
	if err != nil {
		return err
	}
	if err := findGenerators(groups); err != nil {
		return err
	}
	if o.base != "" {
		groups = filoTwice(groups)
	}
	store, err := measure.Open(o.results, !o.resume)
	if err != nil {
		return err
	}
	defer store.Close()
	folder, err := os.MkdirTemp("", "filo-compare")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	runner := &measure.Runner{Files: folder, Warmup: o.warmup, MaxLateness: o.lateness, Patience: 30 * time.Second}
	versions := tools()
	db, groups, err := startDatabase(ctx, groups, stdout)
	if err != nil {
		return err
	}
	if db != nil {
		defer db.Stop()
		runner.Database, versions["PostgreSQL"] = db.ConnString, db.Version
	}
	begin := time.Now()
	peers, err := build(ctx, o, groups, folder, stdout)
	if err != nil {
		return err
	}
	runs, estimate := plan.Estimate(groups, o.warmup)
	fmt.Fprintf(stdout, "built in %v; %d runs, about %v if none has been measured yet\n",
		time.Since(begin).Round(time.Second), runs, estimate.Round(time.Minute/2))
	if err := measure.MakeFiles(folder); err != nil {
		return err
	}
	executor := &plan.Executor{Runner: runner, Peers: peers, Store: store, Log: stdout}
	begin = time.Now()
	failed := executor.Execute(ctx, groups)
	if ctx.Err() != nil || store.Empty() {
		return errors.Join(failed, context.Cause(ctx))
	}
	fmt.Fprintf(stdout, "measured in %v\n\n", time.Since(begin).Round(time.Second))
	r := &report.Report{
		Groups: groups, Peers: peers, Store: store, Machine: proc.ThisMachine(), Tools: versions, Warmup: o.warmup,
		Command: strings.Join(append([]string{"go run ./cmd/compare"}, args...), " "), Time: time.Now(), Failed: failed,
	}
	if r.Causes, err = report.ReadCauses("causes.txt"); err != nil {
		return errors.Join(failed, err)
	}
	r.Print(stdout)
	if o.report == "" {
		return failed
	}
	return errors.Join(failed, r.Write(o.report))
}

// findGenerators returns an error if a program that generates load isn't installed.
func findGenerators(groups []plan.Group) error {
	for _, g := range groups {
		tool := "wrk"
		if g.Row.Streams > 0 {
			tool = "h2load"
		}
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s, which loads the servers, isn't installed: make deps", tool)
		}
	}
	return nil
}

// startDatabase starts PostgreSQL if a group needs it. If PostgreSQL isn't installed, it leaves out these groups.
func startDatabase(ctx context.Context, groups []plan.Group, stdout io.Writer) (*postgres.Server, []plan.Group, error) {
	needed := func(g plan.Group) bool { return g.Row.Database }
	if !slices.ContainsFunc(groups, needed) {
		return nil, groups, nil
	}
	db, err := postgres.Start(ctx)
	if errors.Is(err, postgres.ErrMissing) {
		if groups = slices.DeleteFunc(groups, needed); len(groups) == 0 {
			return nil, nil, err
		}
		fmt.Fprintln(stdout, "left out: rows with a database:", err)
		return nil, groups, nil
	}
	return db, groups, err
}

// build builds the peers of the groups. It leaves out peers that aren't installed.
func build(ctx context.Context, o *options, groups []plan.Group, folder string, stdout io.Writer) (map[string]*peer.Peer, error) {
	b := &peer.Builder{Module: ".", Out: folder}
	peers := map[string]*peer.Peer{}
	for _, g := range groups {
		for _, name := range g.Peers {
			if _, known := peers[name]; known {
				continue
			}
			var p *peer.Peer
			var err error
			if name == baseName {
				p, err = b.BuildRevision(ctx, name, o.base)
			} else {
				p, err = b.Build(ctx, name)
			}
			if errors.Is(err, peer.ErrMissing) {
				fmt.Fprintln(stdout, "left out:", err)
			} else if err != nil {
				return nil, err
			}
			peers[name] = p
		}
	}
	return peers, nil
}

// baseName is the name of filo at the revision of -base.
const baseName = "filo-base"

// filoTwice returns the groups that have filo, with only two peers: the base and the current filo. The base comes first, so ratios are relative to
// the base.
func filoTwice(groups []plan.Group) (left []plan.Group) {
	for _, g := range groups {
		if slices.Contains(g.Peers, "filo") {
			g.Peers = []string{baseName, "filo"}
			left = append(left, g)
		}
	}
	return left
}

// tools returns the versions of the other programs that the comparison uses.
func tools() map[string]string {
	versions := map[string]string{}
	for name, argument := range map[string]string{"wrk": "-v", "h2load": "--version", "strace": "-V", "cc": "--version"} {
		if _, err := exec.LookPath(name); err == nil {
			versions[name] = proc.Version(name, argument)
		}
	}
	return versions
}
