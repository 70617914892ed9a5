// Command observed is a server that can be looked into while it works: metrics, traces, a log, profiles, probes and a dashboard, under
// a load that it makes itself.
//
//	go run ./observed              # http://localhost:8080 has links to all of it
//	go run ./observed -load 1000   # requests a second, 0 for none
//	go tool pprof http://localhost:8080/debug/pprof/profile?seconds=5
//
// What looks into it is for who runs it: it listens on this machine only, unless -addr says otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo"
)

// shutdownGrace is how long running requests may take before they are cut off.
const shutdownGrace = 10 * time.Second

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		// Before the shutdown begins the default action is back, so that a second signal ends the process at once.
		signal.Stop(signals)
		cancel()
	}()

	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "observed:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and returns nil after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("observed", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	rate := flags.Float64("load", 200, "requests a second that it sends itself; 0 for none")
	drain := flags.Duration("drain", time.Second, "how long it isn't ready before it stops accepting, for a balancer to see it")
	verbose := flags.Bool("log", false, "write the log to the standard output, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	if *rate < 0 || math.IsInf(*rate, 0) || math.IsNaN(*rate) {
		return errors.New("-load must be 0 or more requests a second")
	}
	records := io.Writer(io.Discard)
	if *verbose {
		records = stdout
	}
	a, err := newApp(records)
	if err != nil {
		return err
	}
	// The spans that are still on their way are gone, as the collector is.
	defer func() { err = errors.Join(err, a.spans.Shutdown(context.Background())) }()
	return a.serve(ctx, *addr, *rate, *drain, stdout)
}

func (a *app) serve(ctx context.Context, addr string, rate float64, drain time.Duration, stdout io.Writer) error {
	ln, err := a.server.Listen(addr)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- a.server.Serve(ln) }()
	fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr())
	stop := startLoad(ctx, "http://"+ln.Addr().String(), rate, a.spans)
	defer stop()

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(stdout, "shutting down; a second signal ends at once")
	limit, cancel := context.WithTimeout(context.Background(), drain+shutdownGrace)
	defer cancel()
	if err := a.health.Drain(limit, a.server, drain); err != nil {
		return errors.Join(fmt.Errorf("shutdown: %w", err), a.server.Close())
	}
	if err := <-served; !errors.Is(err, filo.ErrServerClosed) {
		return err
	}
	return nil
}
