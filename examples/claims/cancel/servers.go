package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/valyala/fasthttp"
)

// server is a server whose handler calls job, with the handler's context and the client's number.
type server struct {
	name  string
	serve func(l net.Listener, job func(ctx context.Context, client string) error) (stop func())
}

// servers are the servers to compare; filo is the first.
var servers = []server{{"filo", serveFilo}, {"net/http", serveNetHTTP}, {"fasthttp", serveFasthttp}}

func serveFilo(l net.Listener, job func(context.Context, string) error) (stop func()) {
	s := &filo.Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
		if err := job(c.Context(), c.Query("client")); err != nil {
			return err
		}
		return c.Text(200, "done\n")
	}}
	go s.Serve(l)
	return func() { s.Close() }
}

func serveNetHTTP(l net.Listener, job func(context.Context, string) error) (stop func()) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if job(r.Context(), r.URL.Query().Get("client")) == nil {
			io.WriteString(w, "done\n")
		}
	})}
	go s.Serve(l)
	return func() { s.Close() }
}

func serveFasthttp(l net.Listener, job func(context.Context, string) error) (stop func()) {
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		if job(ctx, string(ctx.QueryArgs().Peek("client"))) == nil { // a *fasthttp.RequestCtx is a context.Context
			ctx.WriteString("done\n")
		}
	}}
	go s.Serve(l)
	return func() { s.Shutdown() }
}
