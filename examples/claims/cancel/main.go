// Command cancel shows what becomes of a handler's work when its client leaves: with filo, with net/http and with fasthttp. Each serves
// the same work, which is given the context that the handler has and stops when that is done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "cancel:", err)
		os.Exit(1)
	}
}

// config sizes the work.
type config struct {
	clients int
	steps   int           // of the work for one request
	step    time.Duration // how long one takes
	leave   int           // after how many of them the client leaves
}

func parseFlags(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("cancel", flag.ContinueOnError)
	flags.IntVar(&cfg.clients, "clients", 10, "how many clients ask each server at the same time")
	flags.IntVar(&cfg.steps, "steps", 30, "how many steps the work for one request has, such as queries")
	flags.DurationVar(&cfg.step, "step", 100*time.Millisecond, "how long a step takes")
	flags.IntVar(&cfg.leave, "leave", 5, "after how many steps the client leaves")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	if cfg.clients < 1 || cfg.step <= 0 || cfg.leave < 1 || cfg.steps < cfg.leave+2 {
		return config{}, errors.New("-clients, -step and -leave are positive, and -steps is at least 2 more than -leave")
	}
	return cfg, nil
}

// run asks each server, and prints what became of the work. It returns an error if filo's handlers went on.
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
	var filos *result
	for _, s := range servers {
		r, err := ask(ctx, cfg, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if filos == nil {
			filos = r
		}
		ended := "didn't end"
		if r.cancelled == cfg.clients {
			ended = "ended"
		}
		say("%-10s %15d of %3d %26v   %s", s.name, r.wasted, cfg.clients*(cfg.steps-cfg.leave), r.longest.Round(100*time.Microsecond), ended)
	}
	say("")
	if err := filos.verdict(cfg); err != nil {
		say("FAIL: %v.", err)
		return err
	}
	say("PASS: with filo the work stopped when the client had left.")
	return nil
}

// verdict is nil if every context ended, and no work went on for longer than a client needs to be missed.
func (r *result) verdict(cfg config) error {
	switch rest := cfg.clients * (cfg.steps - cfg.leave); {
	case r.cancelled < cfg.clients:
		return fmt.Errorf("with filo %d of %d contexts didn't end", cfg.clients-r.cancelled, cfg.clients)
	case r.wasted*2 > rest:
		return fmt.Errorf("with filo %d of %d steps were done after the client had left", r.wasted, rest)
	}
	return nil
}
