package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/plan"
)

// options holds the values of the flags.
type options struct {
	size     plan.Size
	choice   plan.Choice
	base     string
	warmup   time.Duration
	lateness time.Duration
	results  string
	resume   bool
	report   string
}

func parseFlags(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	size := flags.String("size", "default", "quick, http2, default or all")
	rows := flags.String("rows", "", "only these `rows`, as in keepalive-64,json")
	peers := flags.String("peers", "", "only these `servers`, of "+strings.Join(peer.Names(), ", "))
	kinds := flags.String("kinds", "", "only these `kinds` of figures, of peak, rate (which needs peak) and syscalls")
	procs := flags.String("procs", "", "only runs with these values of GOMAXPROCS, as in 1,2,4")
	flags.BoolVar(&o.choice.Pinned, "pinned", false, "only runs in which the server and the generator have a processor each")
	flags.IntVar(&o.choice.Rounds, "rounds", 0, "runs of each cell; 0 is the size's")
	flags.IntVar(&o.choice.Seconds, "seconds", 0, "length of a run in seconds; 0 is the size's")
	flags.DurationVar(&o.warmup, "warmup", 250*time.Millisecond, "load before each run")
	flags.DurationVar(&o.lateness, "max-lateness", 5*time.Millisecond,
		"how late the generator may be for a run at a constant rate to count")
	flags.StringVar(&o.base, "base", "", "compare filo with itself at this `revision` instead of others")
	flags.StringVar(&o.results, "results", "", "`file` of the figures, JSON lines (default ../.bench/SIZE.jsonl; - keeps none)")
	flags.BoolVar(&o.resume, "resume", false, "measure only what isn't in that file yet; -size all always does")
	flags.StringVar(&o.report, "report", "", "`folder` that BENCHMARKS.md and bench/ are written to; - writes none (default ../docs, "+
		"unless something narrows the size)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	if err := o.choose(*rows, *peers, *kinds, *procs); err != nil {
		return nil, err
	}
	if err := o.setSize(*size); err != nil {
		return nil, err
	}
	if o.warmup < 0 || o.lateness <= 0 || o.choice.Seconds < 0 || o.choice.Rounds < 0 {
		return nil, errors.New("-warmup, -max-lateness, -seconds and -rounds aren't negative")
	}
	return o, nil
}

// choose copies the flags that narrow the size into o.choice.
func (o *options) choose(rows, peers, kinds, procs string) error {
	o.choice.Rows, o.choice.Peers = list(rows), list(peers)
	for _, name := range o.choice.Peers {
		if !slices.Contains(peer.Names(), name) {
			return fmt.Errorf("-peers: there is no %q, only %s", name, strings.Join(peer.Names(), ", "))
		}
	}
	for _, name := range list(kinds) {
		kind := measure.Kind(name)
		if !slices.Contains(measure.Kinds, kind) {
			return fmt.Errorf("-kinds: there is no %q, only %q", name, measure.Kinds)
		}
		o.choice.Kinds = append(o.choice.Kinds, kind)
	}
	for _, text := range list(procs) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-procs: %q is no number of processors", text)
		}
		o.choice.Procs = append(o.choice.Procs, n)
	}
	return nil
}

// list splits a text at commas. It returns nil for an empty text.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// setSize looks up the size by its name, and derives the names of the files from that name.
func (o *options) setSize(name string) error {
	i := slices.IndexFunc(plan.Sizes, func(s plan.Size) bool { return s.Name == name })
	if i < 0 {
		return fmt.Errorf("-size: there is no %q, only quick, http2, default and all", name)
	}
	o.size = plan.Sizes[i]
	c := &o.choice
	narrowed := c.Rows != nil || c.Peers != nil || c.Kinds != nil || c.Procs != nil || c.Pinned || o.base != ""
	switch {
	case o.base != "" && c.Rows == nil && name != "quick":
		// Two revisions differ little, so few rows have many rounds.
		o.size.Rows, o.size.Rounds, o.size.RateRounds, o.size.Beyond = plan.Sizes[0].Rows, 15, 0, false
	case name == "all":
		o.resume = true
	}
	if o.results == "" && !narrowed {
		o.results = "../.bench/" + name + ".jsonl"
	}
	if o.report == "" && name != "quick" && name != "http2" && !narrowed {
		o.report = "../docs"
	}
	if o.results == "-" {
		o.results = ""
	}
	if o.report == "-" {
		o.report = ""
	}
	if o.resume && o.results == "" {
		return errors.New("-resume: say which file of -results")
	}
	return nil
}
