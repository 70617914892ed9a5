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

// Probes and operators' routes are answered even when all of the server's places are taken, its queue is full, refused clients retry at
// once, and there was no probe before the overload began.
func TestAlwaysUnderOverload(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loops": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP2 %v", name, http2), func(t *testing.T) {
				if driver == filo.DriverLoop && runtime.GOOS != "linux" {
					t.Skip("no loops here")
				}
				testAlways(t, driver, http2)
			})
		}
	}
}

func testAlways(t *testing.T, driver filo.Driver, http2 bool) {
	const places, asks = 4, 40 // times 5 paths
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
		transport := &http.Transport{DisableKeepAlives: !http2, Protocols: new(http.Protocols)}
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
	for deadline := time.Now().Add(time.Minute); served.Load() == 0 || refused.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody is refused: the server isn't overloaded")
		}
	}
	operator := client()
	for _, path := range []string{"/livez", "/readyz", "/debug/stats", "/debug/metrics", "/debug/build"} {
		was := refused.Load()
		for i := 0; i < asks || refused.Load() == was; i++ {
			if status, err := get(operator, path); status != 200 {
				t.Errorf("%s: ask %d: %d, %v", path, i+1, status, err)
			}
		}
	}
	over.Store(true)
	load.Wait()
}

// Middleware of a mount point, such as authentication, may answer before the mounted router is called. A mounted Always route is
// still answered under overload.
func TestAlwaysMountedBehindMiddleware(t *testing.T) {
	for _, answer := range []func() error{func() error { return filo.Error(401, "") }, func() error { panic("in the middleware") }} {
		held, release := make(chan struct{}), make(chan struct{})
		inner := router.New()
		inner.GET("/status", func(c *filo.Ctx) error { return c.NoContent() }).Always()
		r := router.New()
		r.GET("/hold", func(c *filo.Ctx) error {
			held <- struct{}{}
			<-release
			return c.NoContent()
		}).Offload()
		r.Mount("/inner", inner.Serve, func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				if c.Request.Header.Get("Authorization") == "" {
					return answer()
				}
				return next(c)
			}
		})
		address := tcptest.Serve(t, &filo.Server{Handler: r.Serve, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
		transport := &http.Transport{DisableKeepAlives: true}
		get := func(path, authorization string) (status int) {
			request, _ := http.NewRequest("GET", "http://"+address+path, nil)
			if authorization != "" {
				request.Header.Set("Authorization", authorization)
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Error(err)
				return 0
			}
			response.Body.Close()
			return response.StatusCode
		}
		if status := get("/inner/status", ""); status != 401 && status != 500 {
			t.Errorf("without authorization: %d", status)
		}
		var holder sync.WaitGroup
		holder.Go(func() {
			// A worker that is about to give its place back may still have it.
			for get("/hold", "") == 503 {
			}
		})
		<-held
		for range 2 {
			if status := get("/inner/status", "me"); status != 204 {
				t.Errorf("the server's only place is taken: %d, want 204", status)
			}
		}
		close(release)
		holder.Wait()
	}
}

// A place of the reserve is released however a handler ends. The reserve is bounded: when it is full, a further request needs a place
// like any other.
func TestAlwaysReserve(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loops": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP2 %v", name, http2), func(t *testing.T) {
				if driver == filo.DriverLoop && runtime.GOOS != "linux" {
					t.Skip("no loops here")
				}
				testAlwaysReserve(t, driver, http2)
			})
		}
	}
}

func testAlwaysReserve(t *testing.T, driver filo.Driver, http2 bool) {
	const reserve = 16
	held, release := make(chan struct{}), make(chan struct{})
	hold := func(c *filo.Ctx) error {
		held <- struct{}{}
		<-release
		return c.NoContent()
	}
	r := router.New()
	r.GET("/hold", hold).Offload()
	r.GET("/always/{how}", func(c *filo.Ctx) error {
		switch c.Param("how") {
		case "hold":
			return hold(c)
		case "panic":
			panic("in the handler")
		case "exit":
			runtime.Goexit()
		case "body":
			if _, err := c.Body(); err != nil {
				return err
			}
		}
		return c.NoContent()
	}).Offload().Always()
	server := &filo.Server{
		Handler: r.Serve, Driver: driver, Concurrency: 1, HTTP2: filo.HTTP2Options{Unencrypted: true}, Logger: slog.New(slog.DiscardHandler),
	}
	address := "http://" + tcptest.Serve(t, server)
	transport := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	client := &http.Client{Transport: transport}
	get := func(path string) int {
		response, err := client.Get(address + path)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	var holders sync.WaitGroup
	begin := func(path string) {
		holders.Go(func() {
			got := get(path)
			for got == 503 { // the last requests have been answered, but may not have released their places yet
				got = get(path)
			}
			if got != 204 {
				t.Errorf("%s: %d", path, got)
			}
		})
		<-held
	}
	begin("/hold")
	for range reserve + 1 { // one after the other, so that a lost place would be noticed
		for how, want := range map[string]int{"panic": 500, "exit": 500, "body": 204, "return": 204} {
			if got := get("/always/" + how); got != want {
				t.Errorf("/always/%s: %d, want %d", how, got, want)
			}
		}
	}
	for range reserve {
		begin("/always/hold")
	}
	if got := get("/always/return"); got != 503 {
		t.Errorf("with the reserve full: %d, want 503", got)
	}
	close(release)
	holders.Wait()
	for deadline := time.Now().Add(time.Minute); get("/always/return") != 204; {
		if time.Now().After(deadline) {
			t.Fatal("the reserve isn't given back")
		}
	}
}
