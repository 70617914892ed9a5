// Command app is the smallest program that does everything that the files in the folder deploy expect. It is a template for your own program: it has
// probes and a drain, restarts in place, reloads certificates, sets limits that fit into its memory, serves metrics and /debug on a separate address,
// accepts sockets from systemd, and uses Redis for state that its instances share.
//
//	ADDR             address of the clients, ":8080" if empty
//	TLS_CERT         file of the certificate, with its intermediates, as PEM; without it there is no TLS
//	TLS_KEY          file of its key
//	METRICS_ADDR     address of the metrics and of /debug, "127.0.0.1:6060" if empty
//	METRICS_TOKEN    a token that requests to METRICS_ADDR must have, as "Authorization: Bearer TOKEN"; if empty, only this machine is admitted
//	TRUSTED_PROXIES  address ranges of the proxies that append a client's address to X-Forwarded-For, such as "10.0.0.0/8,192.0.2.1/32"; if empty,
//	                 all clients of a proxy share its rate limit, and its address in the log
//	REDIS_URL        such as redis://localhost:6379/0; without it this instance shares nothing
//	GOMEMLIMIT       memory from which the limits are computed, 1 GiB if empty
//
// On SIGTERM the program drains and ends. On SIGUSR2 it replaces itself with a new process of its executable. On SIGHUP it reloads the certificate.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/certs"
	"github.com/filohttp/filo/contrib/prometheus"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/contrib/restart"
	pages "github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/router"
)

const (
	// drainTime is longer than a balancer needs to notice that the readiness probe fails.
	drainTime = 10 * time.Second
	// gracePeriod is how long requests may take after the drain. Both times together must be shorter than the time for which systemd and Kubernetes
	// wait for the process to end.
	gracePeriod = 20 * time.Second
	// idleGrace is how long idle connections stay open for one more request.
	idleGrace = 5 * time.Second
)

// logLevel is changed by /debug/loglevel.
var logLevel slog.LevelVar

func main() { program(drainTime) }

// program serves until SIGTERM or Ctrl-C, and ends the process after an error. A second Ctrl-C ends the process at once. A second SIGTERM doesn't:
// systemd sends SIGTERM to all remaining processes of a service, such as a program that was replaced but still has requests.
func program(drain time.Duration) {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: &logLevel})))
	logging.Disable() // go-redis would log an outage again and again; redisfilo logs it once a minute
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	if err := run(ctx, os.Getenv, drain); err != nil {
		slog.Error("the program has failed", "error", err) // log.Fatal would log it as INFO
		os.Exit(1)
	}
}

// run serves until ctx ends, then drains, and shuts down.
func run(ctx context.Context, env func(string) string, drain time.Duration) (err error) {
	restarter, err := restart.New()
	if err != nil {
		return err
	}
	probes := health.New()
	registry := client.NewRegistry()
	handler, end, err := newHandler(env("REDIS_URL"), env("TRUSTED_PROXIES"), probes, registry)
	if err != nil {
		return err
	}
	defer end()
	server := &filo.Server{Handler: handler, GracePeriod: gracePeriod, IdleGrace: idleGrace}
	setLimits(server, debug.SetMemoryLimit(-1))
	registry.MustRegister(prometheus.Collector(server), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	probes.Attach(server)
	serve, err := reloads(server, env("TLS_CERT"), env("TLS_KEY"), registry)
	if err != nil {
		return err
	}

	metrics, token := router.New(), env("METRICS_TOKEN")
	metrics.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Token: token})).Always()
	metrics.Mount("/debug", pages.Handler(pages.Options{Token: token, LogLevel: &logLevel, Server: server}))
	inside := &filo.Server{Handler: metrics.Serve, ForOperator: token == ""}
	insideListener, err := restarter.Listen(cmp.Or(env("METRICS_ADDR"), "127.0.0.1:6060"))
	if err != nil {
		return err
	}
	listener, err := restarter.Listen(cmp.Or(env("ADDR"), ":8080"))
	if err != nil {
		return errors.Join(err, insideListener.Close())
	}
	return restarter.Run(ctx, func(ctx context.Context) error {
		serving, cancel := probes.DrainContext(ctx, drain)
		defer cancel()
		insideContext, endInside := context.WithCancel(context.WithoutCancel(ctx))
		context.AfterFunc(ctx, func() {
			if context.Cause(ctx) == restart.ErrReplaced {
				endInside() // the new process listens on the same address, so Prometheus would scrape either one at random
			}
		})
		insideEnded := make(chan error, 1)
		go func() {
			defer cancel() // a server that ends before its context has failed
			insideEnded <- inside.RunListener(insideContext, insideListener)
		}()
		err := serve(serving, listener)
		endInside() // only now, so that Prometheus can scrape until the last request is answered
		return errors.Join(err, <-insideEnded)
	})
}

