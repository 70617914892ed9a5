// Package prometheus exports a filo server's metrics to Prometheus, with github.com/prometheus/client_golang.
//
//	go get github.com/filohttp/filo/contrib/prometheus@latest
//
// The package is a separate module, so that filo doesn't depend on client_golang.
//
//	registry := client.NewRegistry()
//	server := &filo.Server{Handler: r.Serve}
//	registry.MustRegister(prometheus.Collector(server))
//	r.Use(prometheus.Middleware(prometheus.Options{Registerer: registry}))
//	r.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Token: token}))
//
// Collector exports the server's own figures: connections, workers, leaders, classes of handlers, refusals and time-outs by their reasons,
// the limits in force, whether the server drains, and the versions that it was built with. It reads them at each scrape, so it costs
// requests nothing. Hub exports the figures of a hub of events or WebSockets, by a name. Figures exports the figures of a Redis of
// contrib/redis or of a limit of contrib/failsafe. Middleware measures each request, by method, route and class of status. Handler serves
// the page that Prometheus scrapes; without a Token only a server with ForOperator shows it.
//
// # Cardinality
//
// No label has a value that a client sends. A route is the matched pattern and never a path, a method is a known one or
// "_OTHER", and a status is its class. A request without a route has the route "_UNMATCHED". Collector and Middleware also
// limit the number of their labels; further routes or classes become "_OTHER".
//
// # Names
//
// Durations are in seconds and sizes in bytes. To distinguish several servers of a process, or to add a prefix to the names,
// register Middleware and Collector with the results of client_golang's WrapRegistererWith and WrapRegistererWithPrefix.
package prometheus
