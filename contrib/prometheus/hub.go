package prometheus

import (
	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo/sse"
)

// Hub returns a collector of the figures of a hub of package sse or of contrib/websocket. The name is the value of the metrics' label "hub",
// which distinguishes several hubs of a process. Hub panics without a hub.
func Hub(name string, hub interface{ Stats() sse.HubStats }) client.Collector {
	if hub == nil {
		panic("prometheus: Hub without a hub")
	}
	own := client.Labels{"hub": labelValue(name)}
	return &hubCollector{
		stats: hub.Stats,
		clients: client.NewDesc("filo_hub_clients",
			"Clients of a hub. One that is a member of several topics counts once for events, and for each topic with WebSockets.", nil, own),
		topics:   client.NewDesc("filo_hub_topics", "Topics of a hub that have clients or a history.", nil, own),
		history:  client.NewDesc("filo_hub_history_bytes", "Size of the messages that a hub keeps for clients that come back.", nil, own),
		messages: client.NewDesc("filo_hub_messages_total", "Messages that a hub has sent to its clients, each counted once.", nil, own),
		dropped:  client.NewDesc("filo_hub_clients_dropped_total", "Clients that a hub has disconnected since they were too slow.", nil, own),
	}
}

type hubCollector struct {
	stats                                       func() sse.HubStats
	clients, topics, history, messages, dropped *client.Desc
}

// Describe implements prometheus.Collector.
func (k *hubCollector) Describe(ch chan<- *client.Desc) {
	for _, desc := range [...]*client.Desc{k.clients, k.topics, k.history, k.messages, k.dropped} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (k *hubCollector) Collect(ch chan<- client.Metric) {
	s := k.stats()
	ch <- client.MustNewConstMetric(k.clients, client.GaugeValue, float64(s.Subscribers))
	ch <- client.MustNewConstMetric(k.topics, client.GaugeValue, float64(s.Topics))
	ch <- client.MustNewConstMetric(k.history, client.GaugeValue, float64(s.HistoryBytes))
	ch <- client.MustNewConstMetric(k.messages, client.CounterValue, float64(s.Events))
	ch <- client.MustNewConstMetric(k.dropped, client.CounterValue, float64(s.Dropped))
}
