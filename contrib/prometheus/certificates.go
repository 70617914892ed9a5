package prometheus

import (
	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo/certs"
)

var (
	certificateEnd = client.NewDesc("filo_certificate_not_after_seconds",
		"When a certificate expires, in seconds since 1970. The label is the first of its files.", []string{"file"}, nil)
	certificateRefused = client.NewDesc("filo_certificate_refused",
		"1 if the files have another certificate that was refused, and the previous one is served; otherwise 0.", []string{"file"}, nil)
)

// Certificates returns a collector of the certificates of a store. The alerts in deploy/prometheus leave two weeks for a renewal.
func Certificates(store *certs.Store) client.Collector {
	if store == nil {
		panic("prometheus: Certificates without a store")
	}
	return &certificates{store}
}

type certificates struct{ store *certs.Store }

// Describe implements prometheus.Collector.
func (k *certificates) Describe(ch chan<- *client.Desc) {
	ch <- certificateEnd
	ch <- certificateRefused
}

// Collect implements prometheus.Collector.
func (k *certificates) Collect(ch chan<- client.Metric) {
	told := make(map[string]bool)
	for _, each := range k.store.Certificates() {
		if told[each.File] {
			continue // two Pairs name the same file
		}
		told[each.File] = true
		refused := 0.0
		if each.Err != nil {
			refused = 1
		}
		ch <- client.MustNewConstMetric(certificateEnd, client.GaugeValue, float64(each.NotAfter.Unix()), each.File)
		ch <- client.MustNewConstMetric(certificateRefused, client.GaugeValue, refused, each.File)
	}
}
