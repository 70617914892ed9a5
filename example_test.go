package filo_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// exampleAnswers serves h in memory, sends each request on one connection, and prints the answers without their Date.
func exampleAnswers(h filo.Handler, requests ...string) {
	client, server := servertest.Pipe()
	for _, request := range requests {
		io.WriteString(client, strings.ReplaceAll(request, "\n", "\r\n"))
	}
	client.CloseWrite()
	filo.ServeConn(server, h)
	lines := bufio.NewScanner(client)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "Date: ") {
			fmt.Println(lines.Text())
		}
	}
}

func ExampleListenAndServe() {
	log.Fatal(filo.ListenAndServe(":8080", func(c *filo.Ctx) error {
		return c.Text(200, "Hello, World!")
	}))
}

func ExampleHandler() {
	hello := func(c *filo.Ctx) error {
		if c.Path() != "/hello" {
			return filo.Error(404, "nothing but /hello here")
		}
		name := c.Request.Query().Get("name")
		return c.Text(200, "Hello, "+name+"!")
	}

	exampleAnswers(hello,
		"GET /hello?name=Gopher HTTP/1.1\nHost: example.com\n\n",
		"GET /bye HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 14
	//
	// Hello, Gopher!HTTP/1.1 404 Not Found
	// X-Content-Type-Options: nosniff
	// Vary: Accept
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 35
	//
	// Not Found: nothing but /hello here
}

// A Middleware wraps a handler: it may do anything before and after the handler.
func ExampleMiddleware() {
	var noStore filo.Middleware = func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.Header.Set("Cache-Control", "no-store")
			return next(c)
		}
	}
	handler := noStore(func(c *filo.Ctx) error { return c.NoContent() })

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 204 No Content
	// Cache-Control: no-store
	// Server: filo
}

// Every field of a Server except Handler has a default.
func ExampleServer() {
	s := &filo.Server{
		Handler:     func(c *filo.Ctx) error { return c.Text(200, "Hello, World!") },
		Name:        "example/1.0",
		Concurrency: 10_000,
		IdleTimeout: 2 * time.Minute,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(listener) }()

	answer, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	fmt.Println(answer.Header.Get("Server"), string(body), err)

	fmt.Println(s.Shutdown(context.Background()))
	fmt.Println(<-served)
	// Output:
	// example/1.0 Hello, World! <nil>
	// <nil>
	// filo: server closed
}

// A process that receives a signal finishes the requests that it has begun.
func ExampleServer_Shutdown() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // and syscall.SIGTERM
	defer stop()
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "Hello, World!") }}
	ended := make(chan error)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ended <- s.Shutdown(grace)
	}()

	// Here somebody presses Ctrl-C at once.
	if process, err := os.FindProcess(os.Getpid()); err == nil {
		process.Signal(os.Interrupt)
	}

	if err := s.ListenAndServe("127.0.0.1:0"); !errors.Is(err, filo.ErrServerClosed) {
		log.Fatal(err)
	}
	fmt.Println("shut down:", <-ended)
	// Output: shut down: <nil>
}

// This program ends when its server has ended. The first signal begins the shutdown, and a second one ends the process at once.
func ExampleServer_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // and syscall.SIGTERM
	defer stop()
	context.AfterFunc(ctx, stop)

	// Here somebody presses Ctrl-C at once.
	if process, err := os.FindProcess(os.Getpid()); err == nil {
		process.Signal(os.Interrupt)
	}

	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "Hello, World!") }}
	fmt.Println("ended:", s.Run(ctx, "127.0.0.1:0"))
	// Output: ended: <nil>
}

func ExampleServer_Stats() {
	s := &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() == "/missing" {
			return filo.Error(404, "")
		}
		return c.NoContent()
	}}
	client, server := servertest.Pipe()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /missing HTTP/1.1\r\nHost: a\r\n\r\n")
	client.CloseWrite()
	s.ServeConn(server)

	stats := s.Stats()
	fmt.Println("connections:", stats.ConnsAccepted, "open:", stats.ConnsOpen)
	fmt.Println("2xx:", stats.Requests[2], "4xx:", stats.Requests[4])
	s.Close()
	// Output:
	// connections: 1 open: 0
	// 2xx: 1 4xx: 1
}

func ExampleCtx_JSON() {
	type greeting struct {
		Hello string `json:"hello"`
	}
	handler := func(c *filo.Ctx) error { return c.JSON(200, greeting{"World"}) }

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: application/json
	// Server: filo
	// Content-Length: 18
	//
	// {"hello":"World"}
}

