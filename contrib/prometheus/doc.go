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
// the limits in force, whether the server drains, and the versions that it was built with. It reads these figures at each scrape, so requests
// pay nothing for them. Hub exports the figures of a hub of events or WebSockets, under a name. Figures exports the figures of a Redis of
// contrib/redis or of a limit of contrib/failsafe. Middleware measures each request, by method, route and class of status. Handler serves the
// page that Prometheus scrapes; without a Token only a server with ForOperator shows it.
//
// # Cardinality
//
// No label has a value that a client sends. The label route is the matched pattern and never a path, the label method is a known method or
// "_OTHER", and the label status is a class such as "2xx". A request without a route has the route "_UNMATCHED". Collector and Middleware
// also limit the number of different routes and classes; further ones become "_OTHER".
//
// # Names
//
// Durations are in seconds and sizes in bytes. To distinguish several servers of a process, or to add a prefix to the names,
// register Middleware and Collector with the results of client_golang's WrapRegistererWith and WrapRegistererWithPrefix.
package prometheus
