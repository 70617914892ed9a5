// Package health answers the probes of balancers and orchestrators: whether the process is alive, and whether it is ready to be
// sent requests.
//
//	h := health.New()
//	h.Add("database", db.PingContext, health.Check{})
//	h.Attach(server)
//	r.GET("/livez", h.Live).Inline()
//	r.GET("/readyz", h.Ready).Inline()
//
// # Checks
//
// Checks run while somebody probes: the first probe waits for them, and from then on each runs once in its Period, whatever
// the number of probes, until there was none for two minutes. So probes are answered from memory. Routes that are told
// to be Inline, as above, are answered even when Server.Concurrency is reached: an overloaded server isn't a dead one, and to restart
// it would make matters worse. (Only a probe that comes first, and would have to wait, is refused then.)
//
// At most Options.Concurrency checks run at once. One that takes longer than its Timeout has failed; it isn't called again
// before it has returned, so a check that hangs costs one goroutine. One that panics has failed, too.
//
// # Answers
//
// The status is 200, or 503 with Retry-After, never to be cached. The body is a line of text: "ok", "ok, but degraded" where
// a check has failed that isn't critical, or "failed", "not ready" or "shutting down". A client that prefers
// application/health+json (draft-inadarei-api-health-check) or application/json gets {"status": "pass"}, "warn" or "fail". With
// "?verbose" both list the checks by name, unless the server is overloaded; what went wrong is shown only to those whom
// Options.Details lets see it, and logged.
//
// # Shutting down
//
// filo.Server.Shutdown stops accepting at once, and Attach makes the server not ready at that time, which clients on open
// connections may still see. A balancer finds out at its next probe, and until then sends requests to a socket that is closed.
// So turn red first, wait for as long as the balancer takes, and drain then, which is what Drain does.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// Defaults of Options and Check.
const (
	DefaultConcurrency = 8
	DefaultTimeout     = 5 * time.Second
	DefaultPeriod      = 5 * time.Second
	DefaultRetryAfter  = 5 * time.Second
)

// MaxChecks is how many checks a Health can have.
const MaxChecks = 100

// Options are options of New. The zero value is ready for use.
type Options struct {
	// NotReady says that the server isn't ready before SetReady(true) is called, for one that has to warm up.
	NotReady bool
	// Concurrency is how many checks run at once. Default 8.
	Concurrency int
	// Details, if set, is asked whether a client may see the errors of checks, with ?verbose. They may tell addresses and users,
	// so the default is nobody.
	Details func(c *filo.Ctx) bool
	// RetryAfter is when a client that got a 503 should ask again, in whole seconds. Default 5 s; negative: no such field.
	RetryAfter time.Duration
	// Logger gets a record when a check begins to fail, and when it passes again. The default is slog.Default.
	Logger *slog.Logger
}

// Check says how a check is run, and what it counts for. The zero value is a critical one for Ready.
type Check struct {
	// Timeout is how long it may take; its context ends then. Default 5 s.
	Timeout time.Duration
	// Period is how long its result is good for, and so how often it runs. Default 5 s.
	Period time.Duration
	// Optional says that the server does without: if the check fails, the server is degraded and still ready.
	Optional bool
	// Live makes the check count for Live, too. It should be one that only a restart can mend: when a database is away, to
	// restart its clients doesn't bring it back.
	Live bool
}

// Health knows how the process is. Its methods and handlers may be called by several goroutines at once, but Add must be called
// before the first probe.
type Health struct {
	// Live answers whether the process works: 200, or 503 if a check with Check.Live fails that isn't optional. It says nothing
	// of SetReady and of shutting down, since a process that shuts down isn't to be killed for it.
	Live filo.Handler
	// Ready answers whether the server is to be sent requests: 200, or 503 if a check fails that isn't optional, after
	// SetReady(false), and when it shuts down.
	Ready filo.Handler

	options    Options
	start      time.Time
	checks     []*check
	live       []*check      // those of checks that count for Live
	places     chan struct{} // one for each check that may run at once
	retryAfter *filo.Field

	ready  atomic.Bool
	ending atomic.Bool // the server shuts down, and will never be ready again
	probed atomic.Bool // no check can be added any more
	// lastProbe is when somebody asked, as what clock returned.
	lastProbe atomic.Int64
}

