// Command soak loads a filo server with mixed work for a long time, checks every answer byte for byte, restarts the
// server under load, and looks for what is left behind: goroutines, descriptors, memory. It exits with 1 at the first
// wrong answer or leak.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	c := defaults()
	flag.DurationVar(&c.duration, "duration", c.duration, "how long to run")
	flag.BoolVar(&c.blocking, "blocking", false, "use the blocking driver")
	flag.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "of what the clients choose at random")
	flag.IntVar(&c.clients, "clients", c.clients, "clients of each kind")
	flag.Func("only", "the only `kinds` of clients to run, with commas between them", c.choose)
	flag.Parse()
	if c.duration <= 0 || c.clients < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "soak: -duration and -clients must be positive, and there are no arguments but flags")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, c); err != nil {
		fmt.Fprintf(os.Stderr, "soak: FAILED with -seed %d -blocking=%t: %v\n", c.seed, c.blocking, err)
		os.Exit(1)
	}
}
