package prometheus

import (
	client "github.com/prometheus/client_golang/prometheus"
)

// Source is a source of figures, such as the Redis of contrib/redis or a limit of contrib/failsafe.
type Source interface {
	// Figures calls yield with each figure. The labels are alternating names and values. Figures with the same name must have the same help,
	// the same kind and the same label names. If counts is true, the value must never decrease.
	Figures(yield func(name, help string, counts bool, value float64, labels ...string))
}

// Figures returns a collector of the figures of a source. It reads them at each scrape. Sources with the same figures need different labels,
// which WrapRegistererWith can add. Figures panics without a source.
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
