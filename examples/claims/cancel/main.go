// Command cancel shows whether a handler's work stops when its client leaves, with filo, net/http and fasthttp. With each server the handler does the
// same work, which stops when the handler's context ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/filohttp/filo/examples/internal/program"
)

func main() { program.Main("cancel", run) }

// config says how much work there is.
type config struct {
	clients int
	steps   int           // of the work for one request
	step    time.Duration // how long a step takes
	leave   int           // after how many steps the client leaves
}

// earliest is the time before which no client leaves. If a client closes its connection within the first 20 ms, filo assumes that it may
// have closed only its sending side, and ends the context after 5 seconds.
const earliest = 40 * time.Millisecond

func parseFlags(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("cancel", flag.ContinueOnError)
	flags.IntVar(&cfg.clients, "clients", 10, "how many clients ask each server at the same time")
	flags.IntVar(&cfg.steps, "steps", 30, "how many steps the work for one request has, such as queries")
	flags.DurationVar(&cfg.step, "step", 100*time.Millisecond, "how long a step takes")
	flags.IntVar(&cfg.leave, "leave", 5, "after how many steps the client leaves")
	if err := program.Parse(flags, args); err != nil {
		return config{}, err
	}
	if cfg.step > 0 && cfg.leave > 0 && time.Duration(cfg.leave)*cfg.step < earliest {
		return config{}, fmt.Errorf("-leave times -step is at least %v: filo takes a client that closes at once for one that still waits for its answer", earliest)
	}
	if cfg.clients < 1 || cfg.step <= 0 || cfg.leave < 1 || cfg.steps < cfg.leave+2 {
		return config{}, errors.New("-clients, -step and -leave are positive, and -steps is at least 2 more than -leave")
	}
	return cfg, nil
}

// run runs the tasks with each server, and prints the results. It returns an error if the claim doesn't hold.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }
	say("A handler works in %d steps of %v, and looks at its context between them.", cfg.steps, cfg.step)
	say("%d clients ask for it, and close their connections after step %d.", cfg.clients, cfg.leave)
	say("")
	say("%-10s %22s %26s   %s", "", "steps done for nobody", "work went on for (longest)", "the context")
	var results []*result
	for _, s := range servers {
		r, err := ask(ctx, cfg, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		results = append(results, r)
		ended := "didn't end"
		if r.cancelled == cfg.clients {
			ended = "ended"
		}
		say("%-10s %15d of %3d %26v   %s", s.name, r.wasted, cfg.clients*(cfg.steps-cfg.leave), r.longest.Round(100*time.Microsecond), ended)
	}
	say("")
	if err := verdict(results, cfg); err != nil {
		say("FAIL: %v.", err)
		return err
	}
	say("PASS: with filo the work stopped when the client had left, and with fasthttp it went on.")
	return nil
}

// verdict returns an error unless the work stopped with filo, and didn't stop with fasthttp. results are in the order of servers.
func verdict(results []*result, cfg config) error {
	filo, fasthttp := results[0], results[len(results)-1]
	if err := filo.stopped(cfg); err != nil {
		return fmt.Errorf("with filo %w", err)
	}
	if fasthttp.stopped(cfg) == nil {
		return errors.New("with fasthttp the work stopped as well")
	}
	return nil
}

// stopped returns an error unless every context ended, and nearly no steps were done after the clients had left. A tenth of the remaining steps is
// allowed, since on a busy machine the server may notice a close late.
func (r *result) stopped(cfg config) error {
	switch rest := cfg.clients * (cfg.steps - cfg.leave); {
	case r.cancelled < cfg.clients:
		return fmt.Errorf("%d of %d contexts didn't end", cfg.clients-r.cancelled, cfg.clients)
	case r.wasted*10 > rest:
		return fmt.Errorf("%d of %d steps were done after the client had left", r.wasted, rest)
	}
	return nil
}
