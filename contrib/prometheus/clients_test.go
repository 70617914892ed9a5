package prometheus_test

import (
	"testing"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/servertest"
)

// The gauge is the number of connections of the client that has most connections, and 0 if there are none.
func TestCollectorClients(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{Handler: func(c *filo.Ctx) error { return c.NoContent() }, Logger: quiet})
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Collector(s.Config))
	wantLines(t, "no connection", exposed(t, registry), "filo_client_connections_max 0.0")
	for range 3 {
		c := s.Dial(t)
		defer c.Close()
		c.Write([]byte(servertest.Request("GET /", "")))
		c.Read(make([]byte, 1)) // the connection is being served
	}
	wantLines(t, "three connections", exposed(t, registry), "filo_client_connections_max 3.0")
}
