package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/dashboard"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleNew() {
	r := router.New()
	server := &filo.Server{Handler: r.Serve}
	d := dashboard.New(server)
	r.Use(d.Middleware()) // for latencies and routes
	r.GET("/{$}", func(c *filo.Ctx) error { return c.Text(200, "hello") })

	inside := &filo.Server{Handler: d.Serve, ForOperator: true} // beside the server of the clients
	ln := servertest.NewListener()                              // inside.Run(ctx, "localhost:6060") in a program
	go inside.Serve(ln)
	defer inside.Shutdown(context.Background())
	show(ln, "127.0.0.1", "GET http://localhost:6060/") // what a browser on the same machine asks for
	show(ln, "192.0.2.1", "GET http://example.com/")
	// Output:
	// 200 text/html; charset=utf-8
	// 404 text/plain; charset=utf-8
}

func show(ln *servertest.Listener, client, request string) {
	c, err := ln.DialFrom(&net.TCPAddr{IP: net.ParseIP(client), Port: 1234})
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
	fmt.Println(response.StatusCode, response.Header.Get("Content-Type"))
}