// Body's result is borrowed until the handler returns; a handler that keeps bytes for longer has to copy them.
func ExampleCtx_Body() {
	handler := func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err // 413 if the body is too large, 408 if it arrives too slowly, 400 if it is cut off
		}
		return c.Bytes(200, c.Request.ContentType(), body)
	}

	exampleAnswers(handler, "POST / HTTP/1.1\nHost: example.com\nContent-Type: text/x\nContent-Length: 4\n\necho")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/x
	// Server: filo
	// Content-Length: 4
	//
	// echo
}

// A body of any size is read as it arrives, in constant memory.
func ExampleCtx_BodyReader() {
	handler := func(c *filo.Ctx) error {
		c.SetMaxBodyBytes(10 << 30)
		n, err := io.Copy(io.Discard, c.BodyReader())
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(n, " bytes\n"))
	}

	exampleAnswers(handler, "POST / HTTP/1.1\nHost: example.com\nContent-Length: 4\n\nbody")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 8
	//
	// 4 bytes
}

// Each Flush sends the bytes written so far. Its error says that the client has gone.
func ExampleCtx_Stream() {
	handler := func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/event-stream")
		w := c.Stream()
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	}

	ln := servertest.NewListener()
	s := &filo.Server{Handler: handler}
	go s.Serve(ln)
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
	answer, err := client.Get("http://filo.test/")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	events := bufio.NewScanner(answer.Body)
	for events.Scan() {
		if events.Text() != "" {
			fmt.Println(events.Text())
		}
	}
	// Output:
	// data: 0
	// data: 1
	// data: 2
}

// A long-running handler ends when nobody waits for its answer any more.
func ExampleCtx_Context() {
	lookUp := func(ctx context.Context) (string, error) { // a query, for example
		select {
		case <-time.After(time.Millisecond):
			return "found", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	handler := func(c *filo.Ctx) error {
		c.SetDeadline(time.Now().Add(5 * time.Second))
		result, err := lookUp(c.Context())
		switch {
		case errors.Is(err, filo.ErrClientGone):
			return filo.ErrAbort
		case errors.Is(err, context.DeadlineExceeded):
			return filo.Error(504, "it takes too long")
		case err != nil:
			return err
		}
		return c.Text(200, result+"\n")
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 6
	//
	// found
}

// Code that has only a context logs with the request's route, and with what middleware such as RequestID has added.
func ExampleLogHandler() {
	logger := slog.New(filo.LogHandler(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // not the same each time
			}
			return a
		},
	})))
	pay := func(ctx context.Context, order int) {
		logger.InfoContext(ctx, "paid", "order", order)
	}
	handler := func(c *filo.Ctx) error {
		pay(c.Context(), 7)
		return c.NoContent()
	}
	withTenant := func(c *filo.Ctx) error {
		c.AddLogAttributes(func(_ *filo.Ctx, attributes []slog.Attr) []slog.Attr {
			return append(attributes, slog.String("tenant", "acme"))
		})
		return handler(c)
	}

	exampleAnswers(withTenant, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// level=INFO msg=paid order=7 tenant=acme
	// HTTP/1.1 204 No Content
	// Server: filo
}

// The answer doesn't wait for the work, but Shutdown does.
func ExampleCtx_Go() {
	listener := servertest.NewListener()
	server := &filo.Server{Handler: func(c *filo.Ctx) error {
		address := c.Request.Query().Get("address")
		if err := c.Go(func(context.Context) { fmt.Println("welcome,", address) }); err != nil {
			return err // 503: there is too much to be done
		}
		return c.Text(202, "")
	}}
	go server.Serve(listener)
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return listener.Dial()
	}}}
	response, err := client.Get("http://example.com/register?address=gopher@example.com")
	if err != nil {
		log.Fatal(err)
	}
	response.Body.Close()
	server.Shutdown(context.Background())
	fmt.Println(response.Status)
	// Output:
	// welcome, gopher@example.com
	// 202 Accepted
}

