// Command overload puts the same scarce resource behind several servers, and sends each server twice as many requests as the resource can handle. It
// prints a table: how many requests each server answered, how fast, how many it refused, and how it performs in the first second after the overload.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/failsafe"
	"github.com/filohttp/filo/examples/internal/program"
	"github.com/filohttp/filo/middleware"
)

const (
	places   = 20                    // how many requests may use the resource at once
	work     = 20 * time.Millisecond // how long each request uses it
	maxWait  = 50 * time.Millisecond // how long a request may wait in a server with a queue
	patience = time.Second           // how long a client waits for an answer
)

func main() { program.Main("overload", run) }

type config struct{ before, storm, after time.Duration }

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var cfg config
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.DurationVar(&cfg.before, "before", 3*time.Second, "how long the load is half of the capacity before")
	flags.DurationVar(&cfg.storm, "storm", 10*time.Second, "how long it is twice the capacity")
	flags.DurationVar(&cfg.after, "after", 3*time.Second, "how long it is half of the capacity again")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	if cfg.before < 0 || cfg.storm < time.Second || cfg.after < time.Second {
		return errors.New("-before must not be negative, and -storm and -after are at least a second")
	}
	return compare(ctx, stdout, cfg, measure())
}

// compare prints the table for a resource that can handle capacity requests a second.
func compare(ctx context.Context, stdout io.Writer, cfg config, capacity float64) error {
	fmt.Fprintf(stdout, "The resource does %.0f requests/s: %d at once, %v each. The storm asks for %.0f/s.\n\n", capacity, places, work, 2*capacity)
	fmt.Fprintln(stdout, "| server | answered in time, of the capacity | p99 of those | 503 | no answer within 1 s | first second after: 200, p99 | 503 | no answer |")
	fmt.Fprintln(stdout, "| --- | --: | --: | --: | --: | --: | --: | --: |")
	var results []*result
	for i := range contestants(nil) {
		each := contestants(make(resource, places))[i] // a new resource, since handlers of an earlier server may still be waiting for the old one
		r, err := each.play(ctx, stdout, cfg, capacity)
		if err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		results = append(results, r)
	}
	return verdict(stdout, results)
}

// result holds the figures that the verdict needs.
type result struct {
	name     string
	limited  bool
	answered float64 // requests answered in time, as a share of the capacity
	lost     float64 // requests without an answer in time, as a share of all requests
}

// verdict prints whether the claim holds, and returns an error if it doesn't. It demands less than the whole capacity, since other work on the
// machine uses a part of the capacity.
func verdict(stdout io.Writer, results []*result) error {
	for _, r := range results {
		var err error
		switch {
		case r.limited && (r.answered < 0.6 || r.lost > 0.05):
			err = fmt.Errorf("%s answered %.0f %% of the capacity in time, and left %.0f %% of the requests without an answer",
				r.name, 100*r.answered, 100*r.lost)
		case !r.limited && r.lost < 0.2:
			err = fmt.Errorf("%s has no limit, and left only %.0f %% of the requests without an answer", r.name, 100*r.lost)
		default:
			continue
		}
		fmt.Fprintf(stdout, "\nFAIL: %v.\n", err)
		return err
	}
	fmt.Fprintln(stdout, "\nPASS: filo with a limit went on answering, and refused the rest at once; without a limit most clients waited in vain.")
	return nil
}

// resource is the scarce resource for which requests wait. As with many database drivers, a request continues to wait after its HTTP client has left.
type resource chan struct{}

func (r resource) use() {
	r <- struct{}{}
	time.Sleep(work)
	<-r
}

// measure returns how many requests the resource can handle in a second, without any server.
func measure() float64 {
	const each = 50
	r := make(resource, places)
	start := time.Now()
	var users sync.WaitGroup
	for range places {
		users.Go(func() {
			for range each {
				r.use()
			}
		})
	}
	users.Wait()
	return places * each / time.Since(start).Seconds()
}

type contestant struct {
	name    string
	limited bool
	serve   func(context.Context, net.Listener) error
}

