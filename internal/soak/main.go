// Command soak loads a filo server with mixed work for a long time, checks every answer byte for byte, and restarts the server under load. It
// looks for leaks: of goroutines, descriptors and memory, and in the server's counts. It also finds waiting goroutines and connections that
// the server forgets to wake, which clients hardly notice. It exits with 1 at the first wrong answer, leak or forgotten wake-up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/chaos/pause"
)

func main() {
	c := defaults()
	flag.DurationVar(&c.duration, "duration", c.duration, "how long to run")
	flag.BoolVar(&c.blocking, "blocking", false, "use the blocking driver")
	flag.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "of what the clients choose at random")
	flag.DurationVar(&c.span, "span", c.span, "a server is shut down after one to two of these")
	flag.DurationVar(&c.patience, "patience", c.patience, "after which a client that waits calls it a hang")
	flag.DurationVar(&c.step, "step", 0, "how far the wall clock is set forwards, and back, while clients work; only in a copy by internal/chaos")
	flag.IntVar(&c.places, "places", 0, "the server's Concurrency, with a queue for the others; 0 is filo's default. Only for the loop driver")
	flag.IntVar(&c.clients, "clients", c.clients, "clients of each kind")
	flag.Func("only", "the only `kinds` of clients to run, with commas between them", c.choose)
	flag.Parse()
	if c.duration <= 0 || c.patience <= 0 || c.clients < 1 || c.places < 0 || c.places > 0 && c.blocking || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "soak: -duration, -patience and -clients must be positive, -places is for the loop driver, and there are no arguments but flags")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, c); err != nil {
		fmt.Fprintf(os.Stderr, "soak: FAILED with -seed %d -blocking=%t: %v\n", c.seed, c.blocking, err)
		fmt.Fprint(os.Stderr, pause.Report(err.Error()))
		os.Exit(1)
	}
}
