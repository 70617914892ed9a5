package health_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleNew() {
	h := health.New(health.Options{Logger: slog.New(slog.DiscardHandler)})
	// In a program a check is a method such as that of a *sql.DB: h.Add("database", db.PingContext, health.Check{}).
	h.Add("database", func(context.Context) error { return nil }, health.Check{})
	h.Add("mail", func(context.Context) error { return errors.New("no route to host") }, health.Check{Optional: true})

	r := router.New()
	r.GET("/livez", h.Live).Inline()
	r.GET("/readyz", h.Ready).Inline()
	server := &filo.Server{Handler: r.Serve}
	h.Attach(server)

	ln := servertest.NewListener() // net.Listen in a program
	go server.Serve(ln)
	defer server.Shutdown(context.Background())
	show(ln, "GET /livez")
	show(ln, "GET /readyz?verbose")
	h.SetReady(false)
	show(ln, "GET /readyz")
	// Output:
	// 200 ok
	// 200 [+] database ok
	// [-] mail failed (optional)
	// ok, but degraded
	// 503 not ready
}

// A program that is told to end first reports that it isn't ready, so that the balancer sends no more requests, and then shuts
// down.
func ExampleHealth_Drain() {
	h := health.New()
	server := &filo.Server{Handler: h.Ready}
	ln := servertest.NewListener()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	show(ln, "GET /readyz")

	// For a balancer that probes every 5 s and removes the server at the second 503, the delay must be 12 s. An example can't
	// wait that long.
	const delay = 0
	// A program waits for SIGTERM here: <-ctx.Done(), with the ctx of signal.NotifyContext(context.Background(), syscall.SIGTERM).
	fmt.Println(h.Drain(context.Background(), server, delay))
	fmt.Println(<-served)
	// Output:
	// 200 ok
	// <nil>
	// filo: server closed
}

// DrainContext drains a server that Run runs until the program is told to end.
func ExampleHealth_DrainContext() {
	h := health.New()
	server := &filo.Server{Handler: h.Ready}
	ln := servertest.NewListener()

	signaled, stop := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	const delay = 0                                            // 12 s
	ctx, cancel := h.DrainContext(signaled, delay)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.RunListener(ctx, ln) }()
	show(ln, "GET /readyz")
	stop()
	fmt.Println(<-ended)
	// Output:
	// 200 ok
	// <nil>
}

func show(ln *servertest.Listener, request string) {
	c, err := ln.Dial()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, servertest.Request(request, "", "Connection: close"))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(response.Body)
	fmt.Printf("%d %s", response.StatusCode, body)
}
