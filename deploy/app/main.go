// Command app is the smallest program that has all that the files of this folder expect of one: probes and a drain, metrics on an address
// of their own, a socket from systemd, and Redis for what its instances share. Beside the metrics there is /debug, by which the level of the log
// is changed, too.
//
//	ADDR           address of the clients, ":8080" if empty; not used with a socket of systemd's
//	METRICS_ADDR   address of the metrics, "127.0.0.1:9090" if empty
//	METRICS_TOKEN  what metrics and /debug ask for, as "Authorization: Bearer TOKEN"; without it only processes on the same machine see them
//	REDIS_URL      such as redis://localhost:6379/0; without it this instance shares nothing
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/router"
)

const (
	// drainTime is longer than a balancer needs to notice that the readiness probe fails.
	drainTime = 10 * time.Second
	// gracePeriod is how long requests may take after that. Both together must be less than systemd and Kubernetes wait.
	gracePeriod = 20 * time.Second
)

// logLevel is changed by /debug/loglevel.
var logLevel slog.LevelVar

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: &logLevel})))
	logging.Disable() // what go-redis would log again and again, redisfilo logs once a minute
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv, drainTime); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, then drains, and shuts down.
func run(ctx context.Context, env func(string) string, drain time.Duration) error {
	probes := health.New()
	registry := client.NewRegistry()
	handler, end, err := newHandler(env("REDIS_URL"), probes, registry)
	if err != nil {
		return err
	}
	defer end()
	server := &filo.Server{Handler: handler, GracePeriod: gracePeriod}
	registry.MustRegister(prometheus.Collector(server), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	probes.Attach(server)

	metrics, token := router.New(), env("METRICS_TOKEN")
	metrics.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Token: token})).Always()
	metrics.Mount("/debug", debug.Handler(debug.Options{Token: token, LogLevel: &logLevel}))
	inside := &filo.Server{Handler: metrics.Serve, ForOperator: token == ""}
	insideListener, err := inside.Listen(cmp.Or(env("METRICS_ADDR"), "127.0.0.1:9090"))
	if err != nil {
		return err
	}
	listener, err := listen(server, cmp.Or(env("ADDR"), ":8080"))
	if err != nil {
		return errors.Join(err, insideListener.Close())
	}
	insideEnded := make(chan error, 1)
	insideContext, endInside := context.WithCancel(context.Background())
	go func() { insideEnded <- inside.RunListener(insideContext, insideListener) }()

	serving, cancel := probes.DrainContext(ctx, drain)
	defer cancel()
	tell(daemon.SdNotifyReady)
	context.AfterFunc(ctx, func() { tell(daemon.SdNotifyStopping) })
	err = server.RunListener(serving, listener)
	endInside() // which Prometheus can ask until the last request is answered
	return errors.Join(err, <-insideEnded)
}

// listen returns the socket that systemd has opened, if there is one.
func listen(server *filo.Server, addr string) (net.Listener, error) {
	inherited, err := activation.Listeners()
	if err != nil {
		return nil, err
	}
	switch len(inherited) {
	case 0:
		return server.Listen(addr)
	case 1:
		return inherited[0], nil
	}
	return nil, errors.New("systemd has passed more than one socket")
}

// tell tells systemd the state of this program, if systemd wants to know.
func tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		slog.Warn("systemd can't be told", "state", state, "error", err)
	}
}

// newHandler returns the application, and what to call when the server has ended.
func newHandler(redisURL string, probes *health.Health, registry *client.Registry) (filo.Handler, func() error, error) {
	r := router.New()
	r.GET("/livez", probes.Live).Inline()
	r.GET("/readyz", probes.Ready).Inline()
	r.Use(prometheus.Middleware(prometheus.Options{Registerer: registry}), middleware.RequestID(), middleware.AccessLog(), middleware.Recover())
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
		limits.Store = shared.RateLimits("requests", redisfilo.Open)
		end = connection.Close
	}
	r.GET("/", func(c *filo.Ctx) error { return c.Text(200, "it works\n") }, ratelimit.New(600, time.Minute, limits))
	return r.Serve, end, nil
}
