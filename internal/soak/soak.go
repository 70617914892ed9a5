package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
)

// config holds the parameters of a run.
type config struct {
	duration  time.Duration
	blocking  bool
	seed      uint64
	clients   int           // of each kind
	only      string        // kinds, with commas between them; "" is all
	pause     time.Duration // of a client between two connections, at most
	span      time.Duration // a server is shut down after one to two of these
	reporting time.Duration // between two lines
	patience  time.Duration // after which a client that waits calls it a hang
	settling  time.Duration // what is left behind may take this long to go
	output    io.Writer
	// wrap changes the server's handler: the tests make it wrong.
	wrap func(filo.Handler) filo.Handler
}

func defaults() config {
	return config{
		duration:  10 * time.Minute,
		clients:   2,
		pause:     5 * time.Millisecond,
		span:      10 * time.Second,
		reporting: 10 * time.Second,
		patience:  30 * time.Second,
		settling:  5 * time.Second,
		output:    os.Stdout,
	}
}

// run is a run of the clients against one server after the other.
type run struct {
	config
	started time.Time
	random  *rand.Rand // of the run itself: each client has its own
	pattern pattern    // the clients' copy: the server mustn't be able to spoil both
	lives   lives
	number  atomic.Uint64 // of the last request
	counts  []count       // by kind

	failOnce sync.Once
	failed   chan struct{} // closed when err is set
	err      error
}

// check reports a configuration that can't be run.
func (c *config) check() error {
	if c.clients < 1 || c.pause < 0 || c.duration <= 0 {
		return errors.New("-clients and -duration must be positive, and -pause not negative")
	}
	if c.only == "" {
		return nil
	}
	for name := range strings.SplitSeq(c.only, ",") {
		if !slices.ContainsFunc(kinds[:], func(k kind) bool { return k.name == name }) {
			return fmt.Errorf("there is no kind %q", name)
		}
	}
	return nil
}

// soak runs until the time or ctx is over, and returns the first thing that went wrong.
func soak(ctx context.Context, c config) error {
	r := &run{
		config: c, started: time.Now(), random: rand.New(rand.NewPCG(c.seed, 0)), pattern: newPattern(c.seed),
		counts: make([]count, len(kinds)), failed: make(chan struct{}),
	}
	r.lives.run = r
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	fmt.Fprintf(c.output, "soak: %v with -seed %d -blocking=%t, %d clients of each kind\n", c.duration, c.seed, c.blocking, c.clients)
	defer r.report()()
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

// period lets the clients work through the lives of two servers: the first one's end and the second one's beginning are
// under load, and so is the second one's end. When it returns, all has ended that it has started.
func (r *run) period(ctx context.Context) error {
	if err := r.lives.begin(); err != nil {
		return err
	}
	working, stop := context.WithCancel(context.Background())
	clients := r.startClients(working)
	err := r.work(ctx)
	stop()
	if err != nil {
		r.lives.abort()
		r.await(clients)
		return err
	}
	if !r.await(clients) {
		return r.hang(errors.New("clients that were told to stop go on"))
	}
	return r.failure()
}

func (r *run) work(ctx context.Context) error {
	if err := r.live(ctx); err != nil {
		return err
	}
	if err := r.lives.begin(); err != nil {
		return err
	}
	return r.live(ctx)
}

// live lets the clients work for a span, and shuts the server down while they do.
func (r *run) live(ctx context.Context) error {
	span := r.span + time.Duration(r.random.Int64N(int64(r.span)))
	if end, ok := ctx.Deadline(); ok {
		// The last period is short rather than late, but never so short that no client gets anywhere.
		span = max(min(span, time.Until(end)), r.span/10)
	}
	select {
	case <-r.failed:
		return r.failure()
	case <-ctx.Done():
	case <-time.After(span):
	}
	if err := r.lives.end(); err != nil {
		return err
	}
	return r.failure()
}

// startClients starts the clients and returns what is closed when they all have ended.
func (r *run) startClients(ctx context.Context) <-chan struct{} {
	var running sync.WaitGroup
	for k := range kinds {
		if !r.wanted(k) {
			continue
		}
		for range r.clients {
			c := &client{run: r, kind: k, random: rand.New(rand.NewPCG(r.seed, r.random.Uint64()))}
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

// wanted reports whether a kind of clients is to be run.
func (c *config) wanted(kind int) bool {
	return c.only == "" || slices.Contains(strings.Split(c.only, ","), kinds[kind].name)
}

// await waits for the clients. None can take longer than its patience for one connection.
func (r *run) await(clients <-chan struct{}) bool {
	select {
	case <-clients:
		return true
	case <-time.After(r.patience + 5*time.Second):
		return false
	}
}

// fail ends the run. What goes wrong after the first time may be its consequence, and is dropped.
func (r *run) fail(err error) {
	r.failOnce.Do(func() {
		r.err = err
		close(r.failed)
	})
}

// failure returns what has gone wrong.
func (r *run) failure() error {
	select {
	case <-r.failed:
		return r.err
	default:
		return nil
	}
}

// hang adds the stacks of all goroutines to an error: who waits for whom tells most about it.
func (r *run) hang(err error) error { return fmt.Errorf("%w\n\n%s", err, stacks()) }

func stacks() []byte {
	buffer := make([]byte, 4<<20)
	return buffer[:runtime.Stack(buffer, true)]
}

func (r *run) elapsed() string { return time.Since(r.started).Round(100 * time.Millisecond).String() }
