// Command observed shows what can be observed in a running server: metrics, traces, a log, profiles, probes and a dashboard. The program generates
// the load itself.
//
//	go run ./observed              # http://localhost:6060 has links to all of it
//	go run ./observed -load 1000   # requests a second, 0 for none
//	go tool pprof http://localhost:6060/debug/pprof/profile?seconds=5
//
// Operators observe the server at a separate address, to which no proxy may forward requests. Clients use the other address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/filohttp/filo/examples/internal/program"
)

// shutdownGrace is how long running requests may take before they are cut off.
const shutdownGrace = 10 * time.Second

func main() { program.Main("observed", run) }

// run serves until ctx ends, and returns nil after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("observed", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	inside := flags.String("inside", "localhost:6060", "loopback `address` on which only the operator sees what looks into it")
	hosts := flags.String("hosts", "localhost,127.0.0.1,[::1]", "`hosts` that it is asked for by, without ports, separated by commas")
	rate := flags.Float64("load", 200, "requests a second that it sends itself; 0 for none")
	drain := flags.Duration("drain", time.Second, "how long it isn't ready before it stops accepting, for a balancer to see it")
	verbose := flags.Bool("log", false, "write the log to the standard output, too")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	if *rate < 0 || math.IsInf(*rate, 0) || math.IsNaN(*rate) {
		return errors.New("-load must be 0 or more requests a second")
	}
	records := io.Writer(io.Discard)
	if *verbose {
		records = stdout
	}
	a, err := newApp(records, strings.Split(*hosts, ","))
	if err != nil {
		return err
	}
	// Shutdown exports the spans that still wait, as every program should. Here it saves nothing: the collector is a part of this program, and
	// ends with it.
	defer func() { err = errors.Join(err, a.spans.Shutdown(context.Background())) }()
	return a.serve(ctx, *addr, *inside, *rate, *drain, stdout)
}

func (a *app) serve(ctx context.Context, addr, inside string, rate float64, drain time.Duration, stdout io.Writer) (err error) {
	ln, err := a.server.Listen(addr)
	if err != nil {
		return err
	}
	insideListener, err := a.inside.Listen(inside)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	insideContext, endInside := context.WithCancel(context.Background())
	insideEnded := make(chan error, 1)
	go func() { insideEnded <- a.inside.RunListener(insideContext, insideListener) }()
	defer func() {
		endInside() // only now, when the last client has its answer
		err = errors.Join(err, <-insideEnded)
	}()
	fmt.Fprintf(stdout, "listening on http://%s\nwhat looks into it: http://%s\n", ln.Addr(), insideListener.Addr())
	stop := startLoad(ctx, "http://"+ln.Addr().String(), a.host, rate, a.spans)
	defer stop()
	serving, cancel := a.health.DrainContext(ctx, drain)
	defer cancel()
	return a.server.RunListener(serving, ln)
}
