// Package health answers the probes of load balancers and orchestrators: is the process alive, and is it ready for requests?
//
//	h := health.New()
//	h.Add("database", db.PingContext, health.Check{})
//	h.Attach(server)
//	r.GET("/livez", h.Live).Inline()
//	r.GET("/readyz", h.Ready).Inline()
//
// # Checks
//
// Probes are answered from memory, so any number of them causes no extra checks. Checks run only while something probes. The first probe
// waits for the checks' results. From then on each check runs once in its Period, until there was no probe for two minutes. Live and Ready
// answer even when Server.Concurrency is reached: an overloaded server is alive, and a restart would make matters worse. Inline, as above,
// also keeps the routes of Live and Ready in the loop that reads the probe: leave it out if the routes have middleware that waits.
//
// At most Options.Concurrency checks run at once. A check that exceeds its Timeout has failed. It isn't called again until it
// has returned, so a check that hangs costs one goroutine. A check that panics, or ends its goroutine, has failed, too.
//
// # Answers
//
// The status is 200, or 503 with Retry-After. Answers forbid caching. The body is a line of text: "ok", "ok, but degraded" if only optional
// checks have failed, or "failed", "not ready" or "shutting down". A client that prefers application/health+json
// (draft-inadarei-api-health-check) or application/json gets {"status": "pass"}, "warn" or "fail". With "?verbose" both formats list the
// checks by name, unless the server is overloaded. The errors of checks are logged, and shown only to clients for which Options.Details
// returns true.
//
// # Shutting down
//
// filo.Server.Shutdown stops accepting at once. Attach makes the server not ready at that time, which clients on open connections may
// still see. A balancer notices the shutdown only at its next probe, and until then sends requests to a closed socket. So make the server
// not ready first, wait until the balancer has noticed, and then shut down. Drain does this.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// Defaults of Options and Check.
const (
	DefaultConcurrency = 8
	DefaultTimeout     = 5 * time.Second
	DefaultPeriod      = 5 * time.Second
	DefaultRetryAfter  = 5 * time.Second
)

// must panics if an argument of New or Add is invalid.
var must = setup.Checker("health")

// ErrReplaced is the cause of a context that has ended because another process now serves at the same address, as contrib/restart
// arranges. See Health.DrainContext.
var ErrReplaced = errors.New("a new program has taken over")

// MaxChecks is how many checks a Health can have.
const MaxChecks = 100

// Options are the options of New. The zero value is ready for use.
type Options struct {
	// NotReady makes the server start as not ready, until SetReady(true) is called, for a server that has to warm up.
	NotReady bool
	// Concurrency limits how many checks run at once. Default 8.
	Concurrency int
	// Details, if set, decides whether a client may see the errors of checks with ?verbose. Errors may contain addresses and
	// users, so by default no client sees them.
	Details func(c *filo.Ctx) bool
	// RetryAfter is the time after which a client that got a 503 should ask again, in whole seconds. Default 5 s; a negative
	// value omits the field.
	RetryAfter time.Duration
	// Logger receives a record when a check begins to fail, and when it passes again. Default slog.Default.
	Logger *slog.Logger
}

// Check sets how a check runs and which probes it affects. The zero value is a critical check for Ready.
type Check struct {
	// Timeout limits how long the check may run; its context ends then. Default 5 s.
	Timeout time.Duration
	// Period is the interval between runs, and so how long a result is valid. Default 5 s.
	Period time.Duration
	// Optional means that the server works without the checked service: if the check fails, the server is degraded and still
	// ready.
	Optional bool
	// Live makes the check count for Live, too. Set it only for faults that a restart repairs: if a database is down,
	// restarting its clients doesn't bring it back.
	Live bool
}

// Health holds the state of the process. Its methods and handlers may be called by several goroutines at once, but Add must be
// called before the first probe.
type Health struct {
	// Live answers whether the process works: 200, or 503 if a non-optional check with Check.Live fails. It ignores SetReady
	// and the shutdown, since an orchestrator shouldn't kill a process because it shuts down.
	Live filo.Handler
	// Ready answers whether the server is ready for requests: 200, or 503 if a non-optional check fails, after SetReady(false),
	// and during the shutdown.
	Ready filo.Handler

	options    Options
	servers    []*filo.Server // attached servers; guarded by mu
	mu         sync.Mutex
	start      time.Time
	checks     []*check
	live       []*check      // the checks that count for Live
	places     chan struct{} // a place for each check that may run at once
	retryAfter *filo.Field

	ready  atomic.Bool
	ending atomic.Bool // the server shuts down, and will never be ready again
	// replaced is set before a shutdown that begins because another process has taken over.
	replaced atomic.Bool
	probed   atomic.Bool // there was a probe, so no check can be added any more
	// lastProbe is the time of the last probe, as the method clock returns it.
	lastProbe atomic.Int64
}

// New returns a Health without checks. It panics if the options are invalid.
func New(options ...Options) *Health {
	o := setup.One("health: New", options)
	must(o.Concurrency >= 0, "Options.Concurrency is negative")
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.RetryAfter = cmp.Or(o.RetryAfter, DefaultRetryAfter)
	h := &Health{options: o, start: time.Now(), places: make(chan struct{}, o.Concurrency)}
	if o.RetryAfter > 0 {
		field := filo.NewField("Retry-After", fmt.Sprint(syntax.Seconds(o.RetryAfter)))
		h.retryAfter = &field
	}
	h.Live, h.Ready = filo.Inline(h.answerLive), filo.Inline(h.answerReady)
	h.ready.Store(!o.NotReady)
	return h
}