// After Upgrade the connection speaks another protocol. The handler first reads the bytes that the client has already sent after its
// request.
func ExampleCtx_Upgrade() {
	handler := func(c *filo.Ctx) error {
		conn, buffered, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write(buffered); err != nil {
			return nil // there is nobody to report the error to
		}
		_, err = io.Copy(conn, conn)
		return err
	}

	s := &filo.Server{Handler: handler}
	defer s.Close()
	listener := servertest.NewListener()
	go s.Serve(listener)
	client, err := listener.Dial()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nechoed\n")
	received := bufio.NewReader(client)
	answer, err := http.ReadResponse(received, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status)
	line, err := received.ReadString('\n')
	fmt.Printf("%q %v\n", line, err)
	// Output:
	// 101 Switching Protocols
	// "echoed\n" <nil>
}

// Hijack hands the connection over without sending the client anything.
func ExampleCtx_Hijack() {
	handler := func(c *filo.Ctx) error {
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-By: hand\r\n\r\n")
		return errors.Join(err, conn.Close())
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// X-By: hand
}

// A browser learns of a style sheet while the page is still being rendered.
func ExampleCtx_EarlyHints() {
	handler := func(c *filo.Ctx) error {
		c.Response.Header.Set("Link", "</style.css>; rel=preload; as=style")
		if err := c.EarlyHints(); err != nil {
			return err
		}
		return c.Bytes(200, "text/html; charset=utf-8", []byte("<title>Hello</title>"))
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 103 Early Hints
	// Link: </style.css>; rel=preload; as=style
	//
	// HTTP/1.1 200 OK
	// Link: </style.css>; rel=preload; as=style
	// Content-Type: text/html; charset=utf-8
	// Server: filo
	// Content-Length: 20
	//
	// <title>Hello</title>
}

// An error with a status is all that a handler needs; a client that prefers JSON gets problem details (RFC 9457).
func ExampleHTTPError() {
	handler := func(c *filo.Ctx) error {
		return &filo.HTTPError{
			Status:     403,
			Detail:     "the balance is 30, that costs 50",
			Extensions: map[string]any{"balance": 30},
			Err:        errors.New("only the log shows this"),
		}
	}

	exampleAnswers(handler,
		"GET / HTTP/1.1\nHost: example.com\n\n",
		"GET / HTTP/1.1\nHost: example.com\nAccept: application/json\n\n")
	// Output:
	// HTTP/1.1 403 Forbidden
	// X-Content-Type-Options: nosniff
	// Vary: Accept
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 44
	//
	// Forbidden: the balance is 30, that costs 50
	// HTTP/1.1 403 Forbidden
	// X-Content-Type-Options: nosniff
	// Vary: Accept
	// Content-Type: application/problem+json
	// Server: filo
	// Content-Length: 92
	//
	// {"balance":30,"detail":"the balance is 30, that costs 50","status":403,"title":"Forbidden"}
}

// One place decides how errors look.
func ExampleServer_errorHandler() {
	s := &filo.Server{
		Handler: func(c *filo.Ctx) error { return os.ErrNotExist },
		ErrorHandler: func(c *filo.Ctx, err error) {
			if errors.Is(err, os.ErrNotExist) {
				err = filo.Error(404, "no such thing")
			}
			filo.DefaultErrorHandler(c, err)
		},
	}
	defer s.Close()
	client, server := servertest.Pipe()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	client.CloseWrite()
	s.ServeConn(server)

	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		log.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	fmt.Print(answer.Status, ", ", string(body))
	// Output: 404 Not Found, Not Found: no such thing
}

func ExampleRequest_Form() {
	handler := func(c *filo.Ctx) error {
		form, err := c.Request.Form()
		if err != nil {
			return err // 415 if it is no form
		}
		page, err := form.Int("page")
		if err != nil {
			return err // 400 if it is no number
		}
		return c.Text(200, fmt.Sprintf("%s, page %d\n", form.Get("q"), page))
	}

	const form = "Host: example.com\nContent-Type: application/x-www-form-urlencoded\n"
	exampleAnswers(handler,
		"POST / HTTP/1.1\n"+form+"Content-Length: 18\n\nq=hello+go&page=02",
		"POST / HTTP/1.1\n"+form+"Content-Length: 8\n\npage=two")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 17
	//
	// hello go, page 2
	// HTTP/1.1 400 Bad Request
	// X-Content-Type-Options: nosniff
	// Vary: Accept
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 49
	//
	// Bad Request: parameter "page" must be an integer
}

func ExampleCookie() {
	handler := func(c *filo.Ctx) error {
		if c.Request.Cookie("visited") == "yes" {
			return c.Text(200, "Welcome back!\n")
		}
		err := c.Response.SetCookie(&filo.Cookie{
			Name:     "visited",
			Value:    "yes",
			Path:     "/",
			MaxAge:   3600,
			HttpOnly: true,
			SameSite: filo.SameSiteLax,
		})
		if err != nil {
			return err
		}
		return c.Text(200, "Welcome!\n")
	}

	exampleAnswers(handler,
		"GET / HTTP/1.1\nHost: example.com\n\n",
		"GET / HTTP/1.1\nHost: example.com\nCookie: visited=yes\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Set-Cookie: visited=yes; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 9
	//
	// Welcome!
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 14
	//
	// Welcome back!
}

// A Key passes a value, with its type, from a middleware to the handlers inside of it.
func ExampleKey() {
	user := filo.NewKey[string]("user")
	withUser := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			user.Set(c, c.Request.Header.Get("X-User"))
			return next(c)
		}
	}
	handler := withUser(func(c *filo.Ctx) error {
		name, ok := user.Get(c)
		return c.Text(200, fmt.Sprintln(name, ok))
	})

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\nX-User: Ada\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 9
	//
	// Ada true
}

// With Offload, a handler that always waits runs outside of the event loops from its first call on. Without Offload, filo learns from
// measurements that the handler waits.
func ExampleOffload() {
	handler := filo.Offload(func(c *filo.Ctx) error {
		time.Sleep(10 * time.Millisecond) // a query, for example
		return c.NoContent()
	})

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 204 No Content
	// Server: filo
}

// An Inline handler, which must never wait, answers even when Server.Concurrency is reached.
func ExampleInline() {
	alive := filo.Inline(func(c *filo.Ctx) error { return c.NoContent() })

	exampleAnswers(alive, "GET /livez HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 204 No Content
	// Server: filo
}

// OnServing tells when a server is ready, and at which address.
func ExampleOnServing() {
	ctx, stop := context.WithCancel(context.Background())
	ctx = filo.OnServing(ctx, func(address net.Addr) {
		fmt.Println("serving", address.Network())
		stop() // this example ends here
	})
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.NoContent() }}
	fmt.Println("ended:", s.Run(ctx, "127.0.0.1:0"))
	// Output:
	// serving tcp
	// ended: <nil>
}

