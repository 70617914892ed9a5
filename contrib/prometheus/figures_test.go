package prometheus_test

import (
	"testing"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo/contrib/prometheus"
)

type source struct{ name string }

func (s source) Figures(yield func(name, help string, counts bool, value float64, labels ...string)) {
	yield("filo_example_up", "Whether it is up.", false, 1, "store", s.name, "access", "read")
	yield("filo_example_up", "Whether it is up.", false, 0, "store", s.name, "access", "write")
	yield("filo_example_calls_total", "Calls.", true, 7, "store", s.name)
	yield("filo_example_size", "Size.", false, 3)
}

// Figures have the names, kinds and labels that their source states, and labels distinguish several sources.
func TestFigures(t *testing.T) {
	registry := client.NewPedanticRegistry()
	for _, name := range []string{"a", "b\xff"} {
		client.WrapRegistererWith(client.Labels{"of": name[:1]}, registry).MustRegister(prometheus.Figures(source{name}))
	}
	wantLines(t, "figures", exposed(t, registry),
		"# TYPE filo_example_up gauge", "# HELP filo_example_up Whether it is up.", "# TYPE filo_example_calls counter",
		`filo_example_up{access="read",of="a",store="a"} 1.0`, `filo_example_up{access="write",of="a",store="a"} 0.0`,
		`filo_example_calls_total{of="a",store="a"} 7.0`, "filo_example_calls_total{of=\"b\",store=\"b\uFFFD\"} 7.0", `filo_example_size{of="a"} 3.0`)
	lint(t, registry)
}
