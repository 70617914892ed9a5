// Package prometheus exports what a filo server does to Prometheus, by github.com/prometheus/client_golang.
//
//	go get github.com/filohttp/filo/contrib/prometheus@latest
//
// It is a module of its own, so that filo doesn't depend on what it needs.
//
//	registry := client.NewRegistry()
//	server := &filo.Server{Handler: r.Serve}
//	registry.MustRegister(prometheus.Collector(server))
//	r.Use(prometheus.Middleware(prometheus.Options{Registerer: registry}))
//	r.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Token: token}))
//
// Collector has what the server itself counts (connections, workers, loops, classes of handlers) and costs requests nothing:
// it asks when it is scraped. Middleware has what is known of each request, by method, route and class of status. Handler is
// the page that Prometheus scrapes; without a Token it is for this machine only.
//
// # Cardinality
//
// No label has anything that a client sends: a route is the pattern that was found and never a path, a method one of those
// that are known or "_OTHER", a status its class. What has no route is "_UNMATCHED". Both parts have a limit for their own
// labels besides, behind which a further route or class is "_OTHER".
//
// # Names
//
// Durations are in seconds and sizes in bytes. To tell several servers of a process apart, or put a prefix before the names,
// give Middleware and Register what client_golang's WrapRegistererWith and WrapRegistererWithPrefix return.
package prometheus
