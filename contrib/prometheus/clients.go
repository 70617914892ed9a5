package prometheus

// clientConns is a figure of filo.Server.Clients; it shows whether a client takes many connections. No series is labelled by an address:
// there are too many.
var clientConns = describe("filo_client_connections_max", "Open connections of the client that has most.")

func (k *collector) collectClients(out sink) {
	most := 0
	if clients := k.server.Clients(); len(clients) > 0 {
		most = clients[0].Conns
	}
	out.gauge(clientConns, float64(most))
}
