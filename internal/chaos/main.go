//go:build unix

// Command chaos runs the soak on a copy of filo in which goroutines pause at random before any statement. Faults that depend on the order of
// two goroutines' steps hardly ever occur without pauses, but soon occur with them. A seed determines where goroutines pause. The command
// runs the soak with several numbers of processors, with both drivers, over TCP, TLS and HTTP/2. In some runs, it stops the process for
// longer than the server's time-outs, or sets the process's clock.
//
// After a failure, it prints the seed, and where the goroutines paused last. The same seed pauses at the same sites, so it usually reproduces
// the failure:
//
//	go run ./internal/chaos -seed 5 -again 10
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/gotool"
)

// options are the flags of the command line.
type options struct {
	seed       uint64
	span       time.Duration // of each run
	rounds     int
	again      int
	procs      string
	only       string
	race       bool
	repository string
	output     io.Writer
}

func main() {
	o := options{output: os.Stdout}
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "of the first round; each round has the next one")
	flag.DurationVar(&o.span, "span", 10*time.Second, "of each run")
	flag.IntVar(&o.rounds, "rounds", 1, "how many times all of the table is run")
	flag.IntVar(&o.again, "again", 0, "after a failure, how many times to run that again, and count the failures")
	flag.StringVar(&o.procs, "procs", "1,2,4,16", "the `numbers` of processors, with commas between them")
	flag.StringVar(&o.only, "only", "", "the only `rows` of the table to run: a part of their names")
	flag.BoolVar(&o.race, "race", false, "with the race detector")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// row describes one run of the soak.
type row struct {
	name      string
	procs     string
	arguments []string
	stops     bool // the process is stopped for longer than the server's time-outs
}

// These are groups of the soak's kinds of clients. The kinds in timeless don't depend on a time-out. The kind half-closes is only for servers
// with enough places: a client that has closed its writing half while its request waits for a place gets a 503.
const (
	overTCP   = "keep-alive,pipelined,one-shot,handlers,uploads,large-uploads,continued,streams,panics,slow-heads,slow-readers,resets,leaves,watched-resets,hijacks,garbage"
	inParts   = "continued,pieces" // runs without other kinds, whose clients would take the processors, so that the server would wait for parts less often
	overTLS   = "tls,h2-tls,h2-tls-cancels"
	overHTTP2 = "h2c,h2-both-ways,h2-cancels,h2-gone,h2-windows,h2-cuts,h2-garbage"
	timeless  = "keep-alive,pipelined,one-shot,uploads,streams,tls,h2c,h2-tls"
)

// table lists the runs of a round.
func table(procs string) []row {
	var all []row
	for number := range strings.SplitSeq(procs, ",") {
		for _, driver := range []string{"loop", "blocking"} {
			for _, group := range []struct {
				name, kinds string
				more        []string
				stops       bool
			}{
				{name: "bodies", kinds: inParts, more: []string{"-clients", "4"}},
				{name: "TCP", kinds: overTCP + ",half-closes"},
				{name: "few places", kinds: overTCP + "," + overHTTP2, more: []string{"-places", "6"}},
				{name: "queue", kinds: "bursts", more: []string{"-places", "1", "-clients", "1"}},
				{name: "TLS", kinds: overTLS},
				{name: "HTTP/2", kinds: overHTTP2},
				{name: "stopped", kinds: timeless, stops: true},
				{name: "clock set", kinds: timeless, more: []string{"-step", "1h"}},
			} {
				if driver == "blocking" && slices.Contains(group.more, "-places") {
					continue // the blocking driver has no queue for places
				}
				arguments := append([]string{"-only", group.kinds, "-blocking=" + strconv.FormatBool(driver == "blocking")}, group.more...)
				all = append(all, row{fmt.Sprintf("%s processors, %s driver, %s", number, driver, group.name), number, arguments, group.stops})
			}
		}
	}
	return all
}

