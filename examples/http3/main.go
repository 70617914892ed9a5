// Command http3 serves the same page over HTTP/1.1, HTTP/2 and HTTP/3 on one port number: the first two over TCP, HTTP/3 over UDP.
//
//	go run ./http3                           # https://localhost:8443
//	curl -k --http3 https://localhost:8443/  # if curl has HTTP/3
package main

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/filohttp/filo"
	http3filo "github.com/filohttp/filo/contrib/http3"
	"github.com/filohttp/filo/examples/internal/program"
	"github.com/filohttp/filo/examples/internal/selfsigned"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/sse"
)

func main() { program.Main("http3", run) }

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("http3", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8443", "`address` to listen on, by TCP and by UDP")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	certificate, err := selfsigned.Certificate() // if the user accepts this certificate, a browser still doesn't use HTTP/3: see README.md
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on https://%s\n", listener.Addr())
	return serve(ctx, newServer(listener.Addr().(*net.TCPAddr).Port, certificate), listener)
}

// serve serves over TCP, and over UDP on the same port, until ctx ends and the last clients of both transports have left.
func serve(ctx context.Context, server *filo.Server, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- http3filo.ListenAndServe(server, listener.Addr().String())
		cancel() // if HTTP/3 can't be served, for example because the port is taken, stop serving TCP as well
	}()
	err := server.RunListenerTLS(ctx, listener, "", "")
	if failed := <-served; !errors.Is(failed, filo.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

// newServer returns the server. port is the UDP port on which it tells browsers to use HTTP/3.
func newServer(port int, certificate tls.Certificate) *filo.Server {
	r := router.New()
	r.Use(http3filo.AltSvc(port), middleware.AccessLog())
	r.GET("/{$}", page)
	r.GET("/tiles/{n}", tile)
	r.GET("/events", events)
	r.POST("/upload", upload)
	return &filo.Server{Handler: r.Serve, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, MaxBodyBytes: 1 << 30}
}

//go:embed page.html
var pageHTML []byte

func page(c *filo.Ctx) error {
	return c.BytesNoCopy(200, "text/html; charset=utf-8", pageHTML)
}

// tile answers with one of the page's 200 images, whose colour shows the protocol of its request.
func tile(c *filo.Ctx) error {
	colour := map[string]string{"HTTP/3.0": "seagreen", "HTTP/2.0": "goldenrod"}[c.Request.Proto()]
	if colour == "" {
		colour = "firebrick"
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	return c.Bytes(200, "image/svg+xml", fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16"><rect width="16" height="16" fill="%s"/></svg>`, colour))
}

// events sends the protocol and a count every second.
func events(c *filo.Ctx) error {
	stream, err := sse.Open(c)
	if err != nil {
		return err
	}
	defer stream.Close()
	for n := 1; ; n++ {
		if err := stream.Send(sse.Event{Data: fmt.Sprint(n, " by ", c.Request.Proto())}); err != nil {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-stream.Context().Done():
			return nil
		case <-c.ShuttingDown():
			return nil
		}
	}
}

// upload counts the bytes of the body as they arrive.
func upload(c *filo.Ctx) error {
	n, err := io.Copy(io.Discard, c.BodyReader())
	if err != nil {
		return err
	}
	return c.Text(200, strconv.FormatInt(n, 10)+" bytes by "+c.Request.Proto())
}
