package prometheus_test

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// While a handler is stuck on a lock, there is a series with its route. Afterwards there is none.
func TestCollectorRunning(t *testing.T) {
	var lock sync.Mutex
	r := router.New()
	begun := make(chan struct{}, 2)
	r.GET("/orders/{id}", func(c *filo.Ctx) error {
		begun <- struct{}{}
		lock.Lock()
		defer lock.Unlock()
		return c.Text(200, "done")
	}).Offload()
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: quiet})
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Collector(s.Config))
	lint(t, registry)
	if text := exposed(t, registry); strings.Contains(text, "filo_requests_running{") {
		t.Errorf("nothing runs, and there is %s", text)
	}
	lock.Lock()
	var answers sync.WaitGroup
	for range 2 {
		c := s.Dial(t)
		if _, err := io.WriteString(c, servertest.Request("GET /orders/7?key=secret", "", "Connection: close")); err != nil {
			t.Fatal(err)
		}
		<-begun
		answers.Go(func() {
			io.Copy(io.Discard, c)
			c.Close()
		})
	}
	wantLines(t, "two handlers are stuck", exposed(t, registry), `filo_requests_running{route="GET /orders/{id}",state="handler"} 2.0`)
	if text := exposed(t, registry); !strings.Contains(text, `filo_requests_running_oldest_seconds{route="GET /orders/{id}",state="handler"} `) ||
		strings.Contains(text, "secret") {
		t.Errorf("exposed %s", text)
	}
	lock.Unlock()
	answers.Wait()
	for strings.Contains(exposed(t, registry), "filo_requests_running{") { // until the workers have ended the requests
		runtime.Gosched()
	}
}