// run makes the runs of the table for each round, up to the first failure.
func run(ctx context.Context, o options) (err error) {
	if o.repository == "" {
		if o.repository, err = gotool.Repository(); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, all, err := build(dir, o.repository, o.race)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.output, "chaos: %d statements\n", len(all))
	for round := range uint64(o.rounds) {
		for _, r := range table(o.procs) {
			if !strings.Contains(r.name, o.only) || ctx.Err() != nil {
				continue
			}
			out, failed := r.run(ctx, program, o.seed+round, o.span)
			if failed == nil {
				fmt.Fprintf(o.output, "%-45s seed %d: %s\n", r.name, o.seed+round, lastLine(out))
				continue
			}
			fmt.Fprintf(o.output, "%s\n", all.name(out))
			failed = fmt.Errorf("%s: %w; run it again with -seed %d -only %q -again 10", r.name, failed, o.seed+round, r.name)
			return r.repeat(ctx, program, o, o.seed+round, failed)
		}
	}
	return ctx.Err()
}

// repeat repeats a failed run, and adds to the error how many of the repeated runs fail.
func (r row) repeat(ctx context.Context, program string, o options, seed uint64, first error) error {
	failures := 0
	for range o.again {
		if _, err := r.run(ctx, program, seed, o.span); err != nil {
			failures++
		}
	}
	if o.again == 0 {
		return first
	}
	return fmt.Errorf("%w; of %d more runs %d failed", first, o.again, failures)
}

// build compiles the soak with a pause before each statement of filo.
func build(dir, repository string, race bool) (program string, all sites, err error) {
	files, err := rewritten(repository, "./internal/soak")
	if err != nil {
		return "", nil, err
	}
	overlay, all, err := writeOverlay(dir, files)
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, "soak")
	arguments := []string{"build", "-overlay", overlay, "-o", program, "./internal/soak"}
	if race {
		arguments = slices.Insert(arguments, 1, "-race")
	}
	return program, all, gotool.Command(repository, arguments...).Run()
}

const (
	// stopTime is how long a process is stopped. It is longer than the ReadHeaderTimeout of the soak's server.
	stopTime = 5 * time.Second
	// patience is how long a client of the soak waits before it reports a hang. It is long, because many pauses may delay an answer,
	// especially on a busy machine.
	patience = 2 * time.Minute
)

// run runs the soak once, and returns its output.
func (r row) run(ctx context.Context, program string, seed uint64, span time.Duration) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, span+2*patience)
	defer cancel()
	arguments := append([]string{"-seed", strconv.FormatUint(seed, 10), "-duration", span.String(), "-span", (span / 4).String(), "-patience", patience.String()}, r.arguments...)
	soak := exec.CommandContext(ctx, program, arguments...)
	soak.Env = append(os.Environ(), "GOMAXPROCS="+r.procs, "FILO_CHAOS="+strconv.FormatUint(seed, 10))
	var output bytes.Buffer
	soak.Stdout, soak.Stderr = &output, &output
	if err := soak.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	if r.stops {
		go stop(soak.Process, span/3, ended)
	}
	err = soak.Wait()
	close(ended)
	return output.Bytes(), err
}

// stop waits for the given time, and then stops the process for stopTime.
func stop(p *os.Process, after time.Duration, ended <-chan struct{}) {
	for _, step := range []struct {
		wait   time.Duration
		signal os.Signal
	}{{after, syscall.SIGSTOP}, {stopTime, syscall.SIGCONT}} {
		select {
		case <-ended:
			return
		case <-time.After(step.wait):
			p.Signal(step.signal)
		}
	}
}

var siteNumber = regexp.MustCompile(`\{(\d+)\}`)

// name replaces the number of each statement in out with the statement's file, line and function.
func (s sites) name(out []byte) []byte {
	return siteNumber.ReplaceAllFunc(out, func(match []byte) []byte {
		if n, err := strconv.Atoi(string(match[1 : len(match)-1])); err == nil && n < len(s) {
			return []byte(s[n])
		}
		return match
	})
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