// Clients that offer HTTP/2 use it. If each host name has files of its own, or if the files change, use package certs.
func ExampleServer_ListenAndServeTLS() {
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "Hello over "+c.Request.Proto()+"\n") }}
	log.Fatal(s.ListenAndServeTLS(":8443", "cert.pem", "key.pem"))
}

// A proxy in front may speak HTTP/2 without TLS, on the same port as HTTP/1.1.
func ExampleHTTP2Options() {
	s := &filo.Server{
		Handler: func(c *filo.Ctx) error { return c.Text(200, c.Request.Proto()+"\n") },
		HTTP2: filo.HTTP2Options{
			Unencrypted:  true,
			PingInterval: 30 * time.Second, // finds a proxy that has vanished
		},
	}
	log.Fatal(s.ListenAndServe(":8080"))
}

// A balancer that passes TLS through sends each client's address by the PROXY protocol.
func ExampleProxyProtocol() {
	s := &filo.Server{
		Handler:       func(c *filo.Ctx) error { return c.Text(200, c.RemoteAddr().String()+"\n") },
		ProxyProtocol: filo.ProxyProtocol{TrustedPeers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	}
	log.Fatal(s.ListenAndServeTLS(":8443", "cert.pem", "key.pem"))
}

// Handlers can read what the proxy has sent about a connection: here the server name from the client's TLS handshake, and the proxy's own
// identifier, which helps to find the connection in the proxy's log.
func ExampleCtx_ProxyHeader() {
	s := &filo.Server{
		Handler: func(c *filo.Ctx) error {
			h, _ := c.ProxyHeader()
			_, byTLS := h.TLS()
			return c.Text(200, fmt.Sprintf("from %v to %v, host %q, id %q, TLS %t\n", h.Source(), h.Destination(), h.Authority(), h.UniqueID(), byTLS))
		},
		ProxyProtocol: filo.ProxyProtocol{TrustedPeers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	}
	log.Fatal(s.ListenAndServe(":8080"))
}

// This program logs the requests that have been handled for longer than a second.
func ExampleServer_Running() {
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "hello\n") }}
	go func() {
		for range time.Tick(10 * time.Second) {
			for _, request := range s.Running() {
				// RunningHandler: in its handler. RunningReading and RunningAnswering: it waits for its client. RunningQueued: it waits for a place.
				if request.Age > time.Second && request.State == filo.RunningHandler {
					slog.Warn("slow", "route", request.Route, "client", request.Client, "age", request.Age)
				}
			}
		}
	}()
	log.Fatal(s.ListenAndServe(":8080"))
}

