package debug_test

import (
	"bufio"
	"context"
	"expvar"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleHandler() {
	inside := router.New()
	inside.Mount("/debug", debug.Handler())
	operators := &filo.Server{Handler: inside.Serve, ForOperator: true}
	ln := servertest.NewListener() // operators.Run(ctx, "localhost:6060") in a program
	go operators.Serve(ln)
	defer operators.Shutdown(context.Background())
	show(ln, "127.0.0.1", "GET http://localhost:6060/debug/pprof/heap")
	show(ln, "192.0.2.1", "GET http://localhost:6060/debug/pprof/heap")

	r := router.New() // for everybody
	r.Mount("/ops", debug.Handler(debug.Options{
		Token: "from-a-file-not-the-source", // go tool pprof http://any:TOKEN@host/ops/pprof/profile
		Vars:  adaptor.FromHTTP(expvar.Handler()),
	}))
	server := &filo.Server{Handler: r.Serve}
	ln = servertest.NewListener()
	go server.Serve(ln)
	defer server.Shutdown(context.Background())
	show(ln, "192.0.2.1", "GET http://example.com/ops/vars")
	show(ln, "192.0.2.1", "GET http://example.com/ops/vars", "Authorization: Bearer from-a-file-not-the-source")
	// Output:
	// 200 application/octet-stream
	// 404 text/plain; charset=utf-8
	// 401 text/plain; charset=utf-8
	// 200 application/json; charset=utf-8
}

func show(ln *servertest.Listener, client, request string, fields ...string) {
	c, err := ln.DialFrom(&net.TCPAddr{IP: net.ParseIP(client), Port: 1234})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, servertest.Request(request, "", append(fields, "Connection: close")...))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.StatusCode, response.Header.Get("Content-Type"))
}
