package prometheus_test

import (
	"bufio"
	"io"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/sse"
)

// Hubs are distinguished by their names, and a name needn't be UTF-8.
func TestHub(t *testing.T) {
	news, idle := sse.NewHub(), sse.NewHub()
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Hub("news", news), prometheus.Hub("idle\xff", idle))
	s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error { return news.Serve(c, "a", "b") }})
	c := s.Dial(t)
	if _, err := io.WriteString(c, servertest.Request("GET /", "")); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(c)
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := news.Publish("a", sse.Event{Data: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	text := exposed(t, registry)
	wantLines(t, "a hub with a client", text, `filo_hub_clients{hub="news"} 1.0`, `filo_hub_topics{hub="news"} 2.0`,
		`filo_hub_messages_total{hub="news"} 3.0`, `filo_hub_clients_dropped_total{hub="news"} 0.0`)
	wantLines(t, "another one", text, "filo_hub_clients{hub=\"idle\uFFFD\"} 0.0", "filo_hub_messages_total{hub=\"idle\uFFFD\"} 0.0")
	if strings.Contains(text, `filo_hub_history_bytes{hub="news"} 0.0`) {
		t.Error("the history has no size")
	}
	lint(t, registry)
}