// A connection is new, then alternately active and idle, and closed or hijacked in the end.
func ExampleConnState() {
	ended := make(chan struct{})
	s := &filo.Server{
		Handler: func(c *filo.Ctx) error { return c.NoContent() },
		ConnState: func(_ net.Conn, state filo.ConnState) {
			fmt.Println(state)
			if state == filo.StateClosed || state == filo.StateHijacked {
				close(ended)
			}
		},
	}
	client, server := servertest.Pipe()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	s.ServeConn(server)
	client.Close()
	<-ended
	// Output:
	// new
	// active
	// closed
}

// Handlers that wait for something other than their request return when the shutdown begins.
func ExampleServer_RegisterOnShutdown() {
	orders := make(chan int)
	s := &filo.Server{Handler: func(c *filo.Ctx) error {
		if order, ok := <-orders; ok {
			return c.Text(200, fmt.Sprintln("order", order))
		}
		return filo.Error(503, "the server is shutting down")
	}}
	s.RegisterOnShutdown(func() { close(orders) })
	listener := servertest.NewListener()
	go s.Serve(listener)
	client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	answered := make(chan string)
	go func() {
		answer, err := client.Get("http://filo.test/orders")
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		answered <- answer.Status
	}()
	for len(s.Running()) == 0 {
		time.Sleep(time.Millisecond) // until the request is being handled
	}

	err := s.Shutdown(context.Background())
	fmt.Println(<-answered, err)
	// Output: 503 Service Unavailable <nil>
}

// The errors of this API are problem details (RFC 9457) for each client that doesn't prefer text.
func ExampleProblemErrorHandler() {
	s := &filo.Server{
		Handler:      func(c *filo.Ctx) error { return filo.Error(404, "there is no user 7") },
		ErrorHandler: filo.ProblemErrorHandler,
	}
	defer s.Close()
	client, server := servertest.Pipe()
	io.WriteString(client, "GET /users/7 HTTP/1.1\r\nHost: example.com\r\n\r\n")
	client.CloseWrite()
	s.ServeConn(server)

	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		log.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.Header.Get("Content-Type"))
	fmt.Printf("%s\n", body)
	// Output:
	// application/problem+json
	// {"detail":"there is no user 7","status":404,"title":"Not Found"}
}

