// Command compare measures filo beside fasthttp and net/http as real processes under wrk, and prints
// requests per second, CPU time per request, p99 latency and peak memory side by side.
//
// All answer the same request with the same body and equivalent headers, which is checked first. The runs
// are interleaved (filo, fasthttp, net/http, filo, ...), each in a fresh process, and what is printed is
// the median of each figure. A run in which wrk met an error counts for nothing.
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
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// options is what the flags say.
type options struct {
	connections []int
	duration    time.Duration
	warmup      time.Duration
	rounds      int
	peers       []string
	path        string
	header      string // one field for every request, "" for none
	pipeline    int    // requests that are sent at once
	perConn     int    // requests after which a connection is closed, on average; 0 is never
	examples    string
}

func parseFlags(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	connections := flags.String("connections", "64", "numbers of keep-alive connections, as in 1,64,512")
	peers := flags.String("peers", "filo,fasthttp,nethttp",
		"who is measured, the first being what the others are compared with; limit is a bare epoll loop in C, NAME=FILE is a program that "+
			"takes -addr and prints \"listening on http://...\", such as another build of examples/hello")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "length of a run, whole seconds")
	flags.DurationVar(&o.warmup, "warmup", time.Second, "load before each run, whole seconds; 0 for none")
	flags.IntVar(&o.rounds, "rounds", 5, "runs of each peer at each number of connections")
	flags.StringVar(&o.path, "path", "/hello", "what is asked for")
	flags.StringVar(&o.header, "header", "", "a `field` for every request; \"Connection: close\" makes each need a new connection")
	flags.IntVar(&o.pipeline, "pipeline", 1, "how many requests are sent at once on each connection")
	flags.IntVar(&o.perConn, "per-conn", 0, "one in so many requests has \"Connection: close\"; 0 for none")
	flags.StringVar(&o.examples, "examples", "../examples", "`directory` of the examples' module")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	o.peers = strings.Split(*peers, ",")
	for s := range strings.SplitSeq(*connections, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-connections: %q is not a number of connections", s)
		}
		o.connections = append(o.connections, n)
	}
	if o.duration < time.Second || o.duration%time.Second != 0 || o.warmup < 0 || o.warmup%time.Second != 0 {
		return nil, errors.New("-duration and -warmup are whole seconds, as wrk has it")
	}
	if o.pipeline < 1 || o.perConn < 0 {
		return nil, errors.New("-pipeline is at least 1, and -per-conn not negative")
	}
	if o.rounds < 1 {
		return nil, errors.New("-rounds is at least 1")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return errors.New("CPU time and memory are read from Linux's /proc: this runs on Linux only")
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk isn't installed; `make deps` in the repository's root installs it")
	}
	dir, err := os.MkdirTemp("", "filo-compare")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	peers, err := buildPeers(ctx, o, dir)
	if err != nil {
		return err
	}
	if err := checkAlike(ctx, peers, o); err != nil {
		return err
	}
	withField := ""
	if o.header != "" {
		withField = fmt.Sprintf(" with %q", o.header)
	}
	if o.pipeline > 1 {
		withField += fmt.Sprintf(", %d at once", o.pipeline)
	}
	if o.perConn > 0 {
		withField += fmt.Sprintf(", %d per connection", o.perConn)
	}
	fmt.Fprintf(stdout, "%s, %d cores, Linux %s, wrk with one thread, GET %s%s, %d rounds of %v after %v of warm-up\n",
		runtime.Version(), runtime.NumCPU(), kernel(), o.path, withField, o.rounds, o.duration, o.warmup)

	var failed error
	for _, connections := range o.connections {
		table, err := measureAll(ctx, peers, connections, o, stdout)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failed = errors.Join(failed, err)
		table.print(stdout)
	}
	return failed
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(release))
}

// measureAll runs all rounds at one number of connections. The error names the runs that don't count.
func measureAll(ctx context.Context, peers []*peer, connections int, o *options, stdout io.Writer) (*table, error) {
	t := newTable(peers, connections, o.rounds)
	var failed error
	for round := 1; round <= o.rounds; round++ {
		for i, p := range peers {
			f, err := measure(ctx, p, connections, o)
			if ctx.Err() != nil {
				return t, ctx.Err()
			}
			if err != nil {
				err = fmt.Errorf("%d connections, round %d, %s: %w", connections, round, p.name, err)
				fmt.Fprintln(stdout, "  doesn't count:", err)
				failed = errors.Join(failed, err)
				continue
			}
			fmt.Fprintf(stdout, "  %d connections, round %d, %-10s %s\n", connections, round, p.name, f)
			t.runs[i] = append(t.runs[i], f)
		}
	}
	return t, failed
}

// measure is one run: a fresh server, a warm-up, and the measured load.
func measure(ctx context.Context, p *peer, connections int, o *options) (figures, error) {
	s, err := p.start(ctx)
	if err != nil {
		return figures{}, err
	}
	defer s.stop()
	if o.warmup > 0 {
		if _, err := runWrk(ctx, s.base, connections, o.warmup, o); err != nil {
			return figures{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	before, err := cpuTime(s.proc())
	if err != nil {
		return figures{}, err
	}
	w, err := runWrk(ctx, s.base, connections, o.duration, o)
	if err != nil {
		return figures{}, err
	}
	after, err := cpuTime(s.proc())
	if err != nil {
		return figures{}, err
	}
	peak, err := peakMemory(s.proc())
	if err != nil {
		return figures{}, err
	}
	return figures{
		perSecond: w.perSecond,
		cpu:       (after - before).Seconds() * 1e6 / float64(w.requests),
		p99:       float64(w.p99) / float64(time.Millisecond),
		memory:    float64(peak) / (1 << 20),
	}, nil
}
