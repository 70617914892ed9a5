package prometheus

import (
	client "github.com/prometheus/client_golang/prometheus"
)

// clientConns is a figure of filo.Server.Clients; it shows whether a client takes many connections. No series is labelled by an address:
// there are too many.
var clientConns = describe("filo_client_connections_max", "Open connections of the client that has most.")

func (k *collector) collectClients(ch chan<- client.Metric) {
	most := 0
	if clients := k.server.Clients(); len(clients) > 0 {
		most = clients[0].Conns
	}
	ch <- client.MustNewConstMetric(clientConns, client.GaugeValue, float64(most))
}