// contestants returns the servers, whose handlers use the resource.
func contestants(r resource) []contestant {
	quiet := slog.New(slog.DiscardHandler)
	filoWith := func(s *filo.Server, around filo.Middleware) func(context.Context, net.Listener) error {
		h := filo.Offload(func(c *filo.Ctx) error { r.use(); return c.NoContent() })
		if around != nil {
			h = around(h)
		}
		s.Handler, s.Logger = h, quiet
		return s.RunListener
	}
	limiter := failsafe.Recommended(4, 1_000, 10).Build()
	return []contestant{
		{"filo, Concurrency and Queue", true, filoWith(&filo.Server{Concurrency: places, Queue: 2 * places, QueueTimeout: maxWait}, nil)},
		{"filo, AdaptiveLimit", true, filoWith(&filo.Server{}, failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter, MaxWait: maxWait}))},
		{"filo, ConcurrencyLimit", true, filoWith(&filo.Server{}, middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{
			Limit: places, Queue: 2 * places, MaxWait: maxWait,
		}))},
		{"filo without a limit", false, filoWith(&filo.Server{}, nil)},
		{"net/http", false, r.serveHTTP},
		{"fasthttp", false, r.serveFast},
	}
}

func (r resource) serveHTTP(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { r.use(); w.WriteHeader(204) })}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (r resource) serveFast(ctx context.Context, l net.Listener) error {
	s := &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) { r.use(); c.SetStatusCode(204) }, CloseOnShutdown: true}
	defer context.AfterFunc(ctx, func() { s.ShutdownWithContext(ctx) })()
	return s.Serve(l)
}

// play runs the load before, during and after the overload, and prints a row of the table.
func (each contestant) play(ctx context.Context, stdout io.Writer, cfg config, capacity float64) (*result, error) {
	address, stop, err := program.Background(each.serve)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 10_000}
	load := &load{url: "http://" + address, client: &http.Client{Transport: transport, Timeout: patience}}
	load.send(ctx, capacity/2, cfg.before)
	storm := load.send(ctx, 2*capacity, cfg.storm)
	first := min(cfg.after, time.Second)
	after := load.send(ctx, capacity/2, first)
	load.send(ctx, capacity/2, cfg.after-first)
	load.pending.Wait()
	transport.CloseIdleConnections()
	err = errors.Join(stop(), ctx.Err())
	answered := float64(len(storm.took)) / cfg.storm.Seconds()
	fmt.Fprintf(stdout, "| %s | %.0f/s, %.0f %% | %s | %s | %s | %s, %s | %s | %s |\n", each.name,
		answered, 100*answered/capacity, storm.p99(),
		storm.share(storm.refused), storm.share(storm.lost), after.share(len(after.took)), after.p99(), after.share(after.refused), after.share(after.lost))
	return &result{each.name, each.limited, answered / capacity, float64(storm.lost) / float64(max(1, storm.all()))}, err
}

// load sends requests when they are due, even if earlier ones haven't been answered yet.
type load struct {
	url     string
	client  *http.Client
	pending sync.WaitGroup
}

// tally holds the outcomes of the requests of one part of the load.
type tally struct {
	mu            sync.Mutex
	took          []time.Duration // the latencies of the answered requests, measured from when they were due
	refused, lost int
}

// send sends requests for the duration d. The argument rate is the number of requests a second. send returns when it has sent the last request. The
// tally is complete when l.pending is done.
func (l *load) send(ctx context.Context, rate float64, d time.Duration) *tally {
	t := &tally{}
	start := time.Now()
	for i := range int(rate * d.Seconds()) {
		due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		if ctx.Err() != nil {
			break
		}
		l.pending.Go(func() {
			status := l.get()
			t.add(status, time.Since(due))
		})
	}
	return t
}

// get sends a request, and returns the status of the answer, or 0 if there was no answer in time.
func (l *load) get() int {
	response, err := l.client.Get(l.url)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

func (t *tally) add(status int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch status {
	case 204:
		t.took = append(t.took, took)
	case 503:
		t.refused++
	default:
		t.lost++
	}
}

func (t *tally) p99() string {
	if len(t.took) == 0 {
		return "-"
	}
	slices.Sort(t.took)
	return fmt.Sprintf("%.0f ms", 1000*t.took[(len(t.took)-1)*99/100].Seconds())
}

func (t *tally) all() int { return len(t.took) + t.refused + t.lost }

// share returns n as a percentage of all requests of the tally.
func (t *tally) share(n int) string {
	if n == 0 {
		return "0"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*float64(n)/float64(t.all())), ".0") + " %"
}