// setLimits sets limits with which idle connections, small requests, bodies and answers use at most 5/8 of memory. The rest is for handlers, the
// garbage collector, and what hostile clients can make connections hold: see Limits in docs/OPERATIONS.md.
func setLimits(server *filo.Server, memory int64) {
	if memory == math.MaxInt64 { // GOMEMLIMIT isn't set
		memory = 1 << 30
	}
	server.MaxConns = int(memory / 4 / connMemory)
	server.Concurrency = int(memory / 8 / requestMemory)
	server.Queue = server.Concurrency
	server.MaxBufferedBodies = memory / 8
	server.MaxBufferedAnswers = memory / 8
}

const (
	connMemory    = 16 << 10 // of an idle TLS connection, rounded up
	requestMemory = 40 << 10 // of a waiting handler, with a head of 16 KB and garbage that isn't collected yet
)

// reloads returns the function that serves the clients: over TLS if there is a certificate, which SIGHUP then reloads.
func reloads(server *filo.Server, cert, key string, registry *client.Registry) (serve func(context.Context, net.Listener) error, err error) {
	if cert == "" && key == "" {
		came := make(chan os.Signal, 1)
		signal.Notify(came, syscall.SIGHUP)
		go func() {
			for range came { // otherwise SIGHUP would end the program
				slog.Info("SIGHUP: there is no certificate to reload")
			}
		}()
		return server.RunListener, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("TLS_CERT and TLS_KEY: one needs the other")
	}
	store, err := certs.New(certs.Options{Pairs: []certs.Pair{{Cert: cert, Key: key}}})
	if err != nil {
		return nil, err
	}
	store.ReloadOn(context.Background(), syscall.SIGHUP) // until the program ends: without a handler, SIGHUP would end it
	registry.MustRegister(prometheus.Certificates(store))
	server.TLSConfig = store.TLSConfig()
	return func(ctx context.Context, listener net.Listener) error {
		return server.RunListenerTLS(ctx, listener, "", "")
	}, nil
}

// newHandler returns the application, and a function to call when the server has ended.
func newHandler(redisURL, proxies string, probes *health.Health, registry *client.Registry) (filo.Handler, func() error, error) {
	r := router.New()
	r.GET("/livez", probes.Live).Inline()
	r.GET("/readyz", probes.Ready).Inline()
	r.Use(prometheus.Middleware(prometheus.Options{Registerer: registry}), middleware.RequestID())
	if proxies != "" {
		trusted, err := parsePrefixes(proxies)
		if err != nil {
			return nil, nil, fmt.Errorf("TRUSTED_PROXIES: %w", err)
		}
		r.Use(middleware.RealIP(middleware.RealIPOptions{TrustedProxies: trusted}))
	}
	r.Use(middleware.AccessLog(), middleware.Recover())
	limits := ratelimit.Options{}
	end := func() error { return nil }
	if redisURL != "" {
		options, err := redis.ParseURL(redisURL)
		if err != nil {
			return nil, nil, err
		}
		options.ContextTimeoutEnabled = true
		connection := redis.NewClient(options)
		shared := redisfilo.New(connection)
		probes.Add("redis", shared.Check, health.Check{Optional: true})
		registry.MustRegister(prometheus.Figures(shared))
		limits.Store = shared.RateLimits("requests", redisfilo.Open)
		end = connection.Close
	}
	r.GET("/{$}", func(c *filo.Ctx) error { return c.Text(200, "it works\n") }, ratelimit.New(600, time.Minute, limits))
	return r.Serve, end, nil
}

// parsePrefixes returns the address ranges in a list with commas.
func parsePrefixes(list string) (prefixes []netip.Prefix, err error) {
	for text := range strings.SplitSeq(list, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
