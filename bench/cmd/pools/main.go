// Command pools measures filo's task pool beside ants, pond, gopool, conc, gammazero's workerpool, errgroup and plain
// goroutines behind a semaphore: CPU and wall time per task, how long tasks wait, how evenly submitters are served, and
// memory.
//
// Every run is a fresh process, so that no pool lives with what another has left behind. The runs of a cell are
// interleaved (filo, ants, pond, ..., filo, ants, ...), and what is printed is the median of each figure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measureCommand is the argument with which the program is started for one run.
const measureCommand = "measure"

func main() {
	var err error
	if len(os.Args) == 2 && os.Args[1] == measureCommand {
		err = serveRun(os.Stdin, os.Stdout)
	} else {
		// SIGTERM is what timeout(1) sends.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "pools:", err)
		os.Exit(1)
	}
}

// options is what the flags say.
type options struct {
	pools      []*peer
	kinds      []*kind
	submitters []int
	caps       []int
	rounds     int
	time       time.Duration
	markdown   bool
	million    bool
}

// parseFlags reads the flags. P stands for the number of processors in them.
func parseFlags(args []string, processors int) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("pools", flag.ContinueOnError)
	pools := flags.String("pools", strings.Join(peerNames(), ","), "who is measured; ratios are to ants")
	tasks := flags.String("tasks", "empty,1us,10us,sleep,deep", "kinds of tasks; sleep10 is there too")
	submitters := flags.String("submitters", "1,P,1000", "numbers of goroutines that submit; P is GOMAXPROCS, 10P ten times that")
	caps := flags.String("caps", "P,10P,50000", "capacities of the pools, in the same form")
	flags.IntVar(&o.rounds, "rounds", 3, "runs of each pool in each cell")
	flags.DurationVar(&o.time, "time", 200*time.Millisecond, "length of a run, after a warm-up of a quarter of it; cells in which tasks wait long take longer")
	flags.BoolVar(&o.markdown, "md", false, "print Markdown")
	flags.BoolVar(&o.million, "million", false, "run 1,000,000 tasks that sleep 10 ms at capacity 50,000 instead; only -pools, -rounds and -md count then")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	for name := range strings.SplitSeq(*pools, ",") {
		p := findPeer(name)
		if p == nil {
			return nil, fmt.Errorf("-pools: %q is none of %s", name, strings.Join(peerNames(), ", "))
		}
		o.pools = append(o.pools, p)
	}
	for name := range strings.SplitSeq(*tasks, ",") {
		k := findKind(name)
		if k == nil {
			return nil, fmt.Errorf("-tasks: %q is none of %s", name, strings.Join(kindNames(), ", "))
		}
		o.kinds = append(o.kinds, k)
	}
	var err error
	if o.submitters, err = parseCounts(*submitters, processors); err != nil {
		return nil, fmt.Errorf("-submitters: %w", err)
	}
	if o.caps, err = parseCounts(*caps, processors); err != nil {
		return nil, fmt.Errorf("-caps: %w", err)
	}
	if o.rounds < 1 {
		return nil, errors.New("-rounds is at least 1")
	}
	if o.time < time.Millisecond {
		return nil, errors.New("-time is at least 1ms")
	}
	return o, nil
}

// maxCount bounds submitters and capacities: each is a goroutine.
const maxCount = 1_000_000

// parseCounts reads a list such as 1,P,10P. A number that comes up twice, as 1 and P do on one processor, is taken once.
func parseCounts(list string, processors int) ([]int, error) {
	var counts []int
	for s := range strings.SplitSeq(list, ",") {
		digits, times := s, 1
		if before, ok := strings.CutSuffix(s, "P"); ok {
			digits, times = before, processors
			if digits == "" {
				digits = "1"
			}
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > maxCount/times {
			return nil, fmt.Errorf("%q is not a number from 1 to %d, nor such a one with a P for GOMAXPROCS", s, maxCount)
		}
		if n *= times; !slices.Contains(counts, n) {
			counts = append(counts, n)
		}
	}
	return counts, nil
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	processors := runtime.GOMAXPROCS(0)
	o, err := parseFlags(args, processors)
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return errors.New("peak memory is read from Linux's /proc: this runs on Linux only")
	}
	loops := calibrate()
	out := printer{stdout, o.markdown}
	out.line("%s, GOMAXPROCS %d, %d loops per µs, rounds %d, time %v", runtime.Version(), processors, loops, o.rounds, o.time)
	if o.million {
		return runMillion(ctx, o, loops, out)
	}
	return runCells(ctx, o, loops, out)
}

// runCells measures cell by cell. What was measured is summed up even if ctx ends, or a run fails, on the way.
func runCells(ctx context.Context, o *options, loops int, out printer) error {
	var results []*result
	var failed error
	for _, k := range o.kinds {
		for _, capacity := range o.caps {
			for _, submitters := range o.submitters {
				c := cell{k, submitters, capacity}
				r, err := interleave(ctx, o, func(p *peer) order { return c.order(p, o.time, loops) })
				if ctx.Err() != nil {
					summarize(out, o, results)
					return fmt.Errorf("stopped in the cell %v: %w", c, context.Cause(ctx))
				}
				if err != nil {
					err = fmt.Errorf("%v: %w", c, err)
					out.line("doesn't count: %v", err)
					failed = errors.Join(failed, err)
				}
				r.cell = c
				r.print(out)
				results = append(results, r)
			}
		}
	}
	summarize(out, o, results)
	return failed
}

// interleave runs what order says for each pool in turn, round by round, and starts each round with another pool. The
// error names the runs that don't count.
func interleave(ctx context.Context, o *options, order func(*peer) order) (*result, error) {
	r := &result{pools: o.pools, runs: make([][]figures, len(o.pools))}
	var failed error
	for round := range o.rounds {
		for i := range o.pools {
			i := (i + round) % len(o.pools)
			f, err := startRun(ctx, order(o.pools[i]))
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("round %d, %s: %w", round+1, o.pools[i].name, err))
				continue
			}
			r.runs[i] = append(r.runs[i], f)
		}
	}
	return r, failed
}
