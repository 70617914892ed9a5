package prometheus

// clientConns is a figure of filo.Server.Clients, which shows whether one client holds many connections. The address isn't a label, since
// there would be too many series.
var clientConns = describe("filo_client_connections_max", "Open connections of the client that has most.")

func (k *collector) collectClients(out sink) {
	most := 0
	if clients := k.server.Clients(); len(clients) > 0 {
		most = clients[0].Conns
	}
	out.gauge(clientConns, float64(most))
}