// New returns a Health without checks. It panics if the options are wrong.
func New(options ...Options) *Health {
	o := setup.One("health: New", options)
	must(o.Concurrency >= 0, "Options.Concurrency is negative")
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.RetryAfter == 0 {
		o.RetryAfter = DefaultRetryAfter
	}
	h := &Health{options: o, start: time.Now(), places: make(chan struct{}, o.Concurrency)}
	if o.RetryAfter > 0 {
		seconds := (o.RetryAfter + time.Second - 1) / time.Second
		field := filo.NewField("Retry-After", fmt.Sprint(int64(seconds)))
		h.retryAfter = &field
	}
	h.Live, h.Ready = filo.Inline(h.answerLive), filo.Inline(h.answerReady)
	h.ready.Store(!o.NotReady)
	return h
}

// Add adds a check called name, which answers must be able to show: 1 to 64 visible characters of ASCII. A check returns what
// is wrong, nil if nothing is. It should return when its context is done. Add panics if the name or the options are wrong, if
// there is a check of that name or MaxChecks of them, or after the first probe.
func (h *Health) Add(name string, run func(context.Context) error, options Check) {
	must(!h.probed.Load(), "Add after the first probe")
	must(validName(name), "the name of a check is 1 to 64 visible characters of ASCII, and not %q", name)
	must(run != nil, "the check %q has no function", name)
	must(options.Timeout >= 0 && options.Period >= 0, "Timeout and Period of the check %q must not be negative", name)
	must(len(h.checks) < MaxChecks, "more than %d checks", MaxChecks)
	for _, each := range h.checks {
		must(each.name != name, "there are two checks %q", name)
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Period == 0 {
		options.Period = DefaultPeriod
	}
	added := &check{health: h, name: name, run: run, options: options}
	h.checks = append(h.checks, added)
	if options.Live {
		h.live = append(h.live, added)
	}
}

func validName(name string) bool {
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 64
}

// SetReady says whether the server is to be sent requests, as far as its checks agree. After the shutdown of an attached
// server has begun it is never ready again.
func (h *Health) SetReady(ready bool) { h.ready.Store(ready) }

// Attach makes the server not ready as soon as its Shutdown or Close begins.
func (h *Health) Attach(server *filo.Server) {
	server.RegisterOnShutdown(func() { h.ending.Store(true) })
}

// Drain ends a server that a balancer probes, so that no request is lost: Ready answers 503 from now on, and after delay
// the server is shut down. In between it serves as before. The delay should be a little more than the balancer takes to find
// out: the probes' interval, times how many of them must fail. If ctx is done before, its error is returned, and Shutdown has
// been called as well. For a server that is run by Server.Run there is DrainContext.
func (h *Health) Drain(ctx context.Context, server *filo.Server, delay time.Duration) error {
	h.ending.Store(true)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return server.Shutdown(ctx)
}

// DrainContext returns the context for the Run of a server that a balancer probes, so that no request is lost: it ends delay after
// ctx does, and in between Ready answers 503, while the server serves as before. The delay is that of Drain. The function that it
// returns ends the context at once; it is to be called when the server has ended.
func (h *Health) DrainContext(ctx context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		h.ending.Store(true)
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-later.Done():
		}
	})
	return later, func() {
		stop()
		cancel(context.Canceled)
	}
}

// keepRunning is how long checks go on without a probe.
const keepRunning = 2 * time.Minute

// clock returns the time in nanoseconds since New was called, which no change of the date moves.
func (h *Health) clock() int64 { return int64(time.Since(h.start)) }

// note takes note of a probe.
func (h *Health) note() {
	if !h.probed.Load() {
		h.probed.Store(true)
	}
	// Not by each probe of a flood: the cores would take the cache line from each other.
	if now := h.clock(); now-h.lastProbe.Load() > int64(time.Second) {
		h.lastProbe.Store(now)
	}
}

// wanted reports whether checks shall go on.
func (h *Health) wanted() bool {
	return !h.ending.Load() && h.clock()-h.lastProbe.Load() < int64(keepRunning)
}

func (h *Health) logger() *slog.Logger {
	if h.options.Logger != nil {
		return h.options.Logger
	}
	return slog.Default()
}

// errUnknown is the error of a check that has had no result yet.
var errUnknown = errors.New("no result yet")

func must(ok bool, format string, args ...any) {
	if !ok {
		panic("health: " + fmt.Sprintf(format, args...))
	}
}
