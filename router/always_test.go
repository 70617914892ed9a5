package router_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
)

// "Probes and operators' routes are always answered": the server has all its places taken and its queue full, and clients that are
// refused come back at once. No probe came before the overload began.
func TestAlwaysUnderOverload(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loops": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		for _, http2 := range []bool{false, true} {
			for _, kept := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP2 %v, kept connections %v", name, http2, kept), func(t *testing.T) {
					if driver == filo.DriverLoop && runtime.GOOS != "linux" {
						t.Skip("no loops here")
					}
					testAlways(t, driver, http2, kept)
				})
			}
		}
	}
}

func testAlways(t *testing.T, driver filo.Driver, http2, kept bool) {
	const places, asks = 4, 200
	probes := health.New(health.Options{Logger: slog.New(slog.DiscardHandler)})
	probes.Add("database", func(context.Context) error { return nil }, health.Check{})
	r := router.New()
	r.GET("/livez", probes.Live).Inline()
	r.GET("/readyz", probes.Ready).Inline()
	r.Mount("/debug", debug.Handler(debug.Options{Allow: func(*filo.Ctx) bool { return true }}))
	r.GET("/work", func(c *filo.Ctx) error {
		time.Sleep(5 * time.Millisecond)
		return c.NoContent()
	})
	server := &filo.Server{
		Handler: r.Serve, Driver: driver, Concurrency: places, Queue: places, QueueTimeout: 20 * time.Millisecond,
		HTTP2: filo.HTTP2Options{Unencrypted: true}, Logger: slog.New(slog.DiscardHandler),
	}
	address := "http://" + tcptest.Serve(t, server)
	client := func() *http.Client {
		transport := &http.Transport{DisableKeepAlives: !kept, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(!http2)
		transport.Protocols.SetUnencryptedHTTP2(http2)
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	get := func(client *http.Client, path string) (int, error) {
		response, err := client.Get(address + path)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	var load sync.WaitGroup
	var over atomic.Bool
	var served, refused atomic.Int64
	for range 6 * places {
		load.Go(func() {
			for own := client(); !over.Load(); time.Sleep(time.Millisecond) {
				if status, _ := get(own, "/work"); status == 503 {
					refused.Add(1)
				} else if status == 204 {
					served.Add(1)
				}
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); refused.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody is refused: the server isn't overloaded")
		}
	}
	operator := client()
	for _, path := range []string{"/livez", "/readyz", "/debug/stats", "/debug/metrics", "/debug/build"} {
		before, was, n := time.Now(), refused.Load(), 0
		for range asks {
			if status, err := get(operator, path); status == 200 {
				n++
			} else if err != nil {
				t.Log(err)
			}
		}
		t.Logf("%s: %d of %d in %v; others refused meanwhile: %d", path, n, asks, time.Since(before), refused.Load()-was)
		if n != asks {
			t.Errorf("%s: %d of %d", path, n, asks)
		}
	}
	over.Store(true)
	load.Wait()
	t.Log(served.Load(), refused.Load())
}
