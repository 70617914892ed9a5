//go:build linux && !race

// With the race detector a handler takes longer than a quick one may.

package health_test

import (
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
)

// Probes are answered by an overloaded server, whose places are all taken.
func TestOverload(t *testing.T) {
	h := health.New(quiet(health.Options{}))
	h.Add("a", passing, health.Check{Period: time.Hour})
	r := router.New()
	r.GET("/readyz", h.Ready)
	r.GET("/livez", h.Live)
	held := make(chan struct{})
	release := make(chan struct{})
	r.GET("/hold", func(c *filo.Ctx) error {
		held <- struct{}{}
		<-release
		return nil
	})
	server := &filo.Server{Handler: r.Serve, Concurrency: 2, Driver: filo.DriverLoop, Logger: slog.New(slog.DiscardHandler)}
	address := "http://" + tcptest.Serve(t, server)
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	status := func(path string) int {
		response, err := client.Get(address + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer response.Body.Close()
		io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	// It is known to be quick when a few probes have been answered.
	for range 100 {
		status("/readyz")
		status("/livez")
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { status("/hold") })
		<-held
	}
	if got := status("/hold"); got != 503 {
		t.Errorf("a third request that waits: %d, want 503: the server isn't overloaded", got)
	}
	for range 20 {
		if ready, live := status("/readyz"), status("/livez"); ready != 200 || live != 200 {
			t.Fatalf("under overload: ready %d, live %d", ready, live)
		}
	}
	close(release)
	group.Wait()
}