// The ErrorHandler gets a panic as an error that has the stack.
func ExamplePanicError() {
	s := &filo.Server{
		Handler: func(c *filo.Ctx) error { panic("out of cheese") },
		ErrorHandler: func(c *filo.Ctx, err error) {
			if panicked, ok := errors.AsType[*filo.PanicError](err); ok {
				fmt.Println("panic:", panicked.Value)
			}
			filo.DefaultErrorHandler(c, err)
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	defer s.Close()
	client, server := servertest.Pipe()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	client.CloseWrite()
	s.ServeConn(server)

	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status)
	// Output:
	// panic: out of cheese
	// 500 Internal Server Error
}

// A form's file is saved under a name that the server chooses. The directory holds everything that clients may write to.
func ExampleSaveFile() {
	path, err := os.MkdirTemp("", "uploads-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(path)
	uploads, err := os.OpenRoot(path)
	if err != nil {
		log.Fatal(err)
	}
	defer uploads.Close()
	handler := func(c *filo.Ctx) error {
		file, err := c.FormFile("picture")
		if err != nil {
			return err // 400 without such a file, 415 if it is no form, 413 if it is too large
		}
		if err := filo.SaveFile(file, uploads, "7.png"); err != nil {
			return err
		}
		return c.Text(201, fmt.Sprintln(file.Filename, "has", file.Size, "bytes"))
	}

	exampleAnswers(handler, "POST / HTTP/1.1\nHost: example.com\nContent-Length: 99\n"+
		"Content-Type: multipart/form-data; boundary=b\n\n"+
		"--b\nContent-Disposition: form-data; name=\"picture\"; filename=\"me.png\"\n\npixels\n--b--\n")
	saved, err := uploads.ReadFile("7.png")
	fmt.Println(string(saved), err)
	// Output:
	// HTTP/1.1 201 Created
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 19
	//
	// me.png has 6 bytes
	// pixels <nil>
}

// The parts of a large form are read as they arrive, and needn't fit into memory.
func ExampleRequest_MultipartReader() {
	handler := func(c *filo.Ctx) error {
		c.SetMaxBodyBytes(10 << 30)
		parts, err := c.Request.MultipartReader()
		if err != nil {
			return err
		}
		for {
			part, err := parts.NextPart()
			if err == io.EOF {
				return c.NoContent()
			}
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, part)
			if err != nil {
				return err
			}
			fmt.Println(part.FormName(), n)
		}
	}

	exampleAnswers(handler, "POST / HTTP/1.1\nHost: example.com\nContent-Length: 77\n"+
		"Content-Type: multipart/form-data; boundary=b\n\n"+
		"--b\nContent-Disposition: form-data; name=\"video\"\n\nframes\n--b--\n")
	// Output:
	// video 6
	// HTTP/1.1 204 No Content
	// Server: filo
}

// Package static serves directories. File and Attachment serve one file, whose name the client doesn't choose.
func ExampleCtx_Attachment() {
	report := filepath.Join(os.TempDir(), "filo-example-report.csv")
	if err := os.WriteFile(report, []byte("7,Ada\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(report)
	handler := func(c *filo.Ctx) error {
		if c.Query("save") == "" {
			return c.File(report)
		}
		return c.Attachment(report, "all users.csv")
	}
	s := &filo.Server{Handler: handler}
	defer s.Close()
	listener := servertest.NewListener()
	go s.Serve(listener)
	client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	answer, err := client.Get("http://filo.test/?save=1")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	fmt.Println(answer.Header.Get("Content-Disposition"))
	fmt.Printf("%q %v\n", body, err)
	// Output:
	// attachment; filename="all users.csv"
	// "7,Ada\n" <nil>
}

// The same URL serves people and programs.
func ExampleCtx_Negotiate() {
	handler := func(c *filo.Ctx) error {
		switch c.Negotiate("text/html", "application/json") {
		case "text/html":
			return c.HTML(200, "<p>7</p>\n")
		case "application/json":
			return c.JSON(200, 7)
		}
		return filo.Error(406, "")
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\nAccept: application/json, text/*;q=0.5\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Vary: Accept
	// Content-Type: application/json
	// Server: filo
	// Content-Length: 2
	//
	// 7
}

func ExampleCtx_Redirect() {
	handler := func(c *filo.Ctx) error { return c.Redirect(303, "/orders/7") } // after a POST, the client GETs that path

	exampleAnswers(handler, "POST /orders HTTP/1.1\nHost: example.com\nContent-Length: 0\n\n")
	// Output:
	// HTTP/1.1 303 See Other
	// Location: /orders/7
	// Server: filo
	// Content-Length: 0
}

// Reader sends the content of an io.Reader, such as an object of a store. The server reads it after the handler has returned, and then
// closes it.
func ExampleCtx_Reader() {
	handler := func(c *filo.Ctx) error {
		object := io.NopCloser(strings.NewReader("a large object\n"))
		return c.Reader(200, "application/octet-stream", object, 15)
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: application/octet-stream
	// Server: filo
	// Content-Length: 15
	//
	// a large object
}

// A record has the request's route, and what middleware has added, such as the ID of the request.
func ExampleCtx_Logger() {
	r := router.New()
	r.GET("/users/{id}", func(c *filo.Ctx) error {
		c.Logger().Info("found", "user", c.Param("id"))
		return c.NoContent()
	})
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // not the same each time
		}
		return a
	}
	s := &filo.Server{
		Handler: r.Serve,
		Logger:  slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	}
	defer s.Close()
	client, server := servertest.Pipe()
	io.WriteString(client, "GET /users/7 HTTP/1.1\r\nHost: example.com\r\n\r\n")
	client.CloseWrite()
	s.ServeConn(server)
	// Output: level=INFO msg=found route="GET /users/{id}" user=7
}

// pages renders the templates of html/template. Package templates also reads them from files, and again when they change.
type pages struct{ *template.Template }

func (p pages) Render(w io.Writer, name string, data any) error {
	return p.ExecuteTemplate(w, name, data)
}

func ExampleCtx_Render() {
	s := &filo.Server{
		Handler:  func(c *filo.Ctx) error { return c.Render(200, "hello", "<Ada>") },
		Renderer: pages{template.Must(template.New("hello").Parse("<p>Hello, {{.}}!\n"))},
	}
	defer s.Close()
	client, server := servertest.Pipe()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	client.CloseWrite()
	s.ServeConn(server)

	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		log.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	fmt.Print(string(body))
	// Output: <p>Hello, &lt;Ada&gt;!
}

// When GracePeriod was too short, the error says which requests were cut off.
func ExampleUnfinishedError() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // and syscall.SIGTERM
	defer stop()
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.NoContent() }, GracePeriod: 15 * time.Second}
	err := s.Run(ctx, ":8080")
	if unfinished, ok := errors.AsType[*filo.UnfinishedError](err); ok {
		for _, request := range unfinished.Running {
			slog.Warn("cut off", "route", request.Route, "age", request.Age)
		}
	}
}

// A handler may keep the parameters that Param returns.
func ExampleCtx_Param() {
	r := router.New()
	r.GET("/users/{id}", func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprintf("user %s by %s\n", c.Param("id"), c.Route()))
	})

	exampleAnswers(r.Serve, "GET /users/7 HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 26
	//
	// user 7 by GET /users/{id}
}

// The client gets a 503 in time, whatever the handler does. The handler's context ends at the same moment.
func ExampleCtx_SetTimeout() {
	handler := func(c *filo.Ctx) error {
		c.SetTimeout(10*time.Millisecond, nil)
		<-c.Context().Done() // as a database query with this context would
		return context.Cause(c.Context())
	}
	s := &filo.Server{Handler: handler}
	defer s.Close()
	listener := servertest.NewListener()
	go s.Serve(listener)
	client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	answer, err := client.Get("http://filo.test/")
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	fmt.Println(answer.Status)
	// Output: 503 Service Unavailable
}

// A parked connection has a protocol of its own and mostly waits. Its function is called when data has arrived.
func ExampleCtx_Park() {
	handler := func(c *filo.Ctx) error {
		_, err := c.Park("echo", func(p *filo.ParkedConn, wake filo.Wake) error {
			if wake == filo.WakeShutdown {
				return io.EOF
			}
			buffer := make([]byte, 512)
			n, err := p.Read(buffer)
			if err != nil {
				return err // io.EOF if the client has closed its sending side
			}
			_, err = p.Write(buffer[:n])
			return err
		})
		return err
	}

	s := &filo.Server{Handler: handler}
	defer s.Close()
	listener := servertest.NewListener()
	go s.Serve(listener)
	client, err := listener.Dial()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nechoed\n")
	received := bufio.NewReader(client)
	answer, err := http.ReadResponse(received, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status)
	line, err := received.ReadString('\n')
	fmt.Printf("%q %v\n", line, err)
	// Output:
	// 101 Switching Protocols
	// "echoed\n" <nil>
}

// Many clients get the same news, and no goroutine waits for any of them. Package sse offers this with event IDs, channels and replays.
func ExampleCtx_ParkStream() {
	listening := make(chan *filo.ParkedConn)
	handler := func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/event-stream")
		p, err := c.ParkStream(func(p *filo.ParkedConn, wake filo.Wake) error {
			_, err := p.Read(make([]byte, 1)) // clients of event streams send nothing, so the client has left, or the server is shutting down
			return err
		})
		if err == nil {
			listening <- p
		}
		return err
	}
	s := &filo.Server{Handler: handler}
	defer s.Close()
	listener := servertest.NewListener()
	go s.Serve(listener)
	client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	go func() {
		p := <-listening
		news := filo.NewPreparedMessage([]byte("data: it rains\n\n")) // for all clients
		if err := p.Queue(news); err != nil {
			p.Close() // filo.ErrQueueFull: a client that reads too slowly
		}
		p.End()
	}()
	answer, err := client.Get("http://filo.test/news")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	events, err := io.ReadAll(answer.Body)
	fmt.Printf("%q %v\n", events, err)
	// Output: "data: it rains\n\n" <nil>
}

// A field that many answers have is prepared once.
func ExampleNewField() {
	noStore := filo.NewField("Cache-Control", "no-store")
	handler := func(c *filo.Ctx) error {
		c.Response.Header.SetField(&noStore)
		return c.NoContent()
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 204 No Content
	// Cache-Control: no-store
	// Server: filo
}

// Lookup ignores the case of names. All yields the fields in order.
func ExampleHeader() {
	handler := func(c *filo.Ctx) error {
		h := &c.Request.Header
		fmt.Println(h.Get("accept-LANGUAGE"), h.Has("Cookie"))
		for name, value := range h.All() {
			fmt.Printf("%s: %s\n", name, value)
		}
		c.Response.Header.Add("Link", "</a.css>; rel=preload")
		c.Response.Header.Add("Link", "</b.css>; rel=preload")
		return c.NoContent()
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\nAccept-Language: de\n\n")
	// Output:
	// de false
	// Host: example.com
	// Accept-Language: de
	// HTTP/1.1 204 No Content
	// Link: </a.css>; rel=preload
	// Link: </b.css>; rel=preload
	// Server: filo
}

// upperCase wraps the writer of a body.
type upperCase struct{ body io.Writer }

func (u upperCase) Write(p []byte) (int, error) { return u.body.Write(bytes.ToUpper(p)) }
func (u upperCase) Close() error                { return nil }

// Middleware may change the body that the handler inside of it writes, whole or streamed.
func ExampleResponse_WrapBody() {
	shouting := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Response.WrapBody(func(c *filo.Ctx, body io.Writer, size int64) io.WriteCloser { return upperCase{body} })
			return next(c)
		}
	}
	handler := shouting(func(c *filo.Ctx) error { return c.Text(200, "hello\n") })

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 6
	//
	// HELLO
}

// Ctx.Text, Ctx.JSON and the like do all of this in one call. Middleware around the handler may still change the whole response.
func ExampleResponse() {
	handler := func(c *filo.Ctx) error {
		c.Response.SetStatus(201)
		c.Response.Header.Set("Content-Type", "text/csv")
		c.Response.Header.Set("Location", "/users/7")
		c.Response.SetBodyString("7,Ada\n")
		return nil
	}

	exampleAnswers(handler, "POST /users HTTP/1.1\nHost: example.com\nContent-Length: 0\n\n")
	// Output:
	// HTTP/1.1 201 Created
	// Content-Type: text/csv
	// Location: /users/7
	// Server: filo
	// Content-Length: 6
	//
	// 7,Ada
}

// An endless stream ends when the shutdown begins, so that the client reconnects to another server.
func ExampleCtx_ShuttingDown() {
	handler := func(c *filo.Ctx) error {
		news := make(chan string, 1)
		news <- "it rains"
		w := c.Stream()
		for {
			select {
			case text := <-news:
				fmt.Fprintln(w, text)
				if err := w.Flush(); err != nil {
					return err // the client is gone
				}
			case <-c.ShuttingDown():
				return nil
			}
		}
	}
	s := &filo.Server{Handler: handler}
	listener := servertest.NewListener()
	go s.Serve(listener)
	client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	answer, err := client.Get("http://filo.test/news")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	line, err := lines.ReadString('\n')
	fmt.Printf("%q %v\n", line, err)

	err = s.Shutdown(context.Background())
	_, end := lines.ReadString('\n')
	fmt.Println(err, end)
	// Output:
	// "it rains\n" <nil>
	// <nil> EOF
}

// Middleware around a router sees the final answer after it has called RenderError. In middleware of the router itself, errors are rendered
// already.
func ExampleCtx_RenderError() {
	counted := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			if err != nil {
				err = c.RenderError(err)
			}
			fmt.Println("status", c.Status())
			return err
		}
	}
	handler := counted(func(c *filo.Ctx) error { return filo.Error(404, "") })

	exampleAnswers(handler, "HEAD / HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// status 404
	// HTTP/1.1 404 Not Found
	// X-Content-Type-Options: nosniff
	// Vary: Accept
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 10
}

// Old paths are replaced by new ones before a router looks at them.
func ExampleRequest_SetTarget() {
	serve := func(c *filo.Ctx) error { return c.Text(200, c.Path()+" with q="+c.Query("q")) }
	handler := func(c *filo.Ctx) error {
		if rest, ok := strings.CutPrefix(c.Request.Target(), "/old/"); ok {
			if err := c.Request.SetTarget("/new/" + rest); err != nil {
				return err
			}
		}
		return serve(c)
	}

	exampleAnswers(handler, "GET /old/a%20b?q=1 HTTP/1.1\nHost: example.com\n\n")
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Server: filo
	// Content-Length: 17
	//
	// /new/a b with q=1
}
