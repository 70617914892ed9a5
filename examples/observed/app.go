package main

import (
	"embed"
	"expvar"
	"io"
	"io/fs"
	"log/slog"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/dashboard"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
	"github.com/filohttp/filo/templates"
)

//go:embed page views
var files embed.FS

// pagePolicy allows a page to load content from this server only.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard admits only operators to the pages that show the server's internals.
var guard = middleware.Guard()

// spanDelay is how long a span waits until it is exported together with others.
const spanDelay = 100 * time.Millisecond

// app is the server and all the tools that observe it.
type app struct {
	server  *filo.Server
	inside  *filo.Server // the operator's server: it has the same routes, and admits the operator to the tools
	host    string       // one of the host names that requests may have
	health  *health.Health
	traces  *collector
	log     *tail
	spans   sdktrace.SpanProcessor // exports the spans to traces
	tracers *sdktrace.TracerProvider
	backend *backend
}

// newApp returns the app. It refuses requests for a host that isn't in the list hosts. The log is also written to records.
func newApp(records io.Writer, hosts []string) (*app, error) {
	r := router.New()
	a := &app{host: hosts[0], traces: newCollector(), log: newTail(records)}
	var level slog.LevelVar // see /debug/loglevel
	logger := slog.New(slog.NewJSONHandler(a.log, &slog.HandlerOptions{Level: &level}))
	a.server = &filo.Server{Handler: r.Serve, Logger: logger, GracePeriod: shutdownGrace}
	a.inside = &filo.Server{Handler: r.Serve, Logger: logger, ForOperator: true}
	a.spans = sdktrace.NewBatchSpanProcessor(a.traces, sdktrace.WithBatchTimeout(spanDelay))
	a.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(a.spans))
	a.backend = &backend{a.tracers.Tracer("backend")}

	measured := dashboard.New(a.server, dashboard.Options{Title: "observed"})
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.Collector(a.server), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.Use(measured.Middleware(), prometheus.Middleware(prometheus.Options{Registerer: registry, Exemplars: exemplar}),
		middleware.HostCheck(middleware.HostCheckOptions{Hosts: hosts}))
	a.addWork(r.Group("",
		otel.Middleware(otel.Options{TracerProvider: a.tracers, Propagators: propagation.TraceContext{}, TrustClients: true}),
		middleware.AccessLog(middleware.AccessLogOptions{Logger: a.server.Logger, Attributes: otel.LogAttributes, Skip: unremarkable})))

	a.health = health.New(health.Options{Logger: a.server.Logger})
	a.health.Add("backend", a.backend.ping, health.Check{})
	a.health.Attach(a.server)
	r.GET("/livez", a.health.Live).Inline()
	r.GET("/readyz", a.health.Ready).Inline()
	r.GET("/metrics", prometheus.Handler(registry)).Always()
	r.Mount("/dashboard", measured.Serve)
	r.Mount("/debug", debug.Handler(debug.Options{LogLevel: &level, Vars: adaptor.FromHTTP(expvar.Handler())}))
	r.GET("/log", a.log.serve, guard)
	return a, a.addPages(r)
}

// addPages adds the pages for browsers.
func (a *app) addPages(r *router.Router) error {
	page, err := fs.Sub(files, "page")
	if err != nil {
		return err
	}
	views, err := fs.Sub(files, "views")
	if err != nil {
		return err
	}
	a.server.Renderer, err = templates.New(views)
	a.inside.Renderer = a.server.Renderer
	g := r.Group("", middleware.Secure(middleware.SecureOptions{ContentSecurityPolicy: pagePolicy}))
	content := static.New(page, static.Options{Frozen: true})
	// Not "/{file}": that would also match /dashboard and /debug, which redirect to their pages.
	g.GET("/observed.css", content.Serve)
	g.GET("/icon.svg", content.Serve)
	g.GET("/{$}", showFront)
	inside := g.Group("/traces", guard)
	inside.GET("", a.showTraces)
	inside.GET("/{id}", a.showTraces)
	return err
}

// frontPage holds the values of views/front.html.
type frontPage struct {
	Base   string // the URL with the host of the client's request
	Inside bool   // whether the operator's server answers the request
}

func showFront(c *filo.Ctx) error {
	page := frontPage{Base: "http://" + c.Host(), Inside: c.Server().ForOperator}
	c.Response.Header.Set("Cache-Control", "no-store")
	return c.Render(200, "front.html", page)
}

// exemplar links a bucket of a metric to the trace of a request in it.
func exemplar(c *filo.Ctx) client.Labels {
	if id := otel.TraceID(c); id != "" {
		return client.Labels{"trace_id": id}
	}
	return nil
}

// unremarkable reports whether a request isn't logged, because it has succeeded and its trace isn't recorded. Most requests of the load aren't
// logged.
func unremarkable(c *filo.Ctx) bool { return c.Status() < 500 && otel.TraceID(c) == "" }