// Add adds a check. Answers show its name, 1 to 64 visible ASCII characters. The function run returns an error if the check
// fails, or nil, and should return when its context is done. Add panics if the name or the options are invalid, if the name is
// taken, if there are MaxChecks checks, or after the first probe.
func (h *Health) Add(name string, run func(context.Context) error, options Check) {
	must(!h.probed.Load(), "Add after the first probe")
	must(validName(name), "the name of a check must be 1 to 64 visible ASCII characters, not %q", name)
	must(run != nil, "the check %q has no function", name)
	must(options.Timeout >= 0 && options.Period >= 0, "Timeout and Period of the check %q must not be negative", name)
	must(len(h.checks) < MaxChecks, "more than %d checks", MaxChecks)
	for _, each := range h.checks {
		must(each.name != name, "there are two checks %q", name)
	}
	options.Timeout = cmp.Or(options.Timeout, DefaultTimeout)
	options.Period = cmp.Or(options.Period, DefaultPeriod)
	added := &check{health: h, name: name, run: run, options: options}
	h.checks = append(h.checks, added)
	if options.Live {
		h.live = append(h.live, added)
	}
}

func validName(name string) bool {
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, invisible)
}

// SetReady sets whether the server is ready for requests. Failing checks still make it not ready. Once the shutdown of an
// attached server has begun, the server is never ready again.
func (h *Health) SetReady(ready bool) { h.ready.Store(ready) }

// Attach makes the server not ready as soon as its Shutdown or Close begins, unless another process has taken over: see ErrReplaced.
// When DrainContext begins a drain, attached servers close each connection after its next answer.
func (h *Health) Attach(server *filo.Server) {
	h.mu.Lock()
	h.servers = append(h.servers, server)
	h.mu.Unlock()
	server.RegisterOnShutdown(func() {
		if !h.replaced.Load() {
			h.ending.Store(true)
		}
	})
}

// Drain shuts down a server that a balancer probes, without losing a request. Ready answers 503 at once, and after delay the
// server is shut down. During the delay the server still accepts and serves, but answers say Connection: close, so that clients leave
// (filo.Server.SetKeepAlivesEnabled). Set delay a little longer than the balancer needs to notice: the interval of the probes times the number
// of probes that must fail. If ctx is done earlier, Drain still calls Shutdown, and returns the error of ctx. For a server that Server.Run
// runs, use DrainContext.
func (h *Health) Drain(ctx context.Context, server *filo.Server, delay time.Duration) error {
	h.ending.Store(true)
	server.SetKeepAlivesEnabled(false)
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	return server.Shutdown(ctx)
}

// DrainContext returns the context for the Run of a server that a balancer probes, so that no request is lost. When ctx ends, Ready answers
// 503, and after delay the returned context ends. During the delay the server still accepts and serves; if it was given to Attach, answers
// say Connection: close, as in Drain. Choose delay as for Drain. The returned function ends the context at once; call it when the server has
// ended. The start of the drain is logged.
//
// If the cause of ctx is ErrReplaced, another process already serves at the same address. Then the returned context ends at once. Ready
// still answers the probes that reach this process, with the verdict of the checks. To get a ctx with this cause, call DrainContext in
// the function that contrib/restart's Restarter.Run calls.
func (h *Health) DrainContext(ctx context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrReplaced) {
			h.replaced.Store(true)
			cancel(cause)
			return
		}
		h.ending.Store(true)
		h.logger().Info("health: not ready any more, since the program ends", "drain", delay.String(), "cause", context.Cause(ctx).Error())
		h.endConns()
		select {
		case <-time.After(delay):
			cancel(context.Cause(ctx))
		case <-later.Done():
		}
	})
	return later, func() {
		stop()
		cancel(context.Canceled)
	}
}

// endConns makes the attached servers close each connection after its next answer.
func (h *Health) endConns() {
	h.mu.Lock()
	servers := slices.Clone(h.servers)
	h.mu.Unlock()
	for _, server := range servers {
		server.SetKeepAlivesEnabled(false)
	}
}

// keepRunning is how long checks continue without a probe.
const keepRunning = 2 * time.Minute

// clock returns the time in nanoseconds since New was called; changes of the system's date don't affect it.
func (h *Health) clock() int64 { return int64(time.Since(h.start)) }

// note records a probe.
func (h *Health) note() {
	if !h.probed.Load() {
		h.probed.Store(true)
	}
	// At most one probe a second writes the time. If every probe wrote it, its cache line would bounce between the cores in a flood of probes.
	if now := h.clock(); now-h.lastProbe.Load() > int64(time.Second) {
		h.lastProbe.Store(now)
	}
}

// wanted reports whether checks should continue to run.
func (h *Health) wanted() bool {
	return !h.ending.Load() && h.clock()-h.lastProbe.Load() < int64(keepRunning)
}

func (h *Health) logger() *slog.Logger {
	return cmp.Or(h.options.Logger, slog.Default())
}

// errUnknown is the error of a check that has had no result yet.
var errUnknown = errors.New("no result yet")
