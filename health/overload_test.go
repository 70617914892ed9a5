package health_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
)

// An overloaded server, whose places are all taken, answers probes, even the first one, and even if checks must run first.
func TestOverload(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loops": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		for _, around := range []string{"", ", with middleware that waits"} {
			for _, marked := range []string{"", ", routes not marked Inline"} {
				t.Run(name+around+marked, func(t *testing.T) {
					if driver == filo.DriverLoop && runtime.GOOS != "linux" {
						t.Skip("no loops here")
					}
					testOverload(t, driver, around != "", marked == "")
				})
			}
		}
	}
}

func testOverload(t *testing.T, driver filo.Driver, waits, inline bool) {
	h := health.New(quiet(health.Options{}))
	checked := make(chan struct{}, 1)
	h.Add("a", func(context.Context) error { checked <- struct{}{}; return nil }, health.Check{Period: time.Hour})
	r := router.New()
	for path, probe := range map[string]filo.Handler{"/readyz": h.Ready, "/livez": h.Live} {
		if route := r.GET(path, probe); inline {
			route.Inline()
		}
	}
	held, release := make(chan struct{}), make(chan struct{})
	r.GET("/hold", func(c *filo.Ctx) error {
		held <- struct{}{}
		<-release
		return nil
	})
	handler := r.Serve
	if waits {
		handler = func(c *filo.Ctx) error {
			time.Sleep(time.Millisecond)
			return r.Serve(c)
		}
	}
	server := &filo.Server{Handler: handler, Concurrency: 2, Driver: driver, Logger: slog.New(slog.DiscardHandler)}
	address := "http://" + tcptest.Serve(t, server)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
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
	var group sync.WaitGroup
	defer group.Wait()
	defer close(release)
	for range 2 {
		group.Go(func() { status("/hold") })
		<-held
	}
	if got := status("/hold"); got != 503 {
		t.Errorf("a third request that waits: %d, want 503: the server isn't overloaded", got)
	}
	if got := status("/livez"); got != 200 {
		t.Errorf("the first probe: %d", got)
	}
	if got := status("/readyz"); got != 200 {
		t.Errorf("a probe that has to wait for a check: %d", got)
	}
	select {
	case <-checked:
	case <-time.After(time.Minute):
		t.Fatal("no check has run")
	}
	for range 20 {
		for _, query := range []string{"", "?verbose"} { // an orchestrator may use ?verbose, too
			if ready, live := status("/readyz"+query), status("/livez"+query); ready != 200 || live != 200 {
				t.Fatalf("under overload, with %q: ready %d, live %d", query, ready, live)
			}
		}
	}
}
