package filo_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/filohttp/filo"
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

// A process that is told to end finishes what it has begun.
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

// A program that ends with its server. The first signal begins the shutdown, and a second one ends the process at once.
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
			return err // 413 if it is too large, 408 if it comes too slowly, 400 if it is cut off
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

// A body of any size is read as it comes, in constant memory.
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

// Each Flush sends what was written, and its error says when the client is gone.
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

// A handler that works for long ends when nobody waits for its answer any more.
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

// After Upgrade the connection speaks another protocol. The handler reads first what the client had already sent behind its request.
func ExampleCtx_Upgrade() {
	handler := func(c *filo.Ctx) error {
		conn, buffered, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write(buffered); err != nil {
			return nil // nobody to tell
		}
		_, err = io.Copy(conn, conn)
		return err
	}

	exampleAnswers(handler, "GET / HTTP/1.1\nHost: example.com\nConnection: Upgrade\nUpgrade: echo\n\n", "echoed")
	// Output:
	// HTTP/1.1 101 Switching Protocols
	// Upgrade: echo
	// Connection: Upgrade
	//
	// echoed
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

// A browser learns of a style sheet while the page is still being made.
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
