package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// get prints the lines of answers that begin with one of the prefixes.
func get(server *filo.Server, path string, prefixes ...string) {
	ln := servertest.NewListener()
	go server.Serve(ln)
	c := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext, DisableKeepAlives: true}}
	for _, target := range []string{"/users/7", "/users/8", "/nowhere", path} {
		response, err := c.Get("http://filo.test" + target)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		for line := range strings.Lines(string(body)) {
			for _, prefix := range prefixes {
				if strings.HasPrefix(line, prefix) {
					fmt.Print(line)
				}
			}
		}
	}
}

// everybody admits the examples' client, whose address isn't one of this machine.
func everybody(*filo.Ctx) bool { return true }

func ExampleMiddleware() {
	registry := client.NewRegistry()
	r := router.New()
	r.Use(prometheus.Middleware(prometheus.Options{Registerer: registry}))
	r.GET("/users/{id}", func(c *filo.Ctx) error { return c.Text(200, "user "+c.Param("id")) })
	r.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Allow: everybody}))

	server := &filo.Server{Handler: r.Serve}
	defer server.Shutdown(context.Background())
	get(server, "/metrics", "http_request_duration_seconds_count", "http_requests_in_flight")
	// Output:
	// http_request_duration_seconds_count{method="GET",paced="",route="/users/{id}",status="2xx"} 2
	// http_request_duration_seconds_count{method="GET",paced="",route="_UNMATCHED",status="4xx"} 1
	// http_requests_in_flight 1
}

func ExampleCollector() {
	registry := client.NewRegistry()
	r := router.New()
	r.GET("/users/{id}", func(c *filo.Ctx) error { return c.Text(200, "user "+c.Param("id")) })
	r.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Allow: everybody}))
	server := &filo.Server{Handler: r.Serve}
	defer server.Shutdown(context.Background())

	registry.MustRegister(prometheus.Collector(server))
	get(server, "/metrics", "filo_connections_accepted_total", "filo_requests_total")
	// Output:
	// filo_connections_accepted_total 4
	// filo_requests_total{status="1xx"} 0
	// filo_requests_total{status="2xx"} 2
	// filo_requests_total{status="3xx"} 0
	// filo_requests_total{status="4xx"} 1
	// filo_requests_total{status="5xx"} 0
}

// The hub's name is a label, so several hubs may be registered.
func ExampleHub() {
	registry := client.NewRegistry()
	hub := sse.NewHub()
	registry.MustRegister(prometheus.Hub("news", hub))
	r := router.New()
	r.GET("/events", func(c *filo.Ctx) error { return hub.Serve(c, "news") })
	r.GET("/metrics", prometheus.Handler(registry, prometheus.HandlerOptions{Allow: everybody}))
	if _, err := hub.Publish("news", sse.Event{Data: "hello"}); err != nil {
		fmt.Println(err)
	}

	server := &filo.Server{Handler: r.Serve}
	defer server.Shutdown(context.Background())
	get(server, "/metrics", "filo_hub_clients", "filo_hub_messages_total")
	// Output:
	// filo_hub_clients{hub="news"} 0
	// filo_hub_clients_dropped_total{hub="news"} 0
	// filo_hub_messages_total{hub="news"} 1
}
