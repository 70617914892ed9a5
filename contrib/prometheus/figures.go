package prometheus

import (
	client "github.com/prometheus/client_golang/prometheus"
)

// Source is something with figures of its own, such as the Redis of contrib/redis and the limits of contrib/failsafe.
type Source interface {
	// Figures calls yield with each figure. Its labels are names and values in turn. Figures with the same name have the same help, the
	// same kind and the same label names; a counter only rises.
	Figures(yield func(name, help string, counts bool, value float64, labels ...string))
}

// Figures returns a collector of the figures of a source. It asks for them at each scrape. Sources with the same figures need different
// labels, such as those of WrapRegistererWith. Figures panics without a source.
func Figures(source Source) client.Collector {
	if source == nil {
		panic("prometheus: Figures without a source")
	}
	return figures{source}
}

type figures struct{ source Source }

// Describe implements prometheus.Collector. It describes nothing, which is allowed: the figures aren't known yet.
func (figures) Describe(chan<- *client.Desc) {}

// Collect implements prometheus.Collector.
func (f figures) Collect(ch chan<- client.Metric) {
	f.source.Figures(func(name, help string, counts bool, value float64, labels ...string) {
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labelValue(labels[i+1]))
		}
		kind := client.GaugeValue
		if counts {
			kind = client.CounterValue
		}
		ch <- client.MustNewConstMetric(client.NewDesc(name, help, names, nil), kind, value, values...)
	})
}
