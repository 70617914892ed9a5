package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/chaos/pause"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/soak/kit"
)

// config holds the parameters of a run.
type config struct {
	duration time.Duration
	blocking bool
	seed     uint64
	places   int           // the server's Concurrency, and its queue is enabled; 0 for the default without a queue
	kinds    []kind        // of clients
	clients  int           // of each kind
	pause    time.Duration // the maximum pause of a client between two connections
	span     time.Duration // a server is shut down after one to two spans
	step     time.Duration // by how much the wall clock is set forwards and backwards during the run
	patience time.Duration // how long a client waits before it reports a hang
	settling time.Duration // how long goroutines and descriptors may take to disappear
	output   io.Writer
	// wrap wraps the server's handler. Tests use it to make the handler misbehave.
	wrap func(filo.Handler) filo.Handler
}

func defaults() config {
	return config{
		duration: 10 * time.Minute,
		kinds:    kinds,
		clients:  2,
		pause:    5 * time.Millisecond,
		span:     10 * time.Second,
		patience: 30 * time.Second,
		settling: 5 * time.Second,
		output:   os.Stdout,
	}
}

// choose leaves only the kinds with these names, which are separated by commas.
func (c *config) choose(names string) error {
	c.kinds = nil
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
		if i < 0 {
			return fmt.Errorf("there is no kind %q", name)
		}
		c.kinds = append(c.kinds, kinds[i])
	}
	return nil
}

// run is a run of the clients against a series of servers.
type run struct {
	config
	started time.Time
	random  *rand.Rand  // used by the run itself; each client has a separate source
	pattern kit.Pattern // the clients' copy: if the server corrupts its copy, the clients notice
	lives   lives
	number  atomic.Uint64 // number of the last request
	counts  []count       // by kind

	// failed is cancelled by the first error, which becomes its cause. Later errors may be consequences of the first one, and are dropped.
	failed context.Context
	fail   context.CancelCauseFunc
}

// count sums up the work of all clients of a kind.
type count struct {
	done        atomic.Uint64 // checked answers; for clients that don't wait for answers, visits
	interrupted atomic.Uint64 // visits ended by a shutdown
}

// soak runs until the duration is over or ctx is done, and returns the first error.
func soak(ctx context.Context, c config) error {
	r := &run{
		config: c, started: time.Now(), random: rand.New(rand.NewPCG(c.seed, 0)), pattern: kit.NewPattern(c.seed),
		counts: make([]count, len(c.kinds)),
	}
	r.lives.run, r.lives.address, r.lives.tlsAddress = r, "127.0.0.1:0", "127.0.0.1:0"
	r.failed, r.fail = context.WithCancelCause(context.Background())
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	fmt.Fprintf(c.output, "soak: %v with -seed %d -blocking=%t, %d clients of each kind\n", c.duration, c.seed, c.blocking, c.clients)
	certificate, err := kit.NewCertificate()
	if err != nil {
		return err
	}
	r.lives.tls = &tls.Config{Certificates: []tls.Certificate{certificate}}
	leaks, err := newLeakCheck(c.settling)
	if err != nil {
		return err
	}
	for first := true; first || ctx.Err() == nil; first = false {
		if err := r.period(ctx); err != nil {
			return err
		}
		left, err := leaks.check()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.output, "%7s  nothing is left: %s\n", r.elapsed(), left)
	}
	fmt.Fprintf(c.output, "soak: passed after %s: %s\n", r.elapsed(), r.summary())
	return nil
}

// period lets the clients work during the lives of two servers. So the first server's shutdown, the second server's start and its shutdown
// happen under load. When period returns, everything that it has started has ended.
func (r *run) period(ctx context.Context) error {
	if err := r.lives.begin(); err != nil {
		return err
	}
	working, stop := context.WithCancel(context.Background())
	clients := r.startClients(working)
	err := r.live(ctx)
	if err == nil {
		err = r.lives.begin()
	}
	if err == nil {
		err = r.live(ctx)
	}
	stop()
	if err != nil {
		r.lives.server.Close()
	}
	select {
	case <-clients:
		return cmp.Or(err, context.Cause(r.failed))
	case <-time.After(r.patience + 5*time.Second): // no client can use one connection for longer than its patience
		return cmp.Or(err, hang(errors.New("clients that were told to stop go on")))
	}
}

// live lets the clients work for a span, and shuts the server down while they work.
func (r *run) live(ctx context.Context) error {
	steps := time.NewTicker(r.span / 2)
	defer steps.Stop()
	ended := make(chan struct{})
	defer close(ended)
	server := r.lives.server
	go r.watchOverdue(func(found func(hooks.OverdueWait)) { inside.Overdue(server, found) }, ended)
	by, end := r.step, time.After(r.span+time.Duration(r.random.Int64N(int64(r.span))))
	for over := false; !over; {
		select {
		case <-r.failed.Done():
			return context.Cause(r.failed)
		case <-ctx.Done():
			over = true
		case <-end:
			over = true
		case <-steps.C:
			pause.Step(by)
			by = -by
		}
	}
	if err := r.lives.end(); err != nil {
		return err
	}
	fmt.Fprintf(r.output, "%7s  %s\n", r.elapsed(), r.summary())
	return context.Cause(r.failed)
}

// startClients starts the clients and returns a channel that is closed when they have all ended.
func (r *run) startClients(ctx context.Context) <-chan struct{} {
	var running sync.WaitGroup
	for i, kind := range r.kinds {
		for range r.clients {
			c := &client{run: r, kind: kind, count: &r.counts[i], random: rand.New(rand.NewPCG(r.seed, r.random.Uint64()))}
			running.Go(func() { c.work(ctx) })
		}
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	return ended
}

// summary describes the work so far.
func (r *run) summary() string {
	var kinds strings.Builder
	var done, interrupted uint64
	for i, kind := range r.kinds {
		n := r.counts[i].done.Load()
		done += n
		interrupted += r.counts[i].interrupted.Load()
		fmt.Fprintf(&kinds, "%s %d, ", kind.name, n)
	}
	return fmt.Sprintf("%d checked: %s%d interrupted; %s", done, &kinds, interrupted, &r.lives)
}

func (r *run) elapsed() string { return time.Since(r.started).Round(100 * time.Millisecond).String() }

// hang adds the stacks of all goroutines to an error, because they show which goroutine waits for which.
func hang(err error) error { return fmt.Errorf("%w\n\n%s", err, kit.Stacks()) }
