// Command idle measures the memory and the goroutines of idle connections with filo, net/http and fasthttp. It starts each server in a separate
// process, and opens the connections itself. It needs Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/filohttp/filo/examples/internal/program"
)

func main() {
	if name := os.Getenv(childVariable); name != "" {
		child(name, os.Stdin, os.Stdout)
		return
	}
	program.Main("idle", run)
}

// run measures each server, and prints the figures. It returns an error if filo's figures don't fulfil the claim.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("idle", flag.ContinueOnError)
	n := flags.Int("conns", 9000, "how many connections wait")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	if *n < 100 {
		return errors.New("-conns is at least 100: a few connections can't be told from the server itself")
	}
	say := func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }
	say("%d connections make a request each, and then wait for a next one that doesn't come.", *n)
	say("")
	say("%-10s %14s %14s %16s %12s", "", "memory before", "memory with", "per connection", "goroutines")
	var each []figures
	for _, name := range names {
		f, err := measure(ctx, name, *n)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		each = append(each, f)
		say("%-10s %11.1f MB %11.1f MB %13.2f KB %12d", name, megabytes(f.before), megabytes(f.with), float64(f.grown())/1024/float64(*n), f.goroutines)
	}
	say("")
	if err := verdict(each, *n); err != nil {
		say("FAIL: %v.", err)
		return err
	}
	say("PASS: %d connections that wait cost filo %.1f MB and no goroutine, and net/http %.1f MB and a goroutine each.",
		*n, megabytes(each[0].grown()), megabytes(each[1].grown()))
	say("Each connection was then asked once more, and answered.")
	return nil
}

func megabytes(bytes int) float64 { return float64(bytes) / (1 << 20) }

// verdict returns an error unless filo, the first server, has no goroutines for connections, and uses less than a quarter of the memory of each other
// server. With at least 1,000 connections, an idle connection must also cost filo less than a kilobyte. With fewer, the memory of the server itself
// would distort that figure.
func verdict(each []figures, n int) error {
	filo, others := each[0], each[1:]
	var faults []string
	if filo.goroutines > 64 {
		faults = append(faults, fmt.Sprintf("filo has %d goroutines", filo.goroutines))
	}
	if n >= 1000 && filo.grown() > n<<10 {
		faults = append(faults, fmt.Sprintf("a connection costs filo %.2f KB", float64(filo.grown())/1024/float64(n)))
	}
	for i, other := range others {
		if filo.grown()*4 > other.grown() {
			faults = append(faults, fmt.Sprintf("%d connections cost filo %.1f MB, and %s %.1f MB",
				n, megabytes(filo.grown()), names[1+i], megabytes(other.grown())))
		}
	}
	if faults != nil {
		return errors.New(strings.Join(faults, ", and "))
	}
	return nil
}
